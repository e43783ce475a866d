"""Real positions near the end of a long context, through the real server.

Two layers, the second global, with published window, extents and (at 262,144) log-scaling floor;
random weights, but keys so sharp that each answer hangs on a few keys anywhere in the context.
Three prompts, each the beginning of the next, so that the second and third come from the prefix
cache and a new part. Greedy tokens and their log-probabilities against the reference at linear cost
(`last_rows.py`), and two controls: without tau, and without the first tenth of the keys, the
reference is far from the server.

CI takes a context of 8,192; `nox -s long_positions` sets INKLING_LONG_POSITIONS=262144.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from last_rows import SETTLED, LastRows

from inkling_core.checkpoint import load_decoder
from inkling_core.generate import TokenGenerator

LONGEST = int(os.environ.get("INKLING_LONG_POSITIONS", "8192"))
FULL, FLOOR = 262_144, 128_000
ANSWER, CHUNK = 24, 2048
PROMPTS = [200_000 * LONGEST // FULL, 250_000 * LONGEST // FULL, LONGEST - ANSWER]
SHAPE: dict[str, Any] = {
    "num_hidden_layers": 2,
    "local_layer_ids": (0,),
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "swa_num_key_value_heads": 1,
    "sliding_window": 512,
    "rel_extent": 1024,
    "max_position_embeddings": LONGEST,
    "log_scaling_n_floor": FLOOR * LONGEST // FULL,
}
SHARP = 4.0  # times the key norm of the global layer
LIMIT = 1e-4  # of a log-probability; measured: 2e-6 at most


@pytest.fixture(scope="module")
def sharp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint."""
    from safetensors.torch import load_file, save_file

    from inkling_core.weights.tiny import make_tiny

    folder = tmp_path_factory.mktemp("long") / "model"
    make_tiny(folder, SHAPE, tokenizer=True)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.llm.layers.1.attn.k_norm.weight"] *= SHARP
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def expected(folder: Path, prompt: list[int], answer: list[int], **fault: Any) -> torch.Tensor:
    """Log-probabilities `[ANSWER, V]` at the rows that chose the answer; `fault`: `forgotten` or
    `alpha`."""
    ids, first = [*prompt, *answer[:-1]], len(prompt) - 1 - SETTLED
    rows = LastRows(first, fault.get("forgotten", 0))
    decoder = load_decoder(folder, rows.backend())
    if "alpha" in fault:
        decoder.config = decoder.config.replace(log_scaling_alpha=fault["alpha"])
    generator = TokenGenerator(decoder, len(ids))
    before = generator.hidden(ids[:CHUNK])
    for low in range(CHUNK, len(ids), CHUNK):
        before = torch.cat([before, generator.hidden(ids[low : low + CHUNK])])[-CHUNK:]
    return torch.log_softmax(decoder.logits(before[-ANSWER:]).float(), -1)


def ask(server: Any, prompt: list[int]) -> tuple[list[int], torch.Tensor]:
    """Greedy tokens and the log-probability of each."""
    body = {
        "prompt": prompt,
        "max_tokens": ANSWER,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        "logprobs": 0,
    }
    answer = server.post("/v1/completions", body, seconds=7200)
    assert answer.status == 200, answer.body
    (choice,) = answer.body["choices"]
    return choice["token_ids"], torch.tensor(choice["logprobs"]["token_logprobs"])


@pytest.mark.server
@torch.no_grad()
def test_answers_at_the_end_of_a_long_context(start: Any, sharp: Path) -> None:
    server = start(
        checkpoint=str(sharp),
        served_model_name="long",
        port=8115,
        dtype="float32",
        max_num_seqs=2,
        max_num_batched_tokens=CHUNK,
        kv_cache_mib=max(64, LONGEST // 512),
    ).wait_ready()
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(3, 250, (LONGEST,), generator=generator).tolist()
    for length in PROMPTS:
        prompt = ids[:length]
        tokens, logprobs = ask(server, prompt)
        right = expected(sharp, prompt, tokens)
        assert tokens == right.argmax(-1).tolist(), f"after {length} tokens"
        off = float((logprobs - right.max(-1).values).abs().max())
        print(f"{length} tokens: log-probabilities within {off:.1e}")
        assert off < LIMIT
    assert server.metric("vllm:prefix_cache_hits_total") >= PROMPTS[0] + PROMPTS[1] - 2 * CHUNK
    for fault in ({"alpha": 0.0}, {"forgotten": LONGEST // 10}):
        wrong = expected(sharp, prompt, tokens, **fault)
        at = wrong.gather(-1, torch.tensor(tokens)[:, None])[:, 0]
        off = float((logprobs - at).abs().max())
        print(f"{fault}: {off:.1e}")
        assert off > 10 * LIMIT, fault
