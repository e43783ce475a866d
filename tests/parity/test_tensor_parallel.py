"""Sharded decoders, emulated with threads, against transformers' unsharded logits.

two all-reduces per layer, one after the embedding, and nothing else
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers 5.24.0, the independent reference")

from hf_oracle import hf_logits, make_checkpoint

from inkling_core.checkpoint import load_decoder
from inkling_core.parity.compare import assert_within
from inkling_core.parity.ragged import run_ragged
from inkling_core.parity.thread_ranks import ThreadRanks
from inkling_core.parity.tolerances import tolerance

LIMIT = tolerance("model", torch.float32)
WIDER = {"num_attention_heads": 8, "swa_num_attention_heads": 8}
LOCAL_HEADS = {**WIDER, "num_key_value_heads": 2, "swa_num_key_value_heads": 4}


@pytest.mark.parametrize("text", [WIDER, LOCAL_HEADS], ids=["kv2", "kv2-local4"])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_logits_equal_the_unsharded_model(tmp_path, size, text):
    model = make_checkpoint(tmp_path, seed=5, **text)
    draw = torch.Generator().manual_seed(0)
    sequences = [torch.randint(3, 150, (n,), generator=draw).tolist() for n in (80, 23)]
    expected = [hf_logits(model, ids) for ids in sequences]
    assert expected[0].std() >= 0.5

    ranks = ThreadRanks(size)
    results = ranks.run(
        lambda tp: run_ragged(load_decoder(tmp_path, tp=tp), sequences, [100], padding=2)
    )
    for rank_logits in results:
        for ours, theirs in zip(rank_logits, expected, strict=True):
            assert_within(ours, theirs, LIMIT, f"TP {size}")
    num_layers = model.config.text_config.num_hidden_layers
    assert ranks.num_reduces == 2 * num_layers + 1  # the run is one step
