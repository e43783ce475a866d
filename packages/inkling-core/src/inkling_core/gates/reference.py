"""What the dense decoder answers: the same request, rendered, generated and parsed without a
server.

Not used where the checkpoint is too large to run densely on this machine: gates then compare text
with the known answers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from inkling_core.checkpoint import load_decoder
from inkling_core.config import InklingConfig
from inkling_core.gates.client import Reply
from inkling_core.generate import TokenGenerator
from inkling_core.generate_text import Text
from inkling_core.model import Decoder
from inkling_core.weights.info import checkpoint_info
from inkling_parsers import parse
from inkling_parsers.render import plain_encoder, render

LARGEST = 50_000_000
"""Parameters up to which a dense float32 reference is affordable on a small machine."""


@dataclass(frozen=True)
class Reference:
    """Greedy answers of the float32 reference decoder."""

    decoder: Decoder
    text: Text

    @classmethod
    def load(cls, folder: Path) -> Reference | None:
        """The reference of a checkpoint; None where it is too large to run here."""
        config = InklingConfig.from_checkpoint(folder)
        if checkpoint_info(config).parameters > LARGEST:
            return None
        return cls(load_decoder(folder), Text.from_checkpoint(folder))

    def prompt_ids(
        self, messages: Sequence[dict], tools: Sequence[dict] = (), effort: float | None = None
    ) -> list[int]:
        """The prompt as the server must render it."""
        encode = plain_encoder(self._encode, self.text.special)
        return render(messages, tools, effort).ids(encode, self.text.special)

    def answer(
        self,
        messages: Sequence[dict],
        tools: Sequence[dict] = (),
        effort: float | None = None,
        max_tokens: int = 256,
    ) -> Reply:
        """Greedy answer with the summed log-probability of its tokens, the stop token included."""
        prompt = self.prompt_ids(messages, tools, effort)
        generator = TokenGenerator(self.decoder, len(prompt) + max_tokens)
        hidden_TD = generator.hidden(prompt)
        ids: list[int] = []
        total = 0.0
        while True:
            logits_V = self.decoder.logits(hidden_TD[-1:])[0].float()
            token = int(logits_V.argmax())
            total += float(torch.log_softmax(logits_V, -1)[token])
            ids.append(token)
            if token in self.text.special.stop_ids or len(ids) == max_tokens:
                break
            hidden_TD = generator.hidden([token])
        parsed = parse(ids, self.text.special, decode=self._decode, prompt=prompt)
        calls = tuple((call.name, call.arguments) for call in parsed.tool_calls)
        return Reply(parsed.reasoning or "", parsed.content or "", calls, "", total, len(ids))

    def _encode(self, text: str) -> list[int]:
        return self.text.tokenizer.encode(text, add_special_tokens=False).ids

    def _decode(self, ids: list[int]) -> str:
        return self.text.tokenizer.decode(ids, skip_special_tokens=False)
