"""Writes the small golden checkpoint with transformers' logits and greedy tokens for it, so that
every environment can be held to transformers without installing it.

    python tests/parity/make_golden.py            # rewrites packages/inkling-core/tests/data/golden

Not a test; `test_golden_is_current.py` proves that transformers still says what the files say.
The weights are bfloat16 values (small files); transformers computes in float32.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parent))
from hf_oracle import hf_logits, make_checkpoint

GOLDEN = Path(__file__).parents[2] / "packages/inkling-core/tests/data/golden"
LENGTHS = (80, 37, 5)
GREEDY = 16  # tokens that transformers adds to each sequence
GEOMETRY = {
    "vocab_size": 96,
    "unpadded_vocab_size": 89,
    "hidden_size": 32,
    "head_dim": 8,
    "swa_head_dim": 8,
    "d_rel": 4,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 4,
    "local_layer_ids": [0, 2],
}


def hf_greedy(model, ids: list[int]) -> torch.Tensor:
    """`[GREEDY]` tokens, each the arg-max of a whole forward over everything before it."""
    grown = list(ids)
    for _ in range(GREEDY):
        grown.append(int(hf_logits(model, grown)[-1].argmax()))
    return torch.tensor(grown[len(ids) :])


def write(directory: Path) -> None:
    """Checkpoint in the published format, plus `expected.safetensors` with ids, logits and
    greedy tokens."""
    model = make_checkpoint(directory, seed=7, dtype=torch.bfloat16, **GEOMETRY)
    model.float()
    tensors = {}
    for number, length in enumerate(LENGTHS):
        generator = torch.Generator().manual_seed(100 + number)
        ids = torch.randint(3, GEOMETRY["unpadded_vocab_size"], (length,), generator=generator)
        tensors[f"ids.{number}"] = ids
        tensors[f"logits.{number}"] = hf_logits(model, ids.tolist()).float().contiguous()
        tensors[f"greedy.{number}"] = hf_greedy(model, ids.tolist())
    save_file(tensors, directory / "expected.safetensors")
    (directory / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    write(GOLDEN)
    print(f"wrote {GOLDEN}")
