"""`inkling eval`: its plan, its floors, its exit status and its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inkling_core.cli.settings import EvalSettings
from inkling_core.nano import eval as judge
from inkling_core.nano import tasks


def test_plan_runs_every_task_and_all_cases_where_a_floor_is_set() -> None:
    lines = judge.plan((), 500)
    assert {name for name, _, _ in lines} == set(tasks.TASKS)
    floored = [line for line in lines if judge.floor_of(line[0], line[1]) is not None]
    assert {(name, context) for name, context, _ in floored} == {
        *(("needle", context) for context in (512, 1024, 2048)),
        *((name, 256) for name in ("sum", "sum_thinking", "needle_thinking", "copy", "tool")),
    }
    assert all(count == 500 for _, _, count in floored)
    assert all(count * context <= 2048 * 50 for _, context, count in lines if context > 2048)


def test_unknown_task_is_refused_before_anything_is_loaded() -> None:
    settings = EvalSettings(checkpoint="/nowhere", tasks=("needles",), cases=2)
    with pytest.raises(ValueError, match=r"needles.*unknown; choose from sum"):
        judge.run(settings)


@pytest.mark.parametrize(("right", "passed"), [(98, True), (97, False)])
def test_floor_is_a_floor(right: int, passed: bool) -> None:
    score = judge.Score("sum", 256, 100, right, 0.1, judge.floor_of("sum", 256))
    assert score.passed is passed
    assert judge.Score("list", 256, 100, 0, 9.0, judge.floor_of("list", 256)).passed


def test_packs_keep_order_and_bound() -> None:
    case = tasks.cases("sum", count=1)[0]
    exams = [judge.Exam(case, [0] * size, [1] * 10) for size in (8000, 300, 9000, 100, 100)]
    groups = list(judge.packs(exams))
    assert [one for group in groups for one in group] == exams
    assert [len(group) for group in groups] == [1, 1, 1, 2]


def test_command_prints_the_table_and_writes_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "scores.json"
    settings = EvalSettings(tasks=("copy",), cases=3, out=str(out))
    assert judge.run(settings) == 0
    printed = capsys.readouterr().out
    assert "copy" in printed and "3/3" in printed
    document = json.loads(out.read_text(encoding="utf-8"))
    assert [(s["context"], s["right"], s["passed"]) for s in document["scores"]] == [
        (256, 3, True),
        (2048, 3, True),
    ]


def test_missed_floor_gives_status_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(judge.FLOORS, "copy", 1.01)
    assert judge.run(EvalSettings(tasks=("copy",), cases=1)) == 1
