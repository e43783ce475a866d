"""The trainer resumes where it stopped, learns, and refuses what it does not know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from inkling_core.nano import schedule, train


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "TOKENS_PER_STEP", 1024)
    monkeypatch.setattr(train, "SAVE_EVERY", 2)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "state.safetensors")


def test_stopped_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    train.main([f"out={tmp_path}/whole", "until=5", "threads=1"])
    train.main([f"out={tmp_path}/parts", "until=3", "threads=1"])
    train.main([f"out={tmp_path}/parts", "until=5", "threads=1"])
    whole, parts = weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    lines = (tmp_path / "parts/log.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == [3, 5]


def test_state_of_another_seed_is_refused(tmp_path: Path) -> None:
    train.main([f"out={tmp_path}", "until=1", "threads=1"])
    with pytest.raises(SystemExit, match="seed=0, not seed=1"):
        train.main([f"out={tmp_path}", "until=2", "seed=1", "threads=1"])


@pytest.mark.parametrize("arguments", [[], ["out=x", "sed=1"]], ids=["no-out", "typo"])
def test_unknown_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="usage"):
        train.main(arguments)


def test_loss_falls_and_selection_bias_moves_against_the_load(tmp_path: Path) -> None:
    trainer = train.Trainer(tmp_path, seed=0)
    losses = [trainer.train_step()["loss"] for _ in range(12)]
    assert losses[-1] < 0.9 * losses[0]  # the rate is still warming up
    loads = [torch.tensor([9.0, 1, 2, 2, 2, 2, 2, 2])] * len(trainer.biases)
    before = trainer.biases[0].clone()
    trainer._balance(loads)
    moved = trainer.biases[0] - before
    assert moved[0] < 0 < moved[1]


def test_rate_follows_its_points() -> None:
    assert schedule.rate(0) < schedule.rate(5) < schedule.rate(schedule.WARMUP) == 1.0
    for step, share in schedule.RATES:
        assert schedule.rate(step) == pytest.approx(share)
    (begin, high), (end, low) = schedule.RATES[1:3]
    assert schedule.rate((begin + end) // 2) == pytest.approx((high + low) / 2)
    assert schedule.rate(schedule.STEPS + 1000) == schedule.RATES[-1][1]
    steps = [step for step, _ in schedule.RATES]
    assert steps == sorted(steps)


def test_phases_follow_the_step_number() -> None:
    assert {schedule.row_length(step, 0) for step in range(400)} == {256}
    late = [schedule.row_length(step, 0) for step in range(1000, 1400)]
    assert set(late) == {256, 512, 1024, 2048}
    assert late.count(2048) > 150
    assert late == [schedule.row_length(step, 0) for step in range(1000, 1400)]
