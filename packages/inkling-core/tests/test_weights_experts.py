"""Experts in MXFP8 and NVFP4: what a file holds, bit by bit, and what is handed out.

The oracle decodes the bytes of the file (`block_oracle`); whole models are held to a checkpoint
whose experts were decoded by it and stored in bf16.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import block_oracle as oracle
import numpy as np
import pytest
import torch
from resident_memory import measure
from rich.filesize import decimal
from safetensors.torch import load_file, save_file
from torch import Tensor

from inkling_core.checkpoint import load_decoder
from inkling_core.config import InklingConfig
from inkling_core.generate import TokenGenerator
from inkling_core.layers.moe import MoE
from inkling_core.packed_experts import PackedExperts
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance
from inkling_core.serving.cpu import CPU
from inkling_core.weights import ShardingError, load, validate
from inkling_core.weights.expert_formats import as_built, packed_bytes
from inkling_core.weights.info import checkpoint_info
from inkling_core.weights.loader import _bytes_to_read
from inkling_core.weights.names import text_tensors
from inkling_core.weights.tiny import make_tiny

BUILDS = ("mxfp8", "nvfp4_mxfp8")
WIDE = {"moe_intermediate_size": 64}  # two ranks get whole blocks
SMALL = {"num_hidden_layers": 2, "local_layer_ids": (0,), "mtp": None}  # the last is MXFP8
EXPERTS = ("w13_weight", "w2_weight")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("builds")
    for build in BUILDS:
        make_tiny(root / build, WIDE, seed=3, dtype=torch.bfloat16, build=build)
    return {build: root / build for build in BUILDS}


def raw(file: dict[str, Tensor], name: str) -> np.ndarray:
    """Bytes of a tensor of one-byte elements; a float32 one as it is."""
    tensor = file[name]
    return (tensor if tensor.dtype == torch.float32 else tensor.view(torch.uint8)).numpy()


def decoded(file: dict[str, Tensor], name: str) -> Tensor:
    """A weight by the oracle, rounded to bf16."""
    if name + "_amax" in file:
        parts = ("", "_scale", "_amax", "_outer_scale_denominator")
        return as_bf16(oracle.nvfp4(*(raw(file, name + part) for part in parts)))
    return as_bf16(oracle.mxfp8(raw(file, name), raw(file, name + "_scale")))


def as_bf16(values: np.ndarray) -> Tensor:
    return torch.from_numpy(oracle.to_bf16(values)).bfloat16()


def expert_names(file: dict[str, Tensor]) -> list[str]:
    return [name for name in file if name.endswith(EXPERTS) and "shared" not in name]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
@pytest.mark.parametrize("build", BUILDS)
def test_expert_tensors_are_the_definition_bit_for_bit(
    folders: dict[str, Path], build: str, dtype: torch.dtype
) -> None:
    file = load_file(folders[build] / "model.safetensors")
    config = InklingConfig.from_checkpoint(folders[build])
    loaded = load(folders[build], config, dtype=dtype, progress="off")
    names = expert_names(file)
    assert len(names) == 10
    assert sum(name + "_amax" in file for name in names) == (8 if build == "nvfp4_mxfp8" else 0)
    for name in names:
        weight = loaded[name.removeprefix("model.llm.")]
        assert weight.dtype == dtype and weight.is_contiguous()
        assert torch.equal(weight.bfloat16(), decoded(file, name)), name
        assert torch.equal(weight, weight.bfloat16().to(dtype)), "rounded to bf16 in any dtype"


@pytest.mark.parametrize("build", BUILDS)
def test_transformers_decodes_the_same_tensors(folders: dict[str, Path], build: str) -> None:
    """By the op that it applies to such files of the looped model."""
    pytest.importorskip(
        "transformers", minversion="5.24", reason="needs transformers 5.24 (environment ref)"
    )
    from transformers.core_model_loading import Inkling2LoopDequantizeExperts

    file = load_file(folders[build] / "model.safetensors")
    config = InklingConfig.from_checkpoint(folders[build])
    loaded = load(folders[build], config, dtype=torch.bfloat16, progress="off")
    suffixes = ("", "_scale", "_amax", "_outer_scale_denominator")
    for name in expert_names(file):
        sources = [name + suffix for suffix in suffixes]
        parts = {source: file[source] for source in sources if source in file}
        (theirs,) = Inkling2LoopDequantizeExperts().convert(parts, sources, ["weight"]).values()
        assert torch.equal(loaded[name.removeprefix("model.llm.")], theirs), name


@pytest.mark.parametrize("build", BUILDS)
def test_the_writer_keeps_rows_with_their_scales(tmp_path: Path, build: str) -> None:
    """Rows of w13 alternate in size; a scale on another row's block would be off by far."""
    plain = make_tiny(tmp_path / "plain", SMALL, seed=1)
    make_tiny(tmp_path / "low", SMALL, seed=1, build=build)
    exact, low = (load(tmp_path / name, plain, progress="off") for name in ("plain", "low"))
    for name in EXPERTS:
        wanted, found = (one[f"layers.1.mlp.experts.{name}"] for one in (exact, low))
        assert (found - wanted).abs().max() <= wanted.abs().max() / 16 + 1e-3


