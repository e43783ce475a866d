"""`inkling serve backend=hpu_emulated`: what it refuses and what vLLM is told. Starting the server
needs vllm_gaudi (tests/hpu/test_server.py)."""

import os
import subprocess
import sys

import pytest

from inkling_core.serving.launch import launch_of
from inkling_core.serving.server import arguments
from inkling_core.serving.settings import ServeSettings
from inkling_hpu import launch
from inkling_hpu.emulation import EmulationSettings

SETTINGS = ServeSettings(
    backend="hpu_emulated", checkpoint="x", dtype="bfloat16", kv_cache_mib=64, max_model_len=256
)


def prepared(**changes):
    """INKLING_EMULATED_* variables after `prepare`, in a process of its own."""
    code = (
        "import os; from inkling_core.serving.settings import ServeSettings\n"
        "from inkling_hpu import launch\n"
        "launch.NEEDED = ()\n"  # the check of the environment is another test's
        f"settings = ServeSettings(backend='hpu_emulated', **{changes!r})\n"
        "launch.EMULATED.prepare(settings, os.environ)\n"
        "from inkling_hpu.emulation import EmulationSettings, is_installed\n"
        "assert is_installed()\n"
        "print(repr(EmulationSettings.from_environment(os.environ)))"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout, {"EmulationSettings": EmulationSettings})


def test_the_core_finds_it_by_the_entry_point():
    assert launch_of("hpu_emulated") is launch.EMULATED


@pytest.mark.parametrize("missing", [("nowhere_a",), ("nowhere_a", "nowhere_b")])
def test_refuses_an_environment_without_vllm_gaudi(missing, monkeypatch):
    monkeypatch.setattr(launch, "NEEDED", missing)
    with pytest.raises(ValueError, match=" and ".join(missing)):
        launch.EMULATED.prepare(SETTINGS, {})


def test_the_device_s_memory_is_the_pool_that_was_asked_for():
    settings = prepared(kv_cache_mib=96, dtype="bfloat16")
    assert settings.memory_bytes == 96 * 2**20
    assert not settings.float32


def test_float32_is_kept_where_it_was_asked_for():
    assert prepared(dtype="float32").float32


def test_conv_rows_of_another_dtype_are_refused(monkeypatch):
    monkeypatch.setattr(launch, "NEEDED", ())
    from dataclasses import replace

    with pytest.raises(ValueError, match="conv_dtype=float32"):
        launch.EMULATED.prepare(replace(SETTINGS, conv_dtype="float32"), {})


def test_vllm_gets_no_cpu_arguments():
    told = arguments(SETTINGS, launch.EMULATED)
    assert "--kv-cache-memory-bytes" not in told
    assert told[told.index("--gpu-memory-utilization") + 1] == "1.0"
    assert "--scheduler-cls" not in told  # the plug-in names it, for production too


def test_the_long_prefill_share_needs_synchronous_steps():
    from dataclasses import replace

    told = arguments(SETTINGS, launch.EMULATED)
    assert "--no-async-scheduling" in told
    unpaced = replace(SETTINGS, long_prefill_share=None)
    assert "--no-async-scheduling" not in arguments(unpaced, launch.EMULATED)
