"""Refusals: each one names its value, its limit and its knob, and what is served is not refused."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from inkling_core.config.presets import PRESETS
from inkling_hpu.refusals import (
    INPUT_REUSE,
    Deployment,
    RefusedError,
    pool_reason,
    reasons,
    refuse,
)

SMALL = PRESETS["inkling_small"]
GOOD = Deployment(torch.bfloat16, 128, 262144, tp_size=8, num_blocks=2560)


def test_the_reference_deployment_is_served():
    refuse(SMALL, GOOD)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dtype": torch.float16}, "--dtype bfloat16"),
        ({"dtype": torch.float32}, "torch.float32"),
        ({"kv_cache_dtype": "fp8_inc"}, "--kv-cache-dtype auto"),
        ({"block_size": 528}, "must be one of 16, 128"),
        ({"max_model_len": 1048577, "num_blocks": None}, "1048576 positions"),
        ({"tp_size": 3}, "does not divide the 32 attention heads"),
        ({"tp_size": 5}, "one must divide the other"),
        ({"pp_size": 2}, "pipeline-parallel size 2"),
        ({"dp_size": 2}, "data-parallel size 2"),
        ({"expert_parallel": True}, "leave it off"),
        ({"quantization": "inc"}, "quantisation inc"),
        ({"speculative": "ngram"}, "cannot be rolled back"),
        ({"kv_transfer": "NixlConnector"}, "NixlConnector"),
        ({"lora": True}, "--enable-lora"),
        ({"contiguous_pa": True}, "VLLM_CONTIGUOUS_PA=true"),
        ({"input_reuse": True}, INPUT_REUSE),
        ({"num_blocks": 2048}, "needs 2049"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_refused(change, said):
    found = reasons(SMALL, replace(GOOD, **change))
    assert any(said in line for line in found), found
    with pytest.raises(RefusedError, match="inkling-hpu does not serve"):
        refuse(SMALL, replace(GOOD, **change))


def test_all_reasons_come_at_once():
    bad = replace(GOOD, dtype=torch.float16, quantization="awq", contiguous_pa=True)
    with pytest.raises(RefusedError, match="3 reason") as raised:
        refuse(SMALL, bad)
    assert str(raised.value).count("\n  - ") == 3


def test_float32_is_served_where_the_emulation_allows_it():
    assert reasons(SMALL, replace(GOOD, dtype=torch.float32, float32_allowed=True)) == []
    assert reasons(SMALL, replace(GOOD, dtype=torch.float16, float32_allowed=True))


def test_layers_with_unequal_kv_heads_are_refused_where_their_pages_differ():
    large = PRESETS["inkling"]  # 16 KV heads on local layers, 8 on global ones
    whole = replace(GOOD, max_model_len=1024)
    said = "KV heads per rank on local and global"
    assert any(said in line for line in reasons(large, whole))
    assert not any(said in line for line in reasons(large, replace(whole, tp_size=16)))


@pytest.mark.parametrize(
    ("blocks", "length", "served"),
    [
        (9, 1024, True),
        (8, 1024, False),
        (8, 897, False),
        (8, 896, True),
        (2, 1, True),
        (1, 1, False),
    ],
)
def test_pool_holds_the_longest_request_and_the_null_block(blocks, length, served):
    reason = pool_reason(blocks, 128, length)
    assert (reason is None) == served
    if reason:
        assert f"lower --max-model-len to {(blocks - 1) * 128}" in reason


def _config(**changes):
    """The attributes of a VllmConfig that are read, with vLLM's own defaults."""
    config = SimpleNamespace(
        model_config=SimpleNamespace(dtype=torch.bfloat16, max_model_len=512, quantization=None),
        cache_config=SimpleNamespace(
            block_size=16,
            user_specified_block_size=False,
            num_gpu_blocks_override=None,
            cache_dtype="auto",
        ),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            enable_expert_parallel=False,
        ),
        speculative_config=None,
        kv_transfer_config=None,
        lora_config=None,
    )
    for path, value in changes.items():
        holder, _, name = path.rpartition("__")
        setattr(getattr(config, holder) if holder else config, name, value)
    return config


def test_values_are_taken_from_the_engines_configuration():
    read = Deployment.of(_config(), {})
    assert read == Deployment(torch.bfloat16, 128, 512)
    assert Deployment.of(_config(cache_config__user_specified_block_size=True), {}).block_size == 16


@pytest.mark.parametrize(
    ("changes", "environ", "field", "value"),
    [
        ({"speculative_config": SimpleNamespace(method="mtp")}, {}, "speculative", "mtp"),
        ({"kv_transfer_config": SimpleNamespace(kv_connector="X")}, {}, "kv_transfer", "X"),
        ({"lora_config": object()}, {}, "lora", True),
        ({"model_config__quantization": "fp8"}, {}, "quantization", "fp8"),
        ({}, {"QUANT_CONFIG": "a.json"}, "quantization", "INC, by QUANT_CONFIG"),
        ({}, {"VLLM_CONTIGUOUS_PA": "True"}, "contiguous_pa", True),
        ({}, {"VLLM_CONTIGUOUS_PA": "false"}, "contiguous_pa", False),
        ({}, {INPUT_REUSE: "1"}, "input_reuse", True),
        ({"cache_config__num_gpu_blocks_override": 7}, {}, "num_blocks", 7),
        ({"parallel_config__tensor_parallel_size": 2}, {}, "tp_size", 2),
    ],
)
def test_each_value_is_read_from_its_place(changes, environ, field, value):
    assert getattr(Deployment.of(_config(**changes), environ), field) == value
