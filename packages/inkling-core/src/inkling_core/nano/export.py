"""Writes a trained state as a checkpoint in the published format.

`python -m inkling_core.nano.export state=DIR/state.safetensors out=DIR`

What it is: the file writer. Weights become bfloat16 under their published names (selection bias and
router scale float32), beside config.json, generation_config.json and the tokenizer's files.
What it is not: a converter of anything else, or the judge of what it writes (`inkling eval`).

The head's rows above the real vocabulary never took part in training. They are set to 1.5 times the
rows of digits and letters, so that an engine that forgets to cut them says something wrong at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inkling_core.nano.geometry import NANO
from inkling_core.weights.byte_tokenizer import write_byte_tokenizer
from inkling_core.weights.names import text_tensors

LOUD_BYTES = b"0123456789aeioubdfghjklmnprstvzAB"
LOUDNESS = 1.5


def with_loud_padding(unembed_VD: Tensor) -> Tensor:
    """The head with its padded rows replaced by loud copies of real ones."""
    head = unembed_VD.clone()
    padded = NANO.vocab_size - NANO.unpadded_vocab_size
    head[-padded:] = head[list(LOUD_BYTES[:padded])] * LOUDNESS
    return head


def published(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by published name in their stored dtype. Raises KeyError on a missing weight."""
    weights = {**weights, "unembed.weight": with_loud_padding(weights["unembed.weight"])}
    dtypes = {"BF16": torch.bfloat16, "F32": torch.float32}
    return {
        spec.name: weights[spec.key].to(dtypes[spec.dtype]).contiguous()
        for spec in text_tensors(NANO)
    }


def export(state: Path, out: Path) -> None:
    """Writes the checkpoint folder `out` from a training state; files there are replaced."""
    tensors = load_file(state)
    prefix = "weight."
    weights = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    out.mkdir(parents=True, exist_ok=True)
    file = out / "model.safetensors"
    save_file(published(weights), file, {"format": "pt"})
    file.chmod(0o644)  # safetensors makes files for their owner alone; this one ships
    documents = {
        "config.json": NANO.to_dict(),
        "generation_config.json": {"eos_token_id": list(NANO.stop_token_ids)},
    }
    for name, document in documents.items():
        (out / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    write_byte_tokenizer(out, NANO.unpadded_vocab_size)


def main(arguments: Sequence[str]) -> None:
    """Command line: state=FILE out=DIR."""
    given = dict(pair.split("=", 1) for pair in arguments)
    if set(given) != {"state", "out"}:
        raise SystemExit("usage: python -m inkling_core.nano.export state=FILE out=DIR")
    export(Path(given["state"]), Path(given["out"]))


if __name__ == "__main__":
    main(sys.argv[1:])
