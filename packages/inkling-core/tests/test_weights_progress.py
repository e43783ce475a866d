"""`LoadProgress`: a line each ten per cent with a rate, a bar on a terminal, or silence."""

from __future__ import annotations

import itertools
import logging
import re

import pytest

from inkling_core.weights import progress as module
from inkling_core.weights.progress import LoadProgress


def lines(caplog: pytest.LogCaptureFixture, steps: list[int], mode: str) -> list[str]:
    with (
        caplog.at_level(logging.INFO, logger="inkling_core.weights"),
        LoadProgress("loading x", sum(steps), mode) as progress,
    ):
        for step in steps:
            progress.advance(step)
    return [record.getMessage() for record in caplog.records]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which every look takes two seconds."""
    ticks = itertools.count(0, 2)
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(ticks)))


@pytest.mark.parametrize("count", [1, 3, 63, 127, 1000])
def test_at_most_ten_lines_and_a_last_one(
    caplog: pytest.LogCaptureFixture, slow: None, count: int
) -> None:
    said = lines(caplog, [10_000_000] * count, "log")
    assert len(said) == min(count, 10)
    assert re.fullmatch(r"loading x: 100 % \(\S+ [kMG]B of \S+ [kMG]B, \S+ [kMGT]B/s\)", said[-1])


def test_auto_logs_where_stderr_is_no_terminal(
    caplog: pytest.LogCaptureFixture, slow: None
) -> None:
    assert len(lines(caplog, [1] * 20, "auto")) == 10


def test_a_quick_load_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    (said,) = lines(caplog, [10_000_000] * 20, "log")
    assert said.startswith("loading x: 100 %")


def test_off_is_silent(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines(caplog, [1] * 20, "off") == []
    assert capsys.readouterr() == ("", "")


def test_bar_counts_bytes_and_rate(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines(caplog, [500_000] * 4, "bar") == []
    shown = capsys.readouterr().err
    assert "loading x" in shown and "2.0/2.0 MB" in shown


def test_nothing_to_read(caplog: pytest.LogCaptureFixture) -> None:
    assert lines(caplog, [], "log") == []


def test_unknown_mode() -> None:
    with pytest.raises(ValueError, match=r"'loud': use one of auto, bar, log, off"):
        LoadProgress("x", 1, "loud")
