"""What a gate says, and how an answer is judged. Not a gate itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from inkling_core.gates.client import Client, Refusal, Reply
from inkling_core.gates.reference import Reference
from inkling_core.nano.conversation import Answer

LOGPROB_TOLERANCE = 0.02
"""Nats by which the summed log-probability of a whole answer may differ from the reference's.

A fault that leaves the text as it was (a dropped query scale, a lost block that held nothing
asked for) still moves this sum: on inkling-nano by several times the tolerance.
"""


@dataclass(frozen=True)
class Finding:
    """One check: what was asked, whether it held, and the figures.

    left_out: it could not be asked of this server, and why; it proves nothing either way.
    """

    what: str
    ok: bool
    detail: str = ""
    left_out: bool = False


@dataclass(frozen=True)
class Request:
    """A chat request of a gate and, where it is known, its one right answer."""

    messages: Sequence[dict]
    tools: Sequence[dict] = ()
    effort: float | None = None
    answer: Answer | None = None
    max_tokens: int = 256


@dataclass(frozen=True)
class Target:
    """The server under test and what it is held to.

    Args:
        client: the wire.
        reference: dense decoder of the same checkpoint, None where it is too large.
        is_nano: whether the answers of the nano tasks can be demanded to the letter.
        chunk: tokens per step of the server, the places where prefill is cut.
    """

    client: Client
    reference: Reference | None
    is_nano: bool
    chunk: int

    def ask(self, request: Request) -> Reply | Refusal:
        """A whole greedy answer with its log-probabilities."""
        return self.client.chat(
            request.messages,
            tools=request.tools,
            effort=request.effort,
            max_tokens=request.max_tokens,
            logprobs=True,
        )

    def judge(self, what: str, request: Request, reply: Reply | Refusal) -> Finding:
        """Right answer, and the reference's text and log-probability."""
        if isinstance(reply, Refusal):
            return Finding(what, False, f"HTTP {reply.status}: {reply.message}")
        if request.answer is not None and not self._right(request.answer, reply):
            return Finding(what, False, f"wants {request.answer}, got {reply.text}")
        return self._against_reference(what, request, reply)

    def _right(self, answer: Answer, reply: Reply) -> bool:
        if answer.tool_call is not None:
            calls = [(name, json.loads(arguments)) for name, arguments in reply.tool_calls]
            return calls == [(answer.tool_call["name"], answer.tool_call["arguments"])]
        if self.is_nano:
            return (reply.reasoning, reply.content) == (answer.reasoning, answer.content)
        return answer.content in reply.content

    def _against_reference(self, what: str, request: Request, reply: Reply) -> Finding:
        if self.reference is None:
            return Finding(what, True, "no dense reference: too large")
        dense = self.reference.answer(
            request.messages, request.tools, request.effort, request.max_tokens
        )
        if dense.text != reply.text:
            return Finding(what, False, f"reference says {dense.text}, server {reply.text}")
        if dense.logprob is None or reply.logprob is None:
            return Finding(what, False, "the server sent no log-probabilities")
        gap = abs(dense.logprob - reply.logprob)
        detail = f"log-probability differs by {gap:.1e} nats over {reply.num_tokens} tokens"
        return Finding(what, gap <= LOGPROB_TOLERANCE, detail)


def same_answer(what: str, one: Reply | Refusal, other: Reply | Refusal) -> Finding:
    """Two answers to one request: equal texts, log-probabilities within the tolerance."""
    if isinstance(one, Refusal) or isinstance(other, Refusal):
        return Finding(what, False, f"{one} and {other}")
    if one.text != other.text:
        return Finding(what, False, f"{one.text} != {other.text}")
    if one.logprob is None or other.logprob is None:
        return Finding(what, False, "the server sent no log-probabilities")
    gap = abs(one.logprob - other.logprob)
    return Finding(what, gap <= LOGPROB_TOLERANCE, f"log-probability differs by {gap:.1e} nats")


def request_of(case) -> Request:
    """The request of a nano task case."""
    return Request(case.messages, case.tools, case.effort, case.answer)
