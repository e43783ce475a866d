"""Sigmoid routing in one launch; law: `inkling_core.ops.router`.

Not the experts. A program scores all experts for some tokens in float32, then takes the best K one
after the other: the maximum of score + bias, and among equals the lowest index.
"""

# Kernel bodies are Triton's language, which Python's types do not describe.
# pyright: reportCallIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_cuda_ref.storage import device, launch, power_of_2, stored, tile
from inkling_cuda_ref.tile_math import sigmoid


@device
def _gate_logits(
    x_ptr,
    weight_ptr,
    token,
    packed,
    expert,
    num_rows,
    width,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """float32 `[TOKENS, EXPERTS]` logits of routed and shared experts."""
    acc = tl.full((TOKENS, EXPERTS), 0.0, tl.float32)
    for first in range(0, width, DEPTH):
        d = first + tl.arange(0, DEPTH)
        inside = packed[:, None] & (d < width)[None, :]
        x = tl.load(x_ptr + token[:, None] * width + d[None, :], mask=inside, other=0.0)
        known = (expert < num_rows)[None, :] & (d < width)[:, None]
        gate = tl.load(weight_ptr + expert[None, :] * width + d[:, None], mask=known, other=0.0)
        acc += tl.dot(x.to(tl.float32), gate.to(tl.float32), input_precision="ieee")
    return acc


@triton.jit
def _router_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    global_scale_ptr,
    ids_ptr,
    weights_ptr,
    gamma_ptr,
    num_tokens,
    num_routed,
    width,
    route_scale,
    CHOSEN: tl.constexpr,
    SHARED: tl.constexpr,
    SINK: tl.constexpr,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
    DEPTH: tl.constexpr,
    WIDE: tl.constexpr,
):
    dtype: tl.constexpr = weights_ptr.dtype.element_ty
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    packed, expert = token < num_tokens, tl.arange(0, EXPERTS)
    logits = _gate_logits(
        x_ptr, weight_ptr, token, packed, expert, num_routed + SHARED, width, TOKENS, EXPERTS, DEPTH
    )
    bias = tl.load(bias_ptr + expert, mask=expert < num_routed, other=0.0).to(tl.float32)
    choice = sigmoid(logits) + bias[None, :]
    # as a descending sort has it: NaN first, then by value; shared experts are not to be chosen
    choice = tl.where(choice == choice, choice, float("inf"))
    choice = tl.where((expert < num_routed)[None, :], choice, float("-inf"))
    sink = tl.arange(0, SINK)
    picked = tl.full((TOKENS, SINK), float("-inf"), tl.float32)
    for k in tl.static_range(CHOSEN):
        best = choice == tl.max(choice, axis=1)[:, None]
        lowest = tl.min(tl.where(best, expert[None, :], EXPERTS), axis=1)
        tl.store(ids_ptr + token * CHOSEN + k, lowest.to(tl.int64), mask=packed)
        this = expert[None, :] == lowest[:, None]
        logit = tl.sum(tl.where(this, logits, 0.0), axis=1)
        picked = tl.where((sink == k)[None, :], logit[:, None], picked)
        choice = tl.where(this, float("-inf"), choice)
    for s in tl.static_range(SHARED):
        this = (expert == num_routed + s)[None, :]
        logit = tl.sum(tl.where(this, logits, 0.0), axis=1)
        picked = tl.where((sink == CHOSEN + s)[None, :], logit[:, None], picked)
    log = tl.minimum(picked, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(picked)))
    top = tl.max(log, axis=1)[:, None]
    total = tl.log(tl.sum(tl.exp(log - top), axis=1))[:, None] + top
    weight = tl.exp(log - total) * route_scale * tl.load(global_scale_ptr).to(tl.float32)
    weight = stored(weight, dtype, WIDE)
    routed = packed[:, None] & (sink < CHOSEN)[None, :]
    tl.store(weights_ptr + token[:, None] * CHOSEN + sink[None, :], weight, mask=routed)
    shared = packed[:, None] & ((sink >= CHOSEN) & (sink < CHOSEN + SHARED))[None, :]
    tl.store(gamma_ptr + token[:, None] * SHARED + sink[None, :] - CHOSEN, weight, mask=shared)


def router(
    x_TD: Tensor,
    weight_ED: Tensor,
    bias_E: Tensor,
    global_scale: Tensor,
    num_chosen: int,
    num_shared: int,
    route_scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `inkling_core.ops.router`: same arguments, same result."""
    num_tokens, width = x_TD.shape
    num_routed = weight_ED.shape[0] - num_shared
    ids_TK = torch.empty(num_tokens, num_chosen, dtype=torch.int64, device=x_TD.device)
    weights_TK = x_TD.new_empty(num_tokens, num_chosen)
    gamma_TS = x_TD.new_empty(num_tokens, num_shared)
    tokens = max(16, tile(num_tokens, 16, 1024))
    launch(
        _router_kernel, (triton.cdiv(num_tokens, tokens),), x_TD.contiguous(),
        weight_ED.contiguous(), bias_E, global_scale, ids_TK, weights_TK, gamma_TS,
        num_tokens, num_routed, width, route_scale, CHOSEN=num_chosen, SHARED=num_shared,
        SINK=power_of_2(num_chosen + num_shared), TOKENS=tokens,
        EXPERTS=power_of_2(num_routed + num_shared, 16), DEPTH=max(16, tile(width, 32, 4096)),
    )  # fmt: skip
    return ids_TK, weights_TK, gamma_TS
