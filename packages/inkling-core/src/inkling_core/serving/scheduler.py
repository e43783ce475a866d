"""vLLM's scheduler plus three rules of ours.

1. A request whose logits are NaN ends with an error, alone. Its blocks leave the prefix cache
   before any later step could hit them; nobody else's tokens are touched.
2. A JSON schema (or other grammar) on a raw completion holds from its first token. vLLM waits for
   the end of reasoning, which the text of a completion without chat markers never announces.
3. A long prompt's prefill leaves the others their share of the engine's time (long_prefill.py).

What it is not: a scheduler. Batching, preemption and the prefix cache stay vLLM's. `Rules` goes
over any of its schedulers.
"""

from __future__ import annotations

from typing import Any

from vllm.logger import init_logger
from vllm.tokenizers.registry import cached_tokenizer_from_config
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from inkling_core.serving.long_prefill import LongPrefillShare

logger = init_logger("vllm.inkling.scheduler")  # vLLM shows loggers below its own name only


class Rules(LongPrefillShare):
    """The three rules, over whatever scheduler comes next in a subclass's order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        tokenizer = cached_tokenizer_from_config(self.vllm_config.model_config)
        special = {} if tokenizer is None else tokenizer.get_added_vocab()
        self._special_ids = frozenset(special.values())

    def add_request(self, request: Request) -> None:
        """Marks raw completions as past any reasoning, then does what vLLM does."""
        wanted = request.structured_output_request
        raw = self._special_ids.isdisjoint(request.prompt_token_ids or ())
        if wanted is not None and wanted.reasoning_ended is None and raw:
            wanted.reasoning_ended = True
        super().add_request(request)

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Ends the requests whose logits hold NaN, then does what vLLM does."""
        counts = model_runner_output.num_nans_in_logits or {}
        for request_id in [name for name, count in counts.items() if count]:
            if request_id in self.requests:
                self._end_poisoned(request_id, model_runner_output)
        return super().update_from_output(scheduler_output, model_runner_output)

    def _end_poisoned(self, request_id: str, output: ModelRunnerOutput) -> None:
        blocks = {b for group in self.kv_cache_manager.get_block_ids(request_id) for b in group}
        self.kv_cache_manager.evict_blocks(blocks)
        if output.sampled_token_ids:
            output.sampled_token_ids[output.req_id_to_index[request_id]] = []
        logger.error(
            "Request %s computed NaN logits; it ends with an error and its %d blocks leave the "
            "prefix cache. Other requests go on.",
            request_id,
            len(blocks),
        )
        # vLLM finishes the members of this set with FINISHED_ERROR in the same call.
        self.grammar_compile_error_reqs.add(request_id)


class InklingScheduler(Rules):
    """The rules over vLLM's scheduler of synchronous steps."""
