"""Joined steps in one launch equal the core's, which are the ops of the law one after the other."""

import inspect

import pytest
import torch

pytest.importorskip("triton", reason="needs triton, which the kernels are written in")

from parity_cases import DEVICE, Draw, dtypes, hold, ragged_starts, scattered_step, sizes

from inkling_core import joined as one_by_one
from inkling_core import ops as law
from inkling_core.backend import JOINED_NAMES
from inkling_core.kv_cache import TensorKVCache
from inkling_core.ops import QkvrWeights
from inkling_cuda_ref.joined import JOINED, conv_add_norm, qkvr_prep_and_write

EPS = 1e-6


def parameters(function, skipped=0):
    """Names of the arguments, without the ops that a body of the core takes first."""
    return list(inspect.signature(function).parameters)[skipped:]


@pytest.mark.parametrize("name", JOINED_NAMES)
def test_bodies_of_the_core_take_their_ops_first(name):
    parts = one_by_one.PARTS[name]
    assert parameters(getattr(one_by_one, name))[: len(parts)] == list(parts)


@pytest.mark.parametrize("name", JOINED)
def test_signatures_are_the_cores(name):
    skipped = len(one_by_one.PARTS[name])
    assert parameters(JOINED[name]) == parameters(getattr(one_by_one, name), skipped)


@dtypes()
@sizes()
def test_conv_add_norm(size, dtype):
    draw, padding = Draw(dtype, size), min(2, size - 1)
    starts = ragged_starts(size, 4, padding)
    stream_TD, delta_TD, norm_D = draw(size, 37), draw(size, 37), draw(37)
    history_QJD = draw(len(starts) - 1, 3, 37)
    conv_DW = draw(37, 4, scale=0.5, dtype=torch.float32)
    delta_TD[size - padding :] = float("nan")
    found = conv_add_norm(stream_TD, delta_TD, history_QJD, conv_DW, starts, norm_D, EPS)
    expected = one_by_one.conv_add_norm(
        law.short_conv, law.rms_norm, stream_TD, delta_TD, history_QJD, conv_DW, starts, norm_D, EPS
    )
    hold("short_conv", found[0], expected[0], "stream")
    hold("rms_norm", found[1], expected[1], "normed")


@dtypes()
@pytest.mark.parametrize("contexts", [[0, 0, 0], [31, 5, 64]], ids=["fresh", "continued"])
def test_keys_and_values_land_in_their_slots(contexts, dtype):
    """Pages of an engine: keys and values in one tensor, blocks scattered, padding behind."""
    heads, kv_heads, width, rel_dim, extent = 6, 3, 10, 5, 33
    lengths, padding = [1, 40, 7], 3
    step, num_blocks = scattered_step(lengths, contexts, 16, padding)
    draw, total = Draw(dtype, sum(contexts)), sum(lengths) + padding
    given = [
        draw(total, n) for n in (heads * width, kv_heads * width, kv_heads * width, heads * rel_dim)
    ]
    for projection in given:
        projection[step.num_tokens :] = float("nan")
    conv = [draw(kv_heads * width, 4, scale=0.5, dtype=torch.float32) for _ in range(2)]
    weights = QkvrWeights(*conv, draw(width), draw(width), draw(rel_dim, extent))
    histories = [draw(3, 3, kv_heads * width) for _ in range(2)]
    tau_T = 1 + torch.rand(total, generator=draw.generator).to(DEVICE)
    pages = torch.full((num_blocks, 16, 2, kv_heads, width), float("nan")).to(dtype).to(DEVICE)
    keys, values = pages[:, :, 0], pages[:, :, 1]

    cache = TensorKVCache([torch.full_like(keys, torch.nan)], [torch.full_like(values, torch.nan)])

    side = (*given, weights, *histories, tau_T, EPS)
    found = qkvr_prep_and_write(*side, TensorKVCache([keys], [values]), 0, step)
    expected = one_by_one.qkvr_prep_and_write(law.qkvr_prep, *side, cache, 0, step)
    for name, ours, wanted in zip(("queries", "relative logits"), found, expected, strict=True):
        hold("qkvr_prep", ours[: step.num_tokens], wanted[: step.num_tokens], name)
    for name, ours, wanted in (("keys", keys, cache.keys[0]), ("values", values, cache.values[0])):
        hold("qkvr_prep", ours[1:].nan_to_num(9.0), wanted[1:].nan_to_num(9.0), name)
    assert pages[0].isnan().all(), "padding writes nothing, the null block neither"
