"""The slow and obvious truth: double loops in float64, from the definitions and nothing else."""

import math

import torch


def pairs(pairing, n, ids=None, bank=None, k=None, mask=None, negative_ids=None):
    """(positives, negatives): lists of (side, i, j) by anchor, straight from the definitions.

    A positive is (anchor, partner); negatives are lists per anchor. Sides: "xy" scores
    f(x_i, y_j), "yx" scores f(x_j, y_i) with y_i the anchor, "zz" f(z_i, z_j) of the 2N rows.
    """
    own = list(range(n)) if ids is None else [int(i) for i in ids]
    own = [i if i >= 0 else -1000 - at for at, i in enumerate(own)]
    if pairing == "two_view":
        own = own + own
        partner = [(i + n) % (2 * n) for i in range(2 * n)]
        positives = [("zz", i, partner[i]) for i in range(2 * n)]
        negatives = [[("zz", i, j) for j in range(2 * n) if own[j] != own[i]] for i in range(2 * n)]
        return positives, negatives
    if pairing in ("in_batch", "in_batch_symmetric"):
        positives = [("xy", i, i) for i in range(n)]
        negatives = [[("xy", i, j) for j in range(n) if own[j] != own[i]] for i in range(n)]
        if pairing == "in_batch_symmetric":
            positives += [("xy", i, i) for i in range(n)]
            negatives += [[("xy", j, i) for j in range(n) if own[j] != own[i]] for i in range(n)]
        return positives, negatives
    kind, m = ("bank", bank) if bank is not None else ("own", k)
    positives = [("xy", i, i) for i in range(n)]
    negatives = []
    for i in range(n):
        row = []
        for j in range(m):
            if mask is not None and not bool(mask[i][j]):
                continue
            if negative_ids is not None:
                other = negative_ids[j] if kind == "bank" else negative_ids[i][j]
                if int(other) == own[i]:
                    continue
            row.append((kind, i, j))
        negatives.append(row)
    return positives, negatives


def score_lists(critic, x, y, extra, positives, negatives):
    """Scores of the listed pairs, one critic call per pair."""
    z = torch.cat([x, y]) if x.shape == y.shape else None

    def score(side, i, j):
        if side == "zz":
            return critic(z[i : i + 1], z[j : j + 1])[0]
        if side == "xy":
            return critic(x[i : i + 1], y[j : j + 1])[0]
        candidate = extra[j] if side == "bank" else extra[i, j]
        return critic(x[i : i + 1], candidate[None])[0]

    return [score(*p) for p in positives], [[score(*p) for p in row] for row in negatives]


def objective(name, positives, negatives, alpha=1.0, beta=0.005, gamma=1.0):
    """J by the definitions, loop by loop, from lists of scalar scores."""
    every = [f for row in negatives for f in row]
    n, m = len(positives), len(every)
    if name in ("cpc", "wpc", "logistic", "hinge"):
        total, anchors = 0.0, 0
        for f, row in zip(positives, negatives, strict=True):
            if not row:
                continue
            anchors += 1
            if name == "hinge":
                total = total - torch.relu(1 + torch.stack(row).max() - f)
                continue
            partition = torch.exp(f) + sum(torch.exp(g) for g in row)
            if name == "logistic":
                total = total - torch.log2(partition / torch.exp(f))
            else:
                total = total + f - torch.log(partition / (1 + len(row)))
        return total / anchors
    if name == "dv":
        return sum(positives) / n - torch.log(sum(torch.exp(g) for g in every) / m)
    if name == "nwj":
        return sum(positives) / n - sum(torch.exp(g - 1) for g in every) / m
    if name == "js":
        return (
            -sum(torch.log1p(torch.exp(-f)) for f in positives) / n
            - sum(torch.log1p(torch.exp(g)) for g in every) / m
        )
    if name == "chi2":
        alpha, beta, gamma = 0.0, 0.0, 1.0
    assert name in ("rpc", "chi2"), name
    return (
        sum(positives) / n
        - alpha * sum(every) / m
        - beta / 2 * sum(f * f for f in positives) / n
        - gamma / 2 * sum(g * g for g in every) / m
    )


def loss(name, positives, negatives, **parameters):
    """-J, or log K - J for the cross-entropies."""
    value = -objective(name, positives, negatives, **parameters)
    if name in ("cpc", "wpc"):
        counts = [len(row) for row in negatives if row]
        value = value + sum(math.log(1 + c) for c in counts) / len(counts)
    return value
