"""The model owner's renderer and parser as an oracle, and a seeded generator of transcripts.

Skipped where tml-renderers 0.2.1 is not installed; it needs torch and brings its own tokenizer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

from inkling_parsers.markers import SpecialTokens

pytest.importorskip(
    "tml_renderers", reason="tml-renderers is not installed; see the oracle session in noxfile.py"
)


class Oracle:
    """tml-renderers behind the few calls that the tests need."""

    def __init__(self) -> None:
        self._chat = import_module("tml_renderers.chat")
        self.tokenizer = import_module("tml_renderers.tokenizers").O200kBaseChatTokenizer()
        v0 = import_module("tml_renderers.v0")
        self._renderer = v0.Renderer(self.tokenizer)
        self.refusal = v0.ParseError
        names = self.tokenizer.special_tokens()  # without their brackets
        self.tokens = SpecialTokens.from_vocab(
            {f"<|{name}|>": self.tokenizer.encode_special(name) for name in names}
        )
        self._parser = self._render([{"role": "user", "content": "x"}], None)[1]

    def _render(self, messages: list[Any], effort: float | None) -> tuple[list[Any], Any]:
        listed = self._chat.OpenAIMessage.from_oss_messages(messages)
        if effort is None:
            return self._renderer.render_for_completion(listed)
        return self._renderer.render_for_completion_with_effort(listed, effort)

    def render(self, messages: list[Any], tools: list[Any], effort: float | None) -> list[int]:
        """Token ids of a transcript that is given as clients send it."""
        spans, _ = self._render(in_the_owners_form(messages, tools), effort)
        return [id_ for span in spans for id_ in span.span.tokens]

    def parse(self, ids: list[int]) -> list[Any]:
        """Messages in the form of the recorded rows; raises `refusal`."""
        return [self._as_row(message) for message in self._parser.parse_tokens(ids)]

    def _as_row(self, message: Any) -> dict[str, Any]:
        content = message.content
        kind = type(content).__name__
        author = message.author.kind.name.lower()
        row: dict[str, Any] = {"author": author, "name": message.author.name, "content": kind}
        if kind == "InvokeTool":
            arguments = [[argument.name, argument.value] for argument in content.args]
            row.update(tool=content.name, args=arguments, text=content.text)
            row.update(tool_call_id=content.tool_call_id)
        elif kind != "ModelEndSampling":
            row.update(text=content.text)
        return row


def in_the_owners_form(messages: list[Any], tools: list[Any]) -> list[Any]:
    """What tml-renderers wants to be told otherwise: it drops or refuses the rest.

    Reasoning is a content part, developers are the system, tools are a first message, and a call
    without arguments has an empty object.
    """
    adapted: list[Any] = []
    if tools:
        adapted.append({"role": "tool_declare", "content": json.dumps(tools)})
    for message in messages:
        own = dict(message)
        own["role"] = "system" if own["role"] == "developer" else own["role"]
        reasoning = own.pop("reasoning", None)
        if reasoning:
            text = own.get("content")
            parts = [{"type": "text", "text": text}] if text else []
            own["content"] = [{"type": "thinking", "thinking": reasoning}, *parts]
        for call in own.get("tool_calls") or ():
            call["function"]["arguments"] = call["function"]["arguments"] or "{}"
        adapted.append(own)
    return json.loads(json.dumps(adapted))


@dataclass(frozen=True)
class Transcript:
    """One generated request. `wild`: it holds numbers that the owner's renderer respells."""

    messages: list[Any]
    tools: list[Any]
    effort: float | None
    wild: bool


TEXTS = [
    *("Hello", "", " ", "\n\n", "Zażółć gęślą jaźń", "日本語のテキスト", "👩🏽‍🚀🏳️‍🌈", "a\r\nb\tc"),
    *(
        "<|end_message|>",
        "<|message_user|>x<|content_text|>",
        "<|",
        "|>",
        "<|unused_200024|>",
        "{}",
    ),
    *(
        "def f(x):\n    return {1: 'a'}\n",
        '{"name":"f","args":{}}',
        "\u2028\u00a0\ufeff",
        "\x00\x1f",
    ),
    *("&quot;", "C:\\temp\\new", '"quoted"', "1e5 -0 0.10", "العربية עברית", "x" * 300),
]
TAME = [0, 1, -1, 2**63 - 1, 2**64 - 1, -(2**63), 0.5, 1.25, -3.75, True, False, None, 1234567]
WILD = [1e-7, 1e300, 1e16, 2**70, -(2**63) - 1, 1e21, 1.5e-9, 123456789012345678901234567890]
NAMES = ["get_weather", "now", "f", "search.web", "nazwa-ż", "a b", 'q"uote']


