"""A plan as tables, as a plot in the terminal, or as the lines of a refusal.

Not the figures: each cell is one of `Plan.as_json`. The plot is made of Rich's bars, so that it
needs no plotting library: requests against their length, tokens per second against streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from inkling_core.plan.change import Change
from inkling_core.plan.record import Plan, Problem, StepTime
from inkling_core.weights.info import GIB

WIDTH = 40  # cells of the longest bar


def refusal(problems: Sequence[Problem], found: Sequence[Change]) -> Iterator[str]:
    """Every problem, then the smallest change and the others."""
    yield f"impossible, for {len(problems)} reason(s):"
    for problem in problems:
        yield f"  - {problem.text}"
    if not found:
        yield "no change of these settings makes it possible"
    for number, change in enumerate(found):
        lead = "or" if number else "the smallest change that makes it possible:"
        yield f"{lead} {assignments(change)}"


def assignments(change: Change) -> str:
    """A change as it is typed."""
    return " ".join(f"{name}={value}" for name, value in change.items())


def print_tables(console: Console, plan: Plan) -> None:
    """Memory, pool, requests, buckets, step time, notes, launch command."""
    print(_title(plan))
    console.print(_memory(plan))
    console.print(_pool_line(plan), highlight=False)
    console.print(_requests(plan))
    if plan.buckets is not None:
        console.print(_buckets_line(plan), highlight=False)
    if plan.steps:
        console.print(_steps(plan.steps))
    for note in plan.notes:
        console.print(f"- {note}", highlight=False)
    print(f"\n{plan.command}")  # whole: it is there to be copied


def print_plot(console: Console, plan: Plan) -> None:
    """Requests that the pools hold, by length; tokens per second of a stream, by streams."""
    console.print(_pool_line(plan), highlight=False)
    fitting = [plan.fitting(length) for length in plan.lengths()]
    most = max(1, *(one.in_pool for one in fitting))
    rows = [
        (f"{one.length:,}", 0.0, one.in_pool / most, f"{one.in_pool:,} requests") for one in fitting
    ]
    console.print(_bars("requests in the pool, by length in tokens", rows))
    if plan.steps:
        fastest = max(1000 / step.low_ms for step in plan.steps)
        rows = [
            (
                str(step.streams),
                1000 / step.high_ms / fastest,
                1000 / step.low_ms / fastest,
                "{1:.1f} to {2:.1f}, expected {0:.1f}".format(*_rates(step)),
            )
            for step in plan.steps
        ]
        console.print(_bars("tokens/s of a stream, by streams: the interval", rows))


def _title(plan: Plan) -> str:
    servers = f"{plan.servers} server(s), tensor parallel {plan.ranks}"
    idle = f", {plan.idle_cards} card(s) idle" if plan.idle_cards else ""
    return f"{plan.model} on {plan.device}: {servers}{idle}"


def _memory(plan: Plan) -> Table:
    table = _table("memory of a card")
    table.add_column("bytes", justify="right")
    table.add_column("GiB", justify="right")
    for part in plan.parts:
        table.add_row(part.name, f"{part.num_bytes:,}", f"{part.num_bytes / GIB:.2f}")
    table.add_section()
    table.add_row("card", f"{plan.card_bytes:,}", f"{plan.card_bytes / GIB:.2f}")
    return table


def _pool_line(plan: Plan) -> str:
    each = f"{plan.blocks:,} blocks of {plan.block_size}"
    return f"pool: {plan.pool_tokens:,} tokens ({each} in each server, one the null block)"


def _requests(plan: Plan) -> Table:
    table = _table("requests of tokens")
    for heading in ("in the pool", f"decoding, {plan.max_num_seqs} a server at most"):
        table.add_column(heading, justify="right")
    for one in map(plan.fitting, plan.lengths()):
        table.add_row(f"{one.length:,}", f"{one.in_pool:,}", f"{one.at_once:,}")
    return table


def _buckets_line(plan: Plan) -> str:
    found: Any = plan.buckets
    graphs = f"{found['graphs']['prefill']} prefill and {found['graphs']['decode']} decode graphs"
    state = "every shape has one" if found["ok"] else "`inkling buckets` names shapes without one"
    return f"buckets: {graphs}, {found['warm_up_minutes']:g} min of warm-up; {state}"


def _steps(steps: Sequence[StepTime]) -> Table:
    table = _table("streams")
    for heading in ("step, ms", "interval", "tok/s of a stream", "interval", "tok/s of all"):
        table.add_column(heading, justify="right")
    for step in steps:
        rate, low, high = _rates(step)
        table.add_row(
            str(step.streams),
            f"{step.ms:.1f}",
            f"{step.low_ms:.1f} to {step.high_ms:.1f}",
            f"{rate:.1f}",
            f"{low:.1f} to {high:.1f}",
            f"{step.streams * rate:.0f}",
        )
    return table


def _rates(step: StepTime) -> tuple[float, float, float]:
    """Tokens per second of a stream: expected, least, most."""
    return 1000 / step.ms, 1000 / step.high_ms, 1000 / step.low_ms


def _table(first: str) -> Table:
    table = Table()
    table.add_column(first, overflow="fold")
    return table


def _bars(title: str, rows: Sequence[tuple[str, float, float, str]]) -> Table:
    """rows: label, begin and end of the bar as parts of the longest, text behind it."""
    table = Table(title=title, title_justify="left", box=None, show_header=False)
    table.add_column(justify="right")
    table.add_column(width=WIDTH)
    table.add_column()
    for label, begin, end, text in rows:
        table.add_row(label, Bar(1.0, begin, end, width=WIDTH), text)
    return table
