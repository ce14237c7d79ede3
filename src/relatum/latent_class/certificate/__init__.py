"""The transfer certificate: what there is to say of one encoder, in one object.

``certify`` reads the input (``inputs``) and goes one of two ways: ``labelled`` (the whole
waterfall: ``lines``, ``negatives``, ``few_shot``) or ``paired`` (``pairs``). Both certify by
triplets without a common row (``value``), say what they rest on (``trust``), what to change
(``advice``) and how the embeddings look (``diagnostics``). The result (``result``, made of
``records``) is written by ``text`` and drawn by ``drawing``, in the words of ``meanings``.
"""

from .certify import certify
from .few_shot import few_shot_curve
from .records import CertificateLine, FewShot, PairCost
from .result import TransferCertificate

__all__ = [
    "CertificateLine",
    "FewShot",
    "PairCost",
    "TransferCertificate",
    "certify",
    "few_shot_curve",
]
