"""The start-up check sees an expert op that reduces, and passes one that does not."""

import pytest
import torch

from inkling_core.checkpoint import load_decoder
from inkling_core.weights.tiny import make_tiny
from inkling_hpu import markers
from inkling_hpu.backend import HPU
from inkling_hpu.refusals import RefusedError
from inkling_hpu.self_check import LIMIT, check_experts, expert_error


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "checkpoint"
    make_tiny(folder)
    return load_decoder(folder, HPU, dtype=torch.bfloat16)


def _layer(decoder):
    return next(layer.mlp for layer in decoder.layers if hasattr(layer.mlp, "experts"))


def test_an_op_that_returns_its_own_sum_passes(decoder):
    assert expert_error(_layer(decoder)) == 0.0
    check_experts(decoder)


@pytest.mark.parametrize("ranks", [2, 8])
def test_an_op_that_reduces_is_refused(decoder, monkeypatch, ranks):
    own = markers.torch_body("moe")
    monkeypatch.setitem(markers.kernels, "moe", lambda *given: own(*given) * ranks)
    with pytest.raises(RefusedError, match=f"off by {ranks - 1}.00"):
        check_experts(decoder)


def test_rounding_of_a_kernel_passes(decoder, monkeypatch):
    own = markers.torch_body("moe")

    def rounded(*given):
        wide = own(*(x.float() if x.is_floating_point() else x for x in given))
        return wide.to(torch.bfloat16)

    monkeypatch.setitem(markers.kernels, "moe", rounded)
    assert 0 < expert_error(_layer(decoder)) < LIMIT / 3
    check_experts(decoder)


def test_nan_is_refused(decoder, monkeypatch):
    nan = float("nan")
    monkeypatch.setitem(markers.kernels, "moe", lambda x, *_: torch.full_like(x, nan))
    with pytest.raises(RefusedError, match="off by nan"):
        check_experts(decoder)
