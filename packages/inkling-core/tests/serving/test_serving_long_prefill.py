"""vLLM's real scheduler with the long-prefill share, step by step: scheduled tokens are counted.

No engine and no wall clock: the time of a step is made up, a fixed cost and one per token, and the
tokens that the workers would have sampled are all the same.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("NO SCHEDULER TESTS: vLLM is not installed here", allow_module_level=True)

# vLLM and its dependencies warn about themselves while they are imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

CHUNK, BLOCK, STREAMS, LONG = 64, 16, 8, 2000
FIXED, PER_TOKEN = 2, 1  # made-up time of a step: a chunk of 64 costs six steps of 8 streams
VARIABLE = "INKLING_LONG_PREFILL_SHARE"


class Engine:
    """The scheduler, and what happens to be in each step."""

    def __init__(self, blocks: int = 1000, seqs: int = 16, prefix_caching: bool = False) -> None:
        import torch
        from vllm.engine.arg_utils import EngineArgs
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        from inkling_core.embedded import EMBEDDED
        from inkling_core.serving import plugin
        from inkling_core.serving.scheduler import InklingScheduler

        plugin.register()
        config = EngineArgs(
            model=str(EMBEDDED),
            max_model_len=4096,
            max_num_seqs=seqs,
            max_num_batched_tokens=CHUNK,
            block_size=BLOCK,
            enforce_eager=True,
            async_scheduling=False,
            enable_prefix_caching=prefix_caching,
            kv_cache_memory_bytes=2**28,
        ).create_engine_config()
        config.cache_config.num_gpu_blocks = blocks
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
        self.scheduler = InklingScheduler(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK,
        )
        self.scheduler.clock = lambda: self.now
        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(BLOCK, sha256) if prefix_caching else None
        self.now = 0.0
        self.steps: list[dict[str, int]] = []
        self.sampled: dict[str, int] = {}  # tokens of each answer
        self.first: dict[str, float] = {}  # when the first token of each was there

    def add(self, name: str, prompt: int, answer: int = 10_000, token: int | None = None) -> None:
        """A request of `prompt` tokens, all `token`; one of its own, if that is not given."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        params = SamplingParams(max_tokens=min(answer, 4096 - prompt), ignore_eos=True)
        params.update_from_generation_config({}, 257)
        ids = [len(self.scheduler.requests) % 200 if token is None else token] * prompt
        request = Request(name, ids, params, None, arrival_time=self.now, block_hasher=self.hasher)
        self.scheduler.add_request(request)

    def step(self) -> dict[str, int]:
        """One step: tokens scheduled, by request."""
        from vllm.v1.outputs import ModelRunnerOutput

        output = self.scheduler.schedule()
        scheduled = dict(output.num_scheduled_tokens)
        self.now += FIXED + PER_TOKEN * sum(scheduled.values())
        names = list(scheduled)
        requests = self.scheduler.requests
        done = [requests[n].num_computed_tokens >= requests[n].num_tokens for n in names]
        for name, ready in zip(names, done, strict=True):
            if ready:
                self.sampled[name] = self.sampled.get(name, 0) + 1
                self.first.setdefault(name, self.now)
        tokens = [[7] if ready else [] for ready in done]
        rows = {name: i for i, name in enumerate(names)}
        runner = ModelRunnerOutput(req_ids=names, req_id_to_index=rows, sampled_token_ids=tokens)
        self.scheduler.update_from_output(output, runner)
        self.steps.append(scheduled)
        return scheduled

    def until(self, wanted: Callable[[], bool], most: int = 2000) -> None:
        """Steps until `wanted`; AssertionError when it does not come."""
        for _ in range(most):
            if wanted():
                return
            self.step()
        raise AssertionError(f"not within {most} steps; the last: {self.steps[-3:]}")

    def prefilled(self, name: str) -> bool:
        return name in self.first


