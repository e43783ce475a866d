"""Concept pages: one for each op of the law and for the two contracts, the ops' of one form; what a
page names is there: functions, arguments, files, tests, mutations.
"""

import inspect
import re
import subprocess
from pathlib import Path

import pytest
import tomllib

from documents import ROOT
from inkling_core import ops

PAGES = ROOT / "docs" / "concepts"
LAW = ROOT / "packages" / "inkling-core" / "src" / "inkling_core" / "ops"
CONCEPTS = sorted({path.stem for path in LAW.glob("*.py")} - {"__init__"})
CONTRACTS = ("conv_state", "parity")
HEADINGS = ["Equation", "Shapes", "Where it lives", "Traps", "Example"]
TESTS = "\n".join(path.read_text() for path in ROOT.glob("**/tests/**/test_*.py"))
MUTATIONS = {
    mutation["id"]
    for path in (ROOT / "tests" / "mutations").glob("*.toml")
    for mutation in tomllib.loads(path.read_text())["mutation"]
}


def text_of(concept):
    return (PAGES / f"{concept}.md").read_text()


def test_every_concept_has_a_page_and_every_page_a_concept():
    assert {path.stem for path in PAGES.glob("*.md")} == {*CONCEPTS, *CONTRACTS, "index"}


@pytest.mark.parametrize("concept", CONCEPTS)
def test_op_pages_have_one_form(concept):
    assert re.findall(r"^## (.*)", text_of(concept), re.MULTILINE) == HEADINGS
    assert "```pycon\n>>> import torch\n" in text_of(concept)


@pytest.mark.parametrize("concept", CONCEPTS)
def test_a_page_shows_the_signature_of_each_op(concept):
    for name in ops.__all__:
        function = getattr(ops, name)
        if inspect.isfunction(function) and function.__module__.endswith(f".{concept}"):
            call = f"`{name}({', '.join(inspect.signature(function).parameters)})`"
            assert call in text_of(concept)


@pytest.mark.parametrize("concept", CONCEPTS)
def test_a_page_names_every_file_of_its_concept(concept):
    names = (f"{concept}.py", f"test_ops_{concept}.py")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "packages"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found = {path for path in listed if Path(path).name in names and (ROOT / path).exists()}
    found -= {path for path in found if "/emulation/" in path}  # named after what they stand in for
    assert len(found) >= 4
    assert {path for path in found if f"`{path}`" not in text_of(concept)} == set()


@pytest.mark.parametrize("concept", [*CONCEPTS, *CONTRACTS])
def test_tests_and_mutations_that_a_page_names_exist(concept):
    last_cells = "\n".join(re.findall(r"^\|.*\|(.*)\|$", text_of(concept), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+|[a-z0-9]+(?:-[a-z0-9]+)+)`", last_cells)) - {
        "tml-renderers"
    }
    assert named or concept == "parity"
    missing = {name for name in named if name not in MUTATIONS and f"def {name}(" not in TESTS}
    assert not missing
