"""The timed stages: each holds its own result to the core's, then gives figures beside rivals.

Floors, by which a figure is judged on the page: fractions of the roofline (`FLOORS`) and factors
over rivals (`FACTORS`). A decode step of one request is given in microseconds only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu import layers, rivals
from gpu.measure import Machine, seconds
from gpu.shapes import Inputs
from inkling_core import ops as law
from inkling_core.backend import REFERENCE
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance
from inkling_cuda_ref import ops
from inkling_cuda_ref.backend import CUDA_REF

FLOORS = {"experts": 0.65, "decode attention": 0.65, "short conv": 0.65}
FACTORS = {"sdpa": 3.0, "flex": 0.9}
Stage = tuple[str, Callable[[], dict[str, Any]]]


def stages(inputs: Inputs, rates: Machine) -> Iterator[Stage]:
    """Name and work of each, the quick ones and those with a floor first."""
    yield "short conv", lambda: short_conv(inputs, rates)
    yield "decode attention", lambda: decode(inputs, rates, inputs.shapes.requests)
    yield "decode attention of one request", lambda: decode(inputs, rates, 1)
    for tokens in inputs.shapes.token_counts:
        yield f"experts at {tokens} tokens", lambda tokens=tokens: experts(inputs, rates, tokens)
    yield "prefill attention", lambda: prefill(inputs, rates)
    yield "layer", lambda: layer(inputs, rates)


def held(op: str, actual: Tensor, expected: Tensor) -> None:
    """Nothing is timed that is not right."""
    assert_within(actual, expected, tolerance(op, actual.dtype, "cuda_ref"), op)


def figures(
    name: str, run: Callable[[], Tensor], rates: Machine, num_bytes: float, flops: float
) -> dict[str, Any]:
    """Microseconds and the share of the roofline."""
    took = seconds(run, rates.device)
    found: dict[str, Any] = {"us": took * 1e6, "roofline": rates.roofline(num_bytes, flops) / took}
    if name in FLOORS:
        found |= {"floor": FLOORS[name], "met": found["roofline"] >= FLOORS[name]}
    return found


def short_conv(inputs: Inputs, rates: Machine) -> dict[str, Any]:
    x_TC, history_QJC, weight_CW, starts = inputs.conv()
    run = partial(ops.short_conv, x_TC, history_QJC, weight_CW, starts)
    held("short_conv", run(), law.short_conv(x_TC, history_QJC, weight_CW, starts))
    num_bytes = 2 * x_TC.numel() * x_TC.element_size()
    flops = 8.0 * x_TC.numel()
    core = seconds(lambda: law.short_conv(x_TC, history_QJC, weight_CW, starts), rates.device)
    return {**figures("short conv", run, rates, num_bytes, flops), "core's op us": core * 1e6}


def decode(inputs: Inputs, rates: Machine, requests: int) -> dict[str, Any]:
    s = inputs.shapes
    arguments = inputs.attention([1] * requests, [s.keys - 1] * requests)
    run = partial(ops.rel_attention, *arguments, None)
    held("rel_attention", run(), law.rel_attention(*arguments, None))
    if requests == 1:
        return {"us": seconds(run, rates.device) * 1e6}
    kv = 2.0 * requests * s.keys * s.kv_heads * s.head_dim
    flops = 4.0 * requests * s.keys * s.heads * s.head_dim
    core = seconds(lambda: law.rel_attention(*arguments, None), rates.device, repeats=3)
    name = "decode attention"
    return {**figures(name, run, rates, 2 * kv, flops), "core's op us": core * 1e6}


def experts(inputs: Inputs, rates: Machine, tokens: int) -> dict[str, Any]:
    s, arguments = inputs.shapes, inputs.experts(tokens)
    run = partial(ops.experts, *arguments)
    held("experts", run(), law.experts(*arguments))
    weights = arguments[3].numel() + arguments[4].numel()
    num_bytes = 2.0 * (weights + 2 * tokens * s.hidden)
    flops = 2.0 * tokens * s.chosen * s.hidden * 3 * s.width
    core = seconds(lambda: law.experts(*arguments), rates.device, repeats=3)
    return {**figures("experts", run, rates, num_bytes, flops), "core's op us": core * 1e6}


def prefill(inputs: Inputs, rates: Machine) -> dict[str, Any]:
    """Ours beside SDPA and flex; the core's op would need hundreds of gigabytes at this length."""
    arguments = inputs.attention([inputs.shapes.prefill], [0])
    run = partial(ops.rel_attention, *arguments, None)
    found: dict[str, Any] = {}
    expected = rivals.sdpa(inputs, arguments)()
    held("rel_attention", run(), expected)
    found["us"] = seconds(run, rates.device) * 1e6
    for name in FACTORS:
        try:
            rival = getattr(rivals, name)(inputs, arguments)
            held("rel_attention", rival(), expected)
            took = seconds(rival, rates.device, repeats=5) * 1e6
        except Exception as error:  # absent or broken in this torch: said, not hidden
            found[name] = {"not available": f"{type(error).__name__}: {error}"[:300]}
            continue
        factor = took / found["us"]
        found[name] = {"us": took, "factor": factor, "floor": FACTORS[name]}
        found[name]["met"] = factor >= FACTORS[name]
    return found


def layer(inputs: Inputs, rates: Machine) -> dict[str, Any]:
    """A whole layer at a length that transformers' dense bias still fits."""
    s = inputs.shapes
    tokens = s.prefill // 4
    runs = {
        "these kernels": layers.ours(CUDA_REF, s, tokens, rates.device),
        "core's ops": layers.ours(REFERENCE, s, tokens, rates.device),
    }
    found: dict[str, Any] = {"tokens": tokens}
    try:
        runs["transformers"] = layers.transformers_layer(s, tokens, rates.device)
        runs["transformers"]()
    except Exception as error:  # absent, or too old for this model: said, not hidden
        found["transformers"] = {"not available": f"{type(error).__name__}: {error}"[:300]}
        runs.pop("transformers", None)
    pair = [runs[name]() for name in ("these kernels", "core's ops")]
    assert_within(*pair, tolerance("layer", torch.bfloat16), "layer")
    for name, run in runs.items():
        found[name] = {"us": seconds(run, rates.device, repeats=3) * 1e6}
    return found
