"""What a vLLM tokenizer knows about special tokens, read once per tokenizer."""

from __future__ import annotations

import functools
from typing import Any

from inkling_parsers.adapters.answer_stream import Tokens
from inkling_parsers.markers import SpecialTokens

_CACHED_TOKENIZERS = 4  # a server has one; LoRA adapters may bring their own


@functools.lru_cache(maxsize=_CACHED_TOKENIZERS)
def tokens_of(tokenizer: Any) -> Tokens:
    """Special ids, their spellings and the decoder of a vLLM tokenizer.

    Raises VocabularyError for a tokenizer that lacks the format's special tokens, at server start
    from vLLM 0.32 on.
    """
    other = _flagged_special(tokenizer)
    special = SpecialTokens.from_vocab(tokenizer.get_vocab(), other)

    def decode(ids: list[int]) -> str:
        return tokenizer.decode(ids, skip_special_tokens=False)

    names = dict(special.names)
    names.update({token: decode([token]) for token in other})
    return Tokens(special, names, decode)


def _flagged_special(tokenizer: Any) -> tuple[int, ...]:
    """Ids that the tokenizer itself calls special: not all of them are spelled `<|name|>`."""
    listed = set(getattr(tokenizer, "all_special_ids", ()))
    added = getattr(tokenizer, "added_tokens_decoder", {})
    listed.update(token for token, entry in added.items() if getattr(entry, "special", False))
    return tuple(sorted(listed))
