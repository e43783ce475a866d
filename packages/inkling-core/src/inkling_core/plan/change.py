"""The smallest changes of its settings that make an impossible plan possible.

    a change   one setting moved to the nearest value at which its problem is gone and no other
               problem of its stage or an earlier one has come; then the same for what is left, by
               the nearest move each time
    smallest   settings before cards, cards before their memory, memory before another model (COST);
               among equals the least sum of |log2(new / old)|

Each found change has been tried: with it the plan has no problem. Every move takes a problem of its
stage away and brings none there, so the search comes to an end.

What it is not: the problems (record.Planner.problems).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from inkling_core.plan.record import Problem, Way
from inkling_core.plan.settings import PlanSettings

Change = dict[str, Any]
"""Setting -> new value."""

STEPS: Mapping[str, tuple[float, float, float]] = {
    "max_model_len": (1, 2, 2**31),
    "max_num_seqs": (1, 1, 2**20),
    "max_num_batched_tokens": (1, 2, 2**20),
    "kv_cache_mib": (1, 1, 2**24),
    "num_gpu_blocks_override": (1, 1, 2**31),
    "cards": (1, 1, 2**16),
    "memory_gib": (1, 1, 2**20 - 1),
    "gpu_memory_utilization": (0.01, 0.01, 1.0),
}
"""Step, smallest and largest value of the settings that move in steps."""

COST: Mapping[str, int] = {"cards": 1, "memory_gib": 2, "model": 3}
"""What is dearer to change than a setting, which costs 0."""


@dataclass(frozen=True)
class Search:
    """problems_of: everything against a plan. start: the value that a setting has which is null.
    choices: values of the settings that do not move in steps."""

    problems_of: Callable[[PlanSettings], list[Problem]]
    start: Mapping[str, float]
    choices: Mapping[str, list[Any]]

    def changes(self, asked: PlanSettings) -> list[Change]:
        """Every change found that holds no other, the smallest first; [] where nothing helps."""
        found: list[Change] = []
        for first in self._firsts(asked):
            rest = self._rest(replace(asked, **first))
            if rest is not None and {**first, **rest} not in found:
                found.append({**first, **rest})
        needed = [one for one in found if not any(less.items() < one.items() for less in found)]
        return sorted(needed, key=lambda change: self._distance(asked, change))

    def _rest(self, asked: PlanSettings) -> Change | None:
        """What is left to be changed, the nearest move first; None where nothing helps."""
        if not self.problems_of(asked):
            return {}
        for first in sorted(self._firsts(asked), key=lambda one: self._distance(asked, one)):
            rest = self._rest(replace(asked, **first))
            if rest is not None:
                return {**first, **rest}
        return None

    def _firsts(self, asked: PlanSettings) -> list[Change]:
        """The moves against the first problem."""
        problems = self.problems_of(asked)
        moves = [self._moved(asked, problems, way) for way in problems[0].ways] if problems else []
        return [move for move in moves if move is not None]

    def _moved(self, asked: PlanSettings, problems: list[Problem], way: Way) -> Change | None:
        """The nearest value of one setting that takes the first problem away and brings none."""
        problem, *others = problems
        known = {one.key for one in others}

        def gone(change: Change) -> bool:
            after = self.problems_of(replace(asked, **change))
            return problem.key not in {one.key for one in after}

        def brings_none(change: Change) -> bool:
            after = self.problems_of(replace(asked, **change))
            return all(one.key in known or one.stage > problem.stage for one in after)

        if way.setting in STEPS:
            nearest = self._by_steps(asked, way, gone)
            return nearest if nearest is not None and brings_none(nearest) else None
        tried = [_choice(asked, way.setting, value) for value in self.choices[way.setting]]
        tried.sort(key=lambda change: self._distance(asked, change))
        return next((one for one in tried if gone(one) and brings_none(one)), None)

    def _by_steps(
        self, asked: PlanSettings, way: Way, gone: Callable[[Change], bool]
    ) -> Change | None:
        """By bisection, as `gone` holds from some value on; None where it never does."""
        step, least, most = STEPS[way.setting]
        first = self._value(asked, way.setting) / step
        near = math.floor(first) if way.up else math.ceil(first)
        far = round((most if way.up else least) / step)

        def change(count: int) -> Change:
            return {way.setting: round(count * step, 2) if step < 1 else count}

        if (far > near) is not way.up or far == near or not gone(change(far)):
            return None
        while abs(far - near) > 1:
            middle = (near + far) // 2
            near, far = (near, middle) if gone(change(middle)) else (middle, far)
        return change(far)

    def _distance(self, asked: PlanSettings, change: Change) -> tuple[int, float]:
        """To sort by: the dearest of its settings, then how far they move."""
        numbers = {name: value for name, value in change.items() if not isinstance(value, str)}
        moves = [abs(math.log2(new / self._value(asked, name))) for name, new in numbers.items()]
        return max(COST.get(name, 0) for name in change), sum(moves)

    def _value(self, asked: PlanSettings, setting: str) -> float:
        value = getattr(asked, setting)
        return self.start[setting] if value is None else value


def _choice(asked: PlanSettings, setting: str, value: Any) -> Change:
    """A server of more cards needs a machine that has them."""
    if setting == "tensor_parallel" and value > asked.cards:
        return {setting: value, "cards": value}
    return {setting: value}
