"""The commands that need no server, run as a user runs them, one after another on one folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from safetensors.torch import load_file

from inkling_core.cli.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of two shards, as `inkling checkpoint tiny` writes it."""
    out = tmp_path_factory.mktemp("made") / "tiny"
    assert main(["checkpoint", "tiny", f"out={out}", "seed=3", "shards=2"]) == 0
    return out


def test_tiny_writes_what_was_asked_for(folder, capsys):
    names = sorted(file.name for file in folder.iterdir())
    assert "model-00001-of-00002.safetensors" in names and "tokenizer.json" in names
    assert main(["checkpoint", "tiny", f"out={folder}"]) != 0
    assert "not an empty folder" in capsys.readouterr().err


def test_info_prints_parameters_and_bytes_per_card(folder, capsys):
    assert main(["checkpoint", "info", f"checkpoint={folder}", "format=json"]) == 0
    info = json.loads(capsys.readouterr().out)
    on_disk = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert 0 < info["disk_bytes"] <= on_disk
    assert info["parameters"] > info["active_parameters"] > 0


def test_logits_of_the_tiny_checkpoint(folder, tmp_path):
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.safetensors"
    rows = [{"id": "a", "tokens": [1, 2, 3]}, {"id": "b", "tokens": list(range(40))}]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["logits", f"checkpoint={folder}", f"prompts={prompts}", f"out={out}"]
    assert main([*command, "dtype=float32"]) == 0
    logits = load_file(out)
    assert {name: list(value.shape) for name, value in logits.items()} == {
        "a": [3, 300],
        "b": [40, 300],
    }


def test_parts_left_out_and_the_rate_are_said(folder, tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "a", "tokens": [1]}\n')
    assert main(["logits", f"checkpoint={folder}", f"prompts={prompts}", f"out={tmp_path}/o"]) == 0
    said = capsys.readouterr().err
    for part in ("mtp", "vision", "audio"):
        assert f"tiny: skipped on purpose, {part}: " in said
    assert re.search(r"loading tiny: 100 % \(\S+ kB of \S+ kB, \S+ [kMG]B/s\)", said)


def test_generate_answers_a_sum(capsys):
    assert main(["generate", "12+7=?"]) == 0
    assert "19" in capsys.readouterr().out


def test_eval_scores_one_task(tmp_path, capsys):
    out = tmp_path / "scores.json"
    assert main(["eval", "tasks=[copy]", "cases=3", f"out={out}"]) == 0
    scores = json.loads(out.read_text())["scores"]
    assert [score["cases"] for score in scores] == [3, 3]
    assert "copy" in capsys.readouterr().out
