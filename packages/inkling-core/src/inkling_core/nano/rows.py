"""Training rows of inkling-nano: whole conversations as token ids with a loss mask.

What it is: the fast path that turns turns into ids, and the mix of turns in a row.
What it is not: the chat format's definition. inkling_parsers.render is that; a test holds the ids
built here to it, message for message.

Row layout: [tool declaration] [system text] [effort] then turns until the row is full, cut at its
length. The mask is 1 on what the model must say: everything after `<|message_model|>` of an answer,
its end markers included.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from inkling_core.nano import vocabulary as v
from inkling_core.nano.conversation import (
    PLAIN_EFFORTS,
    THINKING_EFFORTS,
    Answer,
    Conversation,
    Turn,
)

ROLE_IDS = {"user": v.MESSAGE_USER, "system": v.MESSAGE_SYSTEM, "tool": v.MESSAGE_TOOL}


def compact(value: object) -> str:
    """JSON with sorted keys and no spaces, the spelling the chat format uses everywhere."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def message_ids(message: dict) -> list[int]:
    """Ids of an incoming message: ROLE [author] content_text text end_message."""
    author = v.encode(message.get("name", "")) if message["role"] == "tool" else []
    text = v.encode(message["content"])
    return [ROLE_IDS[message["role"]], *author, v.CONTENT_TEXT, *text, v.END_MESSAGE]


def header_ids(tools: list[dict], system: str, effort: float | None) -> list[int]:
    """Ids before the first turn: tool declaration, system text, thinking effort."""
    ids: list[int] = []
    if tools:
        listed = [{**entry["function"], "type": "function"} for entry in tools]
        body = v.encode(compact(listed))
        author = v.encode("tool_declare")
        ids += [v.MESSAGE_SYSTEM, *author, v.CONTENT_XML, *body, v.END_MESSAGE]
    if system:
        ids += message_ids({"role": "system", "content": system})
    if effort is not None:
        level = f"{effort:.2f}".rstrip("0")
        level = level + "0" if level.endswith(".") else level
        ids += message_ids({"role": "system", "content": f"Thinking effort level: {level}"})
    return ids


def answer_ids(answer: Answer) -> list[int]:
    """Ids that the model generates after the prompt's closing `<|message_model|>`."""
    ids: list[int] = []
    if answer.reasoning:
        text = v.encode(answer.reasoning)
        ids += [v.CONTENT_THINKING, *text, v.END_MESSAGE, v.MESSAGE_MODEL]
    if answer.tool_call is not None:
        name = answer.tool_call["name"]
        body = f'{{"name":{compact(name)},"args":{compact(answer.tool_call["arguments"])}}}'
        ids += [*v.encode(name), v.INVOKE_TOOL_JSON, *v.encode(body)]
    else:
        ids += [v.CONTENT_TEXT, *v.encode(answer.content)]
    return [*ids, v.END_MESSAGE, v.END_SAMPLING]


@dataclass(frozen=True)
class Mix:
    """Shares of row kinds and turn kinds of a training phase."""

    dense: float  # rows packed with facts, hardly any filler
    repeat: float  # rows that are one long copy
    lag: float  # rows of near and far turns only
    far: float  # share of far among lag turns, where the row is long enough
    facts: float = 0.5  # share of fact questions in rows that are not dense
    sums: float = 0.55  # share of sums among the questions that need no fact and no tool
    sum_rows: float = 0.0  # rows of sums only


