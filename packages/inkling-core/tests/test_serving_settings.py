"""settings.py: the one settings object, its variables, its refusals."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest

from inkling_core.serving.settings import ServeSettings


def test_environment_round_trip_carries_every_kind_of_value():
    settings = ServeSettings(
        checkpoint="/models/x",
        port=8123,
        prefix_caching=False,
        max_model_len=4096,
        extra_args=("--disable-log-requests", "--seed", "3"),
        conv_dtype="float32",
        long_prefill_share=None,
    )
    assert ServeSettings.from_environment(settings.environment()) == settings
    assert settings.environment()["INKLING_LONG_PREFILL_SHARE"] == "null"
    assert ServeSettings().environment() == {}


def test_variables_fill_defaults():
    merged = ServeSettings(port=9000).with_environment(
        {"INKLING_THREADS": "2", "INKLING_PORT": "9000", "INKLING_UNRELATED": "x"}
    )
    assert (merged.port, merged.threads) == (9000, 2)


def test_contradiction_names_both_sides():
    with pytest.raises(ValueError, match=r"port=9000 contradicts INKLING_PORT=9001"):
        ServeSettings(port=9000).with_environment({"INKLING_PORT": "9001"})


def test_a_typed_value_contradicts_even_where_it_is_the_default():
    default = ServeSettings()
    variables = {"INKLING_PORT": str(default.port + 1)}
    assert default.with_environment(variables).port == default.port + 1
    with pytest.raises(ValueError, match=f"port={default.port} contradicts INKLING_PORT="):
        default.with_environment(variables, typed={"port"})


def test_contradicting_secret_is_not_shown():
    with pytest.raises(ValueError, match="api_key") as error:
        ServeSettings(api_key="alpha").with_environment({"INKLING_API_KEY": "beta"})
    assert "alpha" not in str(error.value) and "beta" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "float16"}, "dtype='float16' must be one of auto, float32, bfloat16"),
        ({"port": 0}, "port=0 must lie in 1..65535"),
        ({"block_size": 0}, "block_size=0 must be >= 1"),
        ({"long_prefill_share": 0.0}, "long_prefill_share=0.0 must lie above 0 and not above 1"),
        ({"long_prefill_share": 1.1}, "long_prefill_share=1.1 .*; null leaves long prompts"),
        ({"long_prefill_share": float("nan")}, "long_prefill_share=nan"),
        ({"max_model_len": 0}, "max_model_len=0 must be >= 1"),
        (
            {"pack_experts": True, "backend": "hpu_emulated"},
            "pack_experts=true needs backend=cpu or reference: the kernel of hpu_emulated wants",
        ),
        ({"max_num_seqs": 600}, "max_num_batched_tokens=512 is below max_num_seqs=600"),
    ],
)
def test_bad_value_names_value_and_limit(change, message):
    with pytest.raises(ValueError, match=message):
        ServeSettings(**change)


@pytest.mark.parametrize(
    ("name", "text"), [("INKLING_PORT", "eighty"), ("INKLING_PREFIX_CACHING", "maybe")]
)
def test_bad_variable_names_itself(name, text):
    with pytest.raises(ValueError, match=f"{name}={text!r}"):
        ServeSettings.from_environment({name: text})


def test_import_needs_neither_torch_nor_vllm():
    code = (
        "import sys, inkling_core.serving.settings;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'vllm', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def resolved(**changes):
    from dataclasses import replace

    settings = ServeSettings(checkpoint="/models/x", served_model_name="x", dtype="bfloat16")
    return replace(settings, max_model_len=4096, **changes)


def test_argument_list_says_every_setting_and_no_secret():
    from inkling_core.serving.server import arguments

    listed = arguments(resolved(api_key="open-sesame", kv_cache_mib=3, extra_args=("--seed", "9")))
    pairs = dict(pairwise(listed))
    assert pairs["--model"] == "/models/x"
    assert pairs["--kv-cache-memory-bytes"] == str(3 * 2**20)
    assert pairs["--max-model-len"] == "4096"
    assert pairs["--host"] == "127.0.0.1"
    assert listed[-2:] == ["--seed", "9"]
    assert "open-sesame" not in listed
    assert "--no-enable-prefix-caching" in arguments(resolved(prefix_caching=False))


def test_parsers_and_logs_reach_the_argument_list():
    from inkling_core.serving.server import arguments

    usual = arguments(resolved())
    pairs = dict(pairwise(usual))
    assert pairs["--reasoning-parser"] == pairs["--tool-call-parser"] == "inkling_py"
    assert "--enable-auto-tool-choice" in usual
    assert not {"--enable-log-requests", "--disable-log-stats"} & set(usual)
    bare = arguments(resolved(parsers="none", log_requests=True, log_stats=False))
    assert {"--enable-log-requests", "--disable-log-stats"} <= set(bare)
    left_out = {"--reasoning-parser", "--tool-call-parser", "--enable-auto-tool-choice"}
    assert not left_out & set(bare)


@pytest.mark.parametrize("effort", [-0.1, 1.0, float("nan")])
def test_a_default_effort_out_of_range_is_refused(effort):
    with pytest.raises(ValueError, match="default_effort"):
        ServeSettings(default_effort=effort)


def test_environment_carries_settings_key_and_threads():
    from inkling_core.serving.server import prepare_environment

    environ: dict[str, str] = {}
    settings = resolved(api_key="open-sesame", threads=3, default_effort=0.25, log_stats=False)
    prepare_environment(settings, environ)
    assert ServeSettings.from_environment(environ) == settings
    assert environ["VLLM_API_KEY"] == "open-sesame"
    assert environ["OMP_NUM_THREADS"] == "3"
    assert environ["HF_HUB_OFFLINE"] == "1"
    assert environ["VLLM_LOGGING_LEVEL"] == "INFO"


def test_a_variable_that_would_override_the_pool_is_refused():
    from inkling_core.serving.server import prepare_environment

    with pytest.raises(ValueError, match="VLLM_CPU_KVCACHE_SPACE=4"):
        prepare_environment(resolved(), {"VLLM_CPU_KVCACHE_SPACE": "4"})
