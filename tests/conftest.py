"""Shapes and types of the core are checked by jaxtyping and beartype in every test."""

from pathlib import Path

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook(
    ["relatum.base", "relatum.critics", "relatum.losses", "relatum.objectives", "relatum.relative",
     "relatum.scores", "relatum.surrogates"],
    "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))",
)  # fmt: skip

# How long an example takes says more of the machine than of the code.
settings.register_profile("relatum", deadline=None)
settings.load_profile("relatum")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same random state."""
    torch.manual_seed(0)


@pytest.fixture
def shared_data() -> Path:
    """The data folder beside the checkout; the test is skipped where there is none."""
    if not SHARED.is_dir():
        pytest.skip("no shared data folder beside the checkout")
    return SHARED
