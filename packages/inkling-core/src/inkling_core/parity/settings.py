"""Settings of `inkling parity dump`, `check` and `report`.

Not the commands (`check`, `report`). Needs no torch; conventions as in `inkling_core.cli.settings`.
"""

from __future__ import annotations

from dataclasses import dataclass

from inkling_core.cli.settings import REQUIRED, check_at_least, check_choice

CASE_SETS = ("small", "tp8")


@dataclass(frozen=True)
class ParityDumpSettings:
    """Settings of `inkling parity dump`.

    out: folder of the bundle.
    backend: who answers: float64 (the reference ops in float64), reference, cpu, or one that an
    installed package adds, such as cuda_ref.
    cases: set of cases: small, or tp8 for the shapes of one of eight ranks of Inkling-Small.
    ops: ops to ask; an empty list asks all of them, the whole model among them.
    device: where the back end runs: auto, cpu, cuda.
    seed: of the inputs.
    """

    out: str = REQUIRED
    backend: str = "float64"
    cases: str = "small"
    ops: tuple[str, ...] = ()
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("cases", self.cases, CASE_SETS)
        check_at_least("seed", self.seed, 0)


@dataclass(frozen=True)
class ParityCheckSettings:
    """Settings of `inkling parity check`.

    bundle: folder that `inkling parity dump` wrote.
    backend: who is held to it: reference, cpu, or one that an installed package adds.
    device: where the back end runs: auto, cpu, cuda.
    out: JSON file with every result, for `inkling parity report`; null prints the table only.
    """

    bundle: str = REQUIRED
    backend: str = "cpu"
    device: str = "auto"
    out: str | None = None


@dataclass(frozen=True)
class ParityReportSettings:
    """Settings of `inkling parity report`.

    results: JSON files that `inkling parity check out=FILE` wrote, one or more.
    out: folder for report.md and report.svg.
    """

    results: tuple[str, ...] = ()
    out: str = REQUIRED

    def __post_init__(self) -> None:
        if not self.results:
            raise ValueError("results=[] names no file; give results=[FILE,...] of parity check")
