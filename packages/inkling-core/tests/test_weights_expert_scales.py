"""A wrong or missing scale is refused, by a message that names it; what only looks odd is not.

Real files, one change each; read both ways, decoded and packed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inkling_core.config import InklingConfig
from inkling_core.ops.nvfp4 import quantize_nvfp4
from inkling_core.weights import CheckpointError, load, validate
from inkling_core.weights.expert_scales import mxfp8_problem, nvfp4_problem
from inkling_core.weights.tiny import make_tiny


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sparse layers: 0 in NVFP4, 1 in MXFP8."""
    path = tmp_path_factory.mktemp("refusals") / "t"
    shape = {"num_hidden_layers": 2, "local_layer_ids": (0,), "dense_layer_count": 0, "mtp": None}
    make_tiny(path, shape, build="nvfp4_mxfp8")
    return path


def test_every_byte_of_a_scale_or_a_code() -> None:
    """Of 256 E8M0 bytes NaN and the last nine are refused, of e4m3 codes the two NaN; an NVFP4
    scale is refused when NaN or negative. -0 is 0."""
    refused: dict[str, list[int]] = {"e8m0": [], "code": [], "scale": []}
    codes, scales = (
        torch.zeros(1, 32, dtype=torch.uint8),
        torch.full((1, 1), 127, dtype=torch.uint8),
    )
    top, denominator = torch.tensor(1.0), torch.tensor(6.0 * 448)
    for byte in range(256):
        one = torch.tensor([[byte]], dtype=torch.uint8)
        code = torch.where(torch.arange(32) == 5, one, codes).view(torch.float8_e4m3fn)
        block = torch.tensor([[byte, 0x7E]], dtype=torch.uint8).view(torch.float8_e4m3fn)
        found = {
            "e8m0": mxfp8_problem(codes, one, whole=True),
            "code": mxfp8_problem(code, scales, whole=True),
            "scale": nvfp4_problem(codes, block, top, denominator, whole=True),
        }
        for kind, problem in found.items():
            refused[kind] += [byte] if problem else []
    assert refused["e8m0"] == list(range(247, 256))
    assert refused["code"] == [0x7F, 0xFF]
    assert refused["scale"] == [0x7F, *range(0x81, 0x100)]


NVFP4 = "model.llm.layers.0.mlp.experts.w13_weight"
MXFP8 = "model.llm.layers.1.mlp.experts.w2_weight"
PLAIN = "model.llm.layers.1.mlp.shared_experts.shared_w2_weight"


def setting(name: str, index: tuple[int, ...], value: float, byte: bool = False) -> Callable:
    def change(file: dict[str, Tensor]) -> None:
        tensor = file[name].clone()
        (tensor.view(torch.uint8) if byte else tensor)[index] = value
        file[name] = tensor

    return change


def removing(name: str) -> Callable:
    return lambda file: file.pop(name)


def replacing(name: str, new: Callable[[Tensor], Tensor]) -> Callable:
    def change(file: dict[str, Tensor]) -> None:
        file[name] = new(file[name]).contiguous()

    return change


def swapping(first: str, second: str) -> Callable:
    def change(file: dict[str, Tensor]) -> None:
        file[first], file[second] = file[second], file[first]

    return change


