"""Files that our writer makes in MXFP8 and NVFP4, read by HF transformers' looped Inkling 2.

That class alone reads both formats on a CPU; `inkling2` loads MXFP8 codes without their scales
there. The model is transformers' own: what is compared is how two readers see the same files.

    logits(codes and scales, transformers' reader) = logits(our reader's bf16, plain)   bit for bit
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from hf_oracle import SIZES
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from inkling_core.weights.expert_formats import as_built, stored_parts
from inkling_core.weights.expert_reader import ExpertReader
from inkling_core.weights.expert_writer import stored_tensors
from inkling_core.weights.header import read_header
from inkling_core.weights.names import TensorSpec
from inkling_core.weights.rules import Split

pytest.importorskip("transformers", minversion="5.24", reason="needs transformers 5.24 (ref)")

FILE = "model.safetensors"
LAYERS = 6
TEXT = {
    **SIZES,
    "num_hidden_layers": LAYERS,
    "loop_layer_index_start": 2,
    "loop_layer_index_end": 4,
    "n_layers_per_attn_res_block": 2,
    "loop_gate_rank": 4,
}
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "patch_size": 4,
    "projection_hidden_dim": 32,
    "text_hidden_size": 64,
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random looped model in the published format, bf16."""
    from transformers.models.inkling2_loop import configuration_inkling2_loop as configs
    from transformers.models.inkling2_loop.modeling_inkling2_loop import (
        Inkling2LoopForConditionalGeneration,
    )

    config = configs.Inkling2LoopConfig(text_config=TEXT, vision_config=VISION)
    model = Inkling2LoopForConditionalGeneration(config).to(torch.bfloat16).eval()
    draw = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        spread = 0.2 if value.dim() < 2 else value.shape[-1] ** -0.5
        noise = torch.randn(value.shape, generator=draw) * spread
        value.data = (noise + ("norm" in name)).to(value.dtype)
    folder = tmp_path_factory.mktemp("loop") / "bf16"
    model.save_pretrained(folder)
    return folder


def expert_specs(file: dict[str, Tensor], build: str) -> list[TensorSpec]:
    """The expert weights of a file, in the formats of `build`."""
    specs = [
        TensorSpec(name, tuple(weight.shape), "BF16", Split(1, 2), "routed_experts")
        for name, weight in file.items()
        if name.endswith(("experts.w13_weight", "experts.w2_weight"))
    ]
    return [as_built(spec, build, LAYERS) for spec in specs]


def hf_model(folder: Path) -> nn.Module:
    from transformers.models.inkling2_loop.modeling_inkling2_loop import (
        Inkling2LoopForConditionalGeneration,
    )

    model, report = Inkling2LoopForConditionalGeneration.from_pretrained(
        folder, output_loading_info=True, dtype=torch.bfloat16
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    return model.eval()


@pytest.mark.parametrize("build", ["mxfp8", "nvfp4_mxfp8"])
def test_transformers_reads_what_we_write_and_sees_what_we_read(
    published: Path, tmp_path: Path, build: str
) -> None:
    low, decoded = (shutil.copytree(published, tmp_path / name) for name in ("low", "decoded"))
    file = load_file(published / FILE)
    specs = expert_specs(file, build)
    assert len(specs) == 2 * LAYERS
    formats = [spec.dtype for spec in specs]
    assert formats.count("NVFP4") == (10 if build == "nvfp4_mxfp8" else 0)
    rest = {name: one for name, one in file.items() if name not in {spec.name for spec in specs}}
    packed = {name: one for s in specs for name, one in stored_tensors(s, file[s.name]).items()}
    save_file(rest | packed, low / FILE, metadata={"format": "pt"})

    stored = read_header(low / FILE)
    ours: dict[str, Tensor] = {}
    for spec in specs:
        parts = tuple(stored[part.name] for part in stored_parts(spec))
        with ExpertReader(spec, parts, 0, 1) as reader:
            ours[spec.name] = reader.dense(torch.bfloat16)
    save_file(rest | ours, decoded / FILE, metadata={"format": "pt"})

    theirs, plain = hf_model(low), hf_model(decoded)
    for (name, one), other in zip(theirs.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other), name
    ids = torch.randint(1, 151, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected, found = (model(input_ids=ids).logits for model in (theirs, plain))
    assert torch.equal(found, expected)
    assert expected.float().std() >= 0.5
    with torch.inference_mode():
        assert not torch.equal(hf_model(published)(input_ids=ids).logits, expected)
