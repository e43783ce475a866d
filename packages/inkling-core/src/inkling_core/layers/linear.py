"""Bare weight holders, so that a module's parameter path is the published tensor name.

Not initialised: parameters are born on the meta device with the shape this rank owns, and
`Decoder.load_weights` puts the checkpoint's tensors in their place.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inkling_core.packed_experts import PackedExperts


def frozen(value: Tensor) -> nn.Parameter:
    """A parameter that holds `value`; nothing is trained here."""
    return nn.Parameter(value, requires_grad=False)


def parameter(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """A frozen parameter without storage."""
    return frozen(torch.empty(shape, dtype=dtype, device="meta"))


def put(module: nn.Module, name: str, value: Tensor | PackedExperts) -> None:
    """Replaces the parameter `name` of `module`; packed experts are no parameter but stand there
    under its name."""
    if isinstance(value, Tensor):
        setattr(module, name, frozen(value))
    else:
        delattr(module, name)
        setattr(module, name, value)


class Weight(nn.Module):
    """One tensor called `weight`."""

    def __init__(self, *shape: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = parameter(*shape, dtype=dtype)


class Linear(Weight):
    """`y = x @ weight.T`, no bias anywhere in the family."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)
