"""Switched on explicitly, inherited by child processes, refused beside the real bridge."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inkling_hpu.emulation.settings import EmulationSettings

ROOT = Path(__file__).resolve().parents[1]


def run(code, *, path=(), command=("-c",), **environ):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("INKLING_")}
    inherited["PYTHONPATH"] = os.pathsep.join([*map(str, path), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, *command, *([code] if code else [])],
        capture_output=True,
        text=True,
        env={**inherited, **environ},
        timeout=600,  # a torch import each, on machines that do other things too
    )


def output(code, **keywords):
    done = run(code, **keywords)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_is_emulated_by_itself():
    done = run("import inkling_hpu.emulation, habana_frameworks")
    assert "No module named 'habana_frameworks'" in done.stderr


def test_installing_imports_no_torch():
    code = "import sys, inkling_hpu.emulation as e; e.install(); print('torch' in sys.modules)"
    assert output(code) == "False"


def test_importing_the_bridge_activates_it():
    code = (
        "import inkling_hpu.emulation as e; e.install(); import habana_frameworks.torch as ht\n"
        "import torch\n"
        "ht.core.mark_step()\n"
        "print(torch.zeros(1, device='hpu').device, torch.hpu.mem_get_info(), "
        "ht.utils.internal.is_lazy(), ht.hpu.wrap_in_hpu_graph.__module__)"
    )
    want = "cpu (1073741824, 1073741824) True inkling_hpu.emulation.graphs"
    assert output(code, INKLING_EMULATED_MEMORY_GIB="1", PT_HPU_LAZY_MODE="1") == want


@pytest.mark.parametrize("gaudi", [2, 3])
def test_the_generation_is_what_was_asked_for(gaudi):
    code = (
        f"import inkling_hpu.emulation as e; e.install(e.EmulationSettings(gaudi={gaudi}))\n"
        "import habana_frameworks.torch.utils.experimental as ex\n"
        "print(ex._get_device_type() == ex.synDeviceType.synDeviceGaudi"
        f"{gaudi}, ex._get_device_type().value)"
    )
    assert output(code) == f"True {gaudi}"


def test_spawned_processes_inherit_it():
    child = "import habana_frameworks.torch, torch; print(torch.ones(1).to('hpu').device)"
    code = (
        "import subprocess, sys, inkling_hpu.emulation as e; e.install()\n"
        f"print(subprocess.check_output([sys.executable, '-c', {child!r}], text=True))"
    )
    assert output(code) == "cpu"


def test_the_next_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.beside = 'ran'\n")
    child = "import habana_frameworks; print(beside)"
    code = (
        "import subprocess, sys, inkling_hpu.emulation as e; e.install()\n"
        f"print(subprocess.check_output([sys.executable, '-c', {child!r}], text=True))"
    )
    assert output(code, path=[tmp_path]) == "ran"


def test_what_is_not_emulated_fails_by_its_name():
    code = "import inkling_hpu.emulation as e; e.install(); import habana_frameworks.mediapipe"
    assert "No module named 'habana_frameworks.mediapipe'" in run(code).stderr


def test_refused_beside_the_real_bridge(tmp_path):
    package = tmp_path / "habana_frameworks"
    package.mkdir()
    (package / "__init__.py").write_text("")
    done = run("import inkling_hpu.emulation as e; e.install()", path=[tmp_path])
    assert done.returncode != 0
    assert "RealBridgePresent" in done.stderr
    assert str(package) in done.stderr
    assert "would hide the device" in done.stderr


def test_a_module_can_be_run_on_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, habana_frameworks.torch, torch\nprint(sys.argv[1:], torch.hpu)\n"
    )
    shown = output(None, command=("-m", "inkling_hpu.emulation", str(script), "--x", "1"))
    assert shown.startswith("['--x', '1'] <module 'torch.hpu'")


def test_running_nothing_says_how():
    done = run(None, command=("-m", "inkling_hpu.emulation"))
    assert done.returncode != 0
    assert "usage: python -m inkling_hpu.emulation" in done.stderr


def test_settings_survive_the_environment():
    settings = EmulationSettings(
        gaudi=3, memory_gib=0.25, graph_log="a.jsonl", float32=True, sum_factor=0.5
    )
    assert EmulationSettings.from_environment(settings.environment()) == settings
    assert EmulationSettings.from_environment({}) == EmulationSettings()


@pytest.mark.parametrize(
    ("name", "value"),
    [("gaudi", 1), ("memory_gib", 0.0), ("memory_gib", float("nan")), ("sum_factor", 0.0)],
)
def test_impossible_devices_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        EmulationSettings(**{name: value})


def test_no_top_level_package_of_the_bridge_s_name_is_shipped():
    assert not [path for path in ROOT.rglob("habana_frameworks*") if path.name != "__pycache__"]


def vllm_gaudi_in(folder):
    """A package of that name with the two modules that force bfloat16, as they do it."""
    package = folder / "vllm_gaudi"
    worker = package / "v1" / "worker"
    worker.mkdir(parents=True)
    for inner in (package, worker.parent, worker):  # a real one may be installed further behind
        (inner / "__init__.py").write_text("")
    (package / "platform.py").write_text(
        "import torch\n"
        "class HpuPlatform:\n"
        "    @classmethod\n"
        "    def check_and_update_config(cls, vllm_config):\n"
        "        vllm_config.model_config.dtype = torch.bfloat16\n"
    )
    (worker / "hpu_model_runner.py").write_text(
        "import torch\nHPU_TORCH_DTYPE_TO_STR_DTYPE = {torch.float32: 'float32'}\n"
    )
    return folder


@pytest.mark.parametrize(
    ("lifted", "want"), [("1", "torch.float32 auto"), ("0", "torch.bfloat16 float32")]
)
def test_the_forced_cast_is_lifted_on_request_only(lifted, want, tmp_path):
    code = (
        "import torch, types, inkling_hpu.emulation as e; e.install()\n"
        "from vllm_gaudi.platform import HpuPlatform\n"
        "from vllm_gaudi.v1.worker import hpu_model_runner as runner\n"
        "config = types.SimpleNamespace(model_config=types.SimpleNamespace(dtype=torch.float32))\n"
        "HpuPlatform.check_and_update_config(config)\n"
        "print(config.model_config.dtype, runner.HPU_TORCH_DTYPE_TO_STR_DTYPE[torch.float32])"
    )
    shown = output(code, path=[vllm_gaudi_in(tmp_path)], INKLING_EMULATED_FLOAT32=lifted)
    assert shown == want
