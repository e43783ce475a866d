"""One answer as a server streams it, text with ids: the same news under every split and lag."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from inkling_parsers.adapters.answer import AnswerDelta, CallDelta
from inkling_parsers.adapters.answer_stream import AnswerStream, Calls, Tokens
from inkling_parsers.markers import Marker, SpecialTokens

# A machine that is busy elsewhere is no fault of the code under test.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

SPECIAL = SpecialTokens.from_vocab({marker.value: 1000 + at for at, marker in enumerate(Marker)})
PAYLOAD = '{"name":"f","args":{"n":"5"}}'
ANSWER: list[str | Marker] = [
    Marker.CONTENT_THINKING, "a <|end_message|> typed", Marker.END_MESSAGE, Marker.MESSAGE_MODEL,
    Marker.CONTENT_TEXT, "b <|", Marker.END_MESSAGE, Marker.MESSAGE_MODEL, "f",
    Marker.CONTENT_INVOKE_TOOL_JSON, PAYLOAD, Marker.END_MESSAGE,
    Marker.CONTENT_MODEL_END_SAMPLING,
]  # fmt: skip
TOOLS = [{"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}]


def decode(ids: list[int]) -> str:
    names = SPECIAL.names
    return "".join(names[token] if token in names else chr(token) for token in ids)


TOKENS = Tokens(SPECIAL, SPECIAL.names, decode)


def ids_of(items: list[str | Marker]) -> list[int]:
    """One id per character, one per marker; note that a Marker is a string too."""
    return [
        token
        for item in items
        for token in ([SPECIAL.ids[item]] if isinstance(item, Marker) else map(ord, item))
    ]


def run(stream: AnswerStream, deltas: list[tuple[str, list[int]]]) -> AnswerDelta:
    news = AnswerDelta()
    for text, ids in deltas:
        news = news.joined(stream.feed(text, ids))
    return news.joined(stream.finish())


def plain(news: AnswerDelta) -> tuple[str, str, list[tuple[str | None, str]]]:
    return news.reasoning, news.content, [(call.name, call.arguments) for call in news.calls]


@UNHURRIED
@given(st.lists(st.integers(0, 200), max_size=15), st.integers(0, 40))
def test_any_split_and_lag_gives_what_the_whole_gives(cuts: list[int], lag: int):
    """Text comes `lag` characters late, as with a stop string of that length."""
    ids = ids_of(ANSWER)
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    text, sent, deltas = decode(ids), 0, []
    for begin, end in itertools.pairwise(edges):
        upto = len(text) if end == len(ids) else max(sent, len(decode(ids[:end])) - lag)
        deltas.append((text[sent:upto], ids[begin:end]))
        sent = upto
    whole = run(AnswerStream(TOKENS), [(text, ids)])
    assert plain(run(AnswerStream(TOKENS), deltas)) == plain(whole)
    assert plain(whole) == ("a <|end_message|> typed", "b <|", [("f", '{"n":"5"}')])


TRICKY = st.lists(
    st.sampled_from(
        [
            *'{}[]",:&\\',
            '"a":"b',
            "&quot;",
            "&qu",
            "ot;",
            "\\\\",
            "\\u00",
            "e9",
            "word ",
            "\n",
            "null",
        ]
    ),
    max_size=25,
)


def run_quickly(deltas: list[tuple[str, list[int]]]) -> tuple[AnswerDelta, int]:
    """As a server that asks first whether a delta only goes on with a call; how often it did."""
    stream, news, quick = AnswerStream(TOKENS), AnswerDelta(), 0
    for text, ids in deltas:
        index = stream.goes_on_with(text, ids)
        if index is None:
            news = news.joined(stream.feed(text, ids))
        else:
            news = news.joined(AnswerDelta(calls=[CallDelta(index, None, None, text)]))
            quick += 1
    return news.joined(stream.finish()), quick


@UNHURRIED
@given(
    TRICKY, st.sampled_from(['{"name":"f","args":{"s":"', '{"args":{"s":"', '{"name":"f","x":"'])
)
def test_deltas_that_only_go_on_are_told_without_being_fed(pieces: list[str], opening: str):
    items = [Marker.CONTENT_INVOKE_TOOL_JSON, opening, *pieces, Marker.END_MESSAGE]
    deltas = [(decode(ids_of([item])), ids_of([item])) for item in items]
    news, _ = run_quickly(deltas)
    whole = run(AnswerStream(TOKENS), [(decode(ids_of(items)), ids_of(items))])
    assert plain(news) == plain(whole)


def test_most_deltas_of_a_call_only_go_on():
    text = '{"name":"f","args":{"s":"' + "w" * 100 + '"}}'
    items = [Marker.CONTENT_INVOKE_TOOL_JSON, *text, Marker.END_MESSAGE]
    news, quick = run_quickly([(decode(ids_of([item])), ids_of([item])) for item in items])
    assert plain(news)[2] == [("f", '{"s":"' + "w" * 100 + '"}')]
    assert quick == len("s") + 100  # names of members go out as they come, too


@pytest.mark.parametrize(
    ("calls", "content", "sent"),
    [
        (Calls.SENT, "b <|", [("f", '{"n":"5"}')]),
        (Calls.SHOWN, "b <|" + PAYLOAD, []),
        (Calls.DROPPED, "b <|", []),
    ],
)
def test_what_becomes_of_a_call(calls: Calls, content: str, sent: list[tuple[str, str]]):
    ids = ids_of(ANSWER)
    news = run(AnswerStream(TOKENS, calls=calls), [(decode(ids), ids)])
    assert plain(news)[1:] == (content, sent)


def test_without_ids_text_alone_is_read():
    """Then what is typed counts as the marker: the thought ends early."""
    news = run(AnswerStream(TOKENS), [(letter, []) for letter in decode(ids_of(ANSWER))])
    assert (news.reasoning, news.calls[0].name) == ("a ", "f")


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ([Marker.MESSAGE_MODEL, Marker.CONTENT_THINKING], ("go on", "")),
        ([Marker.MESSAGE_MODEL, Marker.CONTENT_THINKING, "so "], ("go on", "")),
        ([Marker.MESSAGE_MODEL, Marker.CONTENT_TEXT], ("", "go on")),
        ([Marker.MESSAGE_USER, Marker.CONTENT_THINKING, Marker.END_MESSAGE,
          Marker.MESSAGE_MODEL], ("", "go on")),
        ([], ("", "go on")),
    ],
)  # fmt: skip
def test_a_prompt_says_which_block_is_open(prompt, expected, has_ids: bool):
    ids = ids_of(["go on", Marker.END_MESSAGE])
    stream = AnswerStream(TOKENS, ids_of(prompt))
    news = run(stream, [(decode(ids), ids if has_ids else [])])
    assert (news.reasoning, news.content) == expected


def test_coercion_gives_the_same_streamed_and_whole():
    ids = ids_of(ANSWER)
    deltas = [(decode([token]), [token]) for token in ids]
    streamed = run(AnswerStream(TOKENS, coerce_to=TOOLS), deltas)
    whole = run(AnswerStream(TOKENS, coerce_to=TOOLS), [(decode(ids), ids)])
    assert plain(streamed) == plain(whole)
    assert plain(whole)[2] == [("f", '{"n": 5}')]


def test_no_news_is_false():
    assert not AnswerStream(TOKENS).feed("", [])
    assert not AnswerStream(TOKENS).finish()