class Row:
    """One row being filled up to `length` tokens; `rng` alone decides its content."""

    def __init__(self, rng: random.Random, length: int, mix: Mix) -> None:
        self.rng, self.length, self.mix = rng, length, mix
        self.ids: list[int] = []
        self.mask: list[int] = []

    def build(self) -> tuple[list[int], list[int]]:
        """Returns (ids, mask), each of the row's length."""
        draw = self.rng.random()
        if draw < self.mix.lag:
            self._lag_row()
        elif draw < self.mix.lag + self.mix.repeat:
            self._repeat_row()
        elif draw < self.mix.lag + self.mix.repeat + self.mix.sum_rows:
            self._sum_row()
        else:
            self._talk_row(dense=self.rng.random() < self.mix.dense)
        return self.ids[: self.length], self.mask[: self.length]

    def _append(self, ids: list[int], said: bool) -> None:
        self.ids += ids
        self.mask += [int(said)] * len(ids)

    def _open(self, thinking: bool, with_tools: bool, bare: float) -> Conversation:
        """Starts the conversation: header, or none with probability `bare` (then no thinking)."""
        rng = self.rng
        thinking = thinking and rng.random() >= bare
        effort = rng.choice(THINKING_EFFORTS if thinking else PLAIN_EFFORTS)
        shown = effort if thinking or rng.random() >= bare else None
        talk = Conversation(rng, "train", thinking)
        if with_tools:
            talk.declare_tools(most=2 if self.length >= 512 else 1)  # a declaration is long
        system = " ".join(talk.words.words(rng.randint(1, 3))) if rng.random() < 0.05 else ""
        self._append(header_ids(talk.tools, system, shown), said=False)
        return talk

    def _add(self, turn: Turn) -> None:
        """One turn. Now and then earlier thinking is left out, as clients do; no loss there."""
        for message in turn.messages:
            self._append(message_ids(message), said=False)
        self._append([v.MESSAGE_MODEL], said=False)
        answer = turn.answer
        if answer.reasoning and self.rng.random() < 0.15:
            shortened = Answer("", answer.content, answer.tool_call)
            self._append(answer_ids(shortened), said=False)
        else:
            self._append(answer_ids(answer), said=True)

    def _lag_row(self) -> None:
        talk = self._open(thinking=False, with_tools=False, bare=0.7)
        while len(self.ids) < self.length:
            self._add(self._lag_turn(talk))

    def _lag_turn(self, talk: Conversation) -> Turn:
        long_enough = self.length >= 512
        far = long_enough and self.rng.random() < self.mix.far
        return talk.ask_far() if far else talk.ask_near()

    def _repeat_row(self) -> None:
        talk = self._open(thinking=False, with_tools=False, bare=0.7)
        room = min(self.length, 1024) - len(self.ids)
        self._add(talk.ask_copy(count=max(2, room // 13)))
        while len(self.ids) < self.length:
            self._add(talk.ask_copy())

    def _sum_row(self) -> None:
        talk = self._open(thinking=self.rng.random() < 0.4, with_tools=False, bare=0.4)
        while len(self.ids) < self.length:
            self._add(talk.ask_sum())

    def _talk_row(self, dense: bool) -> None:
        rng = self.rng
        with_tools = rng.random() < (0.2 if dense else 0.45)
        thinking = rng.random() < (0.3 if dense else 0.5)
        talk = self._open(thinking, with_tools, bare=0.6 if dense else 0.15)
        room = max(self.length - len(self.ids), 64)
        context = self._context(talk, int(room * rng.uniform(0.2, 0.75)), dense)
        previous: Answer | None = None
        while len(self.ids) < self.length:
            turn = self._turn(talk, context, dense, previous)
            self._add(turn)
            previous = turn.answer
            if previous.tool_call is not None and rng.random() < 0.8:
                turn = talk.tool_result(previous.tool_call)
                self._add(turn)
                previous = turn.answer
            left = self.length - len(self.ids)
            more = left > 120 and rng.random() < 0.15
            context = self._context(talk, int(left * rng.uniform(0.1, 0.5)), dense) if more else ""

    def _context(self, talk: Conversation, size: int, dense: bool) -> str:
        rng = self.rng
        if dense:
            count = int(size / 32 * rng.uniform(0.5, 1.0))
        else:
            count = min(round(size / 80 * rng.uniform(0.5, 1.5)), 24)
        kinds = rng.choices(("code", "list"), (0.6, 0.4), k=count)
        return talk.context(max(size, 48 * count), kinds)

    def _turn(self, talk: Conversation, context: str, dense: bool, previous: Answer | None) -> Turn:
        rng = self.rng
        if self.length >= 512 and not talk.thinking and rng.random() < 0.06 * (not dense):
            return self._lag_turn(talk)
        if previous is not None and previous.content and rng.random() < 0.06:
            return talk.ask_again(previous)
        if talk.tools and rng.random() < 0.4:
            return talk.ask_tool(context)
        if talk.facts and rng.random() < (0.8 if dense else self.mix.facts):
            return talk.ask_fact(context)
        shares = (self.mix.sums, 0.95 - self.mix.sums, 0.05)
        kind = rng.choices(("sum", "copy", "greeting"), shares)[0]
        return getattr(talk, f"ask_{kind}")(context)


def batch(seed: str, length: int, count: int, mix: Mix) -> tuple[list[list[int]], list[list[int]]]:
    """`count` rows of `length` ids and their masks; the same seed gives the same batch."""
    rng = random.Random(seed)
    built = [Row(rng, length, mix).build() for _ in range(count)]
    return [ids for ids, _ in built], [mask for _, mask in built]
