"""Relative attention on a rectangular step; law: `inkling_core.ops.rel_attention`.

A prefill step attends through masked SDPA over context columns and new columns (`prefill`), a
decode step through paged attention over a flat block list (`decode`). Not the index math of
either.
"""

from torch import Tensor

from inkling_hpu import decode, prefill
from inkling_hpu.step import HpuStep as Step  # the name that the law's signature has


def rel_attention(
    q_TNH: Tensor,
    rel_TNR: Tensor,
    keys_PLGH: Tensor,
    values_PLGH: Tensor,
    step: Step,
    window: int | None,
) -> Tensor:
    """See `inkling_core.ops.rel_attention`: same arguments, same result in rows of tokens; padding
    rows hold finite values."""
    attend = decode.attend if step.is_decode else prefill.attend
    return attend(q_TNH, rel_TNR, keys_PLGH, values_PLGH, step, window)
