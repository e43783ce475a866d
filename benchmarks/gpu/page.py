"""results.md: the figures of a run as a page. Not a judge; `timings` says what was met."""

from __future__ import annotations

from typing import Any


def markdown(document: dict[str, Any]) -> str:
    """The whole page; stages in the order in which they ran."""
    machine = document.get("machine", {})
    title = f"# {machine.get('device', 'unknown device')}"
    lines = [
        title + (" - a rehearsal: no figure means anything" if machine.get("rehearsal") else "")
    ]
    lines += ["", "| | |", "|---|---|"]
    for name, value in machine.items():
        lines.append(f"| {name} | {_cell(value)} |")
    for name, stage in document.items():
        if name in ("machine", "problems"):
            continue
        lines += ["", f"## {name}", "", "| | |", "|---|---|"]
        for key, value in _flat(stage):
            lines.append(f"| {key} | {_cell(value)} |")
    lines += ["", "## problems", ""]
    lines += [f"- {line}" for line in document.get("problems", [])] or ["none"]
    return "\n".join(lines) + "\n"


def _flat(stage: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in stage.items():
        name = f"{prefix}{key}"
        found += _flat(value, f"{name}: ") if isinstance(value, dict) else [(name, value)]
    return found


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value).replace("|", "\\|") if value not in ([], None) else "none"
