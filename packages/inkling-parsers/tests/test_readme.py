"""The README's examples run and print what it says; its commands exist."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from inkling_parsers.__main__ import main

README = Path(__file__).parents[1] / "README.md"


def test_examples():
    failures, tried = doctest.testfile(str(README), module_relative=False, encoding="utf-8")
    assert tried > 12 and failures == 0


def test_commands(tmp_path, capsys):
    files = {
        "ANSWER.txt": "<|content_text|>x<|end_message|>",
        "MESSAGES.json": '[{"role": "user", "content": "Hi"}]',
        "CASES.jsonl": '{"id":"a","kind":"whole","text":"x","expected":'
        '{"reasoning":null,"content":"x","tool_calls":[]}}',
    }
    commands = re.findall(r"^python -m inkling_parsers (\w+) (\S+)", README.read_text(), re.M)
    assert {name for _, name in commands} == set(files)
    for command, name in commands:
        (tmp_path / name).write_text(files[name], encoding="utf-8")
        assert main([command, str(tmp_path / name)]) == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out


def test_every_named_file_exists():
    source = README.parent / "src" / "inkling_parsers"
    for name in re.findall(r"`([\w/]+(?:\.py|\.toml|/))`", README.read_text(encoding="utf-8")):
        assert (source / name).exists() or (README.parent / name).exists(), name
