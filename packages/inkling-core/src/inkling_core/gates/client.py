"""The wire: the openai client for chat, plain HTTP for what that client does not know.

Not a judge. Every method is one request; errors come back as data (`Refusal`), never as a retry.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

TIMED_OUT = 408  # what HTTP calls it; here the client says so
GREEDY: dict[str, Any] = {"temperature": 0.0, "seed": 0}


@dataclass(frozen=True)
class Reply:
    """One chat answer. `logprob` is the sum over `num_tokens` sampled tokens, None if not asked."""

    reasoning: str
    content: str
    tool_calls: tuple[tuple[str, str], ...]
    finish: str
    logprob: float | None = None
    num_tokens: int = 0
    prompt_tokens: int = 0
    deltas: int = 0

    @property
    def text(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """What a user sees: reasoning, content and (name, arguments) of the calls."""
        return (self.reasoning, self.content, self.tool_calls)


@dataclass(frozen=True)
class Refusal:
    """An HTTP error: status and message."""

    status: int
    message: str


@dataclass
class Client:
    """A server under test.

    Args:
        url: address without `/v1`.
        api_key: bearer token, if the server wants one.
        timeout: seconds per request.
        model: served name; asked from the server where None.
    """

    url: str
    api_key: str | None = None
    timeout: float = 120.0
    model: str | None = None
    _openai: Any = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        from openai import OpenAI  # optional: the command line says how to get it

        self.url = self.url.rstrip("/")
        self._openai = OpenAI(
            base_url=f"{self.url}/v1",
            api_key=self.api_key or "none",
            timeout=self.timeout,
            max_retries=0,
        )
        served = self._served_models()
        if self.model is None:
            self.model = served[0]
        if self.model not in served:
            raise ValueError(f"model={self.model!r} is not served there: {', '.join(served)} is")

    def _served_models(self) -> list[str]:
        """Names that the server knows. Raises ConnectionError where it does not answer."""
        from openai import APIConnectionError, APIStatusError

        try:
            return [card.id for card in self._openai.models.list().data]
        except APIConnectionError as error:
            raise ConnectionError(
                f"url={self.url}: no server answers there ({error.__cause__ or error}); start one "
                "with `inkling serve`, or give its url="
            ) from error
        except APIStatusError as error:
            raise ConnectionError(
                f"url={self.url}: HTTP {error.status_code}, {error.message}; the key of a server "
                "is given as INKLING_API_KEY"
            ) from error

    def max_model_len(self) -> int:
        """Tokens of prompt plus answer that the server accepts."""
        cards = {card.id: card for card in self._openai.models.list().data}
        return int(cards[self.model].max_model_len)

    def _body(self, messages: Sequence[dict], options: dict[str, Any]) -> dict[str, Any]:
        effort, tools = options.pop("effort", None), options.pop("tools", ())
        body = {"model": self.model, "messages": list(messages), **GREEDY, **options}
        if tools:
            body["tools"] = list(tools)
        if effort is not None:
            extra = body.setdefault("extra_body", {})
            extra["chat_template_kwargs"] = {"reasoning_effort": effort}
        return body

    def chat(self, messages: Sequence[dict], **options: Any) -> Reply | Refusal:
        """A whole answer. Options are the API's own, plus `effort` and `tools`."""
        from openai import APIStatusError, APITimeoutError

        try:
            answer = self._openai.chat.completions.create(**self._body(messages, options))
        except APIStatusError as error:
            return Refusal(error.status_code, error.message)
        except APITimeoutError:
            told = f"no answer within timeout={self.timeout:.0f} s: the server hangs or is slow"
            return Refusal(TIMED_OUT, told)
        choice = answer.choices[0]
        message = choice.message
        tokens = choice.logprobs.content if choice.logprobs else None
        return Reply(
            getattr(message, "reasoning", None) or "",
            message.content or "",
            tuple((c.function.name, c.function.arguments) for c in message.tool_calls or ()),
            choice.finish_reason,
            None if tokens is None else sum(token.logprob for token in tokens),
            answer.usage.completion_tokens,
            answer.usage.prompt_tokens,
        )

    def stream(
        self,
        messages: Sequence[dict],
        on_first: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> Reply:
        """The same answer put together from its deltas; `on_first` is called at the first one."""
        reasoning, content, finish, deltas = "", "", "", 0
        calls: dict[int, list[str]] = {}
        for chunk in self._openai.chat.completions.create(
            **self._body(messages, options), stream=True
        ):
            if not chunk.choices:
                continue
            if not deltas:
                on_first()
            delta, deltas = chunk.choices[0].delta, deltas + 1
            reasoning += getattr(delta, "reasoning", None) or ""
            content += delta.content or ""
            finish = chunk.choices[0].finish_reason or finish
            for part in delta.tool_calls or ():
                call = calls.setdefault(part.index, ["", ""])
                call[0] += part.function.name or ""
                call[1] += part.function.arguments or ""
        pairs = tuple((name, arguments) for name, arguments in calls.values())
        return Reply(reasoning, content, pairs, finish, deltas=deltas)

    def post(self, path: str, body: Any) -> Refusal | dict[str, Any]:
        """A raw request, for what the client library would refuse to send."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            return Refusal(error.code, error.read().decode(errors="replace"))

    def metric(self, name: str) -> float:
        """Sum over labels of one Prometheus metric; 0 where the server does not export it."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=self.timeout) as response:
            text = response.read().decode()
        rows = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        return sum(float(row) for row in rows)
