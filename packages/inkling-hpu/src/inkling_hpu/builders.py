"""From an engine's host lists to the tensors of an `HpuStep`: pure functions, torch only.

What it is: the one place where block tables, contexts and bucket sizes become tensors. The paging
simulator of the tests calls `build_prefill` and `build_decode`; a runner that has some tensors
already calls the parts (`conv_rows`, `context_blocks`, `block_list`, `packed`).

What it is not: a bucket policy (the engine's) or a check of block ids (dummy tables of a warm-up
hold anything).

Ids: `pad_block` is the last block of the caches, `pad_block + 1` the zero row of the conv rows.
A request of context n and length l needs blocks 0 .. (n + l - 1) // block_size of its table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from inkling_hpu.step import BlockList, ConvRows, DecodeKeys, HpuStep, PrefillKeys
from inkling_hpu.switches import DEFAULTS, Switches

Table = Sequence[int]


def zero_row(pad_block: int) -> int:
    """The conv row that is zeros for ever: what a request at position 0 starts from."""
    return pad_block + 1


def touched_blocks(row_length: int, block_size: int) -> int:
    """R: most blocks that `row_length` consecutive positions can lie in."""
    return (row_length + block_size - 2) // block_size + 1


def window_blocks(window: int, block_size: int) -> int:
    """Most blocks that the `window` keys of one query can lie in: `window / block_size` + 1 where
    it divides."""
    return touched_blocks(window, block_size)


def reach_of(positions: int, block_size: int) -> int:
    """The `positions - 1` positions before a chunk that its first query may see or have a bias for,
    in whole blocks."""
    return -(-(positions - 1) // block_size) * block_size


def sure_far_blocks(
    buckets: Iterable[tuple[int, int, int]], bucket: tuple[int, int, int], reach: int, size: int
) -> int:
    """Far blocks of every request that gets `bucket` (rows, query tokens, context blocks).

    It has more context blocks than the next smaller bucket of its rows and query tokens, or it
    would have got that one; what is `reach` positions of those away is far, whatever is padding.
    """
    rows, query, blocks = bucket
    smaller = (b for r, q, b in buckets if (r, q) == (rows, query) and b < blocks)
    return max(0, max(smaller, default=0) - reach // size)


@dataclass(frozen=True)
class FarBlocks:
    """`sure_far_blocks` of a server, kept from the first step of a bucket on: vllm-gaudi lists more
    buckets while it serves, and a bucket has one graph.

    reach: positions before a chunk that may have a bias. block_size: positions of a block.
    """

    reach: int
    block_size: int
    known: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def of(self, buckets: Iterable[tuple[int, int, int]], bucket: tuple[int, int, int]) -> int:
        """Far blocks of `bucket`, by what was listed when it was first asked for."""
        if bucket not in self.known:
            self.known[bucket] = sure_far_blocks(buckets, bucket, self.reach, self.block_size)
        return self.known[bucket]


def build_prefill(
    lengths: Sequence[int],
    contexts: Sequence[int],
    tables: Sequence[Table],
    *,
    num_rows: int,
    row_length: int,
    num_context_blocks: int,
    block_size: int,
    pad_block: int,
    num_far_blocks: int = 0,
    reach: int = 0,
    switches: Switches = DEFAULTS,
    device: torch.device | str | None = None,
) -> HpuStep:
    """A prefill step of up to `num_rows` requests in buckets of `row_length` new tokens and
    `num_context_blocks` context blocks.

    The first `num_far_blocks` of them are far where that is true of every row: all their positions
    lie before `context - reach`. Where it is not, or with `near_far` off, none is.

    Raises ValueError where a request does not fit its bucket or its table.
    """
    _check(lengths, contexts, tables, num_rows, block_size)
    longest = max(lengths, default=0)
    if longest > row_length:
        raise ValueError(f"a request brings {longest} tokens, the bucket has {row_length}")
    positions_T, slots_T = packed(
        lengths, contexts, tables, num_rows, row_length, block_size, pad_block
    )
    padded = [0] * (num_rows - len(lengths))
    blocks_QM = context_blocks(
        contexts, tables, num_rows, num_context_blocks, block_size, pad_block
    ).to(device)
    far = num_far_blocks if switches.near_far else 0
    if min([*contexts, *padded]) < far * block_size + reach:
        far = 0
    keys = PrefillKeys(
        torch.tensor([*contexts, *padded]).to(device),
        torch.tensor([*lengths, *padded]).to(device),
        blocks_QM[:, :far],
        blocks_QM[:, far:],
    )
    rows = conv_rows(lengths, contexts, tables, num_rows, row_length, block_size, pad_block)
    return HpuStep(
        positions_T.to(device),
        slots_T.to(device),
        num_rows,
        _moved(rows, device),
        keys,
        block_size,
        switches,
    )


def build_decode(
    contexts: Sequence[int],
    tables: Sequence[Table],
    *,
    num_rows: int,
    num_blocks: int,
    window: int,
    block_size: int,
    pad_block: int,
    switches: Switches = DEFAULTS,
    device: torch.device | str | None = None,
) -> HpuStep:
    """A decode step of up to `num_rows` requests, one new token each, in a bucket of `num_blocks`
    key blocks; local layers get `window_blocks(window, block_size)` of them for each row.

    Raises ValueError where the requests do not fit the buckets or a table is short.
    """
    ones = [1] * len(contexts)
    _check(ones, contexts, tables, num_rows, block_size)
    positions_T, slots_T = packed(ones, contexts, tables, num_rows, 1, block_size, pad_block)
    every = block_list(contexts, tables, num_blocks, block_size, pad_block)
    near = window_list(contexts, tables, num_rows, block_size, pad_block, window)
    rows = conv_rows(ones, contexts, tables, num_rows, 1, block_size, pad_block)
    return HpuStep(
        positions_T.to(device),
        slots_T.to(device),
        num_rows,
        _moved(rows, device),
        DecodeKeys(_list_on(every, device), _list_on(near, device)),
        block_size,
        switches,
    )


# ---- parts -------------------------------------------------------------------------------------


def packed(
    lengths: Sequence[int],
    contexts: Sequence[int],
    tables: Sequence[Table],
    num_rows: int,
    row_length: int,
    block_size: int,
    pad_block: int,
) -> tuple[Tensor, Tensor]:
    """`positions_T` and `slots_T` of `num_rows` rows; 0 and the pad block's slots in padding."""
    positions_QS = torch.zeros(num_rows, row_length, dtype=torch.int64)
    slots_QS = positions_QS + pad_block * block_size
    for q, (length, context, table) in enumerate(zip(lengths, contexts, tables, strict=True)):
        new_S = torch.arange(context, context + length)
        blocks_S = torch.tensor(table, dtype=torch.int64)[new_S // block_size]
        positions_QS[q, :length] = new_S
        slots_QS[q, :length] = blocks_S * block_size + new_S % block_size
    return positions_QS.flatten(), slots_QS.flatten()


def context_blocks(
    contexts: Sequence[int],
    tables: Sequence[Table],
    num_rows: int,
    num_context_blocks: int,
    block_size: int,
    pad_block: int,
) -> Tensor:
    """int64 [Q, num_context_blocks] context blocks. ValueError where a context does not fit."""
    blocks_QM = torch.full((num_rows, num_context_blocks), pad_block, dtype=torch.int64)
    for q, (context, table) in enumerate(zip(contexts, tables, strict=True)):
        count = -(-context // block_size)
        if count > num_context_blocks:
            raise ValueError(
                f"request {q} has {count} context blocks, the bucket has {num_context_blocks}"
            )
        blocks_QM[q, :count] = torch.tensor(table[:count], dtype=torch.int64)
    return blocks_QM


def block_list(
    contexts: Sequence[int],
    tables: Sequence[Table],
    num_blocks: int,
    block_size: int,
    pad_block: int,
) -> BlockList:
    """Blocks of all positions 0 .. context of each decoding request. ValueError where they do not
    fit `num_blocks`."""
    blocks: list[int] = []
    groups: list[int] = []
    for q, (context, table) in enumerate(zip(contexts, tables, strict=True)):
        mine = table[: context // block_size + 1]
        blocks += mine
        groups += [q] * len(mine)
    if len(blocks) > num_blocks:
        raise ValueError(f"{len(blocks)} key blocks are listed, the bucket has {num_blocks}")
    padding = num_blocks - len(blocks)
    return BlockList(
        torch.tensor(blocks + [pad_block] * padding, dtype=torch.int64),
        torch.tensor(groups + [-1] * padding, dtype=torch.int64),
    )


def window_list(
    contexts: Sequence[int],
    tables: Sequence[Table],
    num_rows: int,
    block_size: int,
    pad_block: int,
    window: int,
) -> BlockList:
    """Blocks of the last `window` positions of each decoding request, a rectangle: every row has
    `window_blocks` entries, its own first and padding behind them."""
    blocks_QM = torch.full((num_rows, window_blocks(window, block_size)), pad_block)
    groups_QM = torch.full_like(blocks_QM, -1)
    for q, (context, table) in enumerate(zip(contexts, tables, strict=True)):
        first = max(0, context - window + 1) // block_size
        mine = list(table[first : context // block_size + 1])
        blocks_QM[q, : len(mine)] = torch.tensor(mine)
        groups_QM[q, : len(mine)] = q
    return BlockList(blocks_QM.flatten(), groups_QM.flatten())


def conv_rows(
    lengths: Sequence[int],
    contexts: Sequence[int],
    tables: Sequence[Table],
    num_rows: int,
    row_length: int,
    block_size: int,
    pad_block: int,
) -> ConvRows:
    """See `ConvRows`; R = touched_blocks(row_length, block_size)."""
    touched = touched_blocks(row_length, block_size)
    load_Q = torch.full((num_rows,), zero_row(pad_block), dtype=torch.int64)
    store_QR = torch.full((num_rows, touched), pad_block, dtype=torch.int64)
    ends_QR = torch.zeros(num_rows, touched, dtype=torch.int64)
    for q, (length, context, table) in enumerate(zip(lengths, contexts, tables, strict=True)):
        if context:
            load_Q[q] = table[(context - 1) // block_size]
        first, last = context // block_size, (context + length - 1) // block_size
        for r, block in enumerate(range(first, last + 1)):
            store_QR[q, r] = table[block]
            ends_QR[q, r] = min((block + 1) * block_size - context, length)
    return ConvRows(load_Q, store_QR, ends_QR)


def _check(
    lengths: Sequence[int],
    contexts: Sequence[int],
    tables: Sequence[Table],
    num_rows: int,
    block_size: int,
) -> None:
    if not len(lengths) == len(contexts) == len(tables) <= num_rows:
        raise ValueError(
            f"{len(lengths)} lengths, {len(contexts)} contexts and {len(tables)} block tables for "
            f"{num_rows} rows: give one of each per request, and no more than there are rows"
        )
    for q, (length, context, table) in enumerate(zip(lengths, contexts, tables, strict=True)):
        needed = -(-(context + length) // block_size)
        if len(table) < needed:
            raise ValueError(
                f"request {q} needs {needed} blocks of {block_size}, its table has {len(table)}: "
                "allot its blocks before the step"
            )


def _moved(rows: ConvRows, device: torch.device | str | None) -> ConvRows:
    return ConvRows(rows.load_Q.to(device), rows.store_QR.to(device), rows.ends_QR.to(device))


def _list_on(blocks: BlockList, device: torch.device | str | None) -> BlockList:
    return BlockList(blocks.blocks_P.to(device), blocks.groups_P.to(device))