REFUSALS = {
    "mxfp8-nan-scale": (
        setting(f"{MXFP8}_scale", (2, 5, 0), 255),
        "expert 2 (MXFP8): 1 of 64 scales are 255, which is NaN",
    ),
    "mxfp8-nan-code": (setting(MXFP8, (3, 0, 1), 0xFF, byte=True), "1 of 2048 codes are NaN"),
    "mxfp8-huge-scale": (setting(f"{MXFP8}_scale", (0, 0, 0), 250), "2^123 takes a code of 448"),
    "mxfp8-no-scale": (removing(f"{MXFP8}_scale"), f"{MXFP8}_scale: missing, expected [8, 64, 1]"),
    "mxfp8-grid-scale": (
        replacing(f"{MXFP8}_scale", lambda one: one[:, ::32]),
        f"{MXFP8}_scale: shape [8, 2, 1], config.json implies [8, 64, 1]",
    ),
    "mxfp8-float-scale": (
        replacing(f"{MXFP8}_scale", lambda one: one.float()),
        f"{MXFP8}_scale: dtype F32, expected F8_E8M0 or U8",
    ),
    "mxfp8-scale-of-plain": (
        replacing(MXFP8, lambda one: one.bfloat16()),
        "unexpected, [8, 64, 1]; scales are read beside MXFP8 (F8_E4M3) or NVFP4 (U8) codes",
    ),
    "nvfp4-nan-scale": (
        setting(f"{NVFP4}_scale", (1, 0, 0), 0x7F, byte=True),
        "expert 1 (NVFP4): 1 of 256 block scales are NaN or negative",
    ),
    "nvfp4-negative-scale": (
        setting(f"{NVFP4}_scale", (1, 0, 0), 0x81, byte=True),
        "1 of 256 block scales are NaN or negative",
    ),
    "nvfp4-no-amax": (removing(f"{NVFP4}_amax"), f"{NVFP4}_amax: missing, expected [8]"),
    "nvfp4-no-denominator": (
        removing(f"{NVFP4}_outer_scale_denominator"),
        f"{NVFP4}_outer_scale_denominator: missing, expected [8]",
    ),
    "nvfp4-nan-amax": (setting(f"{NVFP4}_amax", (4,), float("nan")), "amax = nan must be finite"),
    "nvfp4-negative-amax": (setting(f"{NVFP4}_amax", (4,), -1.0), "amax = -1.0 must be finite"),
    "nvfp4-zero-amax": (setting(f"{NVFP4}_amax", (4,), 0.0), "amax = 0, yet a block scale is"),
    "nvfp4-zero-denominator": (
        setting(f"{NVFP4}_outer_scale_denominator", (4,), 0.0),
        "outer_scale_denominator = 0.0 must be finite and positive",
    ),
    "nvfp4-swapped": (
        swapping(f"{NVFP4}_amax", f"{NVFP4}_outer_scale_denominator"),
        "so amax, denominator and scales do not belong together",
    ),
    "nvfp4-denominator-of-plain": (
        setting(f"{NVFP4}_outer_scale_denominator", (7,), 2688.0),
        "expert 7 (NVFP4): the largest block scale is",
    ),
    "nvfp4-one-amax-for-all": (
        replacing(f"{NVFP4}_amax", lambda one: one[:1]),
        f"{NVFP4}_amax: shape [1], config.json implies [8]",
    ),
    "plain-in-e4m3": (  # only routed experts are read in a block format
        replacing(PLAIN, lambda one: one.to(torch.float8_e4m3fn)),
        f"{PLAIN}: dtype F8_E4M3, expected BF16 or F32",
    ),
    "nvfp4-unpacked-codes": (
        replacing(NVFP4, lambda one: torch.cat([one, one], -1)),
        f"{NVFP4}: shape [8, 64, 64], config.json implies [8, 64, 32]",
    ),
}


@pytest.mark.parametrize("pack", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("case", REFUSALS)
def test_a_wrong_or_missing_scale_is_refused(
    sources: Path, tmp_path: Path, case: str, pack: bool
) -> None:
    change, words = REFUSALS[case]
    folder = shutil.copytree(sources, tmp_path / "t")
    file = load_file(folder / "model.safetensors")
    change(file)
    save_file(file, folder / "model.safetensors")
    config = InklingConfig.from_checkpoint(folder)
    with pytest.raises(CheckpointError) as found:
        load(folder, config, progress="off", pack_experts=pack)
    assert any(words in problem for problem in found.value.problems), found.value


def test_an_expert_of_zeros_is_no_fault(sources: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(sources, tmp_path / "t")
    file = load_file(folder / "model.safetensors")
    for suffix in ("", "_scale", "_amax"):
        tensor = file[NVFP4 + suffix].clone()
        tensor.view(torch.uint8).view(8, -1)[5] = 0
        file[NVFP4 + suffix] = tensor
    save_file(file, folder / "model.safetensors")
    loaded = load(folder, InklingConfig.from_checkpoint(folder), progress="off")
    weight = loaded[NVFP4.removeprefix("model.llm.")]
    assert (weight[5] == 0).all() and (weight[4] != 0).any()


def test_scales_may_be_stored_as_e8m0(sources: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(sources, tmp_path / "t")
    file = load_file(folder / "model.safetensors")
    config = InklingConfig.from_checkpoint(folder)
    before = load(folder, config, progress="off")
    file[f"{MXFP8}_scale"] = file[f"{MXFP8}_scale"].view(torch.float8_e8m0fnu)
    save_file(file, folder / "model.safetensors")
    after = load(folder, config, progress="off")
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    name = MXFP8.removeprefix("model.llm.")
    kept = load(folder, config, progress="off", pack_experts=True)[name]
    assert all(torch.equal(kept[expert].float(), before[name][expert]) for expert in range(8))


@pytest.mark.parametrize("denominator", [1000.0, 1500.0, 1536.0, 2000.0, 2688.0])
def test_what_rounding_does_to_the_largest_scale_is_no_fault(denominator: float) -> None:
    """Plain and, where it has room, Four-Over-Six; e4m3 has D / 6 and D / 4 of 1536 only."""
    weight = torch.randn(1, 64, 64, generator=torch.Generator().manual_seed(0))
    amax = weight.abs().amax()
    for four_over_six in (False, True)[: 1 + (denominator <= 4 * 448)]:
        written = quantize_nvfp4(weight, amax.view(1, 1), denominator, four_over_six)
        parts = (*(part[0] for part in written), amax, torch.tensor(denominator))
        assert nvfp4_problem(*parts, whole=True) is None


def test_the_format_comes_from_the_file(sources: Path) -> None:
    config = InklingConfig.from_checkpoint(sources)
    stored = {spec.name: spec.dtype for spec, _ in validate(sources, config).tensors}
    assert stored[NVFP4] == "NVFP4" and stored[MXFP8] == "MXFP8"
    plain = {stored[name] for name in stored if "experts.w" not in name}
    assert plain == {"F32"}
