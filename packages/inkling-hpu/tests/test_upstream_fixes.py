"""The order of a step's rows, a resumed prompt's length, and the tokens that decodes go on from.

`Base` has vllm-gaudi's contract in a few lines, enough for the mixin's arithmetic to run without
it; tests/hpu/test_upstream.py runs the mixin in the real runner.
"""

import random
from types import SimpleNamespace

import pytest
import torch

from inkling_hpu.upstream_fixes import UpstreamFixes

SIZE = 16


class Batch:
    """Rows of requests: context, prompt length, block table."""

    def __init__(self, requests):
        self.req_ids = [name for name, *_ in requests]
        self.num_computed_tokens_cpu = [context for _, context, *_ in requests]
        self.num_prompt_tokens = [prompt for _, _, prompt, _ in requests]
        width = max(len(blocks) for *_, blocks in requests)
        table = torch.zeros(len(requests), width, dtype=torch.int32)
        for row, (*_, blocks) in enumerate(requests):
            table[row, : len(blocks)] = torch.tensor(blocks)
        self.table = table
        self.block_table = [SimpleNamespace(get_cpu_tensor=lambda: self.table)]

    @property
    def num_reqs(self):
        return len(self.req_ids)

    @property
    def req_id_to_index(self):
        return {name: row for row, name in enumerate(self.req_ids)}

    def swap_states(self, i1, i2):
        for column in (self.req_ids, self.num_computed_tokens_cpu, self.num_prompt_tokens):
            column[i1], column[i2] = column[i2], column[i1]
        self.table[[i1, i2]] = self.table[[i2, i1]]


class Base:
    """What the mixin calls."""

    attn_block_size = SIZE

    def __init__(self, batch, asynchronous=False):
        self.input_batch, self.use_async_scheduling = batch, asynchronous
        self.requests = {}

    def _update_states(self, scheduler_output):
        return True

    def _is_prompt(self, req_idx, scheduler_output):
        batch = self.input_batch
        return batch.num_computed_tokens_cpu[req_idx] < batch.num_prompt_tokens[req_idx]

    def _ensure_decodes_first(self, scheduler_output):
        batch = self.input_batch
        while True:
            prompts = [self._is_prompt(row, scheduler_output) for row in range(batch.num_reqs)]
            if True not in prompts or False not in prompts:
                return
            first, last = prompts.index(True), len(prompts) - 1 - prompts[::-1].index(False)
            if first > last:
                return
            batch.swap_states(first, last)

    def _prepare_input_ids(self, scheduler_output, return_index=False):
        for name, row in self.input_batch.prev_req_id_to_index.items():
            if name in self.input_batch.req_ids:
                self.input_ids_hpu[self.input_batch.req_ids.index(name)] = 100 + row
        return return_index


class Runner(UpstreamFixes, Base):
    pass


def _ordered(requests, scheduled, asynchronous=False):
    runner = Runner(Batch(requests), asynchronous)
    output = SimpleNamespace(num_scheduled_tokens=dict.fromkeys(scheduled, 1))
    runner._ensure_decodes_first(output)
    is_prompt = [runner._is_prompt(row, output) for row in range(len(requests))]
    return runner.input_batch.req_ids, is_prompt


@pytest.mark.parametrize("seed", range(40))
def test_decodes_first_then_prefills_as_scheduled(seed):
    draw = random.Random(seed)
    count = draw.randint(1, 9)
    requests = []
    for row in range(count):
        prompt = draw.randint(1, 60)
        context = draw.choice([0, draw.randrange(prompt), prompt + draw.randrange(40)])
        requests.append((f"r{row}", context, prompt, [10 * row + 1 + b for b in range(7)]))
    scheduled = [name for name, *_ in requests]
    draw.shuffle(scheduled)
    names, is_prompt = _ordered(requests, scheduled)
    assert sorted(names) == sorted(scheduled)
    assert is_prompt == sorted(is_prompt)
    prefills = names[is_prompt.index(True) :] if True in is_prompt else []
    assert prefills == sorted(prefills, key=scheduled.index)


DECODE = ("decode", 2 * SIZE - 1, 5, [7, 8])  # its token closes block 8
HITS = ("hits", 2 * SIZE, 40, [7, 8, 9])
OTHER = ("other", SIZE, 40, [7, 3, 4])  # shares the block before only
BUSY = ("busy", 2 * SIZE - 2, 5, [5, 6])  # closes nothing


def test_a_decode_runs_before_the_prefill_that_has_a_hit_on_its_block():
    scheduled = ["busy", "decode", "other", "hits"]
    names, is_prompt = _ordered([HITS, OTHER, BUSY, DECODE], scheduled)
    assert names == ["busy", "decode", "other", "hits"]
    assert is_prompt == [False, True, True, True]


def test_without_a_hit_on_its_block_a_decode_stays_one():
    names, is_prompt = _ordered([OTHER, BUSY, DECODE], ["busy", "decode", "other"])
    assert names[-1] == "other"
    assert is_prompt == [False, False, True]


def test_under_asynchronous_scheduling_the_token_is_not_known_on_the_host():
    _, is_prompt = _ordered([HITS, DECODE], ["decode", "hits"], asynchronous=True)
    assert is_prompt == [False, True]


def test_the_next_step_forgets():
    runner = Runner(Batch([HITS, DECODE]))
    output = SimpleNamespace(num_scheduled_tokens={"decode": 1, "hits": 1})
    runner._ensure_decodes_first(output)
    runner.input_batch.num_computed_tokens_cpu = [2 * SIZE, 2 * SIZE + 1]  # decode, hits
    runner._ensure_decodes_first(output)
    assert [runner._is_prompt(row, output) for row in range(2)] == [False, True]


def test_a_resumed_request_counts_its_answer_as_prompt_and_others_do_not():
    runner = Runner(Batch([("new", 0, 30, [1, 2]), ("resumed", SIZE, 20, [3, 4])]))
    state = SimpleNamespace(prompt_token_ids=[0] * 20, output_token_ids=[0] * 11)
    runner.requests["resumed"] = state
    cached = SimpleNamespace(resumed_req_ids={"resumed"})
    assert runner._update_states(SimpleNamespace(scheduled_cached_reqs=cached)) is True
    assert runner.input_batch.num_prompt_tokens == [30, 31]


STALE, KNOWN = 7, [20, 21, 22, 0]


@pytest.mark.parametrize(
    ("before", "tokens"),
    [
        ({"a": 0, "b": 1, "c": 2}, [100, 101, 102]),  # nobody was left out
        ({"c": 0, "a": 1}, [101, 21, 100]),
        ({}, [20, 21, 22]),
    ],
    ids=["steady", "one left out", "all left out"],
)
def test_a_decode_that_was_left_out_goes_on_from_its_own_token(before, tokens):
    runner = Runner(Batch([(name, 9, 5, [1]) for name in "abc"]), asynchronous=True)
    runner.input_batch.prev_req_id_to_index = before
    runner.input_ids_hpu, runner.input_ids_cpu = torch.full((4,), STALE), torch.tensor(KNOWN)
    output = SimpleNamespace(total_num_scheduled_tokens=3)
    assert runner._prepare_input_ids(output, return_index=True) is True
    assert runner.input_ids_hpu.tolist() == [*tokens, STALE]
