"""prefill_chunk.py and masks_command.py: `inkling bench masks` as typed, and what it counts."""

import json

import pytest
import torch

from inkling_core.config import PRESETS
from inkling_core.weights.tiny import TINY
from inkling_hpu.buckets.profile import Profile
from inkling_hpu.counter.masks_command import run
from inkling_hpu.counter.prefill_chunk import count_chunk
from inkling_hpu.counter.settings import BenchMasksSettings
from inkling_hpu.switches import DEFAULTS, Switches

WHOLE = Switches(local_window_prefill=False, near_far=False)
MIB, GB = 2**20, 1e9


def small(context, switches=DEFAULTS, chunk=2048):
    """One rank of eight of Inkling-Small after `context` tokens."""
    profile = Profile(262_144, chunk=chunk)
    return count_chunk(PRESETS["inkling_small"], torch.bfloat16, 8, profile, context, switches)


@pytest.mark.parametrize("context", [0, 1100, 256_000])
def test_masks_stay_small_at_any_context(context):
    """Of 42 layers together, and the largest; edge and near have one size whatever the context."""
    found = small(context)
    assert found.mask_bytes <= 2.4 * GB and found.largest_mask <= 128 * MIB


def test_one_mask_over_everything_does_not():
    assert small(256_000, WHOLE).mask_bytes > 100 * GB


def test_masks_by_hand():
    """35 local layers and 7 global ones, 4 heads, 2,048 rows; the bucket of 262 blocks has 218 far
    ones and 36 of an edge, whose mask of 128 rows the global layers share."""
    found = small(32_768)
    near = 4 * 2048 * 2 * (35 * (512 + 2048) + 7 * (1024 + 2048))
    rows, query, blocks = found.bucket
    assert (rows, query) == (1, 2048) and blocks >= 256
    edge = found.mask_bytes - near
    assert edge % (128 * 128 * 2) == 0 and 0 < edge <= 0.25 * blocks * 128 * 128 * 2
    assert found.largest_mask == 4 * 2048 * 2 * (1024 + 2048)
    assert found.calls == 35 + 7 * 3


def test_a_mask_of_one_layer_after_the_other_counts_each_time():
    """TINY without a split: a mask per layer, and nothing else."""
    profile = Profile(4096, chunk=64)
    found = count_chunk(TINY, torch.float32, 1, profile, 1024, WHOLE)
    width = found.bucket[2] * 128 + found.bucket[1]
    each = TINY.num_attention_heads * found.bucket[1] * width * 4
    assert found.largest_mask == each
    assert found.mask_bytes == each * TINY.num_hidden_layers == each * found.calls


def test_tables_and_json_hold_the_same(capsys):
    asked = {"model": "nano", "tp": 2, "chunk": 256, "context": (0, 3000), "max_model_len": 4096}
    assert run(BenchMasksSettings(**asked, format="json")) == 0
    columns = json.loads(capsys.readouterr().out)["columns"]
    assert list(columns) == ["whole context", "local window", "near and far"]
    assert [one["context"] for one in columns["near and far"]] == [0, 3000]
    least = [columns[name][1]["mask_bytes"] for name in columns]
    assert least == sorted(least, reverse=True) and least[0] > 2 * least[-1]
    assert run(BenchMasksSettings(**asked)) == 0
    shown = capsys.readouterr().out
    for counts in columns.values():
        assert f" {counts[1]['ops']:,} " in shown


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"context": ()}, r"context=\[\] must name lengths"),
        ({"context": (5, -1)}, r"context=\[5, -1\] must name lengths of 0 or more"),
        ({"context": (262_000,)}, "264048 tokens, max_model_len=262144: raise it or shorten"),
        ({"chunk": 1}, "chunk=1 must be at least 2"),
        ({"format": "jsn"}, "did you mean 'json'?"),
    ],
)
def test_a_mistake_is_told(given, message):
    with pytest.raises(ValueError, match=message):
        BenchMasksSettings(**given)
