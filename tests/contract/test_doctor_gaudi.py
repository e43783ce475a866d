"""`inkling doctor` on a Gaudi machine: nothing is said against a sound one; one with one thing
broken is told that one thing, with its remedy, and nothing else.

Machines are folders (`machines.py`); each broken one differs from a sound one in one respect.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from machines import ON_GAUDI, bad, findings, gaudi_machine, lacking

from inkling_core.doctor.subject import Machine

POOL = "--dtype bfloat16 --max-model-len 1024 --num-gpu-blocks-override 64"


@pytest.fixture
def gaudi(checkpoint, port):
    """Findings for a served deployment on a Gaudi; `more` is added to vLLM's arguments."""

    def look(machine: Machine, more: str = "", folder: Path = checkpoint, **settings):
        arguments = f"--model {folder} --port {port} {POOL} {more}"
        return findings(machine, device="gaudi", arguments=arguments, **settings)

    return look


def test_a_sound_gaudi_machine(tmp_path, gaudi):
    found = gaudi(gaudi_machine(tmp_path))
    assert (bad(found), bad(found, "warning"), bad(found, "not examined")) == ({}, {}, {})


@pytest.mark.parametrize("trace", ["bridge", "hl-smi", "kernel module", "device nodes"])
def test_a_gaudi_is_recognised_by_any_trace_of_one(trace, tmp_path):
    bridge = ON_GAUDI if trace == "bridge" else lacking("habana-torch-plugin")
    machine = gaudi_machine(
        tmp_path, bridge, cards=8 * (trace == "device nodes"), driver=trace == "kernel module"
    )
    if trace == "hl-smi":
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "hl-smi").touch(0o755)
    elif trace == "kernel module":
        (tmp_path / "bin" / "hl-smi").unlink()
    assert any(one.part == "device" for one in findings(machine))


