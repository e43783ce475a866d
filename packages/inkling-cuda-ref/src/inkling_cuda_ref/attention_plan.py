"""Which keys each attention program reads: the work of a step as index tensors, made once per step.

Not the kernel (`ops.rel_attention`). The queries of a request and the X query heads that share a
key/value head are packed into rows, so that keys and values are read once per group:

    row r of a request = token r // X, head r % X of the group
    tile   = ROWS rows of one request
    item   = a tile and a range of its keys; a tile has several where its request is one tile long
             and its context is long: their partial results are merged by log-sum-exp

All columns are int32: request, first row, first key, last key + 1, and for merging the tile.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from inkling_core.step import Step

ITEM_COLUMNS = 4  # request, first row, first key, last key + 1
TILE_COLUMNS = 4  # request, first row, first item, last item + 1


@dataclass(frozen=True, eq=False)
class AttentionPlan:
    """Work of one step.

    items: int32 `[items, 4]`; the first `num_whole` are whole tiles, the rest are parts.
    tiles: int32 `[tiles, 4]`, those that are cut into parts; items count from the first part.
    requests: int32 `[Q, 3]`: packed row of the first token, its position, number of tokens.
    """

    items: Tensor
    num_whole: int
    tiles: Tensor
    requests: Tensor

    @property
    def num_parts(self) -> int:
        return len(self.items) - self.num_whole


@lru_cache(maxsize=4)  # of the newest step: local and global layers, each with one geometry
def plan(
    step: Step, window: int | None, group: int, rows: int, keys_per_part: int
) -> AttentionPlan:
    """The work of `step` for `group` query heads per key/value head, `rows` rows per tile.

    A request whose queries fit one tile is cut into parts of `keys_per_part` keys.
    """
    whole, parts, tiles = [], [], []
    for q, (context, length) in enumerate(zip(step.contexts, step.lengths, strict=True)):
        for row in range(0, length * group, rows):
            last_row = min(row + rows, length * group) - 1
            first_query, last_query = context + row // group, context + last_row // group
            low = 0 if window is None else max(0, first_query - window + 1)
            high = last_query + 1
            if length * group > rows or high - low <= keys_per_part:
                whole.append((q, row, low, high))
                continue
            first = len(parts)
            cuts = range(low, high, keys_per_part)
            parts += [(q, row, key, min(key + keys_per_part, high)) for key in cuts]
            tiles.append((q, row, first, len(parts)))
    rows_of_requests = zip(step.starts, step.contexts, step.lengths, strict=False)
    device = step.block_table_QM.device

    def table(values: list[tuple[int, ...]], columns: int) -> Tensor:
        return torch.tensor(values, dtype=torch.int32).reshape(-1, columns).to(device)

    return AttentionPlan(
        table(whole + parts, ITEM_COLUMNS),
        len(whole),
        table(tiles, TILE_COLUMNS),
        table(list(rows_of_requests), 3),
    )
