"""command.py, report.py and settings.py: `inkling bench ops` as typed."""

import json
import subprocess
import sys

import pytest

from inkling_core.cli.main import main
from inkling_hpu.counter.command import ADDED, switches_of
from inkling_hpu.counter.settings import BenchOpsSettings

NANO = ["bench", "ops", "model=nano", "tp=2"]


@pytest.fixture(scope="module")
def document():
    """What the command prints in a fresh process, vllm_gaudi or not."""
    command = [sys.executable, "-m", "inkling_core.cli.main", *NANO, "format=json", "streams=3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_json_has_totals_layer_kinds_and_parts(document):
    assert document["model"] == "nano" and document["streams"] == 3
    for name in ("ops", "all_reduces", "bytes"):
        assert document[name] > 0
        assert sum(kind[name] for kind in document["layer_kinds"].values()) == document[name]
        assert sum(part[name] for part in document["parts"].values()) == document[name]
        cells = [part for kind in document["layer_kinds_parts"].values() for part in kind.values()]
        assert sum(cell[name] for cell in cells) == document[name]


def test_json_has_the_switches_off_and_on(document):
    columns = document["columns"]
    assert list(columns) == ["off", *ADDED]
    ops = [column["ops"] for column in columns.values()]
    assert ops[0] == ops[1] and ops[1:] == sorted(set(ops[1:]), reverse=True)
    assert ops[-1] == document["ops"]
    reduces = [column["all_reduces"] for column in columns.values()]
    assert reduces[0] > reduces[1] and set(reduces[1:]) == {document["all_reduces"]}


def test_layer_kinds_say_how_many_layers_they_have(document):
    layers = {kind: cell["layers"] for kind, cell in document["layer_kinds"].items()}
    assert layers == {"local-dense": 1, "local-MoE": 3, "global-MoE": 2, "step": 0}


def test_tables_hold_the_same_numbers(document, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main([*NANO, "streams=3", "compare=false", "detail=true"]) == 0
    shown = capsys.readouterr().out
    assert f" {document['ops']:,} " in shown
    assert "nano on hpu, tensor parallel 2, 3 x 8,192 tokens, bfloat16" in shown
    assert "inkling_hpu::rms_norm" in shown
    for part in document["parts"]:
        assert part in shown


MISTAKES = [
    ("modle=nano", "did you mean 'model'?"),
    ("model=inkling_smal", "did you mean 'inkling_small'?"),
    ("backend=hpuu", "did you mean 'hpu'?"),
    ("switches=al", "did you mean 'all'?"),
    ("streams=0", "streams=0 must be at least 1"),
    ("context=0", "context=0 must be at least 1"),
    ("format=jsn", "did you mean 'json'?"),
    ("tp=5", "do not divide by tensor-parallel size 5"),
]


@pytest.mark.parametrize(("word", "message"), MISTAKES, ids=[word for word, _ in MISTAKES])
def test_a_mistake_is_told_in_one_line(word, message, capsys):
    assert main(["bench", "ops", word]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and not printed.out


def test_switches_come_from_the_settings():
    switches = switches_of(BenchOpsSettings(single_reduce=False), {"INKLING_MASK_BYTES": "1024"})
    assert (switches.single_reduce, switches.step_hoist, switches.mask_bytes) == (False, True, 1024)


def test_a_variable_that_says_otherwise_is_refused():
    with pytest.raises(ValueError, match="step_hoist=true contradicts INKLING_STEP_HOIST=0"):
        switches_of(BenchOpsSettings(), {"INKLING_STEP_HOIST": "0"})
    assert switches_of(BenchOpsSettings(step_hoist=False), {"INKLING_STEP_HOIST": "0"})
