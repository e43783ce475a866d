"""`weights.load` and `stream`: what arrives, in which dtype, for which rank, in what memory."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
import torch
from resident_memory import measure
from torch import Tensor

from inkling_core.config import InklingConfig
from inkling_core.weights import ShardingError, load, stream, validate
from inkling_core.weights.names import text_tensors
from inkling_core.weights.rules import KvSplit, Replicate
from inkling_core.weights.tiny import make_tiny, random_tensors

SEED = 11
BIG_KV = {"swa_num_key_value_heads": 4}  # as in the large release: more KV heads on local layers


def written(seed: int, config: InklingConfig) -> dict[str, Tensor]:
    """The text tensors that `make_tiny` writes for this seed, as stored."""
    text = {spec.name for spec in text_tensors(config)}
    return {spec.key: one for spec, one in random_tensors(config, seed) if spec.name in text}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "tiny"
    make_tiny(path, BIG_KV, seed=SEED, dtype=torch.bfloat16, shards=5)
    return path


@pytest.fixture(scope="module")
def config(folder: Path) -> InklingConfig:
    return InklingConfig.from_checkpoint(folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_everything_arrives_in_its_dtype(
    folder: Path, config: InklingConfig, dtype: torch.dtype
) -> None:
    tensors = load(folder, config, dtype=dtype, progress="off")
    stored = written(SEED, config)
    assert list(tensors) == [spec.key for spec in text_tensors(config)]
    float32 = {spec.key for spec in text_tensors(config) if spec.held_float32}
    for name, tensor in tensors.items():
        assert tensor.dtype == (torch.float32 if name in float32 else dtype), name
        assert tensor.is_contiguous()
        assert torch.equal(tensor, stored[name].to(tensor.dtype)), name
    ends = {name.rpartition("layers.")[2].partition(".")[2] for name in float32}
    assert ends == {
        "attn.k_sconv.weight",
        "attn.v_sconv.weight",
        "attn_sconv.weight",
        "mlp_sconv.weight",
        "mlp.gate.bias",
        "mlp.gate.global_scale",
    }


@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_together_hold_the_checkpoint(folder: Path, config: InklingConfig, size: int) -> None:
    """KV heads: 2 on global layers (shared at size 4), 4 on local ones (split)."""
    stored = written(SEED, config)
    ranks = [
        load(folder, config, dtype=torch.bfloat16, tp_rank=r, tp_size=size, progress="off")
        for r in range(size)
    ]
    for spec in text_tensors(config):
        parts = [rank[spec.key] for rank in ranks]
        whole = stored[spec.key].to(parts[0].dtype)
        assert all(one.is_contiguous() for one in parts)
        if isinstance(spec.rule, Replicate):
            assert all(torch.equal(one, whole) for one in parts)
        else:
            shared = isinstance(spec.rule, KvSplit) and spec.shape[0] // spec.rule.unit < size
            step = size * spec.rule.unit // spec.shape[0] if shared else 1
            assert torch.equal(torch.cat(parts[::step], spec.rule.dim), whole), spec.name


def test_one_file_or_several_give_the_same(tmp_path: Path) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    config = make_tiny(one, seed=3)
    make_tiny(several, seed=3, shards=7)
    assert len(list(several.glob("*.safetensors"))) == 7
    first, second = (load(path, config, progress="off") for path in (one, several))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_stream_gives_what_load_gives_and_checks_before_it_yields(
    folder: Path, config: InklingConfig
) -> None:
    loaded = load(folder, config, progress="off")
    streamed = dict(stream(folder, config, progress="off"))
    assert streamed.keys() == loaded.keys()
    assert all(torch.equal(streamed[name], loaded[name]) for name in loaded)
    with pytest.raises(ValueError, match="num_hidden_layers = 5"):
        stream(folder, config.replace(num_hidden_layers=5), progress="off")  # not even iterated


def test_sizes_are_checked_before_any_file(folder: Path, config: InklingConfig) -> None:
    with pytest.raises(ShardingError) as caught:
        load(folder / "absent", config, tp_size=3)
    # query heads, expert width, vocabulary, both kinds of KV heads
    assert len(caught.value.problems) == 5


def test_what_is_loaded_does_not_change_with_the_file(tmp_path: Path) -> None:
    config = make_tiny(tmp_path / "tiny", seed=5)
    tensors = load(tmp_path / "tiny", config, progress="off")
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    path = tmp_path / "tiny" / "model.safetensors"
    with path.open("r+b") as file:  # overwrite in place, as a careless copy over it would
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * (path.stat().st_size // 2))
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors.items())


def test_skipped_parts_are_counted_and_said(
    folder: Path, config: InklingConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="inkling_core.weights"):
        checked = validate(folder, config)
    assert [(one.part, one.tensors) for one in checked.skipped] == [
        ("mtp", 40),
        ("vision", 4),
        ("audio", 2),
    ]
    said = caplog.text
    assert "skipped on purpose, mtp: 40 tensors" in said
    assert "skipped on purpose, vision: 4 tensors" in said
    assert "skipped on purpose, audio: 2 tensors" in said
    assert not any("mtp" in name or "visual" in name for name in load(folder, config))


def test_a_checkpoint_without_mtp_and_towers_loads(tmp_path: Path) -> None:
    config = make_tiny(tmp_path / "t", {"mtp": None, "vision": None, "audio": None})
    assert validate(tmp_path / "t", config).skipped == ()
    assert len(load(tmp_path / "t", config, progress="off")) == len(list(text_tensors(config)))


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory through /proc")
def test_extra_memory_is_one_tensor(tmp_path: Path) -> None:
    """Streaming 24 layers (bf16 file, float32 tensors) never holds more than one tensor.

    The same measurement around `load`, which keeps them all, shows that it sees what is held.
    """
    make_tiny(
        tmp_path / "t",
        {"num_hidden_layers": 24, "hidden_size": 256, "moe_intermediate_size": 256, "mtp": None},
        dtype=torch.bfloat16,
        shards=3,
    )

    extra, largest, total = measure(tmp_path / "t", "stream", "float32")
    assert total > 25 * largest
    slack = 2 * 1024 * 1024  # the allocator's own
    assert extra <= largest + slack, (extra, largest, total)
    held, _, total = measure(tmp_path / "t", "load", "float32")
    assert total - slack <= held <= total + largest + slack
