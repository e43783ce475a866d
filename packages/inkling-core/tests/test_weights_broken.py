"""Broken checkpoints, as real files: all problems named at once, before any tensor is read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from inkling_core.config import InklingConfig
from inkling_core.weights import CheckpointError, load, validate
from inkling_core.weights.errors import SHOWN
from inkling_core.weights.manifest import INDEX, SINGLE
from inkling_core.weights.tiny import make_tiny

SMALL = {"num_hidden_layers": 2, "local_layer_ids": (0,), "mtp": None}
SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("sources")
    make_tiny(root / "single", SMALL)
    make_tiny(root / "sharded", SMALL, shards=3)
    return {"single": root / "single", "sharded": root / "sharded"}


@pytest.fixture
def single(sources: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(sources["single"], tmp_path / "single")


@pytest.fixture
def sharded(sources: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(sources["sharded"], tmp_path / "sharded")


def problems(folder: Path) -> tuple[str, ...]:
    config = InklingConfig.from_checkpoint(folder)
    with pytest.raises(CheckpointError) as caught:
        load(folder, config, progress="off")
    assert str(folder) in str(caught.value)
    return caught.value.problems


def edit(path: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangle(path: Path) -> None:
    path.symlink_to("nowhere")


def test_sound_sources_are_sound(sources: dict[str, Path]) -> None:
    for folder in sources.values():
        validate(folder, InklingConfig.from_checkpoint(folder))


def test_all_problems_at_once(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text(encoding="utf-8"))
    names = [name for name, file in index["weight_map"].items() if file == SHARD]
    wrong_shape, wrong_dtype, gone, renamed = [n for n in names if n.endswith("weight")][:4]

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[wrong_shape] = tensors[wrong_shape][1:].clone()
        tensors[wrong_dtype] = tensors[wrong_dtype].half()
        del tensors[gone]
        tensors[renamed + "s"] = tensors.pop(renamed)

    edit(sharded / SHARD, change)
    index["weight_map"][renamed + "s"] = index["weight_map"].pop(renamed)
    (sharded / INDEX).write_text(json.dumps(index), encoding="utf-8")
    (sharded / "model-00003-of-00003.safetensors").unlink()
    found = "\n".join(problems(sharded))
    for words in (
        f"{wrong_shape}: shape",
        f"{wrong_dtype}: dtype F16, expected BF16 or F32",
        f"{gone}: {INDEX} places it in {SHARD}, which lacks it",
        f"{renamed}: missing",
        f"is {renamed + 's'!r} meant?",
        f"{renamed}s: unexpected",
        "model-00003-of-00003.safetensors: missing, though",
    ):
        assert words in found, words


@pytest.mark.parametrize("cut", [1, 1000])
def test_truncated_data(single: Path, cut: int) -> None:
    path = single / SINGLE
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - cut)
    (found,) = problems(single)
    assert "truncated" in found and "tensor(s) cut" in found


@pytest.mark.parametrize("size", [0, 5, 8, 100])
def test_truncated_header(single: Path, size: int) -> None:
    with (single / SINGLE).open("r+b") as file:
        file.truncate(size)
    (found,) = problems(single)
    assert "truncated" in found


def test_bytes_after_the_end(single: Path) -> None:
    with (single / SINGLE).open("ab") as file:
        file.write(b"12345")
    assert "5 bytes beyond its last tensor" in problems(single)[0]


def test_a_header_that_claims_too_much(single: Path) -> None:
    with (single / SINGLE).open("r+b") as file:
        file.write((1 << 62).to_bytes(8, "little"))
    (found,) = problems(single)
    assert "claims a header of 4,611,686,018,427,387,904 bytes" in found


def header_edit(path: Path, change: Callable[[dict[str, dict]], None]) -> None:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h["model.llm.norm.weight"].update(dtype="F7"), "dtype 'F7' is not known"),
        (lambda h: h["model.llm.norm.weight"].update(shape=[65]), "bytes for F32 [65]"),
        (lambda h: h["model.llm.norm.weight"].update(shape=[-1]), "must be counts"),
        (lambda h: h["model.llm.norm.weight"].pop("data_offsets"), "is malformed"),
        (lambda h: h.update({"model.llm.norm.weight": 3}), "is malformed"),
        (lambda h: h.pop("model.llm.norm.weight"), "leaves a gap"),
        (
            lambda h: h["model.llm.norm.weight"].update(
                data_offsets=h["model.llm.embed_norm.weight"]["data_offsets"]
            ),
            "overlaps",
        ),
    ],
    ids=["dtype", "size", "negative", "no-offsets", "no-object", "gap", "overlap"],
)
def test_corrupt_header_entries(
    single: Path, change: Callable[[dict[str, dict]], None], words: str
) -> None:
    header_edit(single / SINGLE, change)
    assert any(words in line for line in problems(single))


@pytest.mark.parametrize("junk", [b"{", b"[1, 2]", b"\xff\xfe", b"[" * 100_000])
def test_a_header_that_is_no_object(single: Path, junk: bytes) -> None:
    (single / SINGLE).write_bytes(len(junk).to_bytes(8, "little") + junk)
    assert "header is not" in problems(single)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no usable weight_map"),
        ("{}", "no usable weight_map"),
        ('{"weight_map": [1]}', "no usable weight_map"),
        ('{"weight_map": {"a": 1}}', "no usable weight_map"),
        ('{"weight_map": {}}', "weight_map is empty"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "is outside the folder"),
        ('{"weight_map": {"a": ".."}}', "missing, though"),
        ('{"weight_map": {"a": ""}}', "missing, though"),
        ('{"weight_map": {"a": "b\\u0000c"}}', "missing, though"),
        ('{"weight_map": {"a": "%s"}}' % ("x" * 5000), "is too long for a file name"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "is outside the folder"),
        ('{"weight_map": {"a": "model.bin"}}', "is a pickle"),
    ],
)
def test_broken_index(sharded: Path, text: str, words: str) -> None:
    (sharded / INDEX).write_text(text, encoding="utf-8")
    assert any(words in line for line in problems(sharded))


@pytest.mark.parametrize("name", [INDEX, SINGLE])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, loop, dangle])
def test_what_is_no_regular_file_is_named_and_not_opened(
    single: Path, name: str, make: Callable[[Path], None]
) -> None:
    """A pipe above all: to open it would wait for a writer for ever."""
    (single / name).unlink(missing_ok=True)
    make(single / name)
    assert any(line.startswith(f"{name}: no regular file") for line in problems(single))


def test_tensors_that_the_index_does_not_list(sharded: Path) -> None:
    edit(sharded / SHARD, lambda tensors: tensors.update(extra=torch.zeros(1)))
    (found,) = problems(sharded)
    assert "holds 1 tensor(s)" in found and "extra" in found


def test_shards_without_an_index(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    assert "3 safetensors file(s)" in problems(sharded)[0]


def test_a_file_that_the_index_does_not_name_is_ignored_and_said(sharded: Path) -> None:
    save_file({"x": torch.zeros(1)}, sharded / "other.safetensors")
    checked = validate(sharded, InklingConfig.from_checkpoint(sharded))
    assert checked.remarks == (f"not in {INDEX}, ignored: other.safetensors",)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth", "w.ckpt"])
def test_pickles_are_named_and_never_opened(single: Path, name: str) -> None:
    (single / SINGLE).rename(single / name)
    (single / name).chmod(0)
    (found,) = problems(single)
    assert name in found and "refused" in found and "convert it to safetensors" in found


def test_a_lora_folder(tmp_path: Path, single: Path) -> None:
    folder = tmp_path / "lora"
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}", encoding="utf-8")
    save_file(
        {"base_model.model.x.lora_A.weight": torch.zeros(1)}, folder / "adapter_model.safetensors"
    )
    with pytest.raises(CheckpointError) as caught:
        validate(folder, InklingConfig.from_checkpoint(single))
    text = str(caught.value)
    assert "LoRA adapter" in text and "no config.json" in text


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("model.language_model.", "in-memory names of transformers"),
        ("model.layers.", "text-only save of transformers"),
        ("transformer.h.", "another model's checkpoint"),
    ],
)
def test_names_of_another_format(single: Path, prefix: str, words: str) -> None:
    save_file({f"{prefix}0.self_attn.q_proj.weight": torch.zeros(2)}, single / SINGLE)
    (found,) = problems(single)
    assert words in found and "none of the" in found


def test_a_folder_of_other_things(tmp_path: Path, single: Path) -> None:
    config = InklingConfig.from_checkpoint(single)
    for folder, words in ((tmp_path / "absent", "not a folder"), (tmp_path, "no weights")):
        with pytest.raises(CheckpointError) as caught:
            validate(folder, config)
        assert words in str(caught.value)


def test_more_layers_than_the_configuration_says(tmp_path: Path, single: Path) -> None:
    make_tiny(tmp_path / "more", {**SMALL, "num_hidden_layers": 3})
    with pytest.raises(CheckpointError) as caught:
        validate(tmp_path / "more", InklingConfig.from_checkpoint(single))
    assert all("num_hidden_layers = 2" in one for one in caught.value.problems)
    assert len(caught.value.problems) == 21  # 14 of attention, norms, convs and 7 of experts


def test_quantised_tensors_are_named_so(single: Path) -> None:
    name = "model.llm.layers.1.mlp.experts.w13_weight"

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name + "_scale"] = torch.zeros(4)

    edit(single / SINGLE, change)
    (found,) = problems(single)
    assert "scales are read beside MXFP8 (F8_E4M3) or NVFP4 (U8) codes" in found


def test_long_lists_are_complete_in_problems_and_counted_in_the_message(single: Path) -> None:
    config = InklingConfig.from_checkpoint(single)
    with pytest.raises(CheckpointError) as caught:
        validate(single, config.replace(num_hidden_layers=9))
    assert len(caught.value.problems) == 7 * 21 > SHOWN
    assert f"and {7 * 21 - SHOWN} more" in str(caught.value)
