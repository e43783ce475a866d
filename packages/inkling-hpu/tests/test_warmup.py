"""warmup.py without a runner of vllm-gaudi's: lines, the watchdog in a process of its own, memory.

tests/hpu runs it inside vllm-gaudi's runner.
"""

import os
import subprocess
import sys

import pytest
import torch

from inkling_hpu import warmup
from inkling_hpu.warmup import Progress, WatchedWarmup, out_of_memory

STUCK = """
import logging, time
from inkling_hpu import warmup
logging.basicConfig()
warmup.GRACE_S = 0.5
with warmup.watched("decode of 4 requests, 64 blocks", {seconds}):
    {body}
print("went on")
"""


def test_lines_say_which_how_many_and_how_long():
    now = iter([100.0, 100.0, 160.0, 340.0])
    progress = Progress(4, clock=lambda: next(now))
    assert progress.line("a") == "warm-up 1 of 4: a, 0:00 gone"
    assert progress.line("b") == "warm-up 2 of 4: b, 1:00 gone, about 3:00 left"
    assert progress.line("c") == "warm-up 3 of 4: c, 4:00 gone, about 4:00 left"


@pytest.mark.parametrize("body", ["time.sleep(9)", "sum(range(10**9))"])
def test_what_is_stuck_ends_with_the_graph_and_the_stacks(body):
    """Also where it never gives the interpreter away."""
    script = STUCK.format(seconds=1, body=body)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 1 and "went on" not in done.stdout
    assert "Timeout" in done.stderr and 'File "<string>", line 7' in done.stderr
    if "sleep" in body:
        assert "stuck in the graph of a decode of 4 requests, 64 blocks" in done.stderr
        assert "INKLING_WARMUP_STEP_SECONDS sets the limit" in done.stderr


@pytest.mark.parametrize(("seconds", "body"), [(0, "time.sleep(2)"), (1, "pass; pass")])
def test_what_is_not_stuck_goes_on(seconds, body):
    script = STUCK.format(seconds=seconds, body=body) + "time.sleep(2)\nprint('end')\n"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0 and done.stdout.split("\n")[:2] == ["went on", "end"]


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (RuntimeError("HPU Out of memory: tried to allocate 3 GiB"), True),
        (torch.OutOfMemoryError("CUDA OOM"), True),
        (RuntimeError("FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::2048"), True),
        (RuntimeError("no room left in the block table"), False),
        (RuntimeError("synNodeCreate failed"), False),
    ],
)
def test_memory_is_told_by_the_message(error, short):
    assert out_of_memory(error) is short


class Runner:
    """As much of vllm-gaudi's runner as the mixin calls: fails on the buckets of `failing`."""

    def __init__(self, failing):
        self.failing, self.ran, self.requests, self.forgotten = failing, [], {}, []

    @property
    def bucketing_manager(self):
        from types import SimpleNamespace

        return SimpleNamespace(prompt_buckets=[(1, 8, 0), (1, 8, 4)], decode_buckets=[(2, 1, 4)])

    def warmup_model(self):
        for prompt in self.bucketing_manager.prompt_buckets:
            self._prepare_dummy_scenario(prompt, None)
        for decode in self.bucketing_manager.decode_buckets:
            self._prepare_dummy_scenario(None, decode)

    def _prepare_dummy_scenario(self, prompt_cfg, decode_cfg):
        bucket = prompt_cfg or decode_cfg
        self.requests = {"dummy": bucket}
        if bucket in self.failing:
            raise RuntimeError(self.failing[bucket])
        self.ran.append(bucket)
        self.requests = {}


class Ours(WatchedWarmup, Runner):
    def _forget_dummies(self):
        self.forgotten.append(dict(self.requests))
        self.requests = {}


def test_a_graph_without_memory_is_left_out_and_named(caplog):
    caplog.set_level("INFO", logger=warmup.logger.name)
    runner = Ours({(1, 8, 4): "out of memory"})
    runner.warmup_model()
    assert runner.ran == [(1, 8, 0), (2, 1, 4)] and runner.forgotten == [{"dummy": (1, 8, 4)}]
    said = [record.getMessage() for record in caplog.records]
    assert said[1].startswith("warm-up 2 of 3: prefill of 1 x 8 tokens, 4 cached blocks")
    assert "leaves out prefill of 1 x 8 tokens, 4 cached blocks for lack of memory" in said[2]
    assert said[-1].startswith("warm-up left out 1 of 3 graphs") and "--max-model-len" in said[-1]


def test_another_failure_is_not_hidden():
    with pytest.raises(RuntimeError, match="synNodeCreate"):
        Ours({(1, 8, 4): "synNodeCreate failed"}).warmup_model()


def test_the_limit_comes_from_the_environment(monkeypatch):
    seen = []

    def watched(graph, seconds):
        seen.append(seconds)
        return os.scandir()  # any context manager

    monkeypatch.setattr(warmup, "watched", watched)
    monkeypatch.setenv("INKLING_WARMUP_STEP_SECONDS", "77")
    Ours({}).warmup_model()
    assert seen == [77, 77, 77]
