"""What a back end changes about the start of a server."""

import pytest

from inkling_core.serving import launch
from inkling_core.serving.server import arguments, prepare_environment
from inkling_core.serving.settings import ServeSettings

SETTINGS = ServeSettings(checkpoint="x", dtype="float32", max_model_len=256, kv_cache_mib=7)


class Point:
    def __init__(self, name, record):
        self.name, self.record = name, record

    def load(self):
        return self.record


@pytest.mark.parametrize("backend", launch.ON_CPU)
def test_the_cpu_needs_no_other_package(backend, monkeypatch):
    monkeypatch.setattr(launch, "entry_points", lambda **_: pytest.fail("looked elsewhere"))
    assert launch.launch_of(backend) is launch.CPU


def test_another_package_adds_its_own(monkeypatch):
    mine = launch.Launch(variables={"A": "1"})
    monkeypatch.setattr(launch, "entry_points", lambda group: [Point("hpu_emulated", mine)])
    assert launch.launch_of("hpu_emulated") is mine


def test_an_absent_package_is_named(monkeypatch):
    monkeypatch.setattr(launch, "entry_points", lambda group: [])
    with pytest.raises(ValueError, match=r"hpu_emulated needs inkling-hpu: pip install"):
        launch.launch_of("hpu_emulated")


def test_arguments_and_variables_come_beside_the_common_ones():
    mine = launch.Launch(variables={"A": "1"}, arguments=lambda asked: ("--b", str(asked.port)))
    environ: dict[str, str] = {}
    prepare_environment(SETTINGS, environ, mine)
    assert environ["A"] == "1"
    assert "VLLM_CPU_OMP_THREADS_BIND" not in environ
    told = arguments(SETTINGS, mine)
    assert told[told.index("--b") + 1] == str(SETTINGS.port)
    assert "--kv-cache-memory-bytes" not in told


def test_the_cpu_is_told_its_pool_in_bytes():
    told = arguments(SETTINGS)
    assert told[told.index("--kv-cache-memory-bytes") + 1] == str(7 * 2**20)


def test_a_refusal_comes_before_anything_is_written():
    def refuse(settings, environ):
        raise ValueError("no")

    environ: dict[str, str] = {}
    with pytest.raises(ValueError, match="no"):
        prepare_environment(SETTINGS, environ, launch.Launch(prepare=refuse))
    assert environ == {}
