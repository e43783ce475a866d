"""`weights.tiny`: random checkpoints are in the published format, reproducible, and not neutral."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inkling_core.config import ConfigError, InklingConfig
from inkling_core.weights import load, validate
from inkling_core.weights.byte_tokenizer import byte_alphabet
from inkling_core.weights.names import all_tensors
from inkling_core.weights.tiny import TINY, make_tiny, random_tensors

BIG_KV: dict[str, Any] = {"swa_num_key_value_heads": 4, "num_key_value_heads": 1}


def test_config_in_the_folder_is_the_one_returned(tmp_path: Path) -> None:
    config = make_tiny(tmp_path / "t", BIG_KV, tokenizer=True)
    assert InklingConfig.from_checkpoint(tmp_path / "t") == config
    validate(tmp_path / "t", config)


def test_equal_seeds_give_equal_files_and_others_do_not(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_tiny(tmp_path / name, seed=seed)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_no_side_weight_is_neutral() -> None:
    for spec, value in random_tensors(TINY.replace(dtype="float32"), 0):
        assert torch.isfinite(value).all()
        assert not ((value == 0) | (value == 1)).any(), spec.name
        if value.numel() > 8:
            assert value.std() > 0.02, spec.name


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"dtype": torch.float16}, ValueError, "float32 or bfloat16"),
        ({"shards": 0}, ValueError, "must be 1.."),
        ({"shards": 10**6}, ValueError, "must be 1.."),
        ({"overrides": {"head_dim": 0}}, ConfigError, "head_dim"),
        ({"overrides": {"unpadded_vocab_size": 265}, "tokenizer": True}, ValueError, "needs 272"),
    ],
    ids=["f16", "no-shard", "too-many-shards", "bad-field", "small-vocabulary"],
)
def test_refusals(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        make_tiny(tmp_path / "t", **arguments)


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "keep").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match="not an empty folder"):
        make_tiny(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["keep"]


@pytest.mark.parametrize("shards", [1, 2, 3, 63])
def test_shards_are_all_there_and_of_similar_size(tmp_path: Path, shards: int) -> None:
    config = make_tiny(tmp_path / "t", shards=shards)
    sizes = sorted(path.stat().st_size for path in (tmp_path / "t").glob("*.safetensors"))
    assert len(sizes) == shards
    if shards <= 3:
        assert sizes[-1] < 1.5 * sizes[0]
    validate(tmp_path / "t", config)


def test_byte_alphabet_is_a_bijection() -> None:
    table = byte_alphabet()
    assert sorted(table.values()) == list(range(256))
    assert table["A"] == 0x41 and table["\u0120"] == 0x20


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_transformers_loads_it_whole_and_its_logits_are_wide(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    transformers = pytest.importorskip(
        "transformers", minversion="5.24", reason="needs transformers 5.24 (environment ref)"
    )
    config = make_tiny(tmp_path / "t", BIG_KV, seed=4, dtype=dtype, shards=3)
    model, report = transformers.InklingForConditionalGeneration.from_pretrained(
        tmp_path / "t", output_loading_info=True, dtype=torch.float32
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    ours = load(tmp_path / "t", config, progress="off")
    theirs = model.state_dict()["model.language_model.layers.2.mlp.experts.down_proj"]
    assert torch.equal(theirs, ours["layers.2.mlp.experts.w2_weight"])
    ids = torch.randint(0, 288, (1, 129), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    assert logits.shape == (1, 129, config.unpadded_vocab_size)
    assert logits.float().std() >= 0.5
    left = {name for name in (spec.name for spec in all_tensors(config)) if ".mtp." in name}
    assert len(left) == 40  # transformers ignores them by design


def test_the_tokenizer_is_read_and_round_trips(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the tokenizers library")
    make_tiny(tmp_path / "t", tokenizer=True)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "t" / "tokenizer.json"))
    text = "12+7=?\n  h\u00e9llo \U0001f600"
    ids = tokenizer.encode(text).ids
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text
    marked = tokenizer.encode("a<|end_message|>").ids
    assert marked == [97, 265]
