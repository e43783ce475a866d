"""Proof at start that attention in parts can be merged on this device.

    parts        far, edge and near keys of a probe, called as prefill.py calls them
    offset       lse reported - lse true, for each part, row and head: one number for all of them
    error        merged parts beside one softmax over all keys, computed here in float32

The kernel that returns sums is used in no released code as prefill.py uses it: without a mask, with
a mask for all heads, with one for each. Some of its callers undo a factor 128 on the sums, others
do not. A factor on all sums cancels and is only reported; one on the sums of some calls would shift
attention from near keys to far ones, fluently and silently.

What it is not: a parity test. The limits are far above rounding and far below a factor 2.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from inkling_hpu import markers
from inkling_hpu.bias import HIDDEN
from inkling_hpu.merge import Part, merged
from inkling_hpu.prefill import FOLD, folded, unfolded
from inkling_hpu.switches import Switches

logger = logging.getLogger("vllm.inkling.hpu")  # vLLM shows loggers below its own name only

SPREAD = 0.1  # nats; bfloat16 sums are good for about 0.01, a factor 2 is 0.69
ERROR = 0.05  # relative; bfloat16 rounding is about 0.005
ROWS = 2 * FOLD
FAR, EDGE, PADDED, NEAR = 384, 256, 56, 320  # keys; PADDED of the edge's are hidden


@dataclass(frozen=True)
class Calibration:
    """factor: what row sums are too large by, on the average. spread: largest minus smallest offset
    of an lse, in nats. error: of the merged result, relative."""

    factor: float
    spread: float
    error: float

    @property
    def problem(self) -> str | None:
        """Why parts cannot be merged; None where they can."""
        if not self.spread <= SPREAD:  # written so that NaN fails too
            return (
                f"row sums of attention are off by factors that differ by {self.spread:.2f} nats "
                f"between calls or rows, the limit is {SPREAD}"
            )
        if not self.error <= ERROR:
            return f"merged attention is off by {self.error:.3f} of itself, the limit is {ERROR}"
        return None


def checked(
    switches: Switches,
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Switches:
    """The switches, `near_far` off where this device does not merge; the log says which and why."""
    if not switches.near_far:
        return switches
    try:
        found = calibrate(heads, kv_heads, head_dim, dtype, device)
        problem = found.problem
    except Exception as error:  # whatever a device raises for a kernel that is not there, or not so
        problem = f"{type(error).__name__}: {error}"
    else:
        logger.info("prefill merges near and far keys: %s", found)
    if problem is None:
        return switches
    logger.warning("prefill masks cover the whole context (INKLING_NEAR_FAR=0): %s", problem)
    return replace(switches, near_far=False)


def calibrate(
    heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
) -> Calibration:
    """What the kernels of this device say of a probe of that shape."""
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw).to(dtype)

    keys = FAR + EDGE + NEAR
    q, scale = 2 * normal(1, heads, ROWS, head_dim), head_dim**-0.5
    k, v = normal(1, kv_heads, keys, head_dim), normal(1, kv_heads, keys, head_dim)
    edge = torch.zeros(1, 1, FOLD, EDGE, dtype=dtype)
    edge[..., EDGE - PADDED :] = HIDDEN
    near = normal(1, heads, ROWS, NEAR)
    near[..., ROWS // 2 :, :9] = HIDDEN
    parts = _parts([x.to(device) for x in (q, k, v, edge, near)], scale)
    masks = (None, edge.repeat(1, heads, ROWS // FOLD, 1), near)
    body = markers.torch_body("fsdpa_lse")
    ends = (FAR, FAR + EDGE, keys)
    true = [
        body(q.float(), k[:, :, a:b].float(), v[:, :, a:b].float(), mask, scale)
        for (a, b), mask in zip(pairwise((0, *ends)), masks, strict=True)
    ]
    offsets = torch.stack([lse.cpu() - own for (_, lse), (_, own) in zip(parts, true, strict=True)])
    got, own = merged(parts).cpu().float(), merged(true)
    return Calibration(
        math.exp(float(offsets.mean())),
        float(offsets.max() - offsets.min()),
        float((got - own).norm() / own.norm()),
    )


def _parts(tensors: list[Tensor], scale: float) -> list[Part]:
    """Far, edge and near as prefill.py calls them, of q, k, v and the two masks."""
    q, k, v, edge, near = tensors
    ends = (FAR, FAR + EDGE, k.shape[2])
    first, middle, last = (slice(a, b) for a, b in pairwise((0, *ends)))
    out, lse = markers.fsdpa_lse(folded(q), k[:, :, middle], v[:, :, middle], edge, scale)
    return [
        markers.fsdpa_lse(q, k[:, :, first], v[:, :, first], None, scale),
        (unfolded(out, q), unfolded(lse, q)),
        markers.fsdpa_lse(q, k[:, :, last], v[:, :, last], near, scale),
    ]
