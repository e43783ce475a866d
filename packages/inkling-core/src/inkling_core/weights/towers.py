"""Widths of the image tower, a hierarchical MLP that folds a patch into one vector. No torch.

Only for sizes: nothing here runs the tower. A patch of t x p x p pixels of c channels is folded
step by step; each step merges a block of neighbours and widens the channels:

    grids     (1,1,c) -> (1,f1) -> (1,f1*f2) -> ... -> (1,p) -> (t,p), factors largest first
    channels  c f^2 rounded up to 64 while growing in space
    layer i   in = channels(i) * merged neighbours, out = channels(i+1); the last out = hidden

With fewer layers than grids, the layers take the grids whose sizes are nearest (in log) to even
steps, each at most once and in order; with more, the nearest each. First and last are fixed.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from math import ceil, log, prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inkling_core.config import VisionConfig

Grid = tuple[int, int, int]  # frames, pixels along one side, channels

ROUND_TO = 64


def hmlp_widths(vision: VisionConfig, hidden_size: int) -> list[tuple[int, int]]:
    """(input width, output width) of each linear layer, in order."""
    grids = _chosen_grids(vision)
    widths = []
    for index, (start, end) in enumerate(pairwise(grids)):
        merged = (end[0] // start[0]) * (end[1] // start[1]) ** 2
        last = index == vision.num_layers - 1
        widths.append((start[2] * merged, hidden_size if last else end[2]))
    return widths


def _chosen_grids(vision: VisionConfig) -> list[Grid]:
    grids = _all_grids(vision)
    steps = vision.num_layers + 1
    sizes = [log(prod((frames, side, side))) for frames, side, _ in grids]
    total = log(vision.patch_size**2 * vision.temporal_patch_size * vision.num_channels)
    ideal = [total * step / vision.num_layers for step in range(steps)]
    if vision.num_layers >= len(grids):
        picked = [min(range(len(grids)), key=lambda g: abs(sizes[g] - want)) for want in ideal]
    else:
        picked = list(
            min(
                combinations(range(len(grids)), steps),
                key=lambda choice: sum(
                    abs(sizes[g] - want) for g, want in zip(choice, ideal, strict=True)
                ),
            )
        )
    picked[0], picked[-1] = 0, len(grids) - 1
    return [grids[g] for g in picked]


def _all_grids(vision: VisionConfig) -> list[Grid]:
    grids: list[Grid] = [(1, 1, vision.num_channels)]
    side = frames = 1
    for factor in _prime_factors(vision.patch_size):
        side *= factor
        grids.append((1, side, ceil(side * side * vision.num_channels / ROUND_TO) * ROUND_TO))
    for factor in _prime_factors(vision.temporal_patch_size):
        frames *= factor
        grids.append((frames, side, side * side * vision.num_channels * frames * ROUND_TO))
    return grids


def _prime_factors(number: int) -> list[int]:
    """Prime factors, largest first."""
    factors = []
    divisor = 2
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors[::-1]
