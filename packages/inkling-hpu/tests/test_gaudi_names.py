"""The table of used vllm_gaudi names: every change is found, and the table is complete."""

import ast
import importlib.util
import os
from pathlib import Path

import pytest

import inkling_hpu
from inkling_hpu.gaudi import names
from inkling_hpu.gaudi.check import SourceTree, Use, problems

PACKAGE = Path(inkling_hpu.__file__).parent
SOURCE = """
from dataclasses import dataclass
from vllm_gaudi.other import Borrowed

class Runner(Base):
    def __init__(self, config, device="hpu"):
        self.batch = make(config)

    def prefill(self, contents, *, warm=False):
        return trim(contents)

    @property
    def rows(self): ...

@dataclass
class Contents:
    tokens: list[int]
    blocks: list[int] = None

if True:
    def trim(metadata):
        return keep(metadata, ["block_list", "slots"])
"""
USES = (
    Use("worker", "Borrowed", "name", why="w"),
    Use("worker", "Runner", "call", ("config",), "w"),
    Use("worker", "Runner.prefill", "override", ("contents", "warm"), "w"),
    Use("worker", "Runner.prefill", "call", ("contents",), "w"),
    Use("worker", "Runner", "attributes", ("batch", "rows"), "w"),
    Use("worker", "Contents", "fields", ("tokens", "blocks"), "w"),
    Use("worker", "trim", "strings", ("block_list", "slots"), "w"),
)


def _problems(folder, source):
    (folder / "worker.py").write_text(source)
    return problems(USES, SourceTree(folder))


def test_an_unchanged_tree_has_no_problems(tmp_path):
    assert _problems(tmp_path, SOURCE) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("import Borrowed", "import Lent", "Borrowed: missing"),
        ("def prefill(", "def prefill_batch(", "Runner.prefill: missing"),
        ("contents, *, warm=False", "contents, *, cold=False", "ours takes (contents, warm)"),
        ("contents, *, warm=False", "batch, *, warm=False", "gone: ['contents']"),
        ("contents, *, warm=False", "contents, size, *, warm=False", "newly required: ['size']"),
        ('config, device="hpu"', "config, device, rank=0", "newly required: ['device']"),
        ("self.batch = ", "self.lot = ", "attributes missing: batch"),
        ("def rows", "def lines", "attributes missing: rows"),
        ("tokens: list", "token_ids: list", "fields missing: tokens"),
        ('"slots"', '"slot_mapping"', "strings missing: slots"),
        ("class Contents:", "class BatchContents:", "Contents: missing"),
    ],
)
def test_a_change_is_found(tmp_path, old, new, said):
    assert SOURCE.count(old) >= 1
    assert any(said in line for line in _problems(tmp_path, SOURCE.replace(old, new)))


def test_every_problem_is_listed_not_the_first(tmp_path):
    found = _problems(tmp_path, "class Runner:\n    pass\n")
    assert len(found) == len(USES)
    assert all("(w)" in line for line in found)


def test_a_missing_module_is_named(tmp_path):
    found = problems(USES[:1], SourceTree(tmp_path))
    assert found == ["vllm_gaudi.worker: Borrowed: the module is missing (w)"]


def test_further_parameters_with_defaults_do_not_matter_to_a_call(tmp_path):
    grown = SOURCE.replace('device="hpu"', 'device="hpu", rank=0')
    assert _problems(tmp_path, grown) == []


# ---- the table itself ----------------------------------------------------------------------------


def _imported(path):
    """`module, name` pairs of what a file imports from vllm_gaudi."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm_gaudi"):
            for alias in node.names:
                yield node.module.removeprefix("vllm_gaudi").lstrip("."), alias.name


def test_every_imported_name_stands_in_the_table():
    tabled = {(use.module, use.path.split(".")[0]) for use in names.USES}
    modules = {use.module for use in names.USES}
    for path in (PACKAGE / "gaudi").glob("*.py"):
        for module, name in _imported(path):
            assert (module, name) in tabled or f"{module}.{name}" in modules, (module, name)


def test_only_the_adapter_imports_vllm_gaudi():
    """The emulation may name habana_frameworks, which it stands for; nobody else may."""
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE).parts
        if inside[0] in ("gaudi", "emulation"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                assert not module.startswith(("vllm_gaudi", "habana_frameworks")), path


def test_absence_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(names, "folder", lambda: None)
    with pytest.raises(names.DriftError, match="Gaudi image"):
        names.refuse_drift.__wrapped__()


def test_drift_is_refused_with_the_whole_list(monkeypatch, tmp_path):
    monkeypatch.setattr(names, "folder", lambda: tmp_path)
    with pytest.raises(names.DriftError) as raised:
        names.refuse_drift.__wrapped__()
    assert str(raised.value).count("\n  ") == len(names.USES)


def test_an_unknown_version_is_a_warning(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(names, "folder", lambda: tmp_path)
    monkeypatch.setattr(names, "USES", ())
    monkeypatch.setattr(names, "installed_version", lambda: "0.99.0")
    with caplog.at_level("WARNING", logger=names.logger.name):
        names.refuse_drift.__wrapped__()
    assert "0.99.0 was never run" in caplog.text
    caplog.clear()
    monkeypatch.setattr(names, "installed_version", lambda: names.RUN_VERSIONS[0] + "+local")
    with caplog.at_level("WARNING", logger=names.logger.name):
        names.refuse_drift.__wrapped__()
    assert caplog.text == ""


def _real_tree():
    named = os.environ.get("INKLING_VLLM_GAUDI")
    if named:
        return Path(named) / "vllm_gaudi"
    spec = importlib.util.find_spec("vllm_gaudi")
    return Path(next(iter(spec.submodule_search_locations))) if spec else None


@pytest.mark.skipif(
    _real_tree() is None, reason="no vllm_gaudi: set INKLING_VLLM_GAUDI to a source tree"
)
def test_the_real_source_has_every_name():
    assert problems(names.USES, SourceTree(_real_tree())) == []
