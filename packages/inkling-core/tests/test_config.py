"""`config`: both spellings of config.json, presets, and every refusal with key, value and remedy.

Not the folder reading (test_config_folder.py) nor tensor shapes (test_weights_names.py).
"""

from __future__ import annotations

import copy
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_core.config import PRESETS, ConfigError, InklingConfig
from inkling_core.config.spellings import text_keys
from inkling_core.weights.names import all_tensors

DATA = Path(__file__).parent / "data"
PUBLISHED = json.loads((DATA / "inkling_small_config.json").read_text(encoding="utf-8"))


SAME_NAME = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "swa_num_key_value_heads",
    "head_dim",
    "d_rel",
    "rel_extent",
    "intermediate_size",
    "moe_intermediate_size",
    "n_routed_experts",
    "num_experts_per_tok",
    "n_shared_experts",
    "route_scale",
    "vocab_size",
    "conv_kernel_size",
    "rms_norm_eps",
    "log_scaling_alpha",
    "logits_mup_width_multiplier",
)


def published(**text: Any) -> dict[str, Any]:
    """The published document with changes to `text_config`; None removes a key."""
    document = copy.deepcopy(PUBLISHED)
    for key, value in text.items():
        if value is None:
            document["text_config"].pop(key, None)
        else:
            document["text_config"][key] = value
    return document


