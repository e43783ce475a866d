"""The CPU back end: ops under the names and signatures of `inkling_core.ops`, made for serving.

Not a definition: every function here is held to its namesake in `inkling_core.ops` by tests. What
is absent (router, logits, activation, query scale) is the reference's, which costs the same here.
"""

from inkling_core.backend import YES, Backend, OpContext, Verdict, no
from inkling_core.serving.cpu.experts import experts, pack_experts, shared_experts
from inkling_core.serving.cpu.norm import rms_norm
from inkling_core.serving.cpu.qkvr_prep import qkvr_prep
from inkling_core.serving.cpu.rel_attention import rel_attention
from inkling_core.serving.cpu.short_conv import short_conv


def _on_cpu(context: OpContext) -> Verdict:
    """Index tensors of these ops are made on the host."""
    return YES if context.device.type == "cpu" else no(f"it runs on cpu, not {context.device}")


_OPS = {
    "rms_norm": rms_norm,
    "short_conv": short_conv,
    "qkvr_prep": qkvr_prep,
    "rel_attention": rel_attention,
    "pack_experts": pack_experts,
    "experts": experts,
    "shared_experts": shared_experts,
}

CPU = Backend("cpu", _OPS, dict.fromkeys(_OPS, _on_cpu))
