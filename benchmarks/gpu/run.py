"""Stages of `benchmarks/gpu.sh`: parity first, then figures of what was found right, then a page.

    python -m gpu.run --out DIR [--seconds 420] [--rehearse]

Not the measures (`measure`), shapes or rivals. A stage that would begin after the time is up is
left out and named; a figure whose own result is outside the table's limits is not printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import triton

from gpu import page, timings
from gpu.measure import machine
from gpu.shapes import TOY, TP8, Inputs
from inkling_core.parity import bundle
from inkling_core.parity.cases import cases
from inkling_core.parity.check import compared
from inkling_core.parity.float64 import Float64Runner
from inkling_cuda_ref.parity import runner

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "packages" / "inkling-core" / "tests" / "data" / "parity_small"
TESTS = ROOT / "packages" / "inkling-cuda-ref" / "tests"
UNITS = ("storage", "joined", "ops_rowwise", "ops_qkvr_prep", "ops_rel_attention", "ops_router")


@dataclass
class Run:
    """What a run has found so far; `problems` decides the exit status."""

    out: Path
    seconds: float
    rehearse: bool
    device: torch.device | None
    started: float = field(default_factory=time.monotonic)
    results: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.started)

    def stage(self, name: str, work: Callable[[], Any]) -> None:
        """Runs one stage; a fault in it is a result, and the next one still runs."""
        if self.left <= 0:
            self.problems.append(f"{name}: left out, the time was up")
            return
        began = time.monotonic()
        try:
            self.results[name] = work()
        except Exception as error:  # a rival that is not there, a kernel that does not compile
            traceback.print_exc()
            self.results[name] = {"not available": f"{type(error).__name__}: {error}"}
            self.problems.append(f"{name}: {type(error).__name__}")
        print(f"{name}: {time.monotonic() - began:.1f} s, {self.left:.0f} s left", flush=True)
        self.write()

    def write(self) -> None:
        document = {**self.results, "problems": self.problems}
        (self.out / "results.json").write_text(json.dumps(document, indent=1) + "\n")
        (self.out / "results.md").write_text(page.markdown(document))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--rehearse", action="store_true", help="CPU, toy sizes, no meaning")
    given = parser.parse_args()
    if not given.rehearse and not torch.cuda.is_available():
        print("gpu.sh: torch sees no GPU; --rehearse runs the steps on a CPU", file=sys.stderr)
        return 2
    device = None if given.rehearse else torch.device("cuda")
    run = Run(given.out, given.seconds, given.rehearse, device)
    rates = machine(device or torch.device("cpu"))
    run.results["machine"] = _machine(rates, run)
    inputs = Inputs(TOY if given.rehearse else TP8, rates.device)
    run.stage("parity small", lambda: parity_small(run))
    run.stage("parity tp8", lambda: parity_tp8(run))
    for name, work in timings.stages(inputs, rates):
        run.stage(name, work)
    run.stage("unit tests", lambda: unit_tests(run))
    run.write()
    print((run.out / "results.md").read_text())
    return int(bool(run.problems))


def _machine(rates: Any, run: Run) -> dict[str, Any]:
    return {
        "device": rates.name,
        "rehearsal": run.rehearse,
        "copy GB/s": rates.bytes_per_s / 1e9,
        "bf16 matmul TFLOP/s": rates.flops_per_s / 1e12,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }


def parity_small(run: Run) -> dict[str, Any]:
    """The shipped float64 bundle; our answers are written as a bundle that names the device."""
    given, asked = bundle.read(SHIPPED), runner(run.device)
    answers = {case.id: asked.answer(case) for case in given.cases}
    name = bundle.device_name(run.device)
    bundle.write(run.out / "bundle", given.cases, answers, asked.name, name)
    return _verdict(
        run, "small", [r for c in given.cases for r in compared(asked, c, given.answers[c.id])]
    )


def parity_tp8(run: Run) -> dict[str, Any]:
    """Real shapes, the answers in float64 computed here on the host; a rehearsal takes `small`."""
    asked, exact = runner(run.device), Float64Runner()
    rows = []
    for case in cases("small" if run.rehearse else "tp8"):
        if case.op != "model":
            rows += compared(asked, case, exact.answer(case))
    return _verdict(run, "tp8", rows)


def _verdict(run: Run, what: str, rows: list[Any]) -> dict[str, Any]:
    failed = [
        f"{row.case} {row.result}: {row.share:.2f} of its limit" for row in rows if not row.passed
    ]
    run.problems += [f"parity {what}: {line}" for line in failed]
    worst = {f"{r.op} {r.dtype}": 0.0 for r in rows}
    for row in rows:
        key = f"{row.op} {row.dtype}"
        worst[key] = max(worst[key], row.share)
    return {"results": len(rows), "over the limit": failed, "worst share of a limit": worst}


def unit_tests(run: Run) -> dict[str, Any]:
    """The package's own tests on this device, where pytest is."""
    if find_spec("pytest") is None:
        return {"not available": "pytest is not installed"}
    files = [str(TESTS / f"test_{name}.py") for name in UNITS[: 1 if run.rehearse else None]]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=max(run.left, 1), check=False
        )
    except subprocess.TimeoutExpired:
        return {"not available": "the time was up"}
    last = done.stdout.strip().splitlines()[-1:]
    if done.returncode:
        run.problems.append(f"unit tests: {last}")
    return {"pytest": last}


if __name__ == "__main__":
    sys.exit(main())
