"""Which part of a step issued an op, told from the Python stack of the call.

    part   of the innermost frame whose module (and function, where a module has several parts) is
           in PARTS: a norm called by the attention is "norms", a projection called by it "gemm"
    kind   of the layer that is running, or `step` below `HpuStep.once` with the hoist on: what is
           computed there once belongs to no layer, although the first layer asks for it

Not scopes in the model: the counted code is the served code, untouched. A module that moves or is
renamed loses its part and shows as OTHER, which a test refuses.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType

from inkling_hpu.counter.layer_kinds import STEP, LayerKinds

OTHER = "other"
NORMS = "norms and residual"
PARTS: Mapping[str, str | Mapping[str, str]] = {
    "inkling_core.joined": {"conv_add_norm": NORMS},
    "inkling_core.layers.attention": "gemm",
    "inkling_core.layers.context": "tau",
    "inkling_core.layers.mlp": "dense MLP",
    "inkling_core.layers.moe": "experts",
    "inkling_core.model": {"embed_tokens": "embedding", "forward": NORMS, "logits": "head"},
    "inkling_core.ops.qkvr_prep": {"prepared_by": "relative logits and tau"},
    "inkling_hpu.bias": {"table": "bias", "tail": "index math", "columns": "index math"},
    "inkling_hpu.carriers": "index math",
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
    "inkling_hpu.ops.experts": "experts",
    "inkling_hpu.ops.norm": NORMS,
    "inkling_hpu.ops.router": "router",
    "inkling_hpu.ops.short_conv": "conv",
}
HOIST = ("inkling_hpu.step", "once")
CACHED = ("inkling_hpu.gaudi.attention", "_list_arguments")  # runs once per step by itself


def place_of_caller(kinds: LayerKinds) -> tuple[str, str]:
    """Layer kind and part of the op that is being issued by a caller of this function."""
    part, kind = None, kinds.current
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        part = part or _part(module, function)
        hoisted = (module, function) == HOIST and frame.f_locals["self"].switches.step_hoist
        if hoisted or (module, function) == CACHED:
            kind = STEP
        frame = frame.f_back
    return kind, part or OTHER


def _part(module: str, function: str) -> str | None:
    entry = PARTS.get(module)
    return entry if entry is None or isinstance(entry, str) else entry.get(function)
