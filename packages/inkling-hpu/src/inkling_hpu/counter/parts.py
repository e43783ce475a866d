"""Which part of a step issued an op, told from the Python stack of the call.

    part   of the innermost frame whose module (and function, where a module has several parts) is
           in PARTS: a norm called by the attention is "norms", a projection called by it "gemm"
    kind   of the layer that is running, or `step` below a function of ONCE, such as `HpuStep.once`
           with the hoist on: what is done there once belongs to no layer, although one asks for it

Not scopes in the model: the counted code is the served code, untouched. A module that moves or is
renamed loses its part and shows as OTHER, which a test refuses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType

from inkling_hpu.counter.layer_kinds import STEP, LayerKinds

OTHER = "other"
NORMS = "norms and residual"
PARTS: Mapping[str, str | Mapping[str, str]] = {
    "inkling_core.joined": {"conv_add_norm": NORMS},
    "inkling_hpu.joined": {"mixture": "router"},
    "inkling_core.parallel": {"reduce_sum": "experts"},
    "inkling_core.layers.attention": "gemm",
    "inkling_core.layers.context": "tau",
    "inkling_core.layers.mlp": "dense MLP",
    "inkling_core.layers.moe": "experts",
    "inkling_core.model": {"embed_tokens": "embedding", "forward": NORMS, "logits": "head"},
    "inkling_core.ops.qkvr_prep": {"prepared_by": "relative logits and tau"},
    "inkling_hpu.bias": {"table": "bias", "tail": "index math", "columns": "index math"},
    "inkling_hpu.carriers": "index math",
    "inkling_hpu.conv_hoist": "conv",
    "inkling_hpu.conv_rows": "conv",
    "inkling_hpu.decode": {
        "attend": "bias",
        "paged_attention": "attention",
        "decode_index": "index math",
        "key_positions": "index math",
        "_flat_index": "index math",
    },
    "inkling_hpu.gaudi.attention": {"decode": "attention", "_list_arguments": "index math"},
    "inkling_hpu.kv_cache": "kv write",
    "inkling_hpu.local_decode": {
        "attend": "attention",
        "_gather": "attention",
        "_table": "bias",
        "_index": "index math",
    },
    "inkling_hpu.merge": "merge",
    "inkling_hpu.skew": "mask",
    "inkling_hpu.prefill": {
        "edge_mask": "mask",
        "near_slots": "index math",
        "near_part": "attention",
        "distant_parts": "attention",
        "attend": "attention",
    },
    "inkling_hpu.ops.experts": "experts",
    "inkling_hpu.ops.norm": NORMS,
    "inkling_hpu.ops.router": "router",
    "inkling_hpu.ops.short_conv": "conv",
}
ONCE: Mapping[tuple[str, str], Callable[[FrameType], bool]] = {
    ("inkling_hpu.step", "once"): lambda frame: frame.f_locals["self"].switches.step_hoist,
    ("inkling_hpu.conv_rows", "_write"): lambda frame: frame.f_locals["run"].taps is not None,
    ("inkling_hpu.gaudi.attention", "_list_arguments"): lambda _: True,  # keeps what it returns
}
"""(module, function) -> whether a call of it, whatever layer makes it, is the step's."""


def place_of_caller(kinds: LayerKinds) -> tuple[str, str]:
    """Layer kind and part of the op that is being issued by a caller of this function."""
    part, kind = None, kinds.current
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        part = part or _part(module, function)
        once = ONCE.get((module, function))
        if once is not None and once(frame):
            kind = STEP
        frame = frame.f_back
    return kind, part or OTHER


def _part(module: str, function: str) -> str | None:
    entry = PARTS.get(module)
    return entry if entry is None or isinstance(entry, str) else entry.get(function)
