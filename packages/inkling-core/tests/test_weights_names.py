"""`weights.names`: the table that follows from a configuration is the one of the releases.

The list of the Inkling-Small release is checked through a committed digest, and line by line
where the list itself lies beside the repository.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from inkling_core.config import PRESETS, InklingConfig
from inkling_core.weights.header import DTYPE_BYTES
from inkling_core.weights.names import all_tensors, mtp_tensors, text_tensors

DATA = Path(__file__).parent / "data"
REPOSITORY = Path(__file__).parents[3]
RELEASE_LIST = next(REPOSITORY.parent.glob("*/data/inkling_small_raw_tensors.txt"), None)


def published_small() -> InklingConfig:
    text = (DATA / "inkling_small_config.json").read_text(encoding="utf-8")
    return InklingConfig.from_dict(json.loads(text))


def lines(config: InklingConfig) -> list[str]:
    specs = [*text_tensors(config), *mtp_tensors(config)]
    return sorted(f"{spec.name} {list(spec.shape)} {spec.dtype}" for spec in specs)


def test_names_shapes_and_dtypes_of_inkling_small_by_digest() -> None:
    digest = json.loads((DATA / "inkling_small_digest.json").read_text(encoding="utf-8"))
    config = published_small()
    derived = lines(config)
    assert len(derived) == digest["lines"] == 1038
    text = "".join(line + "\n" for line in derived)
    assert hashlib.sha256(text.encode()).hexdigest() == digest["sha256"]
    specs = list(all_tensors(config))
    parameters = Counter[str]()
    for spec in specs:
        served = spec.part not in ("mtp", "vision", "audio")
        parameters["text" if served else spec.part] += spec.size
    assert parameters == {
        part: digest[f"{part}_parameters"] for part in ("text", "mtp", "vision", "audio")
    }
    total = sum(spec.size * DTYPE_BYTES[spec.dtype] for spec in specs)
    assert total == digest["total_size"] == 531_912_898_740


@pytest.mark.skipif(
    RELEASE_LIST is None,
    reason="the release's tensor list is not beside the repository; its digest is checked instead",
)
def test_names_shapes_and_dtypes_of_inkling_small_line_by_line() -> None:
    assert RELEASE_LIST is not None
    listed = RELEASE_LIST.read_text(encoding="utf-8").splitlines()
    assert lines(published_small()) == sorted(one for one in listed if not one.startswith("#"))


def test_counts_of_the_large_model() -> None:
    """The release holds 1,552 tensors in 109 files of 1,904,755,463,940 bytes, headers included."""
    specs = list(all_tensors(PRESETS["inkling"]))
    parts = Counter(
        spec.part if spec.part in ("mtp", "vision", "audio") else "text" for spec in specs
    )
    assert parts == {"text": 1382, "mtp": 160, "vision": 8, "audio": 2}
    total = sum(spec.size * DTYPE_BYTES[spec.dtype] for spec in specs)
    headers = 1_904_755_463_940 - total
    # a header entry is a name, a dtype, a shape and two offsets; any wrong shape is megabytes off
    assert 90 * len(specs) < headers < 140 * len(specs)


def test_local_layers_of_the_large_model_have_twice_the_kv_heads() -> None:
    shapes = {spec.key: spec.shape for spec in text_tensors(PRESETS["inkling"])}
    assert shapes["layers.4.attn.wk_dv.weight"] == (2048, 6144)
    assert shapes["layers.5.attn.wk_dv.weight"] == (1024, 6144)
    assert shapes["layers.5.attn.rel_logits_proj.proj"] == (16, 1024)


def test_chain_norm_only_with_post_norm() -> None:
    config = published_small()
    assert config.mtp is not None
    plain = {spec.name for spec in mtp_tensors(config)}
    chained = config.replace(mtp=type(config.mtp)(8, config.mtp.local_layer_ids, True))
    extra = {spec.name for spec in mtp_tensors(chained)} - plain
    assert extra == {"model.mtp.chain_norm.weight"}


def test_no_name_twice() -> None:
    names = [spec.name for spec in all_tensors(PRESETS["inkling_small"])]
    assert len(names) == len(set(names)) == 1048


def test_a_float32_checkpoint_is_float32_throughout() -> None:
    config = published_small().replace(dtype="float32")
    assert {spec.dtype for spec in all_tensors(config)} == {"F32"}
