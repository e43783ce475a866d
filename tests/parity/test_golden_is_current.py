"""The committed golden logits and greedy tokens are what transformers computes for the committed
weights.

Everything else that uses them trusts the file; this test is the trust. It does not compare weights
with a new draw (`make_golden.py` makes those): random numbers differ between releases of torch.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers 5.24.0, the independent reference")

from hf_oracle import hf_logits
from make_golden import GOLDEN, LENGTHS, hf_greedy
from safetensors.torch import load_file

from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance


@torch.no_grad()
def test_transformers_computes_the_committed_answers():
    from transformers.models.inkling.modeling_inkling import InklingForConditionalGeneration

    model = InklingForConditionalGeneration.from_pretrained(GOLDEN, dtype=torch.float32).eval()
    kept = load_file(GOLDEN / "expected.safetensors")
    assert len(kept) == 3 * len(LENGTHS)
    for number, length in enumerate(LENGTHS):
        ids = kept[f"ids.{number}"]
        assert len(ids) == length
        logits = hf_logits(model, ids.tolist()).float()
        limit = tolerance("model", torch.float32)
        assert_within(logits, kept[f"logits.{number}"], limit, f"golden sequence {number}")
        assert torch.equal(hf_greedy(model, ids.tolist()), kept[f"greedy.{number}"])
