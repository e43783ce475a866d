"""What the documents ask to be typed: blocks by language, and console sessions to carry out.

Not the checks: `contract/test_docs.py` has them, and `packages/inkling-core/tests/serving` carries
out the blocks that need a server. How a block is read:

    bash      commands of ours are composed, not carried out
    console   `$ command` is carried out, in order, in one folder per page; the lines below it are
              what it prints to stdout (of a command that fails, stderr too), `...` for anything
    python    runs; with a file name as its comment in the first line it is also that file in the
              folder of the page's console blocks
    pycon     an interactive session; doctest runs the page

A block below the line `<!-- needs a server -->` is carried out where one runs.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md"), *ROOT.glob("docs/**/*.md")]
)
BLOCK = re.compile(r"^(<!-- needs a server -->\n)?```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
SHARED = ("packages", "tests", "docs", "benchmarks", "conf")  # what commands read of the clone
SECONDS = 300


class Block(NamedTuple):
    """A fenced block: its language, its text, and whether it needs a running server."""

    language: str
    text: str
    server: bool


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a document in order."""
    return [
        Block(language, text, bool(mark))
        for mark, language, text in BLOCK.findall(path.read_text())
    ]


def label(path: Path) -> str:
    """A document's name in test ids."""
    return str(path.relative_to(ROOT))


def sessions(server: bool) -> list[Path]:
    """Documents with console blocks that need a server, or that need none."""
    return [
        p
        for p in DOCUMENTS
        if any(b.language == "console" and b.server == server for b in blocks(p))
    ]


def exchanges(text: str) -> Iterator[tuple[str, str]]:
    """(command, what it prints) of a console block; `> ` and a backslash go on with a command."""
    command, printed = "", ""
    for line in text.splitlines(keepends=True):
        if command.endswith("\\\n"):
            command += line
        elif line.startswith("> ") and not printed:
            command += line[2:]
        elif line.startswith("$ "):
            if command:
                yield command, printed
            command, printed = line[2:], ""
        else:
            assert command, f"a console block begins with `$ `, not with {line!r}"
            printed += line
    yield command, printed


def carry_out(path: Path, folder: Path, *, server: str | None = None) -> None:
    """Carries out the console blocks of a document in `folder`, beside its named Python files.

    server: address of a server to use in place of 127.0.0.1:8000; None leaves out the blocks that
    need one. Raises AssertionError with both texts where a command prints something else.
    """
    for name in SHARED:
        (folder / name).symlink_to(ROOT / name)
    for block in blocks(path):
        if block.language == "python" and (named := FILE.match(block.text)):
            (folder / named[1]).write_text(block.text)
        if block.language == "console" and block.server == (server is not None):
            for command, expected in exchanges(block.text):
                _compare(_moved(command, server), _moved(expected, server), folder)


def _moved(text: str, server: str | None) -> str:
    return text if server is None else text.replace("127.0.0.1:8000", server)


def _compare(command: str, expected: str, folder: Path) -> None:
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": tools, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    # a refusal may go to either output; the settings go to the other one, which documents leave out
    printed = [done.stdout, done.stdout + done.stderr] if done.returncode else [done.stdout]
    assert expected or not done.returncode, f"{command}: status {done.returncode}\n{printed[-1]}"
    texts = ["".join(f"{line.rstrip()}\n" for line in one.splitlines()) for one in printed]
    check = doctest.OutputChecker().check_output
    same = any(check(expected, text, doctest.ELLIPSIS) for text in texts)
    assert same, f"{command}printed\n{texts[-1]}\nand the document shows\n{expected}"
