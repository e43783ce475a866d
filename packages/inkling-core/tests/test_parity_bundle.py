"""Parity bundles: the shipped one is the law's, both built-in back ends pass it, faults are seen.

Back ends of other packages are held to the same bundle by `nox -s parity_bundles` and their tests.
"""

import dataclasses
import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

from inkling_core import ops as law
from inkling_core.backend import OP_NAMES, Backend
from inkling_core.parity import bundle, check, report
from inkling_core.parity.calls import OpsRunner, arguments_of, runner
from inkling_core.parity.cases import BUILDERS, SETS, cases
from inkling_core.parity.float64 import Float64Runner
from inkling_core.parity.settings import (
    CASE_SETS,
    ParityCheckSettings,
    ParityDumpSettings,
    ParityReportSettings,
)

SHIPPED = Path(__file__).parent / "data" / "parity_small"


@pytest.fixture(scope="module")
def shipped() -> bundle.Bundle:
    return bundle.read(SHIPPED)


def broken_runner(op: str, change) -> OpsRunner:
    """The reference with one op changed."""
    ops = {name: getattr(law, name) for name in OP_NAMES}

    def changed(*args, **kwargs):
        return change(ops[op](*args, **kwargs))

    return OpsRunner(Backend("broken", {**ops, op: changed}))


def test_every_op_is_asked_in_every_dtype(shipped):
    asked = {(case.op, case.dtype) for case in shipped.cases}
    assert {op for op, _ in asked} == {*OP_NAMES, "model"} - {"pack_experts"}
    assert len(asked) == 2 * len(BUILDERS) - 2  # query_scale and the model are float32 only
    assert tuple(SETS) == CASE_SETS


def test_the_shipped_bundle_is_the_law_in_float64(shipped):
    """Dumped anew it is the same: inputs bit for bit, answers to float64's own rounding."""
    asked = Float64Runner()
    for case, fresh in zip(shipped.cases, cases("small"), strict=True):
        assert case.id == fresh.id and case.values == fresh.values
        for name, tensor in fresh.tensors.items():
            assert torch.equal(case.tensors[name].nan_to_num(7), tensor.nan_to_num(7)), name
        for name, answer in asked.answer(fresh).items():
            assert answer.dtype in (torch.float64, torch.int64), f"{case.id}: {name}"
            stored = shipped.answers[case.id][name]
            torch.testing.assert_close(stored, answer, rtol=1e-12, atol=1e-12)


def test_float64_is_not_float32_in_disguise(shipped):
    """A float32 computation of the same case is visibly further away than 1e-12."""
    row = next(c for c in shipped.cases if c.id == "rms_norm-small-f32")
    (found,) = check.compared(OpsRunner(runner("reference").backend), row, shipped.answers[row.id])
    assert 1e-9 < found.max_abs < 1e-5


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_a_back_end_is_held_to_the_bundle(name, tmp_path, capsys):
    out = tmp_path / "results.json"
    assert check.check(ParityCheckSettings(str(SHIPPED), name, "cpu", str(out))) == 0
    printed = capsys.readouterr().out
    assert "0 over their limit" in printed and "rel_attention" in printed
    document = json.loads(out.read_text())
    assert document["title"] == f"{name} on cpu against float64 on cpu"
    assert all(set(row) >= {"max_abs", "rms_ratio", "worst"} for row in document["rows"])


@pytest.mark.parametrize(
    "op", ["rms_norm", "short_conv", "rel_attention", "experts", "logits", "query_scale"]
)
def test_a_fault_in_any_op_is_seen(op, shipped, monkeypatch):
    """One element of each result is off by more than the limits allow."""

    def change(result):
        result = result.clone()
        result.view(-1)[3] += 1.0 if op != "query_scale" else 1e-5
        return result

    monkeypatch.setattr(check, "runner", lambda name, device: broken_runner(op, change))
    assert check.check(ParityCheckSettings(str(SHIPPED), "broken", "cpu")) == 1


def test_the_worst_index_names_the_element(shipped):
    case = next(c for c in shipped.cases if c.id == "logits-small-f32")

    def change(result):
        result = result.clone()
        result[4, 17] -= 0.5
        return result

    (row,) = check.compared(broken_runner("logits", change), case, shipped.answers[case.id])
    assert row.worst == (4, 17) and row.max_abs == pytest.approx(0.5, abs=1e-3) and not row.passed


