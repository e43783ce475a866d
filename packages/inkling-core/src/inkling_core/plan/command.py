"""`inkling plan`: a plan, or why there is none and the smallest change that makes one.

Exit status 1 where the plan is impossible. Not the arithmetic (cpu.py; inkling_hpu.plan) and not
its tables (report.py).
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from rich.console import Console

from inkling_core.config import PRESETS
from inkling_core.config.named import config_of
from inkling_core.plan import report
from inkling_core.plan.change import Change, Search
from inkling_core.plan.cpu import CPU
from inkling_core.plan.record import Planner, Problem, length_of, ranks_of
from inkling_core.plan.settings import PlanSettings
from inkling_core.weights.info import GIB

if TYPE_CHECKING:
    from inkling_core.config import InklingConfig

GROUP = "inkling.plan"


def run(settings: PlanSettings) -> int:
    """Prints the plan or the refusal; the exit status."""
    planner, config = planner_of(settings.device), config_of(settings.model)
    # read once: what is free on this machine changes between two looks
    settings = replace(settings, memory_gib=planner.memory_bytes(settings) / GIB)
    problems = planner.problems(settings, config)
    if problems:
        found = changes(planner, settings, config)
        if settings.format == "json":
            print(json.dumps(refused_json(problems, found), indent=1))
        else:
            print("\n".join(report.refusal(problems, found)))
        return 1
    plan = planner.plan(settings, config)
    if settings.format == "json":
        print(json.dumps(plan.as_json(), indent=1))
    elif settings.format == "plot":
        report.print_plot(Console(), plan)
    else:
        report.print_tables(Console(), plan)
    return 0


def planner_of(device: str) -> Planner:
    """Raises ValueError where the package of that device is not installed."""
    if device == "cpu":
        return CPU
    for point in entry_points(group=GROUP):
        if point.name == device:
            return point.load()
    raise ValueError(f"device={device} needs inkling-hpu: pip install ./packages/inkling-hpu")


def changes(planner: Planner, asked: PlanSettings, config: InklingConfig) -> list[Change]:
    """Changes that make the plan possible, the smallest first; [] where nothing does."""
    sizes = planner.sizes(config)
    start = {
        "max_model_len": length_of(asked, config),
        "tensor_parallel": ranks_of(asked, sizes),
        "memory_gib": planner.memory_bytes(asked) / GIB,
    }
    choices = {
        "tensor_parallel": sizes,
        "block_size": list(planner.block_sizes),
        "model": [name for name in PRESETS if name != asked.model],
    }

    @cache
    def problems_of(settings: PlanSettings) -> list[Problem]:
        same = settings.model == asked.model
        return planner.problems(settings, config if same else config_of(settings.model))

    return Search(problems_of, start, choices).changes(asked)


def refused_json(problems: list[Problem], found: list[Change]) -> dict[str, Any]:
    """`possible`, every problem, and every change, the smallest first."""
    return {
        "possible": False,
        "problems": [{"key": one.key, "text": one.text} for one in problems],
        "changes": found,
    }