class Generator:
    """Random transcripts from one seed; everything a chat client may send, in the shared subset."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._wild = False

    def transcript(self) -> Transcript:
        rng = self._rng
        self._wild = rng.random() < 0.2
        messages = [self._leading() for _ in range(rng.randrange(3))]
        for _ in range(rng.randrange(1, 5)):
            messages += rng.choice([self._user, self._assistant, self._late_system])()
        tools = [self._tool() for _ in range(rng.choice([0, 0, 1, 3]))]
        efforts = [None, 0.0, 0.004, 0.1, 0.125, 0.2, 0.33, 0.7, 0.9, 0.99, 1.0, rng.random()]
        effort = rng.choice(efforts)
        return Transcript(messages, tools, effort, self._wild)

    def text(self) -> str:
        return "".join(self._rng.choices(TEXTS, k=self._rng.randrange(1, 4)))

    def _leading(self) -> dict[str, Any]:
        return {"role": self._rng.choice(["system", "developer"]), "content": self.text()}

    def _late_system(self) -> list[Any]:
        return [{"role": "system", "content": self.text()}]

    def _user(self) -> list[Any]:
        parts = [{"type": "text", "text": self.text()} for _ in range(self._rng.randrange(1, 4))]
        return [{"role": "user", "content": self._rng.choice([self.text(), parts])}]

    def _assistant(self) -> list[Any]:
        rng = self._rng
        turn: dict[str, Any] = {"role": "assistant", "content": rng.choice([None, self.text()])}
        if rng.random() < 0.5:
            turn["reasoning"] = self.text()
        calls = [self._call(index) for index in range(rng.choice([0, 0, 1, 2, 4]))]
        if calls:
            turn["tool_calls"] = calls
        results = [self._result(call) for call in calls if rng.random() < 0.8]
        return [turn, *results]

    def _call(self, index: int) -> dict[str, Any]:
        arguments = {self._key(): self.value(3) for _ in range(self._rng.randrange(4))}
        spelled = json.dumps(arguments, ensure_ascii=self._rng.random() < 0.5, indent=1)
        function = {"name": self._rng.choice(NAMES), "arguments": spelled if arguments else ""}
        return {"id": f"c{index}", "type": "function", "function": function}

    def _result(self, call: dict[str, Any]) -> dict[str, Any]:
        parts = [{"type": "text", "text": self.text()} for _ in range(2)]
        result = {"role": "tool", "content": self._rng.choice([self.text(), parts])}
        if self._rng.random() < 0.5:
            result["name"] = call["function"]["name"]
        return {**result, "tool_call_id": call["id"]}

    def _tool(self) -> dict[str, Any]:
        function: dict[str, Any] = {"name": self._rng.choice(NAMES)}
        if self._rng.random() < 0.7:
            function["description"] = self.text()
        if self._rng.random() < 0.7:
            properties = {self._key(): {"enum": [self.value(2)]} for _ in range(3)}
            function["parameters"] = {"type": "object", "properties": properties}
        return {"type": "function", "function": function}

    def _key(self) -> str:
        return self._rng.choice([self.text(), "a", "b", "B", "_", "é", "city", "unit"])

    def value(self, depth: int) -> Any:
        rng = self._rng
        kinds: list[Callable[[], Any]] = [self.text, lambda: rng.choice(TAME)]
        if self._wild:
            kinds.append(lambda: rng.choice(WILD))
        if depth:
            kinds.append(lambda: [self.value(depth - 1) for _ in range(rng.randrange(4))])
            kinds.append(lambda: {self._key(): self.value(depth - 1) for _ in range(3)})
        return rng.choice(kinds)()


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return Oracle()


@pytest.fixture(scope="session")
def transcripts() -> list[Transcript]:
    generator = Generator(20261130)
    return [generator.transcript() for _ in range(2000)]
