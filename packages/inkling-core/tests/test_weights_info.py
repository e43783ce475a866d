"""`weights.info`: sums of the releases, of a folder and of a file, and the printed form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from inkling_core.cli.settings import CheckpointInfoSettings
from inkling_core.config import PRESETS
from inkling_core.weights import CheckpointError, load
from inkling_core.weights.info import checkpoint_info, run
from inkling_core.weights.tiny import make_tiny


def test_inkling_small() -> None:
    info = checkpoint_info("inkling_small")
    assert info.disk_bytes == 531_912_898_740
    assert info.parameters == 265_956_439_090
    assert info.served_parameters == 263_655_199_274
    assert round(info.active_parameters / 1e9, 2) == 12.00
    assert round((info.active_parameters - info.embedding_parameters) / 1e9, 2) == 11.17
    assert list(info.card_bytes) == [1, 2, 4, 8]
    # convs take four bytes a number in memory and two on disk
    convs = next(part for part in info.parts if part.part == "convs")
    assert info.card_bytes[1] == info.served_bytes + 2 * convs.parameters


def test_inkling_parameters() -> None:
    assert round(checkpoint_info("inkling").served_parameters / 1e9, 2) == 947.03


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_bytes_per_card_are_those_loaded(tmp_path: Path, dtype: torch.dtype, size: int) -> None:
    config = make_tiny(tmp_path / "t", dtype=dtype)
    info = checkpoint_info(tmp_path / "t")
    assert info.verified and info.name == "t"
    for rank in range(size):
        tensors = load(
            tmp_path / "t", config, dtype=dtype, tp_rank=rank, tp_size=size, progress="off"
        )
        assert sum(one.nbytes for one in tensors.values()) == info.card_bytes[size]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("build", ["mxfp8", "nvfp4_mxfp8"])
def test_bytes_of_block_formats_are_those_loaded_and_on_disk(
    tmp_path: Path, build: str, size: int
) -> None:
    wide = {"moe_intermediate_size": 64}
    config = make_tiny(tmp_path / "t", wide, dtype=torch.bfloat16, build=build)
    info = checkpoint_info(tmp_path / "t")
    assert list(info.card_bytes) == list(info.packed_card_bytes) == [1, 2]  # 4 cuts a block
    for packed, expected in ((False, info.card_bytes), (True, info.packed_card_bytes)):
        for rank in range(size):
            tensors = load(
                tmp_path / "t",
                config,
                dtype=torch.bfloat16,
                tp_rank=rank,
                tp_size=size,
                progress="off",
                pack_experts=packed,
            )
            assert sum(one.nbytes for one in tensors.values()) == expected[size]
    assert info.disk_bytes == data_bytes(tmp_path / "t" / "model.safetensors")
    assert checkpoint_info(config, build=build).parts == info.parts
    assert checkpoint_info(config).disk_bytes > info.disk_bytes


def data_bytes(path: Path) -> int:
    with path.open("rb") as file:
        return path.stat().st_size - 8 - int.from_bytes(file.read(8), "little")


def test_disk_bytes_are_those_of_the_files(tmp_path: Path) -> None:
    make_tiny(tmp_path / "t", dtype=torch.bfloat16)
    path = tmp_path / "t" / "model.safetensors"
    assert checkpoint_info(tmp_path / "t").disk_bytes == data_bytes(path)


def test_a_folder_with_broken_weights_is_refused(tmp_path: Path) -> None:
    make_tiny(tmp_path / "t")
    path = tmp_path / "t" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="truncated"):
        checkpoint_info(tmp_path / "t")


def test_a_config_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PRESETS["inkling"].to_dict()), encoding="utf-8")
    for source in (path, tmp_path):
        info = checkpoint_info(source)
        assert info.parameters == checkpoint_info("inkling").parameters and not info.verified


def settings(**values: Any) -> CheckpointInfoSettings:
    return CheckpointInfoSettings(checkpoint="inkling_small", **values)


def test_printed_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert run(settings()) == 0
    out = capsys.readouterr().out
    for number in ("531,912,898,740", "263,655,199,274", "65,994,396,836", "11,996,959,274"):
        assert number in out
    assert run(settings(tensors=True)) == 0
    assert capsys.readouterr().out.count("BF16") > 800


def test_printed_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(settings(format="json")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["disk_bytes"] == 531_912_898_740
    assert printed["card_bytes"]["8"] == checkpoint_info("inkling_small").card_bytes[8]


def test_a_size_that_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="tensor_parallel=3: usable sizes are 1, 2, 4, 8"):
        run(settings(tensor_parallel=3))


def test_a_build_of_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(settings(build="mxfp8", format="json")) == 0
    printed = json.loads(capsys.readouterr().out)
    (experts,) = (part for part in printed["parts"] if part["part"] == "routed_experts")
    assert experts["disk_bytes"] * 32 == experts["parameters"] * 33
    assert printed["card_bytes"]["8"] == checkpoint_info("inkling_small").card_bytes[8]


def test_a_build_given_for_files_that_say_it(tmp_path: Path) -> None:
    make_tiny(tmp_path / "t", build="mxfp8")
    with pytest.raises(ValueError, match=r"build=mxfp8: the files of .* say what they are"):
        checkpoint_info(tmp_path / "t", build="mxfp8")


def test_a_preset_with_a_typo() -> None:
    with pytest.raises(ValueError, match="did you mean 'inkling_small'"):
        run(CheckpointInfoSettings(checkpoint="inkling_smal"))
