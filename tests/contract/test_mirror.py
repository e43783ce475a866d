"""Back ends mirror the reference ops: same files, same public functions, same signatures.

A function taken over from the law's file of the same name has the law's signature. A gap is allowed
with an entry and a reason; an entry without a gap is an error too.
"""

import ast
from pathlib import Path

import pytest

PACKAGES = Path(__file__).resolve().parents[2] / "packages"
LAW = PACKAGES / "inkling-core" / "src" / "inkling_core" / "ops"
BACK_ENDS = {
    "hpu": PACKAGES / "inkling-hpu" / "src" / "inkling_hpu" / "ops",
    "cuda-ref": PACKAGES / "inkling-cuda-ref" / "src" / "inkling_cuda_ref" / "ops",
}
CONCEPTS = (
    "activation",
    "experts",
    "logits",
    "mxfp8",
    "norm",
    "nvfp4",
    "qkvr_prep",
    "rel_attention",
    "router",
    "short_conv",
)
NOTHING = ast.Constant(None)  # a function without a return annotation
GAPS: dict[tuple[str, str], str] = {}  # (back end, concept) -> why it is absent; none now


def functions(path: Path) -> dict[str, str]:
    """Public function -> its signature as written, defaults and annotations included.

    Public is what the `ops` folder exports; a part lent to back ends is no op.
    """
    exported = path.with_name("__init__.py").read_text()
    found: dict[str, str] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            returns = ast.unparse(node.returns or NOTHING)
            found[node.name] = f"({ast.unparse(node.args)}) -> {returns}"
        elif isinstance(node, ast.ImportFrom) and node.module == f"inkling_core.ops.{path.stem}":
            law = functions(LAW / path.name)
            found.update({name.name: law[name.name] for name in node.names if name.name in law})
    return {name: found[name] for name in found if f'"{name}"' in exported}


def files(folder: Path) -> set[str]:
    """Names of the op files."""
    return {path.stem for path in folder.glob("*.py")} - {"__init__"}


def test_the_law_has_one_file_per_concept():
    assert files(LAW) == set(CONCEPTS)


@pytest.mark.parametrize("concept", CONCEPTS)
def test_the_law_is_annotated(concept):
    found = functions(LAW / f"{concept}.py")
    assert found
    for name, signature in found.items():
        assert "-> None" not in signature, f"{name} returns nothing"


@pytest.mark.parametrize("name", BACK_ENDS)
def test_a_back_end_has_only_concepts_of_the_law(name):
    assert files(BACK_ENDS[name]) <= set(CONCEPTS)


@pytest.mark.parametrize("concept", CONCEPTS)
@pytest.mark.parametrize("name", BACK_ENDS)
def test_a_back_end_mirrors_or_says_why_not(name, concept):
    path = BACK_ENDS[name] / f"{concept}.py"
    if (name, concept) in GAPS:
        assert GAPS[name, concept], "a gap needs a reason"
        assert not path.exists(), f"{path} is written: remove its entry from GAPS"
    else:
        assert functions(path) == functions(LAW / f"{concept}.py")