@pytest.fixture
def engine_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Engine]]:
    def make(share: str | None = None, **options: int) -> Engine:
        if share is None:
            monkeypatch.delenv(VARIABLE, raising=False)
        else:
            monkeypatch.setenv(VARIABLE, share)
        return Engine(**options)

    yield make


def streaming(engine: Engine, count: int = STREAMS) -> list[str]:
    """So many streams that decode."""
    names = [f"stream {i}" for i in range(count)]
    for name in names:
        engine.add(name, prompt=5)
    engine.until(lambda: all(name in engine.sampled for name in names))
    return names


def rate(engine: Engine, names: list[str], advance: Callable[[], object]) -> float:
    """Tokens of the named streams per unit of time while `advance` runs."""
    before, began = sum(engine.sampled[n] for n in names), engine.now
    advance()
    return (sum(engine.sampled[n] for n in names) - before) / (engine.now - began)


def kept(engine: Engine) -> float:
    """The share of their rate that eight streams keep while a long prompt prefills."""
    names = streaming(engine)
    alone = rate(engine, names, lambda: [engine.step() for _ in range(50)])
    engine.add("long", LONG)
    during = rate(engine, names, lambda: engine.until(lambda: engine.prefilled("long")))
    return during / alone


@pytest.mark.parametrize(("share", "least"), [("0.25", 0.8), (None, 2 / 3), ("1", 0.5)])
def test_streams_keep_what_the_share_promises(share, least, engine_of):
    found = kept(engine_of(share))
    print(f"share {share or 'default'}: streams keep {found:.2f} of their rate")
    assert least <= found < least + 0.15  # and no more is taken from the prompt than needed


def test_without_the_share_streams_stall(engine_of):
    found = kept(engine_of("null"))
    print(f"no share: streams keep {found:.2f} of their rate")
    assert found < 0.2


def test_streams_that_came_later_do_not_stall_either(engine_of):
    """vLLM schedules in order of arrival: the prompt alone would take each whole step."""
    paced, stock = engine_of(), engine_of("null")
    for engine in (paced, stock):
        engine.add("long", LONG)
        engine.step()
        engine.add("short", 20)
        engine.until(lambda engine=engine: engine.prefilled("long"))
    chunk = FIXED + PER_TOKEN * CHUNK
    assert paced.first["short"] <= 3 * chunk
    assert stock.first["short"] > paced.first["short"] * 5


