"""The last rows of a 262,144-token sequence, real floor 128,000 crossed, against transformers.

    tau(262,143) = 1 + 0.1 ln(262,144 / 128,000) = 1.0717

One local layer (window 512) runs over every position; the global layer (extent 1,024) attends
only from the last rows on both sides, since its cost is quadratic. Its keys, values and
convolution states still come from the whole sequence.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers 5.24.0, the independent reference")

from hf_oracle import make_checkpoint
from last_rows import SETTLED, LastRows

from inkling_core.checkpoint import load_decoder
from inkling_core.generate import TokenGenerator
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance

TOKENS, ROWS, CHUNK = 262_144, 72, 1024
TEXT = {
    "num_hidden_layers": 2,
    "local_layer_ids": [0],
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "swa_num_attention_heads": 2,
    "swa_num_key_value_heads": 1,
    "head_dim": 16,
    "swa_head_dim": 16,
    "sliding_window_size": 512,
    "rel_extent": 1024,
    "log_scaling_n_floor": 128_000,
    "max_position_embeddings": TOKENS,
}


@torch.no_grad()
def reference_logits(model, ids: torch.Tensor) -> torch.Tensor:
    """transformers' own modules; logits of the last rows."""
    from transformers import DynamicCache
    from transformers.masking_utils import create_sliding_window_causal_mask

    text, config = model.model.language_model, model.config.text_config
    cache = DynamicCache(config=config)
    parts = []
    for part in ids[None].split(CHUNK, dim=1):
        x = text.embed_tokens(part)
        start = len(parts) * CHUNK
        positions = torch.arange(start, start + part.shape[1])[None]
        mask = create_sliding_window_causal_mask(
            config=config, inputs_embeds=x, attention_mask=None, cache=cache, position_ids=positions
        )
        parts.append(text.layers[0](x, attention_mask=mask, cache=cache))
    x = torch.cat(parts, dim=1)

    layer, prefix = text.layers[1], TOKENS - ROWS
    attn, normed = layer.self_attn, layer.input_layernorm(x[:, :prefix])
    shape = (1, prefix, attn.num_key_value_heads, attn.head_dim)
    k = attn.k_norm(attn.k_sconv(attn.k_proj(normed), cache=cache).view(shape)).transpose(1, 2)
    v = attn.v_sconv(attn.v_proj(normed), cache=cache).view(shape).transpose(1, 2)
    cache.update(k, v, 1)
    causal = torch.arange(TOKENS)[None] > torch.arange(prefix, TOKENS)[:, None]
    mask = torch.zeros(causal.shape).masked_fill(causal, float("-inf"))[None, None]
    out = layer(x[:, prefix:], attention_mask=mask, cache=cache)
    hidden = text.norm(out) / config.logits_mup_width_multiplier
    return model.lm_head(hidden)[0, :, : config.unpadded_vocab_size]


def test_last_rows_at_256k(tmp_path):
    model = make_checkpoint(tmp_path, seed=8, **TEXT)
    ids = torch.randint(3, 150, (TOKENS,), generator=torch.Generator().manual_seed(2))
    expected = reference_logits(model, ids)[SETTLED:]
    assert expected.std() >= 0.5

    decoder = load_decoder(tmp_path, LastRows(TOKENS - ROWS).backend())
    generator = TokenGenerator(decoder, TOKENS)
    for part in ids.split(CHUNK):
        hidden = generator.hidden(part)
    actual = decoder.logits(hidden[-ROWS + SETTLED :])
    limit = tolerance("model", torch.float32)
    found = assert_within(actual, expected, limit, f"positions up to {TOKENS - 1}")
    print(f"max abs difference {found.max_abs:.2e} at positions up to {TOKENS - 1}")
