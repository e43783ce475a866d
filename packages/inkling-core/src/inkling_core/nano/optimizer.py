"""Muon for matrices and AdamW for the rest, with state that is plain tensors by name.

What it is: two update rules over a dict of named parameters. State lives in a flat dict, so that a
training state is one safetensors file.
What it is not: the choice of learning rates by step (schedule.py).

Muon: the momentum matrix M is replaced by an approximation of U V^T (M = U S V^T), by five steps of
X <- a X + (b A + c A^2) X with A = X X^T, batched over all matrices of equal shape.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

MOMENTUM = 0.95
ADAM_BETAS = (0.9, 0.95)
ADAM_EPS = 1e-8
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # the quintic's published values
MUON_PARTS = (".wq_du.", ".wk_dv.", ".wv_dv.", ".wr_du.", ".wo_ud.", ".w13_dn.", ".w2_md.")
MUON_EXPERTS = ("w13_weight", "w2_weight")


def uses_muon(name: str) -> bool:
    """True for projection matrices and experts, by raw name."""
    return any(part in name for part in MUON_PARTS) or name.endswith(MUON_EXPERTS)


def orthogonal(momentum: Tensor) -> Tensor:
    """Approximate U V^T of each matrix of a batch [n, rows, columns], in bfloat16."""
    a, b, c = COEFFICIENTS
    x = momentum.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(momentum.dtype)


class Optimizer:
    """Updates `weights` in place from their `.grad`; weights without a gradient stay."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = weights
        self.state: dict[str, Tensor] = {}
        self.groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
        self.adam: list[str] = []
        for name, weight in weights.items():
            if not weight.requires_grad:
                continue
            self.state[f"first.{name}"] = torch.zeros_like(weight)
            if uses_muon(name):
                self.groups[weight.shape[-2:]].append(name)
            else:
                self.state[f"second.{name}"] = torch.zeros_like(weight)
                self.adam.append(name)

    @torch.no_grad()
    def step(self, number: int, muon_lr: float, adam_lr: float, clip: float = 1.0) -> float:
        """One update; `number` counts from 1. Returns the gradient norm before clipping."""
        gradients = {n: w.grad for n, w in self.weights.items() if w.grad is not None}
        norm = torch.nn.utils.get_total_norm(gradients.values())
        torch._foreach_mul_(list(gradients.values()), float(torch.clamp(clip / norm, max=1.0)))
        for names in self.groups.values():
            self._muon(names, gradients, muon_lr)
        self._adam(gradients, number, adam_lr)
        return float(norm)

    def _muon(self, names: list[str], gradients: dict[str, Tensor], lr: float) -> None:
        updates = []
        for name in names:
            first = self.state[f"first.{name}"]
            first.lerp_(gradients[name], 1 - MOMENTUM)
            update = gradients[name].lerp(first, MOMENTUM)  # Nesterov
            updates.append(update.reshape(-1, *update.shape[-2:]))
        directions = orthogonal(torch.cat(updates))
        rows, columns = directions.shape[-2:]
        scale = lr * max(1.0, rows / columns) ** 0.5
        for name, part in zip(names, directions.split([len(u) for u in updates]), strict=True):
            self.weights[name].sub_(part.view_as(self.weights[name]), alpha=scale)

    def _adam(self, gradients: dict[str, Tensor], number: int, lr: float) -> None:
        grads = [gradients[name] for name in self.adam]
        firsts = [self.state[f"first.{name}"] for name in self.adam]
        seconds = [self.state[f"second.{name}"] for name in self.adam]
        b1, b2 = ADAM_BETAS
        torch._foreach_lerp_(firsts, grads, 1 - b1)
        torch._foreach_mul_(seconds, b2)
        torch._foreach_addcmul_(seconds, grads, grads, 1 - b2)
        denominators = torch._foreach_div(seconds, 1 - b2**number)
        torch._foreach_sqrt_(denominators)
        torch._foreach_add_(denominators, ADAM_EPS)
        weights = [self.weights[name] for name in self.adam]
        torch._foreach_addcdiv_(weights, firsts, denominators, -lr / (1 - b1**number))