def transformers_style() -> dict[str, Any]:
    """The same model as transformers spells it, with the defaults that it adds."""
    document = copy.deepcopy(PUBLISHED)
    text = document["text_config"]
    local = set(text.pop("local_layer_ids"))
    dense = text.pop("dense_mlp_idx")
    layers = range(text["num_hidden_layers"])
    text["layer_types"] = ["hybrid_sliding" if one in local else "hybrid" for one in layers]
    text["mlp_layer_types"] = ["dense" if one < dense else "sparse" for one in layers]
    text["moe_intermediate_size"] = text["intermediate_size"]
    text["intermediate_size"] = text.pop("dense_intermediate_size")
    text["conv_kernel_size"] = text.pop("sconv_kernel_size")
    text["max_position_embeddings"] = text.pop("model_max_length")
    text |= {"bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.02}
    chain = document.pop("mtp_config")
    text["num_mtp_layers"] = chain["num_nextn_predict_layers"]
    text["mtp_local_layer_ids"] = chain["local_layer_ids"]
    text["chain_hidden_post_norm"] = chain["chain_hidden_post_norm"]
    document["vision_config"]["num_channels"] = document["vision_config"].pop("n_channels")
    return document


def transformers_config_module() -> Any:
    """The reference configuration; 5.19 reads the published expert width as the dense one."""
    pytest.importorskip(
        "transformers", minversion="5.24", reason="needs transformers 5.24 (environment ref)"
    )
    return importlib.import_module("transformers.models.inkling.configuration_inkling")


def problems(document: dict[str, Any]) -> dict[str, str]:
    """Key -> the line about it, of the error that `document` must raise."""
    with pytest.raises(ConfigError) as caught:
        InklingConfig.from_dict(document)
    for problem in caught.value.problems:
        assert str(problem) in str(caught.value)
    return {problem.key: str(problem) for problem in caught.value.problems}


def test_published_config_is_the_small_preset() -> None:
    small = PRESETS["inkling_small"]
    assert InklingConfig.from_dict(PUBLISHED) == small.replace(stop_token_ids=(200006,))
    assert (small.hidden_size, small.num_hidden_layers, small.intermediate_size) == (
        4096,
        42,
        16384,
    )
    assert (small.moe_intermediate_size, small.unpadded_vocab_size) == (2048, 200058)


def test_both_spellings_read_equal() -> None:
    assert InklingConfig.from_dict(transformers_style()) == InklingConfig.from_dict(PUBLISHED)


def test_config_saved_by_transformers_reads_equal(tmp_path: Path) -> None:
    module = transformers_config_module()
    module.InklingConfig.from_dict(copy.deepcopy(PUBLISHED)).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert "dense_mlp_idx" not in saved["text_config"]  # it really is the other spelling
    assert InklingConfig.from_checkpoint(tmp_path) == InklingConfig.from_dict(PUBLISHED)


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_survive_writing_and_reading(name: str) -> None:
    config = PRESETS[name]
    assert InklingConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_layer_questions_of_the_presets() -> None:
    big, small = PRESETS["inkling"], PRESETS["inkling_small"]
    assert [layer for layer in range(13) if not big.is_local(layer)] == [5, 11]
    assert (big.kv_heads(0), big.kv_heads(5), small.kv_heads(0), small.kv_heads(5)) == (16, 8, 8, 8)
    assert (small.window(4), small.window(5)) == (512, None)
    assert (small.extent(4), small.extent(5)) == (512, 1024)
    assert [small.is_dense(layer) for layer in range(4)] == [True, True, False, False]
    assert sum(map(big.is_local, range(66))) == 55


def test_the_preset_of_the_large_model_agrees_with_transformers_defaults() -> None:
    module = transformers_config_module()
    theirs, ours = module.InklingTextConfig(), PRESETS["inkling"]
    for key in SAME_NAME:
        assert getattr(ours, key) == getattr(theirs, key), key
    assert ours.sliding_window == theirs.sliding_window_size
    kinds = ["hybrid_sliding" if ours.is_local(one) else "hybrid" for one in range(66)]
    assert kinds == theirs.layer_types


def test_all_faults_come_at_once_with_key_value_and_remedy() -> None:
    document = published(num_key_value_heads=5, hidden_sizes=1, use_sconv=False)
    document["eos_token_id"] = None
    found = problems(document)
    assert "did you mean 'hidden_size'?" in found["text_config.hidden_sizes"]
    assert "= False" in found["text_config.use_sconv"]
    assert "does not divide num_attention_heads = 32" in found["num_key_value_heads"]
    assert "top level of config.json" in found["eos_token_id"]
    assert len(found) == 4


@pytest.mark.parametrize("key", ["hidden_size", "swa_num_key_value_heads", "model_max_length"])
def test_a_missing_key_is_named(key: str) -> None:
    assert "is missing" in problems(published(**{key: None}))[f"text_config.{key}"]


@pytest.mark.parametrize("key", sorted(text_keys()))
def test_a_typo_in_any_text_key_is_refused_with_a_near_name(key: str) -> None:
    typo = key + "z"
    line = problems(published(**{typo: 1}))[f"text_config.{typo}"]
    assert "is not a known key" in line and f"did you mean {key!r}?" in line


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"layer_types": ["hybrid"] * 42}, "text_config.layer_types", "contradicts"),
        ({"layer_types": ["hybrid"] * 41}, "text_config.layer_types", "41 entries"),
        ({"layer_types": ["global"] * 42}, "text_config.layer_types", "'global'"),
        ({"mlp_layer_types": ["sparse"] * 42}, "text_config.mlp_layer_types", "contradicts"),
        (
            {"dense_mlp_idx": None, "mlp_layer_types": ["sparse", "dense"] * 21},
            "text_config.mlp_layer_types",
            "after a sparse one",
        ),
        ({"conv_kernel_size": 5}, "text_config.conv_kernel_size", "contradicts"),
        ({"max_position_embeddings": 9}, "text_config.max_position_embeddings", "1048576"),
        ({"moe_intermediate_size": 999}, "text_config.intermediate_size", "999"),
        ({"dense_intermediate_size": None}, "text_config.intermediate_size", "width open"),
        ({"local_layer_ids": None}, "text_config.local_layer_ids", "is missing"),
        ({"local_layer_ids": [0, 42]}, "local_layer_ids", "[42]"),
        ({"local_layer_ids": [3, 3]}, "local_layer_ids", "twice"),
        ({"local_layer_ids": 7}, "text_config.local_layer_ids", "must be a list of integers"),
        ({"swa_head_dim": 64}, "text_config.swa_head_dim", "differs from head_dim = 128"),
        ({"swa_num_attention_heads": 16}, "text_config.swa_num_attention_heads", "differs"),
        ({"swa_num_key_value_heads": 3}, "swa_num_key_value_heads", "does not divide"),
        ({"dense_mlp_idx": 43}, "dense_layer_count", "exceeds num_hidden_layers = 42"),
        ({"num_experts_per_tok": 257}, "num_experts_per_tok", "exceeds n_routed_experts = 256"),
        ({"n_shared_experts": 0}, "n_shared_experts", "positive integer"),
        ({"unpadded_vocab_size": 201025}, "unpadded_vocab_size", "exceeds vocab_size = 201024"),
        ({"unpadded_vocab_size": 1000}, "stop_token_ids", "has 1000 logits"),
        ({"hidden_size": 4096.0}, "hidden_size", "4096.0"),
        ({"hidden_size": True}, "hidden_size", "positive integer"),
        ({"hidden_size": "4096"}, "hidden_size", "positive integer"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps", "positive number"),
        ({"log_scaling_n_floor": 0}, "log_scaling_n_floor", "must be a position"),
        ({"sconv_kernel_size": 1}, "conv_kernel_size", "no history"),
        ({"torch_dtype": "float16"}, "dtype", "float16"),
        ({"final_logit_softcapping": 30.0}, "text_config.final_logit_softcapping", "None"),
        ({"gate_activation": "softmax"}, "text_config.gate_activation", "sigmoid"),
        ({"quantization_config": {}}, "text_config.quantization_config", "bf16 release"),
        ({"log_scaling_alpha": "big"}, "log_scaling_alpha", "finite number"),
        ({"num_mtp_layers": 3}, "text_config.num_mtp_layers", "contradicts"),
        ({"dtype": "float32", "torch_dtype": "bfloat16"}, "text_config.torch_dtype", "contradicts"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_refusals(changes: dict[str, Any], key: str, words: str) -> None:
    assert words in problems(published(**changes))[key]


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"model_type": "inkling2"}, "model_type", "second generation: not yet"),
        ({"model_type": "inkling2_loop"}, "model_type", "second generation: not yet"),
        ({"model_type": "inkling_text"}, "model_type", "top-level multimodal class"),
        ({"model_type": "llama"}, "model_type", "not an Inkling model"),
        ({"text_config": None}, "text_config", "missing or no object"),
        ({"mtp_config": [1]}, "mtp_config", "must be an object"),
        ({"mtp_config": {"num_nextn_predict_layers": 2, "local_layer_ids": [2]}}, "mtp", "[2]"),
        ({"mtp_config": {"num_nextn_predict_layers": False}}, "mtp.num_layers", "False"),
        ({"dtype": "float32"}, "dtype", "contradicts text_config.torch_dtype = 'bfloat16'"),
        ({"vision_config": {"n_layers": 4, "patch_size": "x"}}, "vision.patch_size", "'x'"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings", "False"),
        ({"eos_token_id": [200006, -1]}, "stop_token_ids", "must hold ids"),
        ({"visionconfig": {}}, "visionconfig", "did you mean 'vision_config'?"),
    ],
    ids=lambda value: str(next(iter(value.items()))) if isinstance(value, dict) else None,
)
def test_refusals_at_the_top(change: dict[str, Any], key: str, words: str) -> None:
    found = problems({**published(), **change})
    assert any(name.startswith(key) and words in line for name, line in found.items()), found


