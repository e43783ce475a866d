"""`inkling gates`: runs the gates against a server, prints a table, writes a report.

Not the gates (`checks`). Exit status 0 when every finding holds, 1 otherwise; a gate that raises
is a failed gate, never a stopped run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from inkling_core.cli.settings import GatesSettings
from inkling_core.embedded import EMBEDDED, checkpoint_folder
from inkling_core.gates.checks import GATES
from inkling_core.gates.client import Client
from inkling_core.gates.long_checks import LONG_GATES
from inkling_core.gates.reference import Reference
from inkling_core.gates.verdict import Finding, Target
from inkling_core.naming import suggestion

TIERS = {"core": GATES, "long": LONG_GATES}


@dataclass(frozen=True)
class GateReport:
    """One gate: its findings and how long it took."""

    gate: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Everything held, and something was asked at all."""
        asked = [finding for finding in self.findings if not finding.left_out]
        return bool(asked) and all(finding.ok for finding in asked)


def run(settings: GatesSettings) -> int:
    """Runs the chosen gates. Returns the exit status."""
    tier = TIERS[settings.tier]
    for name in settings.gates:
        if name not in tier:
            raise ValueError(
                f"gates={name}: choose from {', '.join(tier)} of tier={settings.tier}; "
                f"{suggestion(name, tuple(tier))}"
            )
    folder = checkpoint_folder(settings.checkpoint)
    key = settings.api_key or os.environ.get("INKLING_API_KEY")
    target = Target(
        Client(settings.url, key, settings.seconds(), settings.model),
        Reference.load(folder),
        is_nano=folder == EMBEDDED,
        chunk=settings.chunk,
    )
    console = Console()
    reports = []
    for name in settings.gates or tier:
        report = _run_gate(name, tier[name], target)
        reports.append(report)
        _print(console, report)
    passed = sum(report.passed for report in reports)
    failed = len(reports) - passed
    console.print(_summary(reports))
    console.print(f"{passed} passed, {failed} failed")
    if settings.out:
        content = {
            "url": settings.url,
            "tier": settings.tier,
            "gates": [asdict(report) for report in reports],
        }
        Path(settings.out).write_text(json.dumps(content, indent=1) + "\n")
    return 1 if failed else 0


def _run_gate(name: str, gate: Callable[[Target], Iterator[Finding]], target: Target) -> GateReport:
    began = time.monotonic()
    findings: list[Finding] = []
    try:
        findings.extend(gate(target))
    except Exception as error:
        findings.append(Finding("the gate itself", False, f"{type(error).__name__}: {error}"))
    return GateReport(name, tuple(findings), time.monotonic() - began)


def _print(console: Console, report: GateReport) -> None:
    """The line of a gate, then only what failed and what was left out."""
    held, failed, _ = _counts(report)
    mark = "[green]pass[/]" if report.passed else "[red]FAIL[/]"
    console.print(f"{mark} {report.gate}: {held} of {held + failed}")
    for finding in report.findings:
        if finding.left_out or not finding.ok:
            style, told = ("yellow", "left out: ") if finding.left_out else ("red", "")
            text = f"     {finding.what}: {told}{finding.detail}"
            console.print(text, style=style, markup=False)


def _counts(report: GateReport) -> tuple[int, int, int]:
    """Findings that held, that failed, that were left out."""
    left_out = sum(finding.left_out for finding in report.findings)
    held = sum(finding.ok and not finding.left_out for finding in report.findings)
    return held, len(report.findings) - held - left_out, left_out


def _summary(reports: list[GateReport]) -> Table:
    table = Table("gate", "held", "failed", "left out", "seconds", title="gates")
    for report in reports:
        counts = [str(count) for count in _counts(report)]
        table.add_row(report.gate, *counts, f"{report.seconds:.1f}")
    return table
