"""Dtype of the rows: what it costs; chunked convolution through a store equals the one-shot."""

import pytest
import torch

from inkling_core.conv_state import ConvLayout, ConvPlan, Stream, TensorConvStore
from inkling_core.conv_state.precision import measure_row_error
from inkling_core.ops.short_conv import short_conv
from inkling_core.step import Step

CHUNKS = [1, 2, 3, 4, 5, 127, 128, 129, 512, 1000]
BFLOAT16_ROUNDOFF = 2.0**-8  # relative error of rounding to 8 significant bits, at worst


def inputs(x_dtype, chunk, channels=63, taps=4):
    tokens = 1100 if chunk > 5 else 270  # two block edges are crossed either way
    generator = torch.Generator().manual_seed(7)
    x_TC = torch.randn(tokens, channels, generator=generator).to(x_dtype)
    return x_TC, torch.randn(channels, taps, generator=generator) / 2


def chunked(x_TC, weight_CW, chunk, row_dtype):
    """The convolution of `x_TC` in chunks, its history through a store."""
    layout = ConvLayout(weight_CW.shape[1], (x_TC.shape[1], 1, 1, 1))
    store = TensorConvStore.allocate(layout, 1, 11, row_dtype)
    outputs = []
    for start in range(0, len(x_TC), chunk):
        new_TC = x_TC[start : start + chunk]
        step = Step.single(len(new_TC), start, [5, 9, 1, 7, 2, 8, 4, 10, 3], 128)
        plan = ConvPlan.from_step(step, layout.taps)
        history_QJC = store.exchange(0, Stream.K, new_TC, plan)
        outputs.append(short_conv(new_TC, history_QJC, weight_CW, step.starts))
    return torch.cat(outputs)


def one_shot(x_TC, weight_CW):
    history_QJC = x_TC.new_zeros(1, weight_CW.shape[1] - 1, x_TC.shape[1])
    return short_conv(x_TC, history_QJC, weight_CW, (0, len(x_TC)))


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_rows_in_the_models_dtype_lose_nothing(dtype, chunk):
    x_TC, weight_CW = inputs(dtype, chunk)
    assert torch.equal(chunked(x_TC, weight_CW, chunk, dtype), one_shot(x_TC, weight_CW))
    assert measure_row_error(x_TC, weight_CW, dtype, chunk).output == 0.0


@pytest.mark.parametrize("chunk", CHUNKS)
def test_narrow_rows_cost_what_the_measurement_says(chunk):
    x_TC, weight_CW = inputs(torch.float32, chunk)
    error = measure_row_error(x_TC, weight_CW, torch.bfloat16, chunk)
    difference_TC = chunked(x_TC, weight_CW, chunk, torch.bfloat16) - one_shot(x_TC, weight_CW)
    assert difference_TC.abs().max().item() == pytest.approx(error.output, rel=1e-3)
    assert 0 < error.history <= BFLOAT16_ROUNDOFF * x_TC.abs().max()
    assert one_shot(x_TC, weight_CW).std().item() == pytest.approx(error.output_std, rel=1e-5)


def test_narrow_rows_touch_no_output_beyond_the_history():
    x_TC, weight_CW = inputs(torch.float32, chunk=129)
    difference_TC = chunked(x_TC, weight_CW, 129, torch.bfloat16) - one_shot(x_TC, weight_CW)
    touched = difference_TC.abs().amax(dim=1).nonzero().flatten()
    assert touched.tolist() == [start + t for start in range(129, 1100, 129) for t in range(3)]
