"""Progress of a load: a bar with a rate on a terminal; elsewhere a log line each 10 %, at most one
a second, and one at the end.

It counts bytes that others read. `mode` is "auto" (bar where stderr is a terminal, else log),
"bar", "log" or "off"; a rank other than 0 should pass "off".
"""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

log = logging.getLogger("inkling_core.weights")

MODES = ("auto", "bar", "log", "off")
STEP = 10  # per cent between two log lines
QUIET_SECONDS = 1.0  # between two log lines, so that a small model's load is one line


class LoadProgress:
    """Context manager; call `advance` with each tensor's bytes."""

    def __init__(self, what: str, total_bytes: int, mode: str = "auto") -> None:
        if mode not in MODES:
            raise ValueError(f"progress = {mode!r}: use one of {', '.join(MODES)}")
        if mode == "auto":
            mode = "bar" if sys.stderr.isatty() else "log"
        self.what, self.total, self.mode = what, total_bytes, mode
        self.done = 0
        self._started = time.perf_counter()
        self._told = 0
        self._told_at = self._started
        self._bar: Progress | None = None

    def __enter__(self) -> LoadProgress:
        if self.mode == "bar":
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(self.what, total=self.total)
        return self

    def advance(self, num_bytes: int) -> None:
        """Counts `num_bytes` more as read."""
        self.done += num_bytes
        if self._bar is not None:
            self._bar.advance(self._task, num_bytes)
        elif self.mode == "log":
            self._log_step()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _log_step(self) -> None:
        percent = 100 * self.done // max(self.total, 1)
        now = time.perf_counter()
        soon = now < self._told_at + QUIET_SECONDS and self.done < self.total
        if percent < self._told + STEP or soon:
            return
        self._told, self._told_at = percent - percent % STEP, now
        seconds = max(now - self._started, 1e-9)
        log.info(
            "%s: %d %% (%s of %s, %s/s)",
            self.what,
            self._told,
            decimal(self.done),
            decimal(self.total),
            decimal(int(self.done / seconds)),
        )
