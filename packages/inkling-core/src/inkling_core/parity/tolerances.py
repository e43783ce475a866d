"""The one tolerance table, keyed by (op, dtype, back end).

Not a measure (`compare`). Loosening a limit needs a decision record under `docs/adr/`. Exact ops
(ids, routing choice away from ties, row copies, layouts) have the limit 0.

`max_abs` bounds the largest absolute difference; `rms_ratio` bounds rms(a - b) / rms(b). Limits
for logits are meant for checkpoints whose logits have a standard deviation of at least 0.5.
"""

from typing import NamedTuple

import torch


class Tolerance(NamedTuple):
    """Limits; None is not checked."""

    max_abs: float | None = None
    rms_ratio: float | None = None


ANY = "*"
_F32, _BF16 = torch.float32, torch.bfloat16

TABLE: dict[tuple[str, torch.dtype, str], Tolerance] = {
    ("rms_norm", _F32, ANY): Tolerance(max_abs=1e-5),
    ("rms_norm", _BF16, ANY): Tolerance(rms_ratio=5e-3),
    ("silu_and_mul", _F32, ANY): Tolerance(max_abs=1e-5),
    ("silu_and_mul", _BF16, ANY): Tolerance(rms_ratio=5e-3),
    ("short_conv", _F32, ANY): Tolerance(max_abs=1e-5),
    ("short_conv", _BF16, ANY): Tolerance(rms_ratio=5e-3),
    ("query_scale", _F32, ANY): Tolerance(max_abs=1e-6),
    ("qkvr_prep", _F32, ANY): Tolerance(max_abs=1e-5),
    ("qkvr_prep", _BF16, ANY): Tolerance(rms_ratio=8e-3),
    ("rel_attention", _F32, ANY): Tolerance(max_abs=1e-5),
    ("rel_attention", _BF16, ANY): Tolerance(max_abs=2e-2, rms_ratio=8e-3),
    ("router", _F32, ANY): Tolerance(max_abs=1e-5),
    ("router", _BF16, ANY): Tolerance(rms_ratio=5e-3),
    ("experts", _F32, ANY): Tolerance(max_abs=1e-5),
    ("experts", _BF16, ANY): Tolerance(rms_ratio=8e-3),
    ("shared_experts", _F32, ANY): Tolerance(max_abs=1e-5),
    ("shared_experts", _BF16, ANY): Tolerance(rms_ratio=8e-3),
    ("logits", _F32, ANY): Tolerance(max_abs=1e-5),
    ("logits", _BF16, ANY): Tolerance(rms_ratio=5e-3),
    ("layer", _F32, ANY): Tolerance(max_abs=1e-5),
    ("layer", _BF16, ANY): Tolerance(rms_ratio=1e-2),
    ("model", _F32, ANY): Tolerance(max_abs=1e-5),
}


def tolerance(op: str, dtype: torch.dtype, backend: str = "reference") -> Tolerance:
    """The limit for an op, a back end's own before the general one.

    Raises:
        KeyError: no limit was agreed; add one to the table with its reason.
    """
    for key in ((op, dtype, backend), (op, dtype, ANY)):
        if key in TABLE:
            return TABLE[key]
    raise KeyError(f"no tolerance for op {op!r} in {dtype} on back end {backend!r}")
