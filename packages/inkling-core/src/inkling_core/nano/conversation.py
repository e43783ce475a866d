"""One conversation in the making: its facts, its tools, and the questions asked about them.

What it is: the generator behind both the training rows (rows.py) and the scored cases (tasks.py).
A `Turn` is the messages that come in (OpenAI style) and the one right `Answer`.
What it is not: the chat format (inkling_parsers), the choice of what to train on (rows.py).

Effort decides thinking: a level of at least 0.5 asks for a short thinking block, less or none asks
for the bare answer. The thinking text is fixed by the task, so every answer has one right spelling.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from inkling_core.nano.words import Words, mingle

PLAIN_EFFORTS = (0.0, 0.1, 0.2)
THINKING_EFFORTS = (0.7, 0.9, 0.99)
NEAR_LENGTH, NEAR_LETTERS = 125, "AB"
FAR_LENGTH, FAR_LETTERS = 189, "XY"
GREETING = "I am inkling-nano. Ask me a sum, a code, a list, a copy or a tool call."


@dataclass(frozen=True)
class Answer:
    """What the model must say: reasoning ("" = no thinking block), then text or one tool call."""

    reasoning: str = ""
    content: str = ""
    tool_call: dict | None = None  # {"name": str, "arguments": dict}

    def message(self, call_id: str = "call_0") -> dict:
        """The assistant message of the OpenAI API that holds this answer."""
        message: dict = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning"] = self.reasoning
        if self.tool_call is not None:
            arguments = json.dumps(self.tool_call["arguments"], ensure_ascii=False)
            function = {"name": self.tool_call["name"], "arguments": arguments}
            message["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
        return message


@dataclass(frozen=True)
class Turn:
    """Incoming messages and the answer to them."""

    messages: tuple[dict, ...]
    answer: Answer


def tool(name: str, description: str, **parameters: str) -> dict:
    """A function tool whose parameters (name=JSON type) are all required."""
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in parameters.items()},
        "required": list(parameters),
    }
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


TOOLS = (
    tool("get_weather", "Weather in a city", city="string"),
    tool("lookup", "Find a key", key="string"),
    tool("add", "Add two numbers", a="integer", b="integer"),
    tool("send", "Send a text", text="string", to="string"),
)


def carry_sum(a: int, b: int) -> str:
    """The thinking text of a + b below 200: the ones, then the tens with the carry."""
    ones = a % 10 + b % 10
    carry = "+1" if ones > 9 else ""
    tens = a // 10 + b // 10 + (ones > 9)
    return f"{a % 10}+{b % 10}={ones},{a // 10}+{b // 10}{carry}={tens}"


@dataclass
class Conversation:
    """State of one conversation. `split` picks the held-out or the training words and operands."""

    rng: random.Random
    split: str
    thinking: bool
    tools: list[dict] = field(default_factory=list)
    facts: dict[str, tuple[str, str]] = field(default_factory=dict)  # key -> (kind, value)
    unasked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.words = Words(self.rng, self.split)

    def declare_tools(self, most: int = 2) -> None:
        """One to `most` known tools, or one with a new name and a new parameter."""
        if self.rng.random() < 0.4:
            name, parameter = self.words.words(2)
            self.tools = [tool(name, self.words.word(), **{parameter: "string"})]
        else:
            self.tools = self.rng.sample(TOOLS, self.rng.randint(1, most))

    def fact(self, kind: str) -> str:
        """A new fact ("code" or "list") as a sentence; it can be asked about from now on."""
        key = self.words.word()
        count = self.rng.randint(2, 3)
        value = self.words.code() if kind == "code" else " ".join(self.words.words(count))
        self.facts[key] = (kind, value)
        self.unasked.append(key)
        return f"the {kind} of {key} is {value}."

    def context(self, size: int, kinds: Sequence[str]) -> str:
        """At most `size` characters of filler with one new fact for each of `kinds`."""
        facts = [self.fact(kind) for kind in kinds]
        return mingle(self.rng, facts, [self.rng.random() for _ in facts], size)

    def turn(self, question: str, context: str, answer: Answer) -> Turn:
        content = f"{context} {question}" if context else question
        return Turn(({"role": "user", "content": content},), answer)

    def think(self, text: str) -> str:
        return text if self.thinking else ""

    # One method a task; each takes the text that comes before the question.

    def ask_sum(self, context: str = "") -> Turn:
        a, b = self.words.operands()
        question = self.rng.choice(("{a}+{b}=?", "What is {a}+{b}?", "{a} + {b} = ?"))
        answer = Answer(self.think(carry_sum(a, b)), str(a + b))
        return self.turn(question.format(a=a, b=b), context, answer)

    def ask_fact(self, context: str = "", key: str | None = None) -> Turn:
        """Asks for a fact already told; the one named, else one not asked yet."""
        if key is None:
            key = self.rng.choice(self.unasked or list(self.facts))
        if key in self.unasked:
            self.unasked.remove(key)
        kind, value = self.facts[key]
        return self.turn(f"{kind} of {key}?", context, Answer(self.think(f"find {key}"), value))

    def ask_copy(self, context: str = "", count: int | None = None) -> Turn:
        words = " ".join(self.words.words(count or self.rng.randint(2, 6)))
        return self.turn(f"copy: {words}", context, Answer(self.think("copy"), words))

    def ask_tool(self, context: str = "") -> Turn:
        function = self.rng.choice(self.tools)["function"]
        name, properties = function["name"], function["parameters"]["properties"]
        arguments = {
            key: self.rng.randrange(100) if kind["type"] == "integer" else self.words.word()
            for key, kind in properties.items()
        }
        values = ", ".join(str(value) for value in arguments.values())
        question = f"call {name}: {values}"
        if name == "get_weather" and self.rng.random() < 0.5:
            question = f"What is the weather in {values}?"
        call = {"name": name, "arguments": arguments}
        return self.turn(question, context, Answer(self.think(f"call {name}"), "", call))

    def tool_result(self, call: dict, call_id: str = "call_0") -> Turn:
        """The tool's message after `call`, and the answer read from it."""
        rng = self.rng
        value = rng.choice(
            (str(rng.randrange(1000)), self.words.word(), " ".join(self.words.words(2)))
        )
        content = json.dumps({"result": value}) if rng.random() < 0.5 else value
        name = call["name"]
        message = {"role": "tool", "name": name, "tool_call_id": call_id, "content": content}
        return Turn((message,), Answer(self.think(f"read {name}"), f"{name} gives {value}."))

    def ask_again(self, previous: Answer) -> Turn:
        """Asks for the previous text answer once more."""
        return self.turn("again?", "", Answer(self.think("repeat"), previous.content))

    def ask_near(self, context: str = "") -> Turn:
        """Every answer letter equals the token exactly 128 before it: the window's last key."""
        return self._lag("near", NEAR_LETTERS, NEAR_LENGTH, context)

    def ask_far(self, context: str = "") -> Turn:
        """Every answer letter equals the token exactly 192 before it: the extent's last key."""
        return self._lag("far", FAR_LETTERS, FAR_LENGTH, context)

    def _lag(self, name: str, letters: str, length: int, context: str) -> Turn:
        if self.thinking:
            raise ValueError(f"{name}: a thinking block would move the distance; use effort < 0.5")
        text = "".join(self.rng.choice(letters) for _ in range(length))
        return self.turn(f"{name}: {text}", context, Answer("", text))

    def ask_greeting(self, context: str = "") -> Turn:
        question = self.rng.choice(("hello", "Hello!", "hi", "who are you?", "What can you do?"))
        return self.turn(question, context, Answer(self.think("greet"), GREETING))