def test_the_eos_that_transformers_defaults_is_not_a_stop_id() -> None:
    document = published(eos_token_id=2)
    assert InklingConfig.from_dict(document).stop_token_ids == (200006,)
    del document["eos_token_id"]
    assert "default that transformers writes" in problems(document)["eos_token_id"]
    document["text_config"]["eos_token_id"] = 7
    assert InklingConfig.from_dict(document).stop_token_ids == (7,)


def test_stop_ids_may_be_given_by_the_caller() -> None:
    document = published()
    document["eos_token_id"] = None
    assert InklingConfig.from_dict(document, stop_token_ids=(5, 6)).stop_token_ids == (5, 6)


def _keys(section: Any) -> list[str]:
    return list(section) if isinstance(section, dict) else []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


PATHS = [
    *(("text_config", key) for key in sorted(text_keys())),
    *((section, key) for section in PUBLISHED for key in _keys(PUBLISHED[section])),
    *((None, key) for key in PUBLISHED),
]


@settings(deadline=None)
@given(path=st.sampled_from(PATHS), value=json_values)
def test_any_value_anywhere_reads_or_raises_config_error(
    path: tuple[str | None, str], value: Any
) -> None:
    document = published()
    section, key = path
    (document if section is None else document[section])[key] = value
    try:
        config = InklingConfig.from_dict(document)
    except ConfigError as error:
        assert error.problems
    else:
        assert InklingConfig.from_dict(config.to_dict()) == config
        assert sum(spec.size for spec in all_tensors(config)) > 0


def test_import_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from inkling_core.config import PRESETS, InklingConfig\n"
        "from inkling_core.weights.info import checkpoint_info\n"
        "print(checkpoint_info('inkling_small').disk_bytes)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "531912898740"
