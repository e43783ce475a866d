"""`inkling doctor`: a table with remedies, or one JSON object. Exit status 1 where anything is a
fault; warnings do not fail.

Not the checks (`examination.py`). Rich draws the table; without it the lines come plain, because a
broken installation is when this command is wanted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec

from inkling_core.doctor.examination import device_of, examine
from inkling_core.doctor.findings import Finding
from inkling_core.doctor.settings import DoctorSettings
from inkling_core.doctor.subject import Machine, Subject

STYLES = {"ok": "green", "warning": "yellow", "fault": "bold red", "not examined": "dim"}


def run(settings: DoctorSettings) -> int:
    """Examines this machine for `settings`. Returns the exit status."""
    subject = Subject.of(settings, Machine())
    device, findings = device_of(subject), examine(subject)
    if settings.format == "json":
        print(json.dumps(as_json(device, findings), indent=1))
    elif find_spec("rich") is None:
        print("\n".join(_plain(one) for one in findings))
    else:
        _print_table(device, findings)
    if settings.format == "table":
        print(_summary(findings))
    return int(any(one.state == "fault" for one in findings))


def as_json(device: str, findings: Sequence[Finding]) -> dict:
    """`device`, `faults`, `warnings` and the findings, each as an object."""
    states = Counter(one.state for one in findings)
    return {
        "device": device,
        "faults": states["fault"],
        "warnings": states["warning"],
        "findings": [asdict(one) for one in findings],
    }


def _print_table(device: str, findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"inkling doctor: {device}", title_justify="left")
    for heading in ("part", "what", "state", "found", "remedy"):
        table.add_column(heading, overflow="fold")
    for one in findings:
        state = Text(one.state, STYLES[one.state])
        table.add_row(one.part, one.what, state, Text(one.found), Text(one.remedy))
    Console().print(table)


def _plain(one: Finding) -> str:
    line = f"{one.state}: {one.part}, {one.what}: {one.found}"
    return f"{line}\n    {one.remedy}" if one.remedy else line


def _summary(findings: Sequence[Finding]) -> str:
    states = Counter(one.state for one in findings)
    return ", ".join(f"{states[state]} {state}" for state in ("fault", "warning", "ok"))