@pytest.mark.parametrize("build", BUILDS)
def test_packed_experts_decode_to_what_is_loaded(folders: dict[str, Path], build: str) -> None:
    config = InklingConfig.from_checkpoint(folders[build])
    dense = load(folders[build], config, dtype=torch.bfloat16, progress="off")
    packed = load(folders[build], config, dtype=torch.bfloat16, progress="off", pack_experts=True)
    kept = {name: one for name, one in packed.items() if isinstance(one, PackedExperts)}
    assert len(kept) == 10
    for name, one in kept.items():
        assert one.shape == dense[name].shape and len(one) == 8
        assert torch.equal(torch.stack([one[e] for e in range(8)]), dense[name])
        assert one.nbytes < 0.6 * dense[name].nbytes
        assert one.to(torch.float32)[3].dtype == torch.float32


@pytest.mark.parametrize(
    ("pack", "words"),
    [
        (False, "decoded, 983.0 kB in bfloat16 from 323.1 kB"),
        (True, "kept packed, 323.1 kB (decoded: 983.0 kB in bfloat16)"),
    ],
    ids=["dense", "packed"],
)
def test_what_experts_take_is_said(
    folders: dict[str, Path], caplog: pytest.LogCaptureFixture, pack: bool, words: str
) -> None:
    folder = folders["nvfp4_mxfp8"]
    config = InklingConfig.from_checkpoint(folder)
    with caplog.at_level("INFO", logger="inkling_core.weights"):
        loaded = load(folder, config, dtype=torch.bfloat16, pack_experts=pack)
    assert f"expert weights 8 in NVFP4, 2 in MXFP8; {words}" in caplog.text
    held = sum(one.nbytes for name, one in loaded.items() if "mlp.experts" in name)
    assert decimal(held) in caplog.text


