"""`inkling doctor` as a command: this machine is sound; what is printed, exit status, arguments,
and the support matrices as data.

Not what it finds on other machines: `test_doctor_cpu.py`, `test_doctor_gaudi.py` and
`test_doctor_checkpoint.py`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import socket
from pathlib import Path

import pytest

from inkling_core.cli.main import main
from inkling_core.doctor.findings import Finding, refused
from inkling_core.doctor.matrix import agrees, read_matrix
from inkling_core.doctor.subject import Machine, Subject

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM installed")
def test_this_machine_is_sound(port, capsys):
    status = main(["doctor", f"port={port}", "format=json"])
    told = json.loads(capsys.readouterr().out)
    faults = [one for one in told["findings"] if one["state"] == "fault"]
    assert (status, told["device"], told["faults"], faults) == (0, "cpu", 0, [])
    assert {one["part"] for one in told["findings"]} == {
        *("versions", "memory", "settings", "checkpoint", "port")
    }


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
        (["device=cpu", "backend=hpu_emulated"], "device=cpu contradicts backend=hpu_emulated"),
        (["--", "--port", "many"], "--port"),
        (['arguments="--model \'a b"'], "No closing quotation"),
    ],
)
def test_mistakes_in_the_command_line(words, said, capsys):
    assert main(["doctor", *words]) == 2
    assert said in capsys.readouterr().err


def test_words_after_the_dashes_stay_apart_as_the_shell_had_them(tmp_path, capsys):
    folder = tmp_path / "a 'b"
    assert main(["doctor", "format=json", "--", "--model", str(folder), "--foo", '{"a": 1}']) == 1
    told = capsys.readouterr().out
    assert str(folder) in told and "--foo" in told and json.dumps('{"a": 1}')[1:-1] in told


@pytest.mark.parametrize(
    "tail",
    [
        ["--", "--api-key", "hunter2"],
        ["--cfg", "job", "--", "--hf-token=hunter2"],
        ["arguments='--api-key hunter2'"],
    ],
)
def test_no_secret_of_vllms_arguments_is_printed(tail, capsys):
    main(["doctor", "device=gaudi", "format=json", *tail])
    told = capsys.readouterr()
    assert "***" in told.out + told.err and "hunter2" not in told.out + told.err


def test_vllm_arguments_win_over_settings():
    from inkling_core.doctor.settings import DoctorSettings

    asked = DoctorSettings(port=1, arguments="--port=2 --max_model_len 64 -q awq --foo")
    subject = Subject.of(asked, Machine())
    assert (subject.settings.port, subject.settings.max_model_len) == (2, 64)
    assert dict(subject.more) == {"quantization": "awq"} and list(subject.ignored) == ["--foo"]


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
    for one in matrix.components:
        for file in re.findall(r"[\w./-]+\.(?:sh|py)\b", one.remedy):
            assert (ROOT / file).exists(), one.remedy
    for stack in matrix.stacks:
        assert stack.state in ("verified", "not verified") and stack.on
        assert {*stack.needs, *stack.prefers} <= names - {matrix.key}
        assert stack.date.count("-") == 2


def test_a_fault_without_a_remedy_cannot_be_made():
    with pytest.raises(ValueError, match="says what to do"):
        Finding("port", "8000", "fault", "taken")
    assert refused("a", "b", "x 3: at most 2; lower it").remedy == "lower it"
