"""A tokenizer file for random checkpoints: one token a byte, then special tokens by real name.

Not the published vocabulary (o200k). The table is that of the nano model, so that everything that
resolves special tokens by name works alike; this writes the `tokenizer.json` that the `tokenizers`
library reads, and needs no library itself.

    id 0..255 = byte, ids from 256 = special tokens
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inkling_core.nano.vocabulary import SPECIAL_IDS

END_IDS = (SPECIAL_IDS["<|content_model_end_sampling|>"], SPECIAL_IDS["<|endoftext|>"])


def write_byte_tokenizer(folder: Path, vocab_size: int) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json`.

    Raises:
        ValueError: a vocabulary too small for 256 bytes and the special tokens.
    """
    needed = max(SPECIAL_IDS.values()) + 1
    if vocab_size < needed:
        raise ValueError(f"unpadded_vocab_size = {vocab_size}: a byte tokenizer needs {needed}")
    plain = dict.fromkeys(("normalized", "single_word", "lstrip", "rstrip"), False)
    added = [
        {"id": token, "content": name, "special": True, **plain}
        for name, token in SPECIAL_IDS.items()
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    document: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": False},
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": False},
        "model": {"type": "BPE", "vocab": byte_alphabet(), "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|content_model_end_sampling|>",
        "clean_up_tokenization_spaces": False,
    }
    text = json.dumps(settings, indent=1) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def byte_alphabet() -> dict[str, int]:
    """The printable character that byte-level tokenizers write for each byte -> that byte.

    Printable bytes of Latin-1 stand for themselves; the others take code points from 256 up.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return {chr(byte if byte in printable else next(others)): byte for byte in range(256)}
