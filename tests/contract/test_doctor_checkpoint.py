"""`inkling doctor` and the checkpoint on disk: damage is told once, with its remedy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import machines
import pytest
from machines import bad, cpu_machine, findings


def half(folder: Path) -> tuple[str, list[str]]:
    return machines.lose_a_shard(folder), ["missing", "fetch the files"]


def cut(folder: Path) -> tuple[str, list[str]]:
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    return shard.name, ["bytes", "fetch the files"]


def misspelled(folder: Path) -> tuple[str, list[str]]:
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["d_rell"] = config["text_config"].pop("d_rel")
    (folder / "config.json").write_text(json.dumps(config))
    return "config.json", ["d_rel"]


def short_of_the_index(folder: Path) -> tuple[str, list[str]]:
    machines.claim_more_bytes(folder, 1000)
    return "model.safetensors.index.json", ["the index counts", "hold"]


@pytest.mark.parametrize("damage", [half, cut, misspelled, short_of_the_index])
def test_a_damaged_checkpoint(damage, checkpoint, tmp_path, port):
    folder = tmp_path / "broken"
    shutil.copytree(checkpoint, folder)
    what, needles = damage(folder)
    found = findings(cpu_machine(tmp_path / "machine"), port=port, checkpoint=str(folder))
    told = bad(found)
    assert what in told and all(needle in told[what] for needle in needles), told
    assert len(told) < 4, "tensors of a missing file are listed one by one"


def test_an_exact_index_is_sound(checkpoint, tmp_path, port):
    folder = tmp_path / "sound"
    shutil.copytree(checkpoint, folder)
    machines.claim_more_bytes(folder, 0)
    found = findings(cpu_machine(tmp_path / "machine"), port=port, checkpoint=str(folder))
    assert bad(found) == {}


def test_no_checkpoint(tmp_path, port):
    told = bad(findings(cpu_machine(tmp_path), port=port, checkpoint=str(tmp_path / "none")))
    assert "give one with config.json" in told["folder"]
