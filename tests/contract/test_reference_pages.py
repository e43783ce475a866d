"""The reference pages say what the code says; documents and dashboards name metrics that exist."""

import re

import generate
import pytest

from documents import DOCUMENTS, ROOT


@pytest.mark.parametrize("name", generate.GENERATED)
def test_a_page_is_what_the_code_says(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    page = (generate.PAGES / f"{name}.md").read_text()
    assert page == generate.GENERATED[name](), "python docs/generate.py writes it anew"


def test_every_variable_of_the_packages_is_on_the_page():
    page = (generate.PAGES / "env.md").read_text()
    sources = [path.read_text() for path in ROOT.glob("packages/*/src/**/*.py")]
    named = set(re.findall(r"\bINKLING_[A-Z0-9_]*[A-Z0-9]\b", "\n".join(sources)))
    placeholders = {
        "INKLING_NAME",
        "INKLING_EMULATED",
    }  # in docstrings: INKLING_NAME, INKLING_EMULATED_*
    assert {name for name in named - placeholders if f"`{name}`" not in page} == set()


def test_metrics_that_are_named_are_exported():
    exported = generate.exported()
    pages = set(DOCUMENTS) - {generate.PAGES / "metrics.md"}  # vLLM's own help texts
    texts = [*pages, *ROOT.glob("deploy/**/*.json"), *ROOT.glob("deploy/**/*.y*ml")]
    named = {
        re.sub(r"_(?:bucket|sum|count)$", "", name)
        for path in texts
        for name in re.findall(r"\b(?:vllm|inkling):[a-z][a-z0-9_]+", path.read_text())
    }
    assert (
        exported
        and {name for name in named if {name, f"{name}_total"}.isdisjoint(exported)} == set()
    )
