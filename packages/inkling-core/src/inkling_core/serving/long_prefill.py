"""A long prompt's prefill leaves the others their share of the engine's time.

    long     more tokens left to compute than one step may hold; or the rest of such a prompt.
             What the prefix cache will spare one that waits is not known before vLLM admits it
    others   every request, running or waiting, that is not long

While there are others, long prompts get a part of a step only when `pace.Pace` says so; steps
between hold everybody else, and requests that have just come. Without others a long prompt has
whole steps, as many as it needs. Starvation: a held-back prompt waits for time that passes in any
step of the others, and where the others can do nothing (no free block, say) its debt is forgiven.

vLLM's own settings cannot say this. `long_prefill_token_threshold` is a fixed number of tokens per
step and request: at the start of a prompt it makes steps too small, at 250,000 tokens of context
too slow. Neither does it keep a short prompt from waiting behind a long one that fills each step.

Synchronous steps only: the account takes one step at a time. Under asynchronous scheduling, where
steps overlap, the share is off and the log says so. (A long prompt that is due can fill a step and
leave decodes behind it out; vllm-gaudi gives such a decode a stale token under asynchronous
scheduling, which `inkling_hpu.upstream_fixes` mends.)

What it is not: a scheduler. Long prompts are taken out of vLLM's lists for the length of one call
and put back where they stood; batching, blocks, preemption and order stay vLLM's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from inkling_core.serving.pace import Pace
from inkling_core.serving.settings import ServeSettings

logger = init_logger("vllm.inkling.scheduler")  # vLLM shows loggers below its own name only
SLOTS = ("max_num_running_reqs", "max_num_active_reqs")  # vLLM 0.32 admits by the second


class LongPrefillShare(Scheduler):
    """vLLM's scheduler with `long_prefill_share` of the serve settings; None leaves it alone."""

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        share = ServeSettings.from_environment(os.environ).long_prefill_share
        if share is not None and isinstance(self, AsyncScheduler):
            logger.warning(
                "long_prefill_share=%s has no effect under asynchronous scheduling: a long prompt "
                "will slow decoding streams down; start with --no-async-scheduling",
                share,
            )
            share = None
        self._pace = None if share is None else Pace(share)
        self._begun: set[str] = set()  # long requests that have had a part of their prefill
        self._running_step = False, 0.0  # whether it holds such a part, when it began

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """As vLLM's, long prompts held back where they are not due."""
        pace = self._pace
        if pace is None:
            return super().schedule(*args, **kwargs)
        held = set() if pace.is_due() else self._to_hold_back(pace)
        with self._held_back(held) if held else nullcontext():
            output = super().schedule(*args, **kwargs)
        if scheduled := output.num_scheduled_tokens:
            parts = {name for name, tokens in scheduled.items() if self._was_long(name, tokens)}
            self._begun = (self._begun | parts) & self.requests.keys()
            self._running_step = bool(parts), self.clock()
        elif held:
            pace.forgive()  # the others are stuck; time that pays would never pass
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """As vLLM's; the step's duration goes into the account."""
        if self._pace is not None and scheduler_output.num_scheduled_tokens:
            is_long, began = self._running_step
            self._pace.took(self.clock() - began, is_long)
        return super().update_from_output(scheduler_output, model_runner_output)

    def _was_long(self, name: str, scheduled: int) -> bool:
        """Before the step just made, whose tokens vLLM counts as computed already."""
        return self._is_long(self.requests[name], scheduled)

    def _is_long(self, request: Request, scheduled: int = 0) -> bool:
        left = request.num_tokens - request.num_computed_tokens + scheduled
        most = 1 if request.request_id in self._begun else self.max_num_scheduled_tokens
        return left > most

    def _to_hold_back(self, pace: Pace) -> set[Request]:
        """The long requests; none where nobody else is there or vLLM would preempt."""
        long = {request for request in self.requests.values() if self._is_long(request)}
        if len(long) == len(self.requests):
            pace.forgive()
            return set()
        return long if self._has_room_without_preemption() else set()

    def _has_room_without_preemption(self) -> bool:
        """Whether each running request could have one more block.

        Without, vLLM preempts the newest one, and must see the long ones to choose among all.
        """
        return self.kv_cache_manager.block_pool.get_num_free_blocks() >= len(self.running)

    @contextmanager
    def _held_back(self, long: Collection[Request]) -> Iterator[None]:
        """vLLM's lists without `long` for the length of the block; then as before."""
        running, waiting = list(self.running), list(self.waiting)
        queued = [request for request in waiting if request in long]
        slots = {name: getattr(self, name) for name in SLOTS if hasattr(self, name)}
        self.running = [request for request in running if request not in long]
        rows = len(running) - len(self.running)  # which the held ones keep
        for name, count in slots.items():
            setattr(self, name, count - rows)
        if queued:
            self.waiting.remove_requests(queued)
        try:
            yield
        finally:
            for name, count in slots.items():
                setattr(self, name, count)
            kept, admitted = _restored(running, self.running, long)
            self.running = [*kept, *admitted]
            if queued:
                kept, preempted = _restored(waiting, list(self.waiting), long)
                self.waiting.remove_requests(list(self.waiting))
                for request in (*preempted, *kept):
                    self.waiting.add_request(request)


def _restored(
    before: list[Request], now: list[Request], held: Collection[Request]
) -> tuple[list[Request], list[Request]]:
    """`before` with the held ones at their places and without what is gone, and the newcomers."""
    there, known = set(now), set(before)
    kept = [request for request in before if request in there or request in held]
    return kept, [request for request in now if request not in known]
