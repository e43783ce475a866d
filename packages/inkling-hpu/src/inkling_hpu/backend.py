"""`HPU`: the back end of the decoder that a Gaudi serves.

    Decoder(config, HPU, tp, dtype)(ids_T, HpuStep, Caches(HpuKVCache, HpuConvStore))

Not a device: the ops are torch and markers, so the same decoder runs on a CPU (tests, emulation)
and on the meta device (op counter). What differs on a Gaudi stands in `markers.kernels`.

All ops stand or fall together, since they share the rectangular step: the reference could not take
over one of them, so `require` refuses a configuration that any verifier refuses.
"""

from dataclasses import replace

from inkling_core.backend import OP_NAMES, YES, Backend, OpContext, Verdict, no
from inkling_hpu import ops
from inkling_hpu.joined import JOINED
from inkling_hpu.switches import Switches

DTYPES = ("torch.bfloat16", "torch.float32")


def _dtype(context: OpContext) -> Verdict:
    """HIDDEN and the kernels' masks need the exponent range of bfloat16 or float32."""
    if str(context.dtype) in DTYPES:
        return YES
    return no(f"it computes in {' or '.join(DTYPES)}, not {context.dtype}")


def _heads(context: OpContext) -> Verdict:
    """Query heads of a rank read whole key/value heads of the same rank."""
    config, size = context.config, context.tp_size
    heads = config.num_attention_heads
    if heads % size:
        return no(f"{heads} query heads do not divide by tensor-parallel size {size}")
    return _dtype(context)


def _taps(context: OpContext) -> Verdict:
    """A row keeps at least one input."""
    if context.config.conv_kernel_size < 2:
        return no(f"conv_kernel_size is {context.config.conv_kernel_size}, must be >= 2")
    return _dtype(context)


_OPS = {name: getattr(ops, name) for name in OP_NAMES}
_VERIFIERS = {
    **dict.fromkeys(_OPS, _dtype),
    "rel_attention": _heads,
    "qkvr_prep": _heads,
    "short_conv": _taps,
}

HPU = Backend("hpu", _OPS, _VERIFIERS, JOINED)


def backend(switches: Switches) -> Backend:
    """HPU without the joined steps that `switches` turn off."""
    if switches.shared_in_kernel:
        return HPU
    joined = {name: step for name, step in JOINED.items() if name != "mixture"}
    return replace(HPU, joined=joined)


def require(context: OpContext) -> None:
    """Raises ValueError listing every op that this back end refuses in `context`."""
    verdicts = {name: HPU.verdict(name, context) for name in _OPS}
    refused = {v.reason for v in verdicts.values() if not v.ok}
    if refused:
        reasons = "\n  ".join(sorted(refused))
        raise ValueError(f"the HPU back end cannot run this model:\n  {reasons}")
