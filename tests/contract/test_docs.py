"""What the documents tell people to type works, and what they point at exists.

Python blocks run, console blocks are carried out (`tests/documents.py`). Other command lines of
ours are composed (`--cfg job`); of other programs, the part that names something in this repository
is checked.
"""

import doctest
import re
import shlex

import pytest

import documents
from documents import BLOCK, DOCUMENTS, ROOT, label
from inkling_core.cli.main import main

CORE = ROOT / "packages" / "inkling-core"
PARSERS = ROOT / "packages" / "inkling-parsers" / "src" / "inkling_parsers"
HPU = (HPU_SOURCE := ROOT / "packages" / "inkling-hpu" / "src", HPU_SOURCE / "inkling_hpu")
SESSIONS = [path for path in DOCUMENTS if ">>> " in path.read_text()]


def blocks(*languages):
    for path in DOCUMENTS:
        for number, block in enumerate(documents.blocks(path)):
            if block.language in languages:
                yield pytest.param(block.text, id=f"{label(path)}-{number}")


def command_lines():
    for block in blocks("bash", "sh"):
        for line in block.values[0].splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield pytest.param(words, id=f"{block.id}: {' '.join(words)}"[:120])


@pytest.mark.parametrize("path", SESSIONS, ids=label)
def test_an_interactive_session_prints_what_it_shows(path):
    result = doctest.testfile(str(path), module_relative=False)
    assert result.attempted > 0 and result.failed == 0


@pytest.mark.parametrize("path", documents.sessions(server=False), ids=label)
def test_a_console_session_prints_what_it_shows(path, tmp_path):
    documents.carry_out(path, tmp_path)


@pytest.mark.parametrize(
    "text", [block for block in blocks("python") if not block.values[0].startswith(">>>")]
)
def test_a_python_block_runs(text):
    exec(compile(text, "document", "exec"), {"__name__": "document"})


@pytest.mark.parametrize("words", list(command_lines()))
def test_a_command_line_is_real(words, capsys):
    program, *rest = words
    if program == "inkling" and "parsers" not in rest[:1]:
        flags = [] if "--help" in rest or not rest else ["--cfg", "job"]
        text = rest.index("--") if "--" in rest else len(rest)  # what follows it is no flag
        assert main([*rest[:text], *flags, *rest[text:]]) == 0, capsys.readouterr().err
    elif program == "nox":
        source = (ROOT / "noxfile.py").read_text()
        ours = rest[: rest.index("--")] if "--" in rest else rest  # behind it: the session's own
        for name in [word for word in ours if not word.startswith("-")]:
            assert f"def {name.partition('(')[0]}(" in source
    elif rest[:1] == ["bootstrap.py"]:
        assert f'add_parser("{rest[1]}"' in (ROOT / "bootstrap.py").read_text()
    else:
        for word in rest:
            if word.startswith(("./", "packages/", "tests/", "benchmarks/")):
                assert (ROOT / word.partition("[")[0]).exists(), f"{word} is not there"


@pytest.mark.parametrize("path", DOCUMENTS, ids=label)
def test_files_that_a_document_names_exist(path):
    text = BLOCK.sub("", path.read_text())
    named = set(re.findall(r"`([\w./-]+/[\w-]+\.(?:py|toml|yaml|json|md))`", text))
    named |= set(re.findall(r"\]\(([\w./-]+\.md)\)", text))
    roots = (ROOT, path.parent, CORE, CORE / "src" / "inkling_core", CORE / "src", PARSERS, *HPU)
    missing = {name for name in named if not any((root / name).exists() for root in roots)}
    assert not missing
