"""ConvLayout: offsets, tensor-parallel widths, bytes, errors."""

from dataclasses import dataclass

import pytest
import torch

from inkling_core.conv_state import ConvLayout, Stream


@dataclass
class Small:
    """The geometry of Inkling-Small."""

    hidden_size: int = 4096
    num_key_value_heads: int = 8
    swa_num_key_value_heads: int = 8
    head_dim: int = 128
    conv_kernel_size: int = 4


def test_streams_are_packed_side_by_side_without_gap_or_overlap():
    layout = ConvLayout(4, (2, 5, 3, 7))
    marks = torch.zeros(layout.width, dtype=torch.int64)
    for stream in Stream:
        marks[layout.channels(stream)] += 1 + stream
    assert marks.tolist() == [1] * 2 + [2] * 5 + [3] * 3 + [4] * 7
    assert (layout.offsets, layout.row_shape) == ((0, 2, 7, 10), (3, 17))


@pytest.mark.parametrize(
    ("tp", "kv_width"), [(1, 1024), (2, 512), (4, 256), (8, 128), (16, 128)], ids=lambda v: str(v)
)
def test_kv_channels_follow_their_heads_and_hidden_wide_ones_are_replicated(tp, kv_width):
    layout = ConvLayout.from_config(Small(), tp)
    assert layout.widths == (kv_width, kv_width, 4096, 4096)


def test_the_layer_with_most_kv_heads_sets_the_width():
    layout = ConvLayout.from_config(Small(swa_num_key_value_heads=16), tp_size=4)
    assert layout.widths == (512, 512, 4096, 4096)
    assert layout.channels(Stream.V, 256) == slice(512, 768)


def test_bytes_of_a_row_at_published_size():
    layout = ConvLayout.from_config(Small(), tp_size=8)
    assert layout.row_bytes(torch.bfloat16) == 50_688
    assert layout.row_bytes(torch.float32) == 2 * 50_688


@pytest.mark.parametrize("tp", [0, 3, 12], ids=str)
def test_refuses_ranks_that_do_not_divide(tp):
    with pytest.raises(ValueError, match=f"tp_size is {tp} with 8 KV heads"):
        ConvLayout.from_config(Small(), tp)


def test_refuses_a_kernel_without_history():
    with pytest.raises(ValueError, match="taps is 1, must be >= 2"):
        ConvLayout.from_config(Small(conv_kernel_size=1))


@pytest.mark.parametrize("widths", [(2, 2, 3), (2, 0, 3, 3)], ids=["three", "empty"])
def test_refuses_bad_widths(widths):
    with pytest.raises(ValueError, match="4 positive channel counts, in the order K, V, ATTN, MLP"):
        ConvLayout(4, widths)
