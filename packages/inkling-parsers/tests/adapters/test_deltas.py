"""Streaming deltas are made without validation: nothing may tell them from validated ones."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from inkling_parsers.adapters.answer import AnswerDelta, CallDelta

START = CallDelta(0, "call_1", "f", "")
MORE = CallDelta(1, None, None, '"a')
NEWS = {
    "reasoning": AnswerDelta(reasoning="hm"),
    "content": AnswerDelta(content="hi"),
    "call": AnswerDelta(calls=[START]),
    "arguments": AnswerDelta(calls=[MORE]),
    "all": AnswerDelta("hm", "hi", [START, MORE]),
}


def validated(news: AnswerDelta) -> Any:
    """The same by way of pydantic, only what is said being set."""
    from inkling_parsers.adapters.vllm.protocol import DeltaMessage

    calls = []
    for call in news.calls:
        entry: dict[str, Any] = {"index": call.index, "function": {"arguments": call.arguments}}
        if call.id is not None:
            entry.update(id=call.id, type="function")
            entry["function"]["name"] = call.name
        calls.append(entry)
    said = {"reasoning": news.reasoning, "content": news.content, "tool_calls": calls}
    return DeltaMessage.model_validate({key: value for key, value in said.items() if value})


@pytest.mark.parametrize("name", NEWS)
def test_a_delta_is_what_validation_makes(name: str) -> None:
    from inkling_parsers.adapters.vllm.protocol import delta_message

    made, real = delta_message(NEWS[name]), validated(NEWS[name])
    assert made is not None and made == real
    assert states(made) == states(real)
    assert made.model_dump_json() == real.model_dump_json()
    assert made.model_dump(exclude_unset=True) == real.model_dump(exclude_unset=True)
    assert states(copy.deepcopy(made)) == states(pickle.loads(pickle.dumps(made))) == states(real)


def states(message: Any) -> list[Any]:
    """All that pydantic keeps of a message and of what is in it."""
    calls = message.tool_calls
    return [each.__getstate__() for each in (message, *calls, *(call.function for call in calls))]


def test_arguments_alone_are_the_same_delta() -> None:
    from inkling_parsers.adapters.vllm.protocol import arguments_message, delta_message

    assert states(arguments_message(1, '"a')) == states(delta_message(NEWS["arguments"]))


def test_deltas_share_nothing() -> None:
    from inkling_parsers.adapters.vllm.protocol import delta_message

    first, second = (delta_message(NEWS["content"]) for _ in range(2))
    assert first is not None and second is not None
    first.role = "assistant"
    first.tool_calls.append("x")
    assert (second.role, second.tool_calls, second.model_fields_set) == (None, [], {"content"})


def test_validation_is_left_out() -> None:
    """In every version that is tested; with another pydantic it may come back, and only cost."""
    from inkling_parsers.adapters.vllm.protocol import arguments_message

    message = arguments_message(0, b"no text")  # pyright: ignore[reportArgumentType] - on purpose
    assert message.tool_calls[0].function.arguments == b"no text"


def test_a_pydantic_that_keeps_its_state_elsewhere_validates() -> None:
    from pydantic import BaseModel, ValidationError

    from inkling_parsers.adapters.vllm.unchecked import maker

    class Remembers(BaseModel):
        """Its own constructor adds state that a maker does not know of."""

        text: str = ""

        def __init__(self, **fields: Any) -> None:
            super().__init__(**fields)
            object.__setattr__(self, "__pydantic_private__", {"seen": 1})

    with pytest.raises(ValidationError):
        maker(Remembers, text="a")({"text": 5})
