"""`CUDA_REF`: the Triton ops as a back end of the core's decoder, and what each of them refuses.

Not a model and not a server:

    decoder = load_decoder(folder, CUDA_REF, dtype=torch.bfloat16, device=torch.device("cuda"))

A verifier answers once, before any tensor exists; what it refuses runs as the reference op, and a
joined step of which it refuses a part runs op after op.
"""

from collections.abc import Callable

import torch

from inkling_core.backend import OP_NAMES, YES, Backend, OpContext, Verdict, no
from inkling_core.config import InklingConfig
from inkling_cuda_ref import ops
from inkling_cuda_ref.joined import JOINED
from inkling_cuda_ref.storage import INTERPRETED

LARGEST_ROW = 16384  # elements of a row that one program keeps in registers
LARGEST_HEAD = 256
MOST_GATE_ROWS = 1024  # gate rows that one program scores side by side


def runs_here(context: OpContext) -> Verdict:
    """Whether kernels of any kind run on the context's device in its dtype."""
    kind = context.device.type
    if kind not in ("cuda", "cpu"):
        return no(f"Triton runs on cuda here, not on {context.device}")
    if kind == "cpu" and not INTERPRETED:
        return no("tensors on cpu need TRITON_INTERPRET=1, set before triton is imported")
    if context.dtype not in (torch.float32, torch.bfloat16):
        return no(f"{context.dtype} is neither float32 nor bfloat16")
    return YES


def limited(value: Callable[[InklingConfig], int], limit: int, what: str) -> Callable[..., Verdict]:
    """A verifier that also refuses a geometry in which `value` is over `limit`."""

    def verifier(context: OpContext) -> Verdict:
        verdict = runs_here(context)
        if verdict.ok and value(context.config) > limit:
            return no(f"{what} is {value(context.config)}, over the {limit} that fit one program")
        return verdict

    return verifier


_OPS = {name: getattr(ops, name) for name in OP_NAMES}
_VERIFIERS = dict.fromkeys(_OPS, runs_here) | {
    "rms_norm": limited(lambda c: c.hidden_size, LARGEST_ROW, "hidden_size"),
    "qkvr_prep": limited(lambda c: c.head_dim, LARGEST_HEAD, "head_dim"),
    "rel_attention": limited(lambda c: c.head_dim, LARGEST_HEAD, "head_dim"),
    "router": limited(
        lambda c: c.n_routed_experts + c.n_shared_experts, MOST_GATE_ROWS, "the number of experts"
    ),
}

CUDA_REF = Backend("cuda_ref", _OPS, _VERIFIERS, JOINED)