def test_a_changed_choice_is_over_its_limit_of_zero(shipped):
    case = next(c for c in shipped.cases if c.op == "router")

    def change(results):
        ids_TK, *rest = results
        return (ids_TK.flip(1), *rest)

    rows = check.compared(broken_runner("router", change), case, shipped.answers[case.id])
    assert [row.passed for row in rows if row.result == "ids_TK"] == [False]


def test_nothing_compared_is_no_pass(tmp_path, monkeypatch):
    """A back end that leaves every asked op to the reference has not been tested."""
    settings = ParityDumpSettings(str(tmp_path), ops=("logits",))
    assert check.dump(settings) == 0
    monkeypatch.setattr(check, "runner", lambda name, device: OpsRunner(Backend("none")))
    assert check.check(ParityCheckSettings(str(tmp_path), "none", "cpu")) == 1


def test_dump_by_a_back_end_says_who_answered(tmp_path):
    settings = ParityDumpSettings(
        str(tmp_path), "reference", ops=("rms_norm",), device="cpu", seed=3
    )
    assert check.dump(settings) == 0
    found = bundle.read(tmp_path)
    assert found.source == "reference on cpu"
    assert torch.__version__.startswith(found.manifest["versions"]["torch"])
    assert [case.op for case in found.cases] == ["rms_norm", "rms_norm"]
    assert found.cases[0].seed == 3000
    other = next(cases("small", ("rms_norm",)))
    assert not torch.equal(found.cases[0].tensors["x"], other.tensors["x"])


@pytest.fixture
def copied(tmp_path) -> Path:
    return Path(shutil.copytree(SHIPPED, tmp_path / "bundle"))


def test_changed_tensors_are_refused(copied):
    path = copied / bundle.TENSORS
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="the file was changed or cut"):
        bundle.read(copied)


def test_other_formats_and_other_folders_are_refused(copied, tmp_path):
    manifest = json.loads((copied / bundle.MANIFEST).read_text())
    (copied / bundle.MANIFEST).write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(ValueError, match="format 99, this version reads 1"):
        bundle.read(copied)
    with pytest.raises(ValueError, match=r"no manifest\.json"):
        bundle.read(tmp_path)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="cuda_ref comes with inkling-cuda-ref"):
        runner("cuda_reff")
    with pytest.raises(ValueError, match="'huge' is not a set of cases"):
        list(cases("huge"))
    with pytest.raises(ValueError, match="'attention'"):
        list(cases("small", ("attention",)))


def test_arguments_are_those_of_the_law(shipped):
    """Every parameter of every op finds its value; none is invented."""
    for case in shipped.cases:
        if case.op not in ("model", "rel_attention"):
            getattr(law, case.op)(**arguments_of(case))


def test_the_report(tmp_path, shipped):
    results = []
    for name, worse in (("good", 1.0), ("bad", 1e9)):
        rows = [
            dataclasses.asdict(dataclasses.replace(row, max_abs=row.max_abs * worse))
            for case in shipped.cases
            if case.op in ("rms_norm", "logits")
            for row in check.compared(runner("reference"), case, shipped.answers[case.id])
        ]
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"title": f"{name} <x>", "backend": name, "rows": rows}))
        results.append(str(path))
    assert report.run(ParityReportSettings((results[0],), str(tmp_path / "one"))) == 0
    assert report.run(ParityReportSettings(tuple(results), str(tmp_path / "two"))) == 1
    text = (tmp_path / "two" / "report.md").read_text()
    assert "## good <x>" in text and "all within their limits" in text
    assert "2 over the limit" in text and text.count("| OVER |") == 2
    root = ElementTree.parse(tmp_path / "two" / "report.svg").getroot()
    bars = [node for node in root if node.tag.endswith("rect")]
    assert len(bars) == 2 * 4, "two back ends, two ops in two dtypes"
    longest = max(int(bar.get("width")) for bar in bars)
    assert longest > report.AXIS, "a bar over the limit crosses its line"


def test_settings_are_checked():
    with pytest.raises(ValueError, match="cases='smal'"):
        ParityDumpSettings("out", cases="smal")
    with pytest.raises(ValueError, match="names no file"):
        ParityReportSettings((), "out")