def test_every_step_of_a_lone_prompt_is_whole(engine_of):
    engine = engine_of()
    engine.add("long", LONG)
    engine.until(lambda: engine.prefilled("long"))
    assert [step["long"] for step in engine.steps] == [CHUNK] * (LONG // CHUNK) + [LONG % CHUNK]


@pytest.mark.parametrize("share", ["0.05", "0.5", "1"])
def test_the_prompt_always_comes_to_its_end(share, engine_of):
    engine = engine_of(share)
    streaming(engine, 2)
    engine.add("long", 300)
    for i in range(40):  # newcomers without end
        engine.add(f"short {i}", 40, answer=3)
    engine.until(lambda: engine.prefilled("long"), most=4000)


def test_shorts_behind_two_long_prompts_start_within_a_few_chunks(engine_of):
    engine = engine_of()
    streaming(engine)
    for name in ("long", "longer"):
        engine.add(name, LONG)
    chunk = FIXED + PER_TOKEN * (CHUNK + STREAMS)
    for i in range(12):
        for _ in range(i):
            engine.step()
        began = engine.now
        engine.add(f"short {i}", 40, answer=2)
        engine.until(lambda i=i: engine.prefilled(f"short {i}"))
        assert engine.now - began <= 3 * chunk
    assert not engine.prefilled("long") and not engine.prefilled("longer")


def test_a_prompt_held_back_keeps_its_row_and_its_place(engine_of):
    engine = engine_of(seqs=3)
    engine.add("long", LONG)
    engine.step()
    for name in ("a", "b", "c", "d"):
        engine.add(name, 20, answer=40)
    seen = set()
    while not engine.prefilled("d"):
        assert len(engine.scheduler.running) <= 3
        seen.update(engine.step())
        order = [request.request_id for request in engine.scheduler.running]
        assert order[0] == "long"
    assert {"a", "b"} <= seen
    assert engine.first["a"] <= engine.first["c"] <= engine.first["d"]


def test_others_that_cannot_run_do_not_hold_the_prompt_for_ever(engine_of):
    """Three blocks are free, the newcomer needs four: only the long prompt's end frees some."""
    engine = engine_of(blocks=LONG // BLOCK + 3)  # one of them is the null block
    engine.add("long", LONG, answer=4)
    for _ in range(LONG // CHUNK):
        engine.step()
    assert not engine.prefilled("long")
    engine.add("short", 60, answer=4)
    engine.until(lambda: engine.prefilled("long") and engine.prefilled("short"), most=300)
    assert engine.first["long"] < engine.first["short"]


def test_nothing_is_lost_when_the_pool_is_too_small_for_all(engine_of):
    """Preemptions: every answer comes to its end, and each has all its tokens."""
    engine = engine_of(blocks=30)
    for i in range(6):
        engine.add(f"stream {i}", 20, answer=60)
    engine.add("long", 300, answer=30)
    engine.until(lambda: not engine.scheduler.requests, most=3000)
    assert engine.sampled["long"] >= 30
    assert all(engine.sampled[f"stream {i}"] >= 60 for i in range(6))


def test_waiting_prompts_are_put_back_in_order(engine_of):
    engine = engine_of(seqs=4)
    streaming(engine, 3)
    for name in ("long 0", "long 1", "long 2"):
        engine.add(name, 300, answer=1)
    while not engine.prefilled("long 2"):
        engine.step()
        queue = [request.request_id for request in engine.scheduler.waiting]
        assert queue == sorted(queue)
    assert engine.first["long 0"] < engine.first["long 1"] < engine.first["long 2"]


def test_a_preempted_request_goes_to_the_front(engine_of):
    """As vLLM puts it, though the only one that waits is held back meanwhile."""
    engine = engine_of()
    streaming(engine, 2)
    engine.add("long", LONG)
    scheduler = engine.scheduler
    with scheduler._held_back({scheduler.requests["long"]}):
        scheduler._preempt_request(scheduler.running.pop(), engine.now)
    assert [request.request_id for request in scheduler.running] == ["stream 0"]
    assert [request.request_id for request in scheduler.waiting] == ["stream 1", "long"]


def test_a_prompt_that_the_cache_has_costs_the_others_nothing(engine_of):
    engine = engine_of(prefix_caching=True)
    engine.add("long", LONG, answer=1, token=7)
    engine.until(lambda: engine.prefilled("long"))
    streaming(engine, 2)
    engine.until(engine.scheduler._pace.is_due)
    engine.add("again", LONG, answer=1, token=7)
    engine.step()
    assert engine.prefilled("again")
    assert engine.scheduler._pace.is_due()


def test_the_rest_of_a_prompt_waits_its_turn_too(engine_of):
    """The last chunk is shorter than a step and still costs one."""
    engine = engine_of()
    streaming(engine, 1)
    engine.add("long", CHUNK + 40)
    engine.until(lambda: engine.prefilled("long"))
    parts = [i for i, step in enumerate(engine.steps) if "long" in step]
    steps_between = parts[1] - parts[0] - 1
    assert steps_between * (FIXED + PER_TOKEN) >= 2 * (FIXED + PER_TOKEN * CHUNK)


def test_asynchronous_scheduling_leaves_the_share_off(engine_of, monkeypatch):
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    from inkling_core.serving import scheduler

    class Asynchronous(scheduler.Rules, AsyncScheduler):
        pass

    monkeypatch.setattr(scheduler, "InklingScheduler", Asynchronous)
    assert engine_of().scheduler._pace is None
    monkeypatch.undo()
    assert engine_of().scheduler._pace is not None
