"""The fast forward of training: whole rows of equal length, no caches, gradients.

What it is: the equations of inkling_core.model on padded batches [B, L], arranged for speed: window
layers attend block by block, global layers in query blocks, all experts are computed and weighted
(a chosen expert costs less than a gather at this size).
What it is not: the definition of the model. inkling_core.model.Decoder is that, and a test holds
this forward to it on the shipped checkpoint.

Relative bias without a gather. For a query block of Q tokens and extent E, row i of the bias has
the entry of distance d at column E + i - d of the Q + E keys that end with the block. With entries
in order of falling distance that is row i's columns i+1 .. i+E: a view of the bias with row stride
one longer than its row, into which the entries are copied.

Legend: B rows, L row length, D hidden, N query heads, G kv heads, H head dim, E extent, Q block.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from inkling_core.nano.geometry import NANO

GLOBAL_BLOCK = 256
FUSABLE = ("rms_norm", "short_conv", "silu_and_mul")
Weights = dict[str, Tensor]


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x / rms(x) in float32, cast, then times weight."""
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + NANO.rms_norm_eps)
    return (wide * scale).to(x.dtype) * weight


def short_conv(x_BLC: Tensor, weight_C1W: Tensor) -> Tensor:
    """x plus its causal depthwise convolution over L; the last tap is the current token."""
    taps_WC = weight_C1W.squeeze(1).t()
    padded = F.pad(x_BLC, (0, 0, NANO.conv_kernel_size - 1, 0))
    length = x_BLC.shape[1]
    y = x_BLC * (1 + taps_WC[-1])
    for tap in range(NANO.conv_kernel_size - 1):
        y = torch.addcmul(y, padded[:, tap : tap + length], taps_WC[tap])
    return y


def surroundings(block: int, extent: int, beyond: float, dtype: torch.dtype) -> Tensor:
    """Bias [Q, Q + E] outside the band: -inf for later keys, `beyond` for keys past the extent."""
    columns = torch.arange(block + extent)
    rows = torch.arange(block)[:, None]
    return torch.where(columns > extent + rows, -math.inf, beyond).to(dtype)


def diagonal(x: Tensor, extent: int) -> Tensor:
    """View [..., Q, E] of contiguous x [..., Q, Q + E]: row i shows its columns i+1 .. i+E."""
    *lead, block, width = x.shape
    strides = (*x.stride()[:-2], width + 1, 1)
    return x.as_strided((*lead, block, extent), strides, x.storage_offset() + 1)


class Band(torch.autograd.Function):
    """Bias of keys [..., Q, Q + E] from entries by falling distance [..., Q, E]."""

    @staticmethod
    def forward(ctx: Any, rel: Tensor, around: Tensor) -> Tensor:
        ctx.extent = rel.shape[-1]
        bias = around.expand(*rel.shape[:-1], around.shape[-1]).clone(
            memory_format=torch.contiguous_format
        )
        diagonal(bias, ctx.extent).copy_(rel)
        return bias

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return diagonal(gradients[0].contiguous(), ctx.extent).contiguous(), None


def local_attention(q_BLNH: Tensor, k_BLGH: Tensor, v_BLGH: Tensor, rel_BLNE: Tensor) -> Tensor:
    """Window attention in blocks of the window's size: each block sees itself and the one before.

    Returns [B, L, N * H]. L has to be a multiple of the window.
    """
    rows, length, heads, dim = q_BLNH.shape
    block, groups = NANO.sliding_window, k_BLGH.shape[2]
    count, share = length // block, heads // groups

    def queries(x: Tensor) -> Tensor:
        parts = x.view(rows, count, block, groups, share, x.shape[-1])
        return parts.permute(0, 1, 3, 4, 2, 5)

    def keys(x: Tensor) -> Tensor:
        blocks = x.view(rows, count, block, groups, dim).transpose(2, 3)
        before = F.pad(blocks[:, :-1], (0, 0, 0, 0, 0, 0, 1, 0))
        return torch.cat([before, blocks], dim=3).flatten(0, 2)

    q = queries(q_BLNH).reshape(-1, share * block, dim)
    around = surroundings(block, block, -math.inf, q.dtype)
    bias = Band.apply(queries(rel_BLNE), around).view(-1, share * block, 2 * block)
    missing = torch.zeros(1, count, 1, 1, 2 * block, dtype=q.dtype)
    missing[:, 0, ..., :block] = -math.inf
    scores = torch.baddbmm(bias, q, keys(k_BLGH).transpose(1, 2), alpha=1 / dim)
    scores = scores.view(rows, count, groups, -1, 2 * block).add_(missing).flatten(0, 2)
    out = torch.bmm(torch.softmax(scores, -1), keys(v_BLGH))
    out = out.view(rows, count, groups, share, block, dim).permute(0, 1, 4, 2, 3, 5)
    return out.reshape(rows, length, heads * dim)


