"""The side of `parsers.py` that needs vLLM: one answer, token by token, through its own path.

`Served.run(name)` composes the reasoning and tool parsers of that name as vLLM's server does and
calls `parse_delta` once per token, the call that its chat endpoint makes. Not here: the parser on
its own, and what the numbers mean.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import vllm
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

from inkling_parsers.adapters.vllm import register
from inkling_parsers.markers import SpecialTokens

TOOL = {"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}}


class PieceTokenizer:
    """A tokenizer whose tokens are the benchmark's own pieces."""

    def __init__(self, special: SpecialTokens, texts: Mapping[int, str]) -> None:
        self._texts = {**texts, **special.names}
        self.all_special_ids = list(special.names)

    def get_vocab(self) -> dict[str, int]:
        return {text: token for token, text in self._texts.items()}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return "".join(self._texts[token] for token in ids)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [token for token, spelled in self._texts.items() if spelled == text]


class Served:
    """One answer as ids and the text of each."""

    def __init__(self, special: SpecialTokens, ids: Sequence[int], texts: Sequence[str]) -> None:
        register()
        self.version = vllm.__version__
        self._deltas = [
            (text, [token], at == len(ids) - 1)
            for at, (token, text) in enumerate(zip(ids, texts, strict=True))
        ]
        self._tokenizer = PieceTokenizer(special, dict(zip(ids, texts, strict=True)))
        messages = [{"role": "user", "content": "hi"}]
        self._request = ChatCompletionRequest(model="m", messages=messages, tools=[TOOL])
        self._request.skip_special_tokens = False

    def run(self, name: str, rounds: int) -> tuple[str, float]:
        """The arguments that a client joins, and CPU seconds of the whole stream, median."""
        parser_cls: Any = ParserManager.get_parser(name, name, enable_auto_tools=True)
        request, times = self._request, []
        for _ in range(rounds):
            parser = parser_cls(self._tokenizer, self._request.tools)
            begin = time.process_time()
            for text, ids, is_last in self._deltas:
                parser.parse_delta(text, ids, request, prompt_token_ids=[], finished=is_last)
            times.append(time.process_time() - begin)
        return self._arguments(parser_cls(self._tokenizer, request.tools)), statistics.median(times)

    def _arguments(self, parser: Any) -> str:
        """What a client joins; apart from the timed streams, which forget what they answered."""
        sent: list[str] = []
        for text, ids, is_last in self._deltas:
            delta = parser.parse_delta(
                text, ids, self._request, prompt_token_ids=[], finished=is_last
            )
            for call in delta.tool_calls if delta is not None else ():
                sent.append(call.function.arguments or "")
        return "".join(sent)
