"""Vocabulary head: the law's own body, a division and a product. Law: `inkling_core.ops.logits`.

Not the gather of the shards (the decoder's).
"""

from torch import Tensor

from inkling_core import ops as law


def logits(x_TD: Tensor, unembed_VD: Tensor, multiplier: float) -> Tensor:
    """See `inkling_core.ops.logits`: same arguments, same result."""
    return law.logits(x_TD, unembed_VD, multiplier)
