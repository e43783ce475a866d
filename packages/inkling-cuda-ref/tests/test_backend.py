"""Verifiers say yes, or no with the reason; a refused op runs as the reference."""

import dataclasses

import pytest
import torch

pytest.importorskip("triton", reason="needs triton, which the kernels are written in")

from parity_cases import DEVICE

from inkling_core import ops as law
from inkling_core.backend import OP_NAMES, OpContext
from inkling_core.config import PRESETS
from inkling_cuda_ref import backend, ops
from inkling_cuda_ref.backend import CUDA_REF

SMALL = PRESETS["inkling_small"]


def context(config=SMALL, dtype=torch.bfloat16, device=DEVICE, tp_size=8) -> OpContext:
    return OpContext(config, dtype, device, tp_size)


@pytest.mark.parametrize("name", OP_NAMES)
def test_every_op_accepts_the_published_model(name):
    assert str(CUDA_REF.verdict(name, context())) == "yes"
    assert getattr(CUDA_REF.bind(context()), name) is getattr(ops, name)


@pytest.mark.parametrize("name", OP_NAMES)
def test_refusals_of_every_op(name):
    verdict = CUDA_REF.verdict(name, context(dtype=torch.float16))
    assert str(verdict) == "no, because torch.float16 is neither float32 nor bfloat16"
    verdict = CUDA_REF.verdict(name, context(device=torch.device("meta")))
    assert str(verdict) == "no, because Triton runs on cuda here, not on meta"


def test_a_cpu_needs_the_interpreter(monkeypatch):
    monkeypatch.setattr(backend, "INTERPRETED", False)
    verdict = CUDA_REF.verdict("rms_norm", context(device=torch.device("cpu")))
    assert "TRITON_INTERPRET=1" in str(verdict)


@pytest.mark.parametrize(
    "name,change,reason",
    [
        ("rms_norm", {"hidden_size": 32768}, "hidden_size is 32768, over the 16384 that fit"),
        ("qkvr_prep", {"head_dim": 512}, "head_dim is 512, over the 256 that fit"),
        ("rel_attention", {"head_dim": 512}, "head_dim is 512, over the 256 that fit"),
        ("router", {"n_routed_experts": 2000}, "the number of experts is 2002, over the 1024"),
    ],
    ids=lambda v: v if isinstance(v, str) and " " not in v else "",
)
def test_geometries_that_do_not_fit(name, change, reason, caplog):
    given = context(config=dataclasses.replace(SMALL, **change), tp_size=1)
    assert reason in str(CUDA_REF.verdict(name, given))
    assert getattr(CUDA_REF.bind(given), name) is getattr(law, name)
    assert reason in caplog.text
