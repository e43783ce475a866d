"""settings.py: the one settings object, its variables, its refusals."""

from __future__ import annotations

import subprocess
import sys

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
    )
    assert ServeSettings.from_environment(settings.environment()) == settings
    assert ServeSettings().environment() == {}


def test_variables_fill_defaults():
    merged = ServeSettings(port=9000).with_environment(
        {"INKLING_THREADS": "2", "INKLING_PORT": "9000", "INKLING_UNRELATED": "x"}
    )
    assert (merged.port, merged.threads) == (9000, 2)


def test_contradiction_names_both_sides():
    with pytest.raises(ValueError, match=r"port=9000 contradicts INKLING_PORT=9001"):
        ServeSettings(port=9000).with_environment({"INKLING_PORT": "9001"})


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
        ({"max_model_len": 0}, "max_model_len=0 must be >= 1"),
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
