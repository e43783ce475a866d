"""Index tensors of a packed step, made on the host once per step and kept for all its layers.

Not a step (`inkling_core.step`). In int32:

    owner_T     the request of each packed token, -1 in padding rows
    first_T     the packed row of its request's first token, 0 in padding rows
"""

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class Packing(NamedTuple):
    """Whose each token is; see the module."""

    owner_T: Tensor
    first_T: Tensor


def packing(starts: Sequence[int], num_tokens: int, device: torch.device) -> Packing:
    """The packing of `num_tokens` rows whose requests begin at `starts` (Q + 1 offsets)."""
    return _packing(tuple(starts), num_tokens, device)


@lru_cache(maxsize=16)
def _packing(starts: tuple[int, ...], num_tokens: int, device: torch.device) -> Packing:
    owner_T = torch.full((num_tokens,), -1, dtype=torch.int32)
    first_T = torch.zeros(num_tokens, dtype=torch.int32)
    for q, (start, end) in enumerate(itertools.pairwise(starts)):
        owner_T[start:end], first_T[start:end] = q, start
    return Packing(owner_T.to(device), first_T.to(device))
