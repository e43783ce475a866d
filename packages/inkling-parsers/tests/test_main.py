"""The command line, through `main` and once as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inkling_parsers.__main__ import main

ANSWER = (
    '<|content_thinking|>hm <|end_message|>f<|content_invoke_tool_json|>{"name":"f"}<|end_message|>'
)
DATA = Path(__file__).parent / "data" / "answers.jsonl"


def test_parse(tmp_path, capsys):
    file = tmp_path / "answer.txt"
    file.write_text(ANSWER, encoding="utf-8")
    assert main(["parse", str(file)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["reasoning"] == "hm "
    assert shown["tool_calls"] == [{"name": "f", "arguments": "{}", "valid": True}]
    assert shown["termination"] == "length"
    assert [d["code"] for d in shown["diagnostics"]] == ["arguments_missing"]
    assert main(["parse", str(file), "--trim"]) == 0
    assert json.loads(capsys.readouterr().out)["reasoning"] == "hm"


def test_parse_strict_fails_with_the_reason(tmp_path, capsys):
    file = tmp_path / "answer.txt"
    file.write_text(ANSWER, encoding="utf-8")
    assert main(["parse", "--strict", str(file)]) == 2
    assert "args: is missing" in capsys.readouterr().err


def test_parse_goes_on_from_a_prompt(tmp_path, capsys):
    file = tmp_path / "answer.txt"
    file.write_text("more<|end_message|>", encoding="utf-8")
    assert main(["parse", str(file), "--prompt", "<|message_model|><|content_thinking|>some"]) == 0
    assert json.loads(capsys.readouterr().out)["reasoning"] == "more"


def test_render(tmp_path, capsys):
    file = tmp_path / "messages.json"
    file.write_text('[{"role": "user", "content": "Hi"}]', encoding="utf-8")
    assert main(["render", str(file), "--effort", "low"]) == 0
    assert capsys.readouterr().out == (
        "<|message_system|><|content_text|>Thinking effort level: 0.2<|end_message|>"
        "<|message_user|><|content_text|>Hi<|end_message|><|message_model|>\n"
    )
    assert main(["render", str(file), "--effort", "absent", "--segments"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == ["s", "<|message_user|>"]


def test_check_counts_and_fails(tmp_path, capsys):
    assert main(["check", str(DATA)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith(" passed, 0 failed") and int(last.split()[0]) > 100
    file = tmp_path / "wrong.jsonl"
    expected = {"reasoning": None, "content": "b", "tool_calls": []}
    file.write_text(
        json.dumps({"id": "w", "kind": "whole", "text": "a", "expected": expected}),
        encoding="utf-8",
    )
    assert main(["check", str(file)]) == 1
    out = capsys.readouterr().out
    assert "FAILED w" in out and out.splitlines()[-1] == "0 passed, 1 failed"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["parse", "no-such-file"], "no-such-file"),
        (["check", str(DATA), "--tokenizer", "nowhere"], "no tokenizer at nowhere"),
    ],
)
def test_bad_input_is_one_line_and_status_2(argv, said, capsys):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_as_a_process():
    command = [sys.executable, "-m", "inkling_parsers", "parse"]
    done = subprocess.run(
        command, input=ANSWER, capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert json.loads(done.stdout)["tool_calls"][0]["name"] == "f"
