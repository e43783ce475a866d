"""Relative attention on a rectangular step; law: `inkling_core.ops.rel_attention`.

A prefill step attends through masked SDPA over context columns and new columns (`prefill`), a
decode step through paged attention over a flat block list (`decode`) and, on local layers, masked
SDPA over a rectangle of blocks (`local_decode`). Not the index math of any.
"""

from torch import Tensor

from inkling_hpu import decode, local_decode, prefill
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
    arguments = (q_TNH, rel_TNR, keys_PLGH, values_PLGH, step)
    if not step.is_decode:
        return prefill.attend(*arguments, window)
    if window is not None and step.switches.local_sdpa:
        return local_decode.attend(*arguments, window)
    return decode.attend(*arguments, window)