def global_attention(q_BLNH: Tensor, k_BLGH: Tensor, v_BLGH: Tensor, rel_BLNE: Tensor) -> Tensor:
    """Causal attention in query blocks; the bias touches the last extent + block keys only."""
    rows, length, heads, dim = q_BLNH.shape
    groups, extent = k_BLGH.shape[2], rel_BLNE.shape[-1]
    share = heads // groups
    block = min(GLOBAL_BLOCK, length)
    around = surroundings(block, extent, 0.0, q_BLNH.dtype)

    def queries(x: Tensor) -> tuple[Tensor, ...]:
        parts = x.view(rows, -1, block, groups, share, x.shape[-1]).permute(0, 3, 4, 1, 2, 5)
        return parts.unbind(3)

    keys = k_BLGH.permute(0, 2, 3, 1).reshape(rows * groups, dim, length)
    values = v_BLGH.transpose(1, 2).reshape(rows * groups, length, dim)
    outs = []
    for index, (q, rel) in enumerate(zip(queries(q_BLNH), queries(rel_BLNE), strict=True)):
        end = (index + 1) * block
        near = max(0, end - block - extent)
        q = q.reshape(rows * groups, share * block, dim)
        bias = Band.apply(rel, around)[..., -(end - near) :]
        bias = bias.reshape(rows * groups, share * block, end - near)
        scores = torch.baddbmm(bias, q, keys[:, :, near:end], alpha=1 / dim)
        if near:
            scores = torch.cat([torch.bmm(q, keys[:, :, :near]) / dim, scores], dim=-1)
        out = torch.bmm(torch.softmax(scores, -1), values[:, :end])
        out = out.view(rows, groups, share, block, dim).permute(0, 3, 1, 2, 4)
        outs.append(out.reshape(rows, block, heads * dim))
    return torch.cat(outs, dim=1)


def attention(w: Weights, prefix: str, x_BLD: Tensor, local: bool) -> Tensor:
    """Projection, key and value convs, norms, tau, attention, output projection, output conv."""
    length = x_BLD.shape[1]
    names = ("wq_du", "wk_dv", "wv_dv", "wr_du")
    parts = [w[f"{prefix}attn.{name}.weight"] for name in names]
    q, k, v, r = F.linear(x_BLD, torch.cat(parts)).split([p.shape[0] for p in parts], dim=-1)
    k = short_conv(k, w[prefix + "attn.k_sconv.weight"])
    v = short_conv(v, w[prefix + "attn.v_sconv.weight"])
    q, k, v = (x.unflatten(-1, (-1, NANO.head_dim)) for x in (q, k, v))
    q = rms_norm(q, w[prefix + "attn.q_norm.weight"])
    k = rms_norm(k, w[prefix + "attn.k_norm.weight"])
    r = r.unflatten(-1, (-1, NANO.d_rel))
    if not local:
        assert NANO.log_scaling_n_floor is not None  # nano's geometry has one
        beyond = torch.clamp((torch.arange(length) + 1) / NANO.log_scaling_n_floor, min=1.0)
        tau = (1 + NANO.log_scaling_alpha * beyond.log()).view(1, length, 1, 1).to(x_BLD.dtype)
        q, r = q * tau, r * tau
    rel = r @ w[prefix + "attn.rel_logits_proj.proj"].flip(-1)  # by falling distance
    attend = local_attention if local else global_attention
    out = F.linear(attend(q, k, v, rel), w[prefix + "attn.wo_ud.weight"])
    return short_conv(out, w[prefix + "attn_sconv.weight"])


