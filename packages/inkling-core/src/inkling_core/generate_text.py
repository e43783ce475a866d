"""`inkling generate`: one question, one greedy answer, without a server.

Not the chat format: `inkling_parsers` renders the question and parses the answer, as the server
does. Not the decoder: `generate.TokenGenerator` is the dense reference. The answer goes to standard
output; what the model thought goes to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inkling_core.checkpoint import dtype_of, load_decoder
from inkling_core.cli.settings import GenerateSettings
from inkling_core.config import InklingConfig
from inkling_core.embedded import checkpoint_folder
from inkling_core.generate import TokenGenerator
from inkling_parsers.events import (
    ArgumentsDelta,
    ContentDelta,
    Diagnostic,
    Event,
    ReasoningDelta,
    ToolCallEnd,
    ToolCallStart,
)
from inkling_parsers.markers import SpecialTokens
from inkling_parsers.parser import StreamParser
from inkling_parsers.render import plain_encoder, render


@dataclass(frozen=True)
class Text:
    """The tokenizer of a checkpoint folder, with its special tokens by name."""

    tokenizer: Any  # tokenizers.Tokenizer, which has no types of its own
    special: SpecialTokens

    @classmethod
    def from_checkpoint(cls, folder: Path) -> Text:
        """Reads `tokenizer.json`.

        Raises:
            FileNotFoundError: the folder has none.
            VocabularyError: it lacks special tokens of the format.
        """
        from tokenizers import Tokenizer  # optional: only text needs it, ids do not

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file; text needs the checkpoint's tokenizer")
        tokenizer = Tokenizer.from_file(str(path))
        special = tokenizer.get_added_tokens_decoder()
        named = {token.content: id_ for id_, token in special.items() if token.special}
        return cls(tokenizer, SpecialTokens.from_vocab(named))

    def prompt(self, question: str, effort: str | float | None) -> list[int]:
        """Token ids of one user turn and the opening of the model's."""
        messages = [{"role": "user", "content": question}]
        encode = plain_encoder(self._encode, self.special)
        return render(messages, effort=effort).ids(encode, self.special)

    def parser(self, prompt: list[int]) -> StreamParser:
        """A parser of the answer to `prompt`."""
        return StreamParser(self.special, decode=self._decode, prompt=prompt)

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)


def run(settings: GenerateSettings) -> int:
    """Prints the answer as it is generated."""
    folder = checkpoint_folder(settings.checkpoint)
    config = InklingConfig.from_checkpoint(folder)
    text = Text.from_checkpoint(folder)
    prompt = text.prompt(settings.prompt, effort_of(settings.effort))
    limit, longest = config.max_position_embeddings, len(prompt) + settings.max_tokens
    if longest > limit:
        raise ValueError(
            f"the prompt has {len(prompt)} tokens and max_tokens={settings.max_tokens} are asked "
            f"for, together {longest}; the checkpoint's context is {limit}: lower max_tokens"
        )
    dtype = dtype_of(settings.dtype, config)
    decoder = load_decoder(folder, dtype=dtype, pack_experts=settings.pack_experts)
    generator = TokenGenerator(decoder, len(prompt) + settings.max_tokens)
    stop_ids = () if settings.ignore_stop else text.special.stop_ids
    parser = text.parser(prompt)
    for token in generator.generate(prompt, settings.max_tokens, stop_ids):
        show(parser.feed([token]))
    show(parser.finish())
    print()
    return 0


def effort_of(word: str | None) -> str | float | None:
    """An effort as typed: a word stays one, digits become the number; the renderer checks both."""
    try:
        return None if word is None else float(word)
    except ValueError:
        return word


def show(events: Iterable[Event]) -> None:
    """Writes events as they come: content and calls to standard output, the rest to standard
    error."""
    for event in events:
        if isinstance(event, ContentDelta | ArgumentsDelta):
            print(event.text, end="", flush=True)
        elif isinstance(event, ToolCallStart):
            print(f"{event.name}(", end="", flush=True)
        elif isinstance(event, ToolCallEnd):
            print(")", flush=True)
        elif isinstance(event, ReasoningDelta):
            print(event.text, end="", file=sys.stderr, flush=True)
        elif isinstance(event, Diagnostic):
            print(f"\n({event.message})", file=sys.stderr)
