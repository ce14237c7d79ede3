"""Products and sums over rows: derivatives of first and second order against finite differences."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from relatum.products import linear, matmul, row_sums


@pytest.mark.parametrize("norms", [False, True])
def test_row_sums(norms):
    u = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    found = row_sums(u, norms)
    rows = [row.detach() for row in u]
    truth = [sum(rows), sum(torch.outer(r, r) for r in rows)]
    if norms:
        truth += [sum(r @ r for r in rows), sum((r @ r) ** 2 for r in rows)]
    for a, b in zip(found, truth, strict=True):
        torch.testing.assert_close(a.detach(), b)
    count = len(truth)
    for used in itertools.product([False, True], repeat=count):
        if any(used):  # any of the sums may be without a gradient

            def some(u, used=used):
                return tuple(
                    s for s, wanted in zip(row_sums(u, norms), used, strict=True) if wanted
                )

            assert gradcheck(some, (u,)) and gradgradcheck(some, (u,))


def test_products():
    a, b = torch.randn(2, 4, 3, dtype=torch.float64), torch.randn(2, 3, 5, dtype=torch.float64)
    a, b = a.requires_grad_(), b.requires_grad_()
    torch.testing.assert_close(matmul(a, b), torch.einsum("bnd,bdm->bnm", a, b))
    assert gradcheck(matmul, (a, b)) and gradgradcheck(matmul, (a, b))
    weight = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(linear(a, weight, bias), torch.nn.functional.linear(a, weight, bias))
    assert gradcheck(linear, (a, weight, bias)) and gradgradcheck(linear, (a, weight, bias))
