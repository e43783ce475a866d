"""Drives a decoder through ragged steps: several sequences, uneven chunks, scattered blocks.

Not a scheduler: the schedule is drawn from a seed, with everything an engine may do to one step
(requests of different lengths side by side, order changing, blocks in no order, padding rows).
The logits it returns are comparable with one-shot logits of each sequence alone.
"""

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from inkling_core.generate import allocate_caches
from inkling_core.layers.context import Caches
from inkling_core.model import Decoder
from inkling_core.step import Step


def run_ragged(
    decoder: Decoder,
    sequences: Sequence[Sequence[int]],
    chunk_sizes: Sequence[int],
    *,
    block_size: int = 16,
    padding: int = 0,
    seed: int = 0,
) -> list[Tensor]:
    """Feeds all sequences together; every step takes a chunk of each unfinished one.

    Args:
        decoder: with weights loaded.
        sequences: token ids.
        chunk_sizes: sizes to draw from, one draw per sequence and step.
        block_size: positions per block.
        padding: rows appended to every step that belong to nobody.
        seed: of the draws.

    Returns:
        `[T_i, V]` logits of each sequence.
    """
    draw = random.Random(seed)
    tables, total = _scatter_blocks([len(s) for s in sequences], block_size, draw)
    caches = allocate_caches(decoder, total, block_size)
    done = [0] * len(sequences)
    parts: list[list[Tensor]] = [[] for _ in sequences]
    while pending := [i for i, s in enumerate(sequences) if done[i] < len(s)]:
        draw.shuffle(pending)
        sizes = [min(draw.choice(chunk_sizes), len(sequences[i]) - done[i]) for i in pending]
        ids = [t for i, n in zip(pending, sizes, strict=True) for t in sequences[i][done[i] :][:n]]
        step = Step.build(
            sizes,
            [done[i] for i in pending],
            [tables[i] for i in pending],
            block_size,
            padded_to=len(ids) + padding,
            device=decoder.device,
        )
        logits_TV = _run(decoder, ids + [0] * padding, step, caches)
        for i, n, rows in zip(pending, sizes, logits_TV[: len(ids)].split(sizes), strict=True):
            parts[i].append(rows)
            done[i] += n
    return [torch.cat(rows) for rows in parts]


def _run(decoder: Decoder, ids: list[int], step: Step, caches: Caches) -> Tensor:
    return decoder.logits(decoder(torch.tensor(ids, device=decoder.device), step, caches))


def _scatter_blocks(
    lengths: list[int], block_size: int, draw: random.Random
) -> tuple[list[list[int]], int]:
    """Block ids in random order for each sequence, and how many there are."""
    counts = [-(-length // block_size) for length in lengths]
    free = list(range(1, sum(counts) + 1))
    draw.shuffle(free)
    return [[free.pop() for _ in range(count)] for count in counts], sum(counts)
