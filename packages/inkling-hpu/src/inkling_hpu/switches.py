"""The switches of the Gaudi back end, read once from `INKLING_*` variables.

What it is: one frozen object that the runner and the builders hand to every step. The command line
(Hydra) sets the variables, worker processes read them; nobody else reads the environment.

What it is not: a tuning guide. Every switch keeps the answer the same (up to rounding): it
chooses how much is computed and when, and how long the warm-up waits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

MASK_LIMIT = 2**31 - 1
"""Bytes that a mask may never exceed, whatever the budget says: the kernel indexes with int32."""


@dataclass(frozen=True)
class Switches:
    """How a step is run.

    local_window_prefill: local layers fetch and bias only the context blocks that their window
        reaches (`INKLING_LOCAL_WINDOW_PREFILL`).
    near_far: global layers attend to keys that have no bias apart from those that may have one, and
        merge (`INKLING_NEAR_FAR`); off, one mask covers the whole context.
    single_reduce: routed and shared experts are added on each rank and reduced together
        (`INKLING_MOE_SINGLE_REDUCE`); off, each is reduced on its own.
    step_hoist: what depends on the step alone is computed once per step, not once per layer
        (`INKLING_STEP_HOIST`).
    conv_hoist: conv rows of all layers lie in one tensor; a step gathers them once, weighs them
        once (decode) and writes them once (`INKLING_CONV_HOIST`); off, each layer does.
    local_sdpa: in a decode step, local layers run masked SDPA over a rectangle of their window's
        blocks (`INKLING_LOCAL_SDPA`); off, paged attention like global ones.
    shared_in_kernel: shared experts are experts of the one kernel that every token chooses
        (`INKLING_SHARED_IN_KERNEL`); off, they are two products beside it.
    mask_bytes: budget in bytes of one prefill mask with what it is made of (`INKLING_MASK_BYTES`);
        query rows are cut into blocks that fit.
    warmup_step_seconds: longest that the warm-up waits for one graph
        (`INKLING_WARMUP_STEP_SECONDS`); then the process ends with a dump. 0 is no limit.
    """

    local_window_prefill: bool = True
    near_far: bool = True
    single_reduce: bool = True
    step_hoist: bool = True
    conv_hoist: bool = True
    local_sdpa: bool = True
    shared_in_kernel: bool = True
    mask_bytes: int = 512 * 2**20
    warmup_step_seconds: int = 1800

    def __post_init__(self) -> None:
        if not 1 <= self.mask_bytes <= MASK_LIMIT:
            raise ValueError(
                f"INKLING_MASK_BYTES is {self.mask_bytes}, must be in 1..{MASK_LIMIT}: a mask of "
                "2 GiB overflows the kernel's index"
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Switches:
        """Defaults where a variable is unset. ValueError naming the variable and its values."""
        given: dict[str, Any] = {}
        for field in fields(cls):
            variable = VARIABLES[field.name]
            if variable in environment:
                read = _flag if isinstance(field.default, bool) else _count
                given[field.name] = read(variable, environment[variable])
        return cls(**given)

    def environment(self) -> dict[str, str]:
        """The variables that make `from_environment` return this object."""
        return {VARIABLES[f.name]: str(int(getattr(self, f.name))) for f in fields(self)}


DEFAULTS = Switches()
"""What runs where nobody sets anything."""

VARIABLES = {
    "local_window_prefill": "INKLING_LOCAL_WINDOW_PREFILL",
    "near_far": "INKLING_NEAR_FAR",
    "single_reduce": "INKLING_MOE_SINGLE_REDUCE",
    "step_hoist": "INKLING_STEP_HOIST",
    "conv_hoist": "INKLING_CONV_HOIST",
    "local_sdpa": "INKLING_LOCAL_SDPA",
    "shared_in_kernel": "INKLING_SHARED_IN_KERNEL",
    "mask_bytes": "INKLING_MASK_BYTES",
    "warmup_step_seconds": "INKLING_WARMUP_STEP_SECONDS",
}


def _flag(variable: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(f"{variable} is {text!r}, must be 0 or 1")
    return text == "1"


def _count(variable: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{variable} is {text!r}, must be a whole number")
    return int(text)
