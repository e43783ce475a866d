"""A real tokenizer for the command line, loaded on demand. The library itself never needs one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inkling_parsers.markers import SpecialTokens
from inkling_parsers.render import plain_encoder


class Tokenizer:
    """A `tokenizer.json` file, or a folder with one, read with the `tokenizers` library."""

    def __init__(self, path: str) -> None:
        file = Path(path)
        file = file / "tokenizer.json" if file.is_dir() else file
        if not file.is_file():
            raise ValueError(f"no tokenizer at {path}: give a tokenizer.json or its folder")
        try:
            # Not a dependency, so the type checker may not find it either.
            from tokenizers import Tokenizer as Loaded  # type: ignore[import-not-found]
        except ImportError:
            raise ValueError("--tokenizer needs the library `tokenizers`: install it") from None
        self._loaded: Any = Loaded.from_file(str(file))
        self.tokens = SpecialTokens.from_vocab(self._loaded.get_vocab(True))
        self.encode = plain_encoder(self._encode, self.tokens)

    def _encode(self, text: str) -> list[int]:
        return self._loaded.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        """Text of ordinary ids."""
        return self._loaded.decode(ids, skip_special_tokens=False)
