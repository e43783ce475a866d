"""The seven ops that Gaudi has a kernel for, under names of our own: `torch.ops.inkling_hpu.*`.

Each is one call to whoever counts or traces a step, and has three bodies:

    torch     runs where no kernel is set: CPUs, tests, the emulation
    kernel    `kernels[name]`, put there by the one module that touches vllm_gaudi
    fake      shapes and dtypes only: the meta device, the op counter, graph tracing

    rms_norm(x, weight, eps)                   [..., D] -> [..., D]
    moe(x, ids, weights, w13, w2, more_w13, more_w2)
                                               [T, D] -> [T, D]; w13 [E, 2I, D], gate rows first;
                                               more experts, if any, have ids behind the first E
    fsdpa(q, k, v, mask, scale)                [Q, N, S, H] over k, v [Q, G, KV, H]
    fsdpa_lse(q, k, v, mask, scale)            the same, and log-sum-exp float32 [Q, N, S]
    mm_f32(x, weight)                          [T, D] x [E, D] -> float32 [T, E]
    all_gather(x, size)                        [..., V] -> [..., V * size], rank order
    all_reduce(x)                              sum over the ranks

What it is not: the model's ops (`inkling_hpu.ops`, which call these) or a place for more names. An
op belongs here only if Gaudi runs it as one kernel; everything else is counted as what it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from inkling_core.ops import rms_norm as law_rms_norm

NAMESPACE = "inkling_hpu"
NAMES = ("rms_norm", "moe", "fsdpa", "fsdpa_lse", "mm_f32", "all_gather", "all_reduce")

kernels: dict[str, Callable[..., Any]] = {}
"""Marker name -> device kernel with the marker's own arguments. Empty: the torch bodies run."""


def graph_break() -> None:
    """A hook, to be replaced: ends the graph that a lazy device is accumulating."""


_SCHEMAS = {
    "rms_norm": "(Tensor x, Tensor? weight, float eps) -> Tensor",
    "moe": "(Tensor x, Tensor ids, Tensor weights, Tensor w13, Tensor w2, Tensor? more_w13=None, "
    "Tensor? more_w2=None) -> Tensor",
    "fsdpa": "(Tensor q, Tensor k, Tensor v, Tensor? mask, float scale) -> Tensor",
    "fsdpa_lse": "(Tensor q, Tensor k, Tensor v, Tensor? mask, float scale) -> (Tensor, Tensor)",
    "mm_f32": "(Tensor x, Tensor weight) -> Tensor",
    "all_gather": "(Tensor x, int size) -> Tensor",
    "all_reduce": "(Tensor x) -> Tensor",
}


def end_graph() -> None:
    """Calls the hook `graph_break`, whatever it is by now."""
    graph_break()


# ---- torch bodies ------------------------------------------------------------------------------


def every_expert(first_E: Tensor, more_S: Tensor | None) -> list[Tensor]:
    """One tensor per expert, in the order of their ids."""
    return [*first_E.unbind(0), *(() if more_S is None else more_S.unbind(0))]


def _moe(
    x_TD: Tensor,
    ids_TK: Tensor,
    weights_TK: Tensor,
    w13_ECD: Tensor,
    w2_EDI: Tensor,
    more_w13_SCD: Tensor | None = None,
    more_w2_SDI: Tensor | None = None,
) -> Tensor:
    """Weight after w2, sum over the chosen experts in the model dtype."""
    w13, w2 = every_expert(w13_ECD, more_w13_SCD), every_expert(w2_EDI, more_w2_SDI)
    out_TD = torch.zeros_like(x_TD)
    for expert in ids_TK.unique().tolist():
        token, choice = torch.where(ids_TK == expert)
        gate, up = F.linear(x_TD[token], w13[expert]).chunk(2, dim=-1)
        hidden = F.linear(F.silu(gate) * up, w2[expert]) * weights_TK[token, choice, None]
        out_TD.index_add_(0, token, hidden.to(x_TD.dtype))
    return out_TD


