"""Pairs (token, expert) sorted by expert, and the tiles of rows that programs take from them.

Not the math (`ops.experts`). Everything is made on the device without waiting for it:

    order_P     pair at each sorted place; pairs are numbered token * K + choice
    ends_E      sorted place after the last pair of each expert
    tile_ends_E number of the tile after the last tile of each expert

A program finds its expert by counting the tile ends at or below its own number; the grid holds the
most tiles that there can be, and programs beyond the last tile return.
"""

from typing import NamedTuple

import torch
import triton
from torch import Tensor


class ExpertGroups(NamedTuple):
    """See the module. `most_tiles` is a bound that needs no device."""

    order_P: Tensor
    ends_E: Tensor
    tile_ends_E: Tensor
    most_tiles: int


def grouped(ids_TK: Tensor, num_experts: int, rows: int) -> ExpertGroups:
    """Groups of the pairs of `ids_TK`, in tiles of `rows` rows."""
    sorted_P, order_P = ids_TK.flatten().sort(stable=True)
    experts_E = torch.arange(num_experts, device=ids_TK.device)
    ends_E = torch.searchsorted(sorted_P, experts_E, right=True)
    counts_E = torch.diff(ends_E, prepend=ends_E.new_zeros(1))
    tile_ends_E = ((counts_E + rows - 1) // rows).cumsum(0)
    pairs = ids_TK.numel()
    most = triton.cdiv(pairs, rows) + min(num_experts, pairs)
    return ExpertGroups(order_P, ends_E, tile_ends_E, most)


def every_token_each(num_tokens: int, num_experts: int, device: torch.device) -> Tensor:
    """`[T, E]` ids of experts that are always on."""
    return torch.arange(num_experts, device=device).expand(num_tokens, num_experts)
