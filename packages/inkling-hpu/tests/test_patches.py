"""The register of patches names every override of vllm_gaudi's, and nothing that is not there."""

import ast
from pathlib import Path

import inkling_hpu
from inkling_hpu import patches
from inkling_hpu.gaudi.names import USES

PACKAGE = Path(inkling_hpu.__file__).parent
FILES = ("runner.py", "upstream_fixes.py", "warmup.py")


def _methods(path):
    tree = ast.parse(path.read_text())
    return {
        statement.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.FunctionDef)
    }


def test_every_overridden_runner_method_is_registered():
    theirs = {use.path.split(".")[1] for use in USES if use.path.startswith("HPUModelRunner.")}
    for name in FILES:
        registered = " ".join(p.target for p in patches.PATCHES if p.where == name)
        for method in _methods(PACKAGE / name) & theirs:
            assert method in registered, f"{name} overrides {method}, the register does not say so"


def test_every_patch_is_where_it_says():
    for patch in patches.PATCHES:
        text = (PACKAGE / patch.where).read_text()
        last = patch.target.rsplit(".", 1)[-1].split(",")
        assert any(word.strip() in text for word in last) or "ModelRegistry" in patch.target, patch


def test_names_are_unique_and_every_field_says_something():
    assert len({p.name for p in patches.PATCHES}) == len(patches.PATCHES)
    for patch in patches.PATCHES:
        assert all(getattr(patch, field) for field in patch.__dataclass_fields__)


def test_upstream_documents_exist():
    root = PACKAGE.parents[3]
    if not (root / "docs").is_dir():
        root = Path(__file__).parents[3]
    for patch in patches.PATCHES:
        if patch.upstream.startswith("docs/"):
            assert (root / patch.upstream).is_file(), patch.upstream


def test_the_register_is_printed_once(caplog):
    patches.announce.cache_clear()
    with caplog.at_level("INFO", logger=patches.logger.name):
        patches.announce()
        patches.announce()
    assert len(caplog.records) == 1
    for patch in patches.PATCHES:
        assert patch.name in caplog.text and patch.until in caplog.text
