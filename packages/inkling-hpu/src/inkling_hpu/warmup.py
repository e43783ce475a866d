"""Warm-up that says how far it is, ends where it is stuck, and goes on where memory is short.

    class Runner(WatchedWarmup, HPUModelRunner): ...

progress   a line before each graph: which it is, how many there are, time gone, time left
watchdog   a graph that takes longer than INKLING_WARMUP_STEP_SECONDS ends the process with status 1
           and the stacks of all threads; the last progress line names the graph
memory     a graph whose making runs out of memory is left out with a warning: the server starts,
           and a request that needs that graph makes it, if it then can

What it is not: a choice of graphs (buckets/), nor the warm-up itself, which is vllm-gaudi's. With
several ranks a graph that fails on one of them alone leaves the others waiting in a collective;
the watchdog ends that.
"""

from __future__ import annotations

import faulthandler
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from inkling_hpu.switches import VARIABLES, Switches

if TYPE_CHECKING:
    # At run time the base is whatever runner this is mixed into (gaudi.imports).
    from inkling_hpu.gaudi.imports import HPUModelRunner as _Runner
else:
    _Runner = object

logger = logging.getLogger("vllm.inkling.hpu")  # vLLM shows loggers below its own name only
# torch's and vllm-gaudi's wording, then the Gaudi bridge's own for an allocation that failed.
_SHORT_OF_MEMORY = re.compile(r"out of memory|\boom\b|PT_DEVMEM Allocation failed", re.IGNORECASE)
GRACE_S = 5
"""Seconds between the message of the watchdog and the end, for the message to get out."""


@dataclass
class Progress:
    """Graphs begun, of how many, since when. `clock` gives seconds."""

    total: int
    clock: Callable[[], float] = time.monotonic
    begun: int = 0
    skipped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start = self.clock()

    def line(self, graph: str) -> str:
        """Counts one more and says where it stands; the time left is the mean of those finished
        times those to come."""
        gone, finished = self.clock() - self._start, self.begun
        self.begun += 1
        self.total = max(self.total, self.begun)
        left = (
            f"about {_minutes(gone / finished * (self.total - finished))} left" if finished else ""
        )
        told = [f"warm-up {self.begun} of {self.total}: {graph}", f"{_minutes(gone)} gone", left]
        return ", ".join(filter(None, told))


class WatchedWarmup(_Runner):
    """Mixin before HPUModelRunner; see the module docstring."""

    _progress: Progress | None = None

    def warmup_model(self) -> None:
        """As vllm-gaudi's, then what was left out."""
        super().warmup_model()
        progress, self._progress = self._progress, None
        if progress and progress.skipped:
            logger.warning(
                "warm-up left out %d of %d graphs for lack of memory: %s. Requests that need one "
                "make it when they come. Lower --max-model-len, --max-num-seqs or "
                "--gpu-memory-utilization to have room for all of them",
                len(progress.skipped),
                progress.total,
                "; ".join(progress.skipped),
            )

    def _prepare_dummy_scenario(self, prompt_cfg: Any, decode_cfg: Any) -> None:
        """As vllm-gaudi's: one bucket, told before, watched, left out where memory ends."""
        graph = describe(prompt_cfg, decode_cfg)
        if self._progress is None:
            manager = self.bucketing_manager
            self._progress = Progress(len(manager.prompt_buckets) + len(manager.decode_buckets))
        logger.info("%s", self._progress.line(graph))
        try:
            with watched(graph, Switches.from_environment().warmup_step_seconds):
                super()._prepare_dummy_scenario(prompt_cfg, decode_cfg)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            logger.warning("warm-up leaves out %s for lack of memory: %s", graph, error)
            self._progress.skipped.append(graph)
            self._forget_dummies()

    def _forget_dummies(self) -> None:
        """Requests of the failed graph leave the batch as finished ones do."""
        from vllm.v1.core.sched.output import SchedulerOutput

        finished = replace(SchedulerOutput.make_empty(), finished_req_ids=set(self.requests))
        self.execute_model(finished, warmup_mode=True)


def describe(prompt_cfg: tuple[int, int, int] | None, decode_cfg: Any) -> str:
    """A bucket in words."""
    if prompt_cfg:
        requests, query, blocks = prompt_cfg
        return f"prefill of {requests} x {query} tokens, {blocks} cached blocks"
    requests, _, blocks = decode_cfg
    return f"decode of {requests} requests, {blocks} blocks"


def out_of_memory(error: RuntimeError) -> bool:
    """Whether the device ran out of memory, told as vllm-gaudi tells it: by the message."""
    return bool(_SHORT_OF_MEMORY.search(str(error)))


@contextmanager
def watched(graph: str, seconds: int) -> Iterator[None]:
    """Ends the process where the body takes longer than this; 0 is no limit.

    A message first, which needs a thread of Python; then, from a thread that needs nothing of
    Python and so runs even where the body holds the interpreter, all stacks and exit status 1.
    """
    if not seconds:
        yield
        return
    timer = threading.Timer(seconds, _tell, (graph, seconds))
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(seconds + GRACE_S, exit=True, file=sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        timer.cancel()


def _tell(graph: str, seconds: int) -> None:
    logger.critical(
        "warm-up is stuck in the graph of a %s for more than %d s: the process ends with the "
        "stacks of its threads. %s sets the limit (0: none)",
        graph,
        seconds,
        VARIABLES["warmup_step_seconds"],
    )


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
