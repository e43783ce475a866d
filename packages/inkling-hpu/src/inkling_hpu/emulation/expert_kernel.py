"""`torch.ops.hpu.mixture_of_experts`: all experts of a rank in one call.

    y[t] = sum_k weights[t, k] * w3[e] @ (act(gate) * up)
    [gate; up] = w12[e] @ x[t],   e = ids[t, k]

Layout: `w12` holds gate rows first, then up rows (concatenated, not interleaved). Experts outside
experts_min..experts_max belong to other ranks and add nothing.

What it is not: the kernel's rounding (here: products in the model's dtype, the sum in float32), nor
its quantised or biased forms.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu}
SCHEMA = (
    "mixture_of_experts(Tensor hidden_states, Tensor expert_routing_table, Tensor router_weights, "
    "Tensor[] w12, Tensor[] w3, bool permuted_weights, str activation, int experts_min, "
    "int experts_max, int chunk_size=0, int total_experts=0) -> Tensor"
)
_LIBRARY: list[torch.library.Library] = []  # a registration lives as long as its library


def register() -> None:
    """Define the op for CPU and meta tensors."""
    if _LIBRARY:
        return
    library = torch.library.Library("hpu", "FRAGMENT")
    library.define(SCHEMA)
    library.impl("mixture_of_experts", mixture_of_experts, "CPU")
    library.impl("mixture_of_experts", lambda hidden, *_, **__: torch.empty_like(hidden), "Meta")
    _LIBRARY.append(library)


def mixture_of_experts(
    hidden_states: Tensor,
    expert_routing_table: Tensor,
    router_weights: Tensor,
    w12: list[Tensor],
    w3: list[Tensor],
    permuted_weights: bool,
    activation: str,
    experts_min: int,
    experts_max: int,
    chunk_size: int = 0,
    total_experts: int = 0,
) -> Tensor:
    """Weighted sum of each token's experts that live on this rank.

    Args:
        hidden_states: [T, D]; expert_routing_table: [T, K] int64 ids over all ranks;
        router_weights: [T, K] in the dtype of hidden_states.
        w12: per local expert [2I, D], gate rows first; w3: per local expert [D, I].
        experts_min, experts_max: first and last id of this rank.
        chunk_size, total_experts: tuning of the real kernel.

    Returns: [T, D]. Raises ValueError for arguments that the kernel's compiler refuses.
    """
    _check(hidden_states, expert_routing_table, router_weights, w12, w3, experts_min, experts_max)
    if activation not in ACTIVATIONS or not permuted_weights:
        raise ValueError(
            f"mixture_of_experts: activation={activation!r}, permuted_weights={permuted_weights}: "
            f"the kernel knows {', '.join(ACTIVATIONS)} on permuted weights"
        )
    out = torch.zeros_like(hidden_states, dtype=torch.float32)
    for expert, (up, down) in enumerate(zip(w12, w3, strict=True), start=experts_min):
        token, choice = torch.where(expert_routing_table == expert)
        if token.numel():
            gate_half, up_half = F.linear(hidden_states[token], up).chunk(2, dim=-1)
            hidden = F.linear(ACTIVATIONS[activation](gate_half) * up_half, down)
            out.index_add_(0, token, (hidden * router_weights[token, choice, None]).float())
    return out.to(hidden_states.dtype)


def _check(
    hidden: Tensor,
    ids: Tensor,
    weights: Tensor,
    w12: list[Tensor],
    w3: list[Tensor],
    first: int,
    last: int,
) -> None:
    problems = []
    if ids.dtype != torch.int64:
        problems.append(f"expert_routing_table is {ids.dtype}, not torch.int64")
    if weights.dtype != hidden.dtype:
        problems.append(f"router_weights is {weights.dtype}, hidden_states {hidden.dtype}")
    if not len(w12) == len(w3) == last - first + 1:
        problems.append(f"{len(w12)} w12 and {len(w3)} w3 for experts {first}..{last}")
    if ids.numel() and int(ids.min()) < 0:
        problems.append(f"expert id {int(ids.min())} is negative")
    if problems:
        raise ValueError("mixture_of_experts: " + "; ".join(problems))
