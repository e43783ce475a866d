"""storage.py: rounding on bits equals torch's; every kernel takes the constexpr that chooses."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="needs triton, which the kernels are written in")

import triton
import triton.language as tl
from parity_cases import DEVICE, Draw

import inkling_cuda_ref
from inkling_cuda_ref import ops, storage
from inkling_cuda_ref.storage import INTERPRETED, launch, operand, rounded, stored

SOURCES = Path(inkling_cuda_ref.__file__).parent
IN_THE_INTERPRETER = pytest.mark.skipif(not INTERPRETED, reason="about Triton's interpreter")


def kernels():
    """Every jit function of the package that is launched."""
    for info in pkgutil.walk_packages([str(SOURCES)], "inkling_cuda_ref."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if name.endswith("_kernel") and value.fn.__module__ == info.name:
                yield f"{info.name}.{name}", value


@triton.jit
def _round_kernel(x_ptr, wide_ptr, out_ptr, total, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < total, other=0.0)
    tl.store(wide_ptr + index, rounded(x, tl.bfloat16, WIDE), mask=index < total)
    tl.store(out_ptr + index, stored(x, tl.bfloat16, WIDE), mask=index < total)


@triton.jit
def _product_kernel(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    a, b = operand(tl.load(a_ptr + at), WIDE), operand(tl.load(b_ptr + at), WIDE)
    tl.store(out_ptr + at, tl.dot(a, b, input_precision="ieee"))


def test_rounding_is_torchs():
    ties = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 2 - 2**-9, 3.3e38, 1e-30, 0.0, -0.0])
    special = torch.tensor([float("inf"), float("-inf"), float("nan")])
    x = torch.cat([ties, special, Draw(torch.float32, 0)(1000).cpu() * 1e3]).to(DEVICE)
    wide, out = torch.empty_like(x), torch.empty_like(x, dtype=torch.bfloat16)
    launch(_round_kernel, (1,), x, wide, out, len(x), BLOCK=1024)
    expected = x.to(torch.bfloat16)
    assert torch.equal(out.view(torch.int16)[:10], expected.view(torch.int16)[:10])
    assert torch.equal(out.nan_to_num(7.0), expected.nan_to_num(7.0))
    assert torch.equal(wide.nan_to_num(7.0), expected.float().nan_to_num(7.0))


@IN_THE_INTERPRETER
def test_the_choice_matters_in_the_interpreter():
    """Raw bf16 operands give garbage there, which is what WIDE is for; a pass means it still is."""
    draw = Draw(torch.bfloat16, 1)
    a, b = draw(16, 16), draw(16, 16)
    out = {}
    for wide in (True, False):
        out[wide] = torch.empty(16, 16, device=DEVICE)
        _product_kernel[(1,)](a, b, out[wide], BLOCK=16, WIDE=wide)
    expected = a.float() @ b.float()
    assert (out[True] - expected).abs().max() < 1e-4
    assert not (out[False] - expected).abs().max() < 1.0


def test_every_kernel_takes_the_constexpr():
    found = dict(kernels())
    assert len(found) >= 12, sorted(found)
    for name, kernel in found.items():
        annotation = inspect.signature(kernel.fn).parameters["WIDE"].annotation
        assert "constexpr" in str(annotation), name


def calls(path: Path):
    """Source of every call in a file with the name of what is called."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda p: p.stem)
def test_no_kernel_goes_round_the_constexpr(path):
    """Operands of a dot are made by `operand` or `multiplied` or are float32; nobody casts to a
    stored dtype on his own; nobody launches on his own."""
    for name, call in calls(path):
        text = ast.unparse(call)
        if name.endswith(".to") and path.stem != "storage":
            target = ast.unparse(call.args[0])
            assert "dtype" not in target and "bfloat16" not in target, text
        assert not name.endswith("_kernel") and "_kernel[" not in name, text
    if path.stem != "storage":
        assert "WIDE=" not in path.read_text(), "only storage.launch chooses"


@IN_THE_INTERPRETER
def test_every_launch_chooses_storage_only(monkeypatch):
    seen = []

    class Recorder:
        def __getitem__(self, grid):
            return lambda *arguments, **constants: seen.append(constants["WIDE"])

    storage.launch(Recorder(), (1,))
    storage.launch(Recorder(), (0, 3))
    assert seen == [True], "an empty grid is no launch, and WIDE is True here"


def test_the_ops_export_what_the_core_exports():
    from inkling_core import ops as law

    assert set(ops.__all__) | {"QkvrWeights"} == set(law.__all__)
