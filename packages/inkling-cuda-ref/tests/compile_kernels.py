"""Compiles every launch of the parity cases for a GPU that need not be there, and runs none.

    python compile_kernels.py [DTYPE ...]       bf16, f32; a JSON list on stdout

Not the interpreter (TRITON_INTERPRET must be unset) and no proof of results: that each kernel is
Triton that its compiler turns into machine code of an H100 or H200, at the tile edges of a GPU and
the shapes of one of eight ranks, within a program's shared memory. Entries: kernel, dtype of its
first pointer, bytes of shared memory.
"""

import json
import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from inkling_core.backend import YES, Backend
from inkling_core.generate import TokenGenerator
from inkling_core.parity.calls import OpsRunner, tiny_decoder
from inkling_core.parity.cases import DTYPES, FLOAT32_ONLY, cases
from inkling_cuda_ref.backend import CUDA_REF

TARGET = GPUTarget("cuda", 90, 32)
POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
}
compiled: dict[tuple, dict] = {}


def argument_type(value) -> str:
    """Triton's name of an argument's type; 1 is a constant there, as in a launch."""
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "constexpr" if value == 1 else "i32"


def compile_only(kernel: JITFunction, *arguments, grid, warmup, **constants) -> None:
    """In the place of a launch."""
    given = dict(zip(kernel.arg_names, arguments, strict=False)) | constants
    signature, fixed = {}, {}
    for place, parameter in enumerate(kernel.params):
        value = given[parameter.name]
        kind = "constexpr" if parameter.is_constexpr else argument_type(value)
        signature[parameter.name] = kind
        if kind == "constexpr":
            fixed[(place,)] = value
    key = (kernel.fn.__name__, *signature.items(), *fixed.items())
    if key not in compiled:
        source = ASTSource(kernel, signature, fixed)
        made = triton.compile(source, target=TARGET)
        first = next(kind for kind in signature.values() if kind[0] == "*")
        shared = made.metadata.shared
        compiled[key] = {"kernel": kernel.fn.__name__, "pointer": first, "shared": shared}


def main(names: list[str]) -> None:
    JITFunction.run = compile_only
    runner = OpsRunner(CUDA_REF)
    chosen = [DTYPES[name] for name in names]
    for case in cases("tp8"):
        if case.op != "model" and (case.dtype in chosen or case.op in FLOAT32_ONLY):
            runner.answer(case)
    accepting = Backend(
        "cuda_ref", CUDA_REF.ops, dict.fromkeys(CUDA_REF.ops, accept), CUDA_REF.joined
    )
    for name in names:  # the joined steps
        generator = TokenGenerator(tiny_decoder(accepting, 0, DTYPES[name]), 64, 16)
        for count in (17, 1):
            generator.hidden([3] * count)
    print(json.dumps(list(compiled.values())))


def accept(context):
    """A CPU stands in for the GPU: nothing is run on it."""
    return YES


if __name__ == "__main__":
    main(sys.argv[1:] or list(DTYPES))
