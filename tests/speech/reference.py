"""Contrastive predictive coding of sound in plain PyTorch: loops and textbook formulas.

Nothing of the library is used here; weights come as tensors with the names of the published parts.
"""

import torch
from torch.nn import functional as F


def encode(x, w):
    """x (B, S) -> (B, T, C): five convolutions, channel normalisation, ReLU."""
    h = x[:, None]
    for i, (stride, padding) in enumerate(zip((5, 4, 2, 2, 2), (3, 2, 1, 1, 1), strict=True)):
        h = F.conv1d(h, w[f"conv{i}.weight"], w[f"conv{i}.bias"], stride, padding)
        mean = h.sum(1, keepdim=True) / h.shape[1]
        variance = (h - mean).pow(2).sum(1, keepdim=True) / (h.shape[1] - 1)
        h = (h - mean) / (variance + 1e-5).sqrt()
        h = (h * w[f"norm{i}.weight"].view(1, -1, 1) + w[f"norm{i}.bias"].view(1, -1, 1)).clamp(
            min=0
        )
    return h.transpose(1, 2)


def lstm(z, w):
    """The recurrence written out; gates stand in torch's order i, f, g, o."""
    h = c = z.new_zeros(len(z), w["hh"].shape[1])
    out = []
    for t in range(z.shape[1]):
        gates = z[:, t] @ w["ih"].T + w["bih"] + h @ w["hh"].T + w["bhh"]
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        out.append(h)
    return torch.stack(out, 1)


def gru(z, w):
    """The recurrence written out; gates stand in torch's order r, z, n."""
    h = z.new_zeros(len(z), w["hh"].shape[1])
    out = []
    for t in range(z.shape[1]):
        a, b = z[:, t] @ w["ih"].T + w["bih"], h @ w["hh"].T + w["bhh"]
        (ar, az, an), (br, bz, bn) = a.chunk(3, 1), b.chunk(3, 1)
        r, u = torch.sigmoid(ar + br), torch.sigmoid(az + bz)
        n = torch.tanh(an + r * bn)
        h = (1 - u) * n + u * h
        out.append(h)
    return torch.stack(out, 1)


def transformer(x, w, heads):
    """One causal layer with learned relative positions, without dropout, head by head."""
    t, width = x.shape[1:]
    d = width // heads
    q = x @ w["q"].T + w["qb"]
    k = x @ w["k"].T + w["kb"]
    v = x @ w["v"].T + w["vb"]
    # Key s of query i has the distance i - s; keys that come later are not seen.
    distance = torch.tensor([[max(i - s, 0) for s in range(t)] for i in range(t)])
    later = torch.tensor([[s > i for s in range(t)] for i in range(t)])
    seen = []
    for h in range(heads):
        at = slice(h * d, (h + 1) * d)
        relative = w["relative"][distance][:, :, at]
        logits = torch.einsum("nid,nsd->nis", q[:, :, at], k[:, :, at])
        logits = (logits + torch.einsum("nid,isd->nis", q[:, :, at], relative)) / d**0.5
        weights = logits.masked_fill(later, -1e9).softmax(2)
        seen.append(weights @ v[:, :, at])
    x = norm(x + torch.cat(seen, 2) @ w["join"].T + w["joinb"], w["n1"], w["n1b"])
    hidden = (x @ w["f1"].T + w["f1b"]).clamp(min=0)
    return norm(x + hidden @ w["f2"].T + w["f2b"], w["n2"], w["n2b"])


def norm(x, weight, bias):
    mean = x.mean(2, keepdim=True)
    variance = (x - mean).pow(2).mean(2, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


def candidates(predictions, z, k, negatives, scale):
    """u (B, A) and v (B, A, N): the scores of the positive and of each negative.

    negatives (B, A, N) number the frames of the batch, sequence after sequence.
    """
    anchors = predictions.shape[1]
    positive = z[:, k : k + anchors]
    pool = z.reshape(-1, z.shape[2])
    u = (predictions * positive).sum(2) / scale
    v = torch.stack([
        (predictions[:, t, None] * pool[negatives[:, t]]).sum(2) / scale for t in range(anchors)
    ], 1)  # fmt: skip
    return u, v


def cpc_loss(pairs):
    """Cross-entropy over the positive and its negatives, mean over anchors, summed over k."""
    total = 0.0
    for u, v in pairs:
        logits = torch.cat([u[..., None], v], 2).reshape(-1, v.shape[2] + 1)
        total = total + F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
    return total


def rpc_loss(pairs, a, b, g):
    """-sum over k of mean[u - b/2 u^2] - mean[a v + g/2 v^2]."""
    total = 0.0
    for u, v in pairs:
        total = total - ((u - b / 2 * u**2).mean() - (a * v + g / 2 * v**2).mean())
    return total


class Adam:
    """The update of Kingma and Ba, written out."""

    def __init__(self, weights, rate):
        self.weights, self.rate, self.t = weights, rate, 0
        self.m = [torch.zeros_like(w) for w in weights]
        self.v = [torch.zeros_like(w) for w in weights]

    @torch.no_grad()
    def step(self, gradients):
        self.t += 1
        for w, g, m, v in zip(self.weights, gradients, self.m, self.v, strict=True):
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g * g)
            mean, square = m / (1 - 0.9**self.t), v / (1 - 0.999**self.t)
            w.sub_(self.rate * mean / (square.sqrt() + 1e-8))