@pytest.mark.parametrize("pack", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("build", BUILDS)
def test_ranks_together_hold_every_expert(folders: dict[str, Path], build: str, pack: bool) -> None:
    config = InklingConfig.from_checkpoint(folders[build])
    whole = load(folders[build], config, dtype=torch.bfloat16, progress="off")
    ranks = [
        load(
            folders[build],
            config,
            dtype=torch.bfloat16,
            tp_rank=rank,
            tp_size=2,
            progress="off",
            pack_experts=pack,
        )
        for rank in range(2)
    ]
    for name in (spec.key for spec in text_tensors(config) if spec.part == "routed_experts"):
        dim = 1 if "w13" in name else 2
        pieces = [torch.stack([rank[name][e] for e in range(8)]) for rank in ranks]
        assert torch.equal(torch.cat(pieces, dim), whole[name]), name
    if pack:
        specs = [
            as_built(spec, build, config.num_hidden_layers)
            for spec in text_tensors(config)
            if spec.part == "routed_experts"
        ]
        held = sum(ranks[0][spec.key].nbytes for spec in specs)
        assert held == sum(packed_bytes(spec, 2) for spec in specs)


@pytest.mark.parametrize("build", BUILDS)
def test_progress_counts_what_the_rank_reads(folders: dict[str, Path], build: str) -> None:
    config = InklingConfig.from_checkpoint(folders[build])
    held = load(folders[build], config, tp_size=2, progress="off", pack_experts=True)
    experts = 0
    for spec, stored in validate(folders[build], config).tensors:
        if isinstance(held[spec.key], PackedExperts):
            assert _bytes_to_read(spec, stored, 2) == held[spec.key].nbytes
            experts += 1
    assert experts == 10


def test_a_cut_through_a_block_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    config = make_tiny(tmp_path / "t", build="mxfp8")  # width 32: half of it is half a block
    with pytest.raises(ShardingError, match="16 columns a rank cut through a block of 32") as found:
        load(tmp_path / "t", config, tp_size=2, progress="off")
    assert "use a smaller tp_size than 2" in str(found.value)


@pytest.mark.parametrize("shards", [7, 50])
def test_parts_may_lie_in_different_files(
    folders: dict[str, Path], tmp_path: Path, shards: int
) -> None:
    build = "nvfp4_mxfp8"
    config = make_tiny(
        tmp_path / "t", WIDE, seed=3, dtype=torch.bfloat16, build=build, shards=shards
    )
    one, several = (load(path, config, progress="off") for path in (folders[build], tmp_path / "t"))
    assert all(torch.equal(tensor, several[name]) for name, tensor in one.items())
    scattered = shutil.copytree(folders[build], tmp_path / "scattered")
    file = load_file(scattered / "model.safetensors")
    (scattered / "model.safetensors").unlink()
    halves = {"a.safetensors": {}, "b.safetensors": {}}
    for name, tensor in file.items():
        halves["b.safetensors" if name.endswith(("_scale", "_amax")) else "a.safetensors"][name] = (
            tensor
        )
    for path, tensors in halves.items():
        save_file(tensors, scattered / path)
    index = {name: path for path, tensors in halves.items() for name in tensors}
    text = '{"weight_map": ' + str(index).replace("'", '"') + "}"
    (scattered / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    apart = load(scattered, config, progress="off")
    assert all(torch.equal(tensor, apart[name]) for name, tensor in one.items())


# ---- whole models ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("build", BUILDS)
def test_logits_are_those_of_the_decoded_checkpoint(
    folders: dict[str, Path], tmp_path: Path, build: str, dtype: torch.dtype
) -> None:
    """Bit for bit, whether experts are decoded while loading or when used."""
    plain = shutil.copytree(folders[build], tmp_path / "plain")
    file = load_file(plain / "model.safetensors")
    names = expert_names(file)
    kept = {n: t for n, t in file.items() if not n.startswith(tuple(names))}
    save_file(kept | {n: decoded(file, n) for n in names}, plain / "model.safetensors")
    ids = torch.randint(0, 288, (45,), generator=torch.Generator().manual_seed(0))
    expected = TokenGenerator(load_decoder(plain, dtype=dtype), len(ids)).feed(ids)
    assert expected.float().std() >= 0.5
    for pack in (False, True):
        decoder = load_decoder(folders[build], dtype=dtype, pack_experts=pack)
        found = TokenGenerator(decoder, len(ids)).feed(ids)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("build", BUILDS)
def test_packed_experts_run_under_another_back_end(folders: dict[str, Path], build: str) -> None:
    """Its kernel is left out: it wants one dense tensor. The rest of it runs."""
    dense, packed = (load_decoder(folders[build], CPU, pack_experts=pack) for pack in (False, True))
    moe = [one for one in packed.modules() if isinstance(one, MoE)]
    assert len(moe) == 5
    assert all(isinstance(one.experts.w2_weight, PackedExperts) for one in moe)
    assert all(one.ops.mixture is not one.mixture for one in moe)
    ids = torch.randint(0, 288, (45,), generator=torch.Generator().manual_seed(1))
    expected, found = (TokenGenerator(one, len(ids)).feed(ids) for one in (dense, packed))
    assert_within(found, expected, tolerance("model", torch.float32), "packed beside dense")


@pytest.mark.parametrize("build", BUILDS)
def test_packed_experts_stay_off_a_gaudi(folders: dict[str, Path], build: str) -> None:
    """Their e4m3 numbers reach 448, its end at 240; decoded ones may go."""
    config = InklingConfig.from_checkpoint(folders[build])
    weights = load(folders[build], config, progress="off", pack_experts=True)
    kept = [one for one in weights.values() if isinstance(one, PackedExperts)]
    e4m3 = (one.parts[0 if one.format == "MXFP8" else 1].float() for one in kept)
    assert max(float(numbers.max()) for numbers in e4m3) > 240
    for one in kept:
        with pytest.raises(Exception, match="hpu") as found:  # torch knows no such device here
            one.to(torch.device("hpu"))
        assert f"packed {one.format} experts cannot go to hpu" in str(found.value)


# ---- memory ------------------------------------------------------------------------------------

LARGE = {
    "num_hidden_layers": 8,
    "hidden_size": 256,
    "moe_intermediate_size": 256,
    "n_routed_experts": 32,
    "mtp": None,
}
SLACK = 2 * 1024 * 1024  # the allocator's own


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory through /proc")
def test_decoding_holds_one_expert_beside_the_weight(tmp_path: Path) -> None:
    """And packed, all weights together take what the file takes."""
    make_tiny(tmp_path / "t", LARGE, dtype=torch.bfloat16, build="nvfp4_mxfp8")
    peak, largest, _ = measure(tmp_path / "t", "stream", "bfloat16")
    expert = 2 * 256 * 256 * 4  # float32
    assert largest == 32 * expert // 2
    assert peak <= largest + 6 * expert + SLACK, (peak, largest)
    held, _, total = measure(tmp_path / "t", "load", "bfloat16", "pack")
    info = checkpoint_info(tmp_path / "t")
    assert total == info.packed_card_bytes[1] < 0.4 * info.card_bytes[1]
    assert total - SLACK <= held <= total + largest / 2 + SLACK, (held, total)
