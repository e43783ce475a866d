"""The platform's scheduler of asynchronous steps plus the rules of `inkling_core.serving`.

vllm-gaudi puts its own class at `async_scheduler.AsyncScheduler` when it is loaded, which vLLM does
before it looks a scheduler up; so that name is the platform's.

What it is not: a scheduler. The rule about NaN logits does not fire here: vllm-gaudi's runner does
not report them.
"""

from __future__ import annotations

from vllm.v1.core.sched import async_scheduler

from inkling_core.serving.scheduler import Rules


class InklingHpuScheduler(Rules, async_scheduler.AsyncScheduler):
    """See the module docstring."""
