"""What step number n trains on, and how fast: phases and learning rates, by step alone.

What it is: a pure function of the step number, so that a run can stop and resume anywhere and give
the same sequence of batches.
What it is not: the content of rows (rows.py) or the update rules (optimizer.py).

Dense short rows come first: they teach the look-up that everything else builds on. Long rows come
when that works. The rate is constant, then falls on lines to 3 percent; the fall is what turns
"nearly always right" into "always".
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from inkling_core.nano.rows import Mix

TOKENS_PER_STEP = 8192
MUON_LR, ADAM_LR = 2e-2, 4e-3
WARMUP = 20


@dataclass(frozen=True)
class Phase:
    """Steps up to `until` (exclusive) draw a row length from `lengths` with `weights`."""

    until: int
    lengths: tuple[int, ...]
    weights: tuple[int, ...]
    mix: Mix


UPTO_512, UPTO_1024, UPTO_2048 = (256, 512), (256, 512, 1024), (256, 512, 1024, 2048)
PHASES = (
    Phase(460, (256,), (1,), Mix(dense=0.9, repeat=0.2, lag=0.08, far=0.0)),
    Phase(660, UPTO_512, (1, 1), Mix(dense=0.6, repeat=0.1, lag=0.12, far=0.6)),
    Phase(860, UPTO_1024, (1, 1, 1), Mix(dense=0.4, repeat=0.05, lag=0.08, far=0.6)),
    Phase(950, UPTO_2048, (2, 2, 2, 5), Mix(dense=0.3, repeat=0.02, lag=0.04, far=0.4)),
    Phase(1400, UPTO_2048, (2, 2, 2, 5), Mix(0.25, 0.02, 0.05, 0.6, facts=0.3, sums=0.75)),
    Phase(
        2200,
        UPTO_2048,
        (4, 2, 2, 3),
        Mix(0.25, 0.02, 0.05, 0.5, facts=0.35, sums=0.7, sum_rows=0.35),
    ),
    Phase(
        2500, UPTO_2048, (4, 2, 1, 2), Mix(0.2, 0.02, 0.03, 0.5, facts=0.35, sums=0.7, sum_rows=0.4)
    ),
    Phase(
        2850,
        UPTO_2048,
        (4, 2, 1, 2),
        Mix(0.35, 0.02, 0.03, 0.5, facts=0.45, sums=0.7, sum_rows=0.35),
    ),
)
STEPS = PHASES[-1].until
# (step, share of the full rate), straight lines between. Sums came late, hence the second plateau
# and the two humps at the end.
RATES = (
    (WARMUP, 1.0),
    (1250, 1.0),
    (1400, 0.818125),
    (1700, 0.818125),
    (2200, 0.03),
    (2215, 0.4),
    (2320, 0.4),
    (2500, 0.02),
    (2515, 0.35),
    (2630, 0.35),
    (STEPS, 0.01),
)


def phase_of(step: int) -> Phase:
    """The phase of a step counted from 0; the last one lasts for ever."""
    return next((phase for phase in PHASES if step < phase.until), PHASES[-1])


def row_length(step: int, seed: int) -> int:
    """Row length of a step; drawn from its phase."""
    phase = phase_of(step)
    return random.Random(f"length/{seed}/{step}").choices(phase.lengths, phase.weights)[0]


def rate(step: int) -> float:
    """Share of the full learning rate at a step counted from 0."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    for (begin, high), (end, low) in pairwise(RATES):
        if step < end:
            return high + (low - high) * (step - begin) / (end - begin)
    return RATES[-1][1]