BROKEN = {
    "wrong-bridge": (
        {"versions": {**ON_GAUDI, "habana-torch-plugin": "1.22.1.6"}, "firmware": "1.22.1-6"},
        {"habana-torch-plugin": ["1.22.1.6, but vllm_gaudi 0.26.0 goes with", "install", "1.24"]},
    ),
    "no-bridge": (
        {"versions": lacking("habana-torch-plugin")},
        {"habana-torch-plugin": ["not found", "Gaudi PyTorch image"]},
    ),
    "no-vllm-gaudi": (
        {"versions": lacking("vllm_gaudi")},
        {
            "vllm_gaudi": ["not found", "start from a vllm-gaudi image"],
            "vllm_gaudi's source": ["not found", "source tree on the path"],
        },
    ),
    "vllm-of-another-release": (
        {"versions": {**ON_GAUDI, "vllm": "0.28.1"}},
        {"vllm": ["0.28.1, but vllm_gaudi 0.26.0 goes with vllm 0.26", "install vllm 0.26"]},
    ),
    "our-package-missing": (
        {"versions": lacking("inkling-hpu")},
        {"inkling-hpu": ["no plug-in of vLLM's", "pip install --no-deps packages/inkling-hpu"]},
    ),
    "our-packages-of-two-versions": (
        {"versions": {**ON_GAUDI, "inkling-parsers": "0.2.0"}},
        {"inkling-parsers": ["0.2.0 beside inkling-core 0.1.0", "install inkling-parsers 0.1.0"]},
    ),
    "a-renamed-method": (
        {"without": "_form_prefill_batch"},
        {
            "vllm_gaudi.v1.worker.hpu_model_runner": [
                "_form_prefill_batch",
                "missing",
                "support matrix",
            ]
        },
    ),
    "no-trace-of-a-card": (
        {"cards": 0, "driver": False},
        {
            "kernel module": ["not found", "driver"],
            "hl-smi": ["not found", "--runtime=habana"],
            "cards": ["0 device node(s)", "HABANA_VISIBLE_DEVICES"],
        },
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_gaudi_machine(case, tmp_path, gaudi):
    change, expected = BROKEN[case]
    found = bad(gaudi(gaudi_machine(tmp_path, **change)))
    assert set(expected) == set(found)
    for what, needles in expected.items():
        assert all(needle in found[what] for needle in needles), found[what]


@pytest.mark.parametrize(
    ("change", "what", "needles"),
    [
        (
            {"versions": {**ON_GAUDI, "vllm_gaudi": "0.31.0"}},
            "vllm_gaudi",
            ["no row", "inkling gates"],
        ),
        (
            {"firmware": "1.21.0-1"},
            "habanalabs-firmware-tools",
            ["beside bridge", "one Gaudi soft"],
        ),
        ({"versions": {**ON_GAUDI, "transformers": "5.24.0"}}, "transformers", ["5.24.0", "5.8"]),
        ({"cards": 0}, "cards", ["0 device node(s)"]),
    ],
)
def test_what_nobody_has_shown_is_a_warning(change, what, needles, tmp_path, gaudi):
    found = gaudi(gaudi_machine(tmp_path, **change))
    assert bad(found) == {} and set(bad(found, "warning")) == {what}
    assert all(needle in bad(found, "warning")[what] for needle in needles)


def test_a_release_that_was_not_run_says_so(tmp_path, gaudi):
    versions = {**ON_GAUDI, "vllm_gaudi": "0.30.0", "vllm": "0.30.0"}
    told = bad(gaudi(gaudi_machine(tmp_path, versions)), "warning")["vllm_gaudi"]
    assert "not verified, 2026-11-30" in told and "0.26.0" in told


@pytest.mark.parametrize(
    ("more", "variables", "needles"),
    [
        ("--num-gpu-blocks-override 8", {}, ["8 blocks", "needs 9", "--max-model-len to 896"]),
        ("", {"VLLM_CONTIGUOUS_PA": "true"}, ["VLLM_CONTIGUOUS_PA=true", "unset it"]),
        ("--kv-transfer-config {}", {}, ["KV transfer", "leave --kv-transfer-config"]),
        ("--dtype float16", {}, ["torch.float16", "start with --dtype bfloat16"]),
        ("--quantization=awq", {}, ["quantisation awq", "leave --quantization"]),
        ("", {"QUANT_CONFIG": "x.json"}, ["INC, by QUANT_CONFIG", "leave --quantization"]),
        ("-tp=3", {}, ["does not divide the 4 attention heads", "choose another"]),
        ("--pipeline_parallel_size 2", {}, ["pipeline-parallel size 2", "set it to 1"]),
        ("--enable-lora", {}, ["LoRA", "leave --enable-lora away"]),
    ],
)
def test_settings_that_conflict(more, variables, needles, tmp_path, gaudi):
    machine = gaudi_machine(tmp_path)
    found = gaudi(replace(machine, environ={**machine.environ, **variables}), more)
    told = [one for one in found if one.state == "fault"]
    assert told and all(one.what == "inkling-hpu" for one in told)
    joined = " | ".join(f"{one.found}; {one.remedy}" for one in told)
    assert all(needle in joined for needle in needles), joined


def test_every_conflict_is_told_at_once(tmp_path, gaudi):
    machine = gaudi_machine(tmp_path)
    found = gaudi(
        replace(machine, environ={**machine.environ, "VLLM_CONTIGUOUS_PA": "1"}),
        "--enable-lora --quantization awq",
    )
    assert sum(one.state == "fault" for one in found) == 3


def test_a_pool_beyond_the_card(tmp_path, gaudi):
    told = bad(gaudi(gaudi_machine(tmp_path), "--num-gpu-blocks-override 900000000"))
    assert "lower --num-gpu-blocks-override to" in told["Gaudi 2 (94.62 GiB)"]


def test_a_pool_that_leaves_no_room_for_graphs_and_masks(tmp_path, gaudi):
    """The largest pool that the doctor lets pass is the one that it names."""
    told = bad(gaudi(gaudi_machine(tmp_path / "a"), "--num-gpu-blocks-override 900000000"))
    (most,) = re.findall(r"override to (\d+)", told["Gaudi 2 (94.62 GiB)"])
    fits = gaudi(gaudi_machine(tmp_path / "b"), f"--num-gpu-blocks-override {most}")
    more = gaudi(gaudi_machine(tmp_path / "c"), f"--num-gpu-blocks-override {int(most) + 1}")
    assert bad(fits) == {} and "Gaudi 2 (94.62 GiB)" in bad(more)


def test_a_variable_that_is_no_number(tmp_path, gaudi):
    machine = gaudi_machine(tmp_path)
    environ = {**machine.environ, "INKLING_MASK_BYTES": "much"}
    told = bad(gaudi(replace(machine, environ=environ)))
    assert "INKLING_MASK_BYTES is 'much'" in told["variables"]


@pytest.fixture
def heavy(checkpoint, tmp_path) -> Path:
    """A configuration of 37.5 GiB of experts; the check of memory reads nothing else."""
    folder = tmp_path / "heavy"
    folder.mkdir()
    config = json.loads((checkpoint / "config.json").read_text())
    config["text_config"]["intermediate_size"] = 2**20
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_pool_is_what_vllm_gaudi_makes_of_what_weights_leave(heavy, tmp_path):
    machine = gaudi_machine(tmp_path / "machine")

    def blocks(more: str = "", **variables: str) -> int:
        there = replace(machine, environ={**machine.environ, **variables})
        asked = f"--model {heavy} --dtype bfloat16 --max-model-len 1024 {more}"
        (told,) = (
            one for one in findings(there, device="gaudi", arguments=asked) if one.part == "memory"
        )
        assert told.state == "ok" and told.found.startswith("57.1 GiB beside the weights"), told
        return int(told.found.partition("about ")[2].split()[0]) + 1  # one is kept for padding

    assert blocks() == blocks("--gpu-memory-utilization 0.92")
    half = pytest.approx(blocks() / 2, abs=1)
    assert blocks("--gpu-memory-utilization 0.46") == half
    assert blocks(VLLM_GRAPH_RESERVED_MEM="0.55") == half


def test_no_checkpoint_is_told_once(tmp_path, gaudi):
    for backend in ("cpu", "hpu_emulated"):
        found = gaudi(gaudi_machine(tmp_path / backend), folder=tmp_path / "none", backend=backend)
        assert sum(one.part == "settings" for one in found) == 1


def test_arguments_that_nobody_looks_at_are_named(tmp_path, gaudi):
    told = bad(gaudi(gaudi_machine(tmp_path), "--max-num-seqs 4 --swap-space 3"), "not examined")
    assert "--swap-space 3" in told["other arguments"]
