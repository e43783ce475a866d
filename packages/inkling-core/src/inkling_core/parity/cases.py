"""Questions that every back end is asked: seeded inputs of each op, named as the op names them.

Not answers (a bundle has them) and not how an op is called (`calls`). A case holds tensors and
plain values under the parameter names of `inkling_core.ops`; `step` is told by the lists that
`Step.build` takes. Every size is odd, tables are scattered, unwritten cache slots are NaN.

Sets of cases: `small` is what ships and what CI runs; `tp8` has the shapes that one of eight ranks
of Inkling-Small sees, but for the number of experts, for a GPU or a Gaudi.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, eq=False)
class OpCase:
    """One call of one op. id: unique; dtype: of the activations; values: everything but tensors."""

    id: str
    op: str
    dtype: torch.dtype
    seed: int
    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sizes:
    """Geometry of a set; names as in the shape legend of `inkling_core.ops`."""

    tokens: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    rel_dim: int
    extent: int
    experts: int
    chosen: int
    shared: int
    width: int
    vocabulary: int
    block: int
    window: int
    lengths: tuple[int, ...]
    contexts: tuple[int, ...]


SETS = {
    "small": Sizes(
        tokens=17, hidden=37, heads=6, kv_heads=1, head_dim=10, rel_dim=5, extent=33, experts=7,
        chosen=3, shared=2, width=24, vocabulary=131, block=16, window=24,
        lengths=(1, 5, 17, 1), contexts=(40, 0, 15, 63),
    ),
    "tp8": Sizes(
        tokens=129, hidden=4096, heads=4, kv_heads=1, head_dim=128, rel_dim=16, extent=1024,
        experts=16, chosen=6, shared=2, width=256, vocabulary=1001, block=128, window=512,
        lengths=(1, 17, 129, 1), contexts=(4095, 1000, 0, 511),
    ),
}  # fmt: skip


class Draw:
    """Random inputs of one case."""

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        self.dtype, self.generator = dtype, torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> Tensor:
        normal = torch.randn(shape, generator=self.generator) * scale
        return normal.to(dtype or self.dtype)


Made = tuple[dict[str, Tensor], dict[str, Any]]


def _rms_norm(size: Sizes, draw: Draw) -> Made:
    x = draw(size.tokens, size.hidden, scale=3.0)
    return {"x": x, "weight": draw(size.hidden)}, {"eps": 1e-6}


def _silu_and_mul(size: Sizes, draw: Draw) -> Made:
    return {"gate_up": draw(size.tokens, 2 * size.width, scale=3.0)}, {}


def _starts(tokens: int) -> list[int]:
    """Requests of one, of fewer than the taps, and of many tokens."""
    return [0, 1, 3, 8, tokens]


def _short_conv(size: Sizes, draw: Draw) -> Made:
    starts = _starts(size.tokens)
    tensors = {
        "x_TC": draw(size.tokens, size.hidden),
        "history_QJC": draw(len(starts) - 1, 3, size.hidden),
        "weight_CW": draw(size.hidden, 4, scale=0.5, dtype=torch.float32),
    }
    return tensors, {"starts": starts}


def _query_scale(size: Sizes, draw: Draw) -> Made:
    positions_T = torch.arange(size.tokens) * 16001 % 1_048_576
    return {"positions_T": positions_T}, {"n_floor": 160, "alpha": 0.1}


def _qkvr_prep(size: Sizes, draw: Draw) -> Made:
    starts, kv = _starts(size.tokens), size.kv_heads * size.head_dim
    tensors = {
        "q_TC": draw(size.tokens, size.heads * size.head_dim),
        "k_TC": draw(size.tokens, kv),
        "v_TC": draw(size.tokens, kv),
        "r_TC": draw(size.tokens, size.heads * size.rel_dim),
        "weights.k_conv_CW": draw(kv, 4, scale=0.5, dtype=torch.float32),
        "weights.v_conv_CW": draw(kv, 4, scale=0.5, dtype=torch.float32),
        "weights.q_norm_H": draw(size.head_dim),
        "weights.k_norm_H": draw(size.head_dim),
        "weights.rel_proj_UR": draw(size.rel_dim, size.extent, scale=size.rel_dim**-0.5),
        "k_history_QJC": draw(len(starts) - 1, 3, kv),
        "v_history_QJC": draw(len(starts) - 1, 3, kv),
        "tau_T": 1 + 0.3 * torch.rand(size.tokens, generator=draw.generator),
    }
    return tensors, {"starts": starts, "eps": 1e-6}


def _without_tau(size: Sizes, draw: Draw) -> Made:
    tensors, values = _qkvr_prep(size, draw)
    del tensors["tau_T"]
    return tensors, {**values, "tau_T": None}


def _rel_attention(size: Sizes, draw: Draw) -> Made:
    needs = [
        math.ceil((a + b) / size.block) for a, b in zip(size.lengths, size.contexts, strict=True)
    ]
    free = (torch.randperm(sum(needs), generator=draw.generator) + 1).tolist()
    tables = [[free.pop() for _ in range(need)] for need in needs]
    shape = (sum(needs) + 1, size.block, size.kv_heads, size.head_dim)
    pages = {}
    for name in ("keys_PLGH", "values_PLGH"):
        pages[name] = torch.full(shape, float("nan"), dtype=draw.dtype)
        for table, a, b in zip(tables, size.lengths, size.contexts, strict=True):
            place = torch.arange(a + b)
            blocks = torch.tensor(table)[place // size.block]
            pages[name][blocks, place % size.block] = draw(a + b, *shape[2:], scale=0.6)
    total = sum(size.lengths)
    tensors = {
        "q_TNH": draw(total, size.heads, size.head_dim, scale=size.head_dim**0.5),
        "rel_TNR": draw(total, size.heads, size.extent, scale=2.0),
        **pages,
    }
    step = {
        "lengths": list(size.lengths), "contexts": list(size.contexts), "block_tables": tables,
        "block_size": size.block,
    }  # fmt: skip
    return tensors, {"step": step, "window": None}


def _windowed(size: Sizes, draw: Draw) -> Made:
    tensors, values = _rel_attention(size, draw)
    return tensors, {**values, "window": size.window}


MARGIN = 1e-4  # between the last chosen score and the next: more than sums can round


def _router(size: Sizes, draw: Draw) -> Made:
    gate_ED = draw(size.experts + size.shared, size.hidden, scale=1.5 * size.hidden**-0.5)
    bias_E = draw(size.experts, scale=0.1, dtype=torch.float32)
    x_TD = draw(4 * size.tokens, size.hidden)
    routed_TE = (x_TD.double() @ gate_ED.double().T)[:, : size.experts]
    ranked_TE = (routed_TE.sigmoid() + bias_E).sort(dim=1, descending=True).values
    clear_T = (ranked_TE[:, :-1] - ranked_TE[:, 1:])[:, : size.chosen].amin(1) > MARGIN
    tensors = {
        "x_TD": x_TD[clear_T][: size.tokens],
        "weight_ED": gate_ED,
        "bias_E": bias_E,
        "global_scale": torch.tensor([1.3]),
    }
    return tensors, {"num_chosen": size.chosen, "num_shared": size.shared, "route_scale": 8.0}


def _expert_weights(size: Sizes, draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    w13 = draw(count, 2 * size.width, size.hidden, scale=size.hidden**-0.5)
    return w13, draw(count, size.hidden, size.width, scale=size.width**-0.5)


def _experts(size: Sizes, draw: Draw) -> Made:
    scores_TE = torch.rand(size.tokens, size.experts, generator=draw.generator)
    w13_ECD, w2_EDI = _expert_weights(size, draw, size.experts)
    tensors = {
        "x_TD": draw(size.tokens, size.hidden),
        "ids_TK": scores_TE.argsort(dim=1)[:, : size.chosen].contiguous(),
        "weights_TK": draw(size.tokens, size.chosen),
        "w13_ECD": w13_ECD,
        "w2_EDI": w2_EDI,
    }
    return tensors, {}


def _shared_experts(size: Sizes, draw: Draw) -> Made:
    w13_SCD, w2_SDI = _expert_weights(size, draw, size.shared)
    x_TD, gamma_TS = draw(size.tokens, size.hidden), draw(size.tokens, size.shared)
    return {"x_TD": x_TD, "gamma_TS": gamma_TS, "w13_SCD": w13_SCD, "w2_SDI": w2_SDI}, {}


def _logits(size: Sizes, draw: Draw) -> Made:
    unembed_VD = draw(size.vocabulary, size.hidden, scale=size.hidden**-0.5)
    return {"x_TD": draw(5, size.hidden), "unembed_VD": unembed_VD}, {"multiplier": 3.0}


def _model(size: Sizes, draw: Draw) -> Made:
    """The tiny random decoder on one sequence: chunks around block edges, then single tokens."""
    ids_T = torch.randint(3, 300, (50,), generator=draw.generator)
    return {"ids_T": ids_T}, {"weights_seed": 0, "block_size": 16, "chunks": [15, 2, 1, 1, 28, 3]}


BUILDERS: dict[str, dict[str, Callable[[Sizes, Draw], Made]]] = {
    "rms_norm": {"": _rms_norm},
    "silu_and_mul": {"": _silu_and_mul},
    "short_conv": {"": _short_conv},
    "query_scale": {"": _query_scale},
    "qkvr_prep": {"tau": _qkvr_prep, "plain": _without_tau},
    "rel_attention": {"global": _rel_attention, "window": _windowed},
    "router": {"": _router},
    "experts": {"": _experts},
    "shared_experts": {"": _shared_experts},
    "logits": {"": _logits},
    "model": {"": _model},
}
"""op -> variant -> what makes its inputs."""

FLOAT32_ONLY = ("query_scale", "model")  # bfloat16 compares a model layer by layer, not by logits


def cases(which: str, ops: tuple[str, ...] = (), seed: int = 0) -> Iterator[OpCase]:
    """The cases of a set in the order of `BUILDERS`; of the given ops only, where any are.

    Raises ValueError for a set or an op that is not there.
    """
    if which not in SETS:
        raise ValueError(f"cases={which!r} is not a set of cases: choose from {', '.join(SETS)}")
    if unknown := sorted(set(ops) - set(BUILDERS)):
        raise ValueError(f"ops={unknown}: unknown; choose from {', '.join(BUILDERS)}")
    for number, (op, variants) in enumerate(BUILDERS.items()):
        for variant, make in variants.items():
            for name, dtype in DTYPES.items():
                if (ops and op not in ops) or (op in FLOAT32_ONLY and dtype != torch.float32):
                    continue
                own_seed = seed * 1000 + number
                tensors, values = make(SETS[which], Draw(dtype, own_seed))
                label = "-".join(part for part in (op, variant, which, name) if part)
                yield OpCase(label, op, dtype, own_seed, tensors, values)
