"""Four faults of vllm-gaudi's runner that spoil answers of any model, mended in a subclass.

    class Runner(UpstreamFixes, HPUModelRunner): ...

resumed-prompt-length   A preempted request that resumes with a prefix hit is sampled from one row
                        per recomputed token instead of from its last one.
prefill-order           Prefills of a step run in batch-slot order. The scheduler may give a request
                        a hit on a block that another request fills in the very same step; it
                        relies on the filling one running first.
decode-before-hit       The same for a block whose last position a decoding request fills: prefills
                        run before decodes.
paused-decode           Under asynchronous scheduling a decoding request that was left out of the
                        step before is given whatever token its row held last.

docs/upstream/ tells each of them with a reproduction. What this is not: anything about Inkling,
whose model needs the same order for its conv rows and gets it from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # At run time the base is whatever runner this is mixed into (gaudi.imports).
    from inkling_hpu.gaudi.imports import HPUModelRunner as _Runner
else:
    _Runner = object


class UpstreamFixes(_Runner):
    """Mixin before HPUModelRunner; see the module docstring."""

    _prefilled_decodes: frozenset[str] = frozenset()

    def _update_states(self, scheduler_output: Any) -> Any:
        """As vllm-gaudi's, then: a resumed request counts its earlier answer as prompt.

        vllm-gaudi does that itself where nothing of the request is cached. With a prefix hit it
        does not, takes the recomputed tokens for generated ones, and samples at each of them.
        """
        changed = super()._update_states(scheduler_output)
        batch = self.input_batch
        for request_id in scheduler_output.scheduled_cached_reqs.resumed_req_ids:
            state = self.requests[request_id]
            row = batch.req_id_to_index[request_id]
            batch.num_prompt_tokens[row] = len(state.prompt_token_ids) + len(state.output_token_ids)
        return changed

    def _ensure_decodes_first(self, scheduler_output: Any) -> None:
        """As vllm-gaudi's, then prefills in the order in which they were scheduled.

        Decodes that fill a block which a prefill of this step reads are moved among the prefills,
        where their place in that order is before it.
        """
        self._prefilled_decodes = frozenset()
        super()._ensure_decodes_first(scheduler_output)
        self._prefilled_decodes = self._decodes_that_are_hit(scheduler_output)
        if self._prefilled_decodes:
            super()._ensure_decodes_first(scheduler_output)
        self._order_prefills(scheduler_output)

    def _is_prompt(self, req_idx: int, scheduler_output: Any) -> bool:
        """As vllm-gaudi's, and for decodes that have to run before a prefill of their step."""
        if self.input_batch.req_ids[req_idx] in self._prefilled_decodes:
            return True
        return super()._is_prompt(req_idx, scheduler_output)

    def _prepare_input_ids(self, scheduler_output: Any, return_index: bool = False) -> Any:
        """As vllm-gaudi's, which puts the tokens sampled by the step before on the device, after
        those that the processor knows: all that a request has which that step left out.
        """
        batch = self.input_batch
        sampled = batch.prev_req_id_to_index or {}
        total = scheduler_output.total_num_scheduled_tokens
        if any(request_id not in sampled for request_id in batch.req_ids[: batch.num_reqs]):
            self.input_ids_hpu[:total].copy_(self.input_ids_cpu[:total])
        return super()._prepare_input_ids(scheduler_output, return_index)

    def _order_prefills(self, scheduler_output: Any) -> None:
        batch = self.input_batch
        rows = [i for i in range(batch.num_reqs) if self._is_prompt(i, scheduler_output)]
        rank = {name: i for i, name in enumerate(scheduler_output.num_scheduled_tokens)}
        wanted = sorted((batch.req_ids[i] for i in rows), key=rank.__getitem__)
        for row, request_id in zip(rows, wanted, strict=True):
            current = batch.req_id_to_index[request_id]
            if current != row:
                batch.swap_states(row, current)

    def _decodes_that_are_hit(self, scheduler_output: Any) -> frozenset[str]:
        """Requests whose one token closes a block that a prefill of this step has a hit on.

        Empty under asynchronous scheduling: the scheduler does not know the token yet, so the
        block has no hash and nobody can hit it.
        """
        if self.use_async_scheduling:
            return frozenset()
        batch, size = self.input_batch, self.attn_block_size
        prefills = {i for i in range(batch.num_reqs) if self._is_prompt(i, scheduler_output)}
        closing = {}
        for row in range(batch.num_reqs):
            position = int(batch.num_computed_tokens_cpu[row])
            if row not in prefills and (position + 1) % size == 0:
                closing[self._blocks(row, position // size + 1)[-1]] = batch.req_ids[row]
        if not closing:
            return frozenset()
        hit: set[int] = set()
        for row in prefills:
            hit.update(self._blocks(row, int(batch.num_computed_tokens_cpu[row]) // size))
        return frozenset(name for block, name in closing.items() if block in hit)

    def _blocks(self, row: int, count: int) -> list[int]:
        """The first `count` block ids of a batch row."""
        return self.input_batch.block_table[0].get_cpu_tensor()[row, :count].tolist()