def gated_linear(x: Tensor, w13: Tensor) -> Tensor:
    """silu(gate) * up, where even rows of w13 make the gate and odd rows the up projection.

    Rows are sorted before the product: strided halves of its result would not vectorise.
    """
    return silu_and_mul(F.linear(x, torch.cat([w13[0::2], w13[1::2]])))


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """silu of the first half times the second half."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def route(x_BLD: Tensor, weight: Tensor, bias_E: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Float32 weights [B, L, E + S] of all experts, 0 where not chosen; tokens of each [E]."""
    sigmoid = torch.sigmoid(F.linear(x_BLD.float(), weight.float()))
    routed, shared = sigmoid[..., : NANO.n_routed_experts], sigmoid[..., NANO.n_routed_experts :]
    chosen = (routed + bias_E).topk(NANO.num_experts_per_tok, dim=-1).indices
    mask = torch.zeros_like(routed).scatter_(-1, chosen, 1.0)
    kept = torch.cat([routed * mask, shared], dim=-1)
    return kept / kept.sum(-1, keepdim=True) * (NANO.route_scale * scale), mask.sum((0, 1))


def moe(w: Weights, prefix: str, x_BLD: Tensor, loads: list[Tensor]) -> Tensor:
    """Routed and shared experts, all computed; `loads` collects the tokens of each expert."""
    weights, load = route(
        x_BLD, w[prefix + "gate.weight"], w[prefix + "gate.bias"], w[prefix + "gate.global_scale"]
    )
    loads.append(load.detach())
    shared = prefix + "shared_experts.shared_"
    w13 = torch.cat([w[prefix + "experts.w13_weight"], w[shared + "w13_weight"]])
    w2 = torch.cat([w[prefix + "experts.w2_weight"], w[shared + "w2_weight"]])
    hidden = gated_linear(x_BLD, w13.flatten(0, 1))
    hidden = hidden.unflatten(-1, (-1, NANO.moe_intermediate_size)) * weights.to(
        x_BLD.dtype
    ).unsqueeze(-1)
    return F.linear(hidden.flatten(-2), w2.permute(1, 0, 2).reshape(NANO.hidden_size, -1))


def dense(w: Weights, prefix: str, x_BLD: Tensor) -> Tensor:
    hidden = gated_linear(x_BLD, w[prefix + "w13_dn.weight"])
    return F.linear(hidden, w[prefix + "w2_md.weight"]) * w[prefix + "global_scale"]


def forward(w: Weights, ids_BL: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Final normed hidden states [B, L, D] and the loads [E] of each MoE layer.

    w: weights by raw name, in the dtype to compute in. L has to be a multiple of the window, and of
    the global block where it is longer than that.
    """
    x = rms_norm(F.embedding(ids_BL, w["embed.weight"]), w["embed_norm.weight"])
    loads: list[Tensor] = []
    for layer in range(NANO.num_hidden_layers):
        prefix = f"layers.{layer}."
        normed = rms_norm(x, w[prefix + "attn_norm.weight"])
        x = x + attention(w, prefix, normed, NANO.is_local(layer))
        normed = rms_norm(x, w[prefix + "mlp_norm.weight"])
        if NANO.is_dense(layer):
            delta = dense(w, prefix + "mlp.", normed)
        else:
            delta = moe(w, prefix + "mlp.", normed, loads)
        x = x + short_conv(delta, w[prefix + "mlp_sconv.weight"])
    return rms_norm(x, w["norm.weight"]), loads


def logits(w: Weights, hidden: Tensor) -> Tensor:
    """Logits over the real vocabulary, the padded rows cut away."""
    return F.linear(
        hidden / NANO.logits_mup_width_multiplier, w["unembed.weight"][: NANO.unpadded_vocab_size]
    )


def fuse_pointwise() -> None:
    """Compiles the memory-bound functions (needs a C++ compiler); about a quarter off a step."""
    for name in FUSABLE:
        globals()[name] = torch.compile(globals()[name], dynamic=True)