def _scores(q_QNSH: Tensor, k_QGKH: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """float32 `[Q, G, N / G, S, KV]`; query head n reads key/value head n // (N / G). The mask is
    one for each query head, or one for all."""
    heads = k_QGKH.shape[1]
    q = q_QNSH.float().unflatten(1, (heads, -1))
    scores = q @ k_QGKH.float().transpose(-1, -2)[:, :, None] * scale
    if mask is None:
        return scores
    return scores + (mask.unflatten(1, (heads, -1)) if mask.shape[1] > 1 else mask[:, None])


def _fsdpa_lse(
    q_QNSH: Tensor, k_QGKH: Tensor, v_QGKH: Tensor, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """A row with no visible key must hold finite masks: softmax of equal values, never NaN."""
    scores = _scores(q_QNSH, k_QGKH, mask, scale)
    probs = torch.softmax(scores, dim=-1).to(q_QNSH.dtype).float()
    out = (probs @ v_QGKH.float()[:, :, None]).flatten(1, 2).to(q_QNSH.dtype)
    return out, torch.logsumexp(scores, dim=-1).flatten(1, 2)


def _fsdpa(q_QNSH: Tensor, k_QGKH: Tensor, v_QGKH: Tensor, mask: Tensor | None, scale: float):
    return _fsdpa_lse(q_QNSH, k_QGKH, v_QGKH, mask, scale)[0]


def _mm_f32(x_TD: Tensor, weight_ED: Tensor) -> Tensor:
    return F.linear(x_TD.float(), weight_ED.float())


def _alone(name: str) -> Callable[..., Tensor]:
    def collective(x: Tensor, size: int = 1) -> Tensor:
        raise RuntimeError(
            f"{name} of a {tuple(x.shape)} tensor: no kernel is set. Put the engine's collective "
            f"into inkling_hpu.markers.kernels[{name!r}], or run with one rank"
        )

    return collective


_BODIES: dict[str, Callable[..., Any]] = {
    "rms_norm": law_rms_norm,
    "moe": _moe,
    "fsdpa": _fsdpa,
    "fsdpa_lse": _fsdpa_lse,
    "mm_f32": _mm_f32,
    "all_gather": _alone("all_gather"),
    "all_reduce": _alone("all_reduce"),
}

# ---- fake bodies: shapes and dtypes --------------------------------------------------------------


def _like_first(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _fake_fsdpa(q_QNSH: Tensor, k: Tensor, v_QGKH: Tensor, *_: Any) -> Tensor:
    return q_QNSH.new_empty(*q_QNSH.shape[:-1], v_QGKH.shape[-1])


def _fake_fsdpa_lse(q_QNSH: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _fake_fsdpa(q_QNSH, k, v), q_QNSH.new_empty(q_QNSH.shape[:-1], dtype=torch.float32)


def _fake_mm_f32(x_TD: Tensor, weight_ED: Tensor) -> Tensor:
    return x_TD.new_empty(x_TD.shape[0], weight_ED.shape[0], dtype=torch.float32)


def _fake_all_gather(x: Tensor, size: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], x.shape[-1] * size)


_FAKES: dict[str, Callable[..., Any]] = {
    "rms_norm": _like_first,
    "moe": _like_first,
    "fsdpa": _fake_fsdpa,
    "fsdpa_lse": _fake_fsdpa_lse,
    "mm_f32": _fake_mm_f32,
    "all_gather": _fake_all_gather,
    "all_reduce": _like_first,
}


def torch_body(name: str) -> Callable[..., Any]:
    """The body that runs where no kernel is set: what a kernel is compared with."""
    return _BODIES[name]


def _dispatch(name: str) -> Callable[..., Any]:
    def body(*arguments: Any) -> Any:
        return kernels.get(name, _BODIES[name])(*arguments)

    return body


def _register() -> torch.library.Library:
    library = torch.library.Library(NAMESPACE, "DEF")
    for name in NAMES:
        library.define(name + _SCHEMAS[name])
        # one kernel for every device: the table decides, not the dispatcher
        library.impl(name, _dispatch(name), "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", _FAKES[name], lib=library)
    return library


_LIBRARY = _register()  # registrations live as long as this object

rms_norm = torch.ops.inkling_hpu.rms_norm.default
moe = torch.ops.inkling_hpu.moe.default
fsdpa = torch.ops.inkling_hpu.fsdpa.default
fsdpa_lse = torch.ops.inkling_hpu.fsdpa_lse.default
mm_f32 = torch.ops.inkling_hpu.mm_f32.default
all_gather = torch.ops.inkling_hpu.all_gather.default
all_reduce = torch.ops.inkling_hpu.all_reduce.default
