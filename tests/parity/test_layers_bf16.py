"""bfloat16, layer by layer on shared inputs, against transformers.

Whole bfloat16 models are not compared: a rounding that moves one token to another expert at a
near-tie would drown the measure. Every sub-layer gets transformers' own input of that sub-layer,
so routing sees bit-equal hidden states.

    rms(ours - transformers) / rms(transformers) <= the table's limit for ("layer", bfloat16)
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers 5.24.0, the independent reference")

from hf_oracle import make_checkpoint

from inkling_core.checkpoint import load_decoder
from inkling_core.generate import TokenGenerator
from inkling_core.layers.context import StepContext
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance
from inkling_core.step import Step

LIMIT = tolerance("layer", torch.bfloat16)
PARTS = ("self_attn", "attn_sconv", "mlp", "mlp_sconv")


def record(model, ids: torch.Tensor) -> dict[tuple[int, str], tuple[torch.Tensor, torch.Tensor]]:
    """(layer, part) -> transformers' input and output of that sub-layer, `[T, D]` each."""
    seen = {}

    def hook(key):
        def save(_module, args, kwargs, output):
            value = args[0] if args else kwargs["hidden_states"]
            out = output[0] if isinstance(output, tuple) else output
            seen[key] = (value.squeeze(0).clone(), out.reshape(value.shape).squeeze(0).clone())

        return save

    layers = model.model.language_model.layers
    for index, layer in enumerate(layers):
        for part in PARTS:
            getattr(layer, part).register_forward_hook(hook((index, part)), with_kwargs=True)
    with torch.no_grad():
        model(input_ids=ids[None], use_cache=False)
    return seen


@torch.inference_mode()
def test_every_sub_layer(tmp_path):
    model = make_checkpoint(tmp_path, seed=6, dtype=torch.bfloat16)
    ids = torch.randint(3, 150, (80,), generator=torch.Generator().manual_seed(1))
    seen = record(model, ids)
    decoder = load_decoder(tmp_path, dtype=torch.bfloat16)
    assert len(seen) == len(PARTS) * decoder.config.num_hidden_layers

    caches = TokenGenerator(decoder, 80, 16).caches
    step = Step.single(80, 0, range(1, 6), 16)
    context = StepContext.of(decoder.config, step, caches)
    worst = 0.0
    for (index, part), (value, expected) in seen.items():
        block = decoder.layers[index]
        if part == "mlp":
            actual = block.mlp(value)
        elif part == "self_attn":
            actual = block.attn(value, context)
        else:  # onto an empty residual stream; the norm that follows it is not compared
            empty, norm_D = torch.zeros_like(value), block.mlp_norm.weight
            actual, _ = getattr(block, part)(empty, value, norm_D, block.eps, context)
        assert actual.dtype == torch.bfloat16
        found = assert_within(actual, expected, LIMIT, f"layer {index} {part}")
        worst = max(worst, found.rms_ratio)
    print(f"worst rms ratio of {len(seen)} sub-layers: {worst:.2e}")


@torch.inference_mode()
def test_conv_rows_in_the_model_dtype_lose_nothing(tmp_path):
    """Rows keep raw inputs, which already are bfloat16: float32 rows hold the same numbers."""
    make_checkpoint(tmp_path, seed=6, dtype=torch.bfloat16)
    decoder = load_decoder(tmp_path, dtype=torch.bfloat16)
    narrow, wide = (TokenGenerator(decoder, 64, 16) for _ in range(2))
    assert {rows.dtype for rows in narrow.caches.conv.rows} == {torch.bfloat16}
    wide.caches.conv.rows = tuple(rows.float() for rows in wide.caches.conv.rows)
    ids = list(range(3, 40))
    for start in range(0, len(ids), 5):
        part = ids[start : start + 5]
        assert torch.equal(narrow.feed(part), wide.feed(part)), f"chunk at {start}"
    assert {rows.dtype for rows in wide.caches.conv.rows} == {torch.float32}
    for a, b in zip(narrow.caches.conv.rows, wide.caches.conv.rows, strict=True):
        assert torch.equal(a.float().nan_to_num(), b.nan_to_num())
