"""Rendering and strict parsing beside tml-renderers 0.2.1: token for token, message for message.

The differences that are allowed are those that decisions.toml names: numbers are not respelled
(and have no upper end), and a cut answer is refused where the owner drops its tail.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inkling_parsers.check.owner import by_value, comparable, owner_messages, respelled
from inkling_parsers.markers import Marker
from inkling_parsers.parser import parse
from inkling_parsers.render import render
from inkling_parsers.strict import ParseError

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "cases" / "owner-golden.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
RENDER_ROWS = [pytest.param(row, id=row["id"]) for row in ROWS if row.get("kind") == "render"]
PARSE_ROWS = [pytest.param(row, id=row["id"]) for row in ROWS if row.get("kind") == "parse"]


def our_ids(messages: Any, tools: Any, effort: Any, oracle: Any) -> list[int]:
    prompt = render(messages, tools, effort, add_generation_prompt=False, flavor="owner")
    return prompt.ids(oracle.tokenizer.encode_ordinary, oracle.tokens)


@pytest.mark.parametrize("row", RENDER_ROWS)
def test_recorded_prompts_token_for_token(row: dict[str, Any], oracle: Any) -> None:
    ours = our_ids(row["messages"], row["tools"], row["reasoning_effort"], oracle)
    theirs = oracle.render(row["messages"], row["tools"] or [], row["reasoning_effort"])
    assert theirs == row["expected"]["token_ids"]
    if "lossy_number" in row["tags"]:
        assert ours != theirs
        assert by_value(oracle.tokenizer.decode(ours)) == by_value(oracle.tokenizer.decode(theirs))
    else:
        assert ours == theirs


def test_generated_transcripts_render_token_for_token(oracle: Any, transcripts: Any) -> None:
    exact = 0
    for transcript in transcripts:
        asked = (transcript.messages, transcript.tools, transcript.effort)
        ours, theirs = our_ids(*asked, oracle), oracle.render(*asked)
        if ours == theirs:
            exact += 1
            continue
        left, right = oracle.tokenizer.decode(ours), oracle.tokenizer.decode(theirs)
        assert transcript.wild, (left, right)
        assert alike_but_for_numbers(left, right), (left, right)
    assert exact >= sum(not transcript.wild for transcript in transcripts) > 1500


NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def alike_but_for_numbers(left: str, right: str) -> bool:
    """The decided case: the owner's renderer respells numbers, and rounds big ones once more."""
    if NUMBER.split(left) != NUMBER.split(right):
        return False
    numbers = zip(NUMBER.findall(left), NUMBER.findall(right), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-15) for a, b in numbers)


def our_result(ids: list[int], oracle: Any) -> Any:
    try:
        parsed = parse(ids, oracle.tokens, decode=oracle.tokenizer.decode_bytes, strict=True)
    except ParseError as error:
        return error.kind
    return owner_messages(parsed)


def their_result(ids: list[int], oracle: Any) -> Any:
    try:
        return oracle.parse(ids)
    except oracle.refusal as error:
        return type(error.kind).__name__


def same_messages(ours: Any, theirs: Any) -> bool:
    """Equal messages; numbers by value."""
    if isinstance(ours, str) or isinstance(theirs, str):
        return ours == theirs
    left = comparable(respelled(theirs), theirs)
    right = comparable(ours, theirs)
    return alike_but_for_numbers(json.dumps(left), json.dumps(right))


def holds_infinity(ours: Any) -> bool:
    """The decided case: a number beyond float64 is text like any other to us, no JSON to them."""
    numbers = NUMBER.findall(json.dumps(ours))
    return any(math.isinf(float(number)) for number in numbers)


def tail_was_dropped(ours: Any, theirs: Any) -> bool:
    """The decided case: the owner's parser returns what was complete before a cut block."""
    return ours == "UnterminatedContentError" and isinstance(theirs, list)


@pytest.mark.parametrize("row", PARSE_ROWS)
def test_recorded_answers(row: dict[str, Any], oracle: Any) -> None:
    ours, theirs = our_result(row["token_ids"], oracle), their_result(row["token_ids"], oracle)
    if "tml_drops_data" in row["tags"]:
        assert tail_was_dropped(ours, theirs)
    else:
        assert same_messages(ours, theirs), (ours, theirs)


def answers(transcript: Any, oracle: Any) -> list[list[int]]:
    """Each assistant turn of a transcript as ids, as the model would have sampled it."""
    turns = [message for message in transcript.messages if message["role"] == "assistant"]
    return [our_ids([turn], None, None, oracle) for turn in turns]


def test_generated_answers_parse_alike(oracle: Any, transcripts: Any) -> None:
    seen = 0
    for transcript in transcripts:
        for ids in answers(transcript, oracle):
            ours, theirs = our_result(ids, oracle), their_result(ids, oracle)
            assert same_messages(ours, theirs), (oracle.tokenizer.decode(ids), ours, theirs)
            seen += 1
    assert seen > 1000


def test_truncated_answers_are_refused_alike(oracle: Any, transcripts: Any) -> None:
    rng = random.Random(11)
    dropped = refused = 0
    for transcript in transcripts:
        for whole in answers(transcript, oracle):
            ids = whole[: rng.randrange(1, len(whole) + 1)]
            ours, theirs = our_result(ids, oracle), their_result(ids, oracle)
            refused += isinstance(theirs, str)
            if tail_was_dropped(ours, theirs):
                dropped += 1
            else:
                assert same_messages(ours, theirs), (oracle.tokenizer.decode(ids), ours, theirs)
    assert refused > 300
    assert dropped > 100


def damaged(ids: list[int], rng: random.Random, oracle: Any) -> list[int]:
    """`ids` with one token inside a block dropped, doubled, replaced, or made special."""
    special = oracle.tokens.markers
    inside = [
        at for at in range(2, len(ids)) if ids[at] not in special and opened(ids, at, special)
    ]
    if not inside:
        return ids
    at = rng.choice(inside)
    openers = [id_ for id_, marker in special.items() if marker.value.startswith("<|content_")]
    anew = rng.choice([[], [ids[at]] * 2, [ids[rng.choice(inside)]], [rng.choice(openers)]])
    return ids[:at] + anew + ids[at + 1 :]


def opened(ids: list[int], at: int, special: Any) -> bool:
    """Whether the last special token before `at` opens a block, so that `at` is no header."""
    last = next(id_ for id_ in reversed(ids[:at]) if id_ in special)
    return special[last].value.startswith("<|content_")


def test_damaged_blocks_are_read_or_refused_alike(oracle: Any, transcripts: Any) -> None:
    """Damage inside blocks: payloads, and characters cut in half."""
    kinds = kinds_of_damage(transcripts, oracle, random.Random(12), damaged)
    assert sum(kinds.values()) - kinds["messages"] > 200
    assert {"JsonSyntaxError", "JsonIncompleteError", "Utf8ContentError"} <= kinds.keys()


PAYLOAD = (
    '{"name":"f","args":{"a":[-1.5e+3,0, true,false,null,"x\\u00e9\\ud83d\\ude00\\n\\\\",{}],'
    '"b":{"c":2.50E-1}}}'
)


def test_payloads_wrong_in_one_place_are_refused_alike(oracle: Any) -> None:
    """Cut at every character, and with every character replaced, going on or not."""
    payloads = {PAYLOAD[:at] for at in range(len(PAYLOAD) + 1)}
    for at in range(len(PAYLOAD)):
        for wrong in '{}[]",:\\-+.eE0 1tfnux\n&\x01é':
            payloads |= {PAYLOAD[:at] + wrong, PAYLOAD[:at] + wrong + PAYLOAD[at + 1 :]}
    special, kinds = oracle.tokens.ids, Counter[str]()
    for payload in sorted(payloads):
        ids = oracle.tokenizer.encode_ordinary(payload)
        ids = [special[Marker.CONTENT_INVOKE_TOOL_JSON], *ids, special[Marker.END_MESSAGE]]
        ours, theirs = our_result(ids, oracle), their_result(ids, oracle)
        kinds[theirs if isinstance(theirs, str) else "messages"] += 1
        is_decided = theirs == "JsonSyntaxError" and holds_infinity(ours)
        assert is_decided or same_messages(ours, theirs), (payload, ours, theirs)
    assert kinds["JsonSyntaxError"] > 1000 and kinds["JsonIncompleteError"] > 1000
    assert kinds["messages"] > 200


def test_damaged_structure_is_read_or_refused_alike(oracle: Any, transcripts: Any) -> None:
    """Damage anywhere: roles, headers, kinds, ends, and what they hold."""
    kinds = kinds_of_damage(transcripts, oracle, random.Random(13), broken_structure)
    assert sum(kinds.values()) - kinds["messages"] > 400
    assert {
        "UnterminatedContentError",
        "UnknownContentTypeError",
        "OtherParseError",
    } <= kinds.keys()


def kinds_of_damage(
    transcripts: Any, oracle: Any, rng: random.Random, damage: Callable[..., list[int]]
) -> Counter[str]:
    """How often the owner reads damaged answers as messages, and as which kind of error it refuses
    the rest; every one of them has to be ours as well."""
    kinds: Counter[str] = Counter()
    for transcript in transcripts:
        for whole in answers(transcript, oracle):
            ids = damage(whole, rng, oracle)
            ours, theirs = our_result(ids, oracle), their_result(ids, oracle)
            kinds[theirs if isinstance(theirs, str) else "messages"] += 1
            is_decided = tail_was_dropped(ours, theirs) or (
                theirs == "JsonSyntaxError" and holds_infinity(ours)
            )
            assert is_decided or same_messages(ours, theirs), (
                oracle.tokenizer.decode(ids),
                ours,
                theirs,
            )
    return kinds


def broken_structure(ids: list[int], rng: random.Random, oracle: Any) -> list[int]:
    """One or two tokens of `ids` dropped, doubled, swapped, replaced, or put in."""
    special, broken = list(oracle.tokens.markers), list(ids)
    for _ in range(rng.choice([1, 1, 2])):
        at, other = rng.randrange(len(broken)), rng.randrange(len(broken))
        kept = broken[at]
        anew = [[], [kept, kept], [rng.choice(special)], [rng.choice(special), kept]]
        broken[at : at + 1] = rng.choice([*anew, [rng.randrange(1000)], [broken[other]]])
        if not broken:
            return [kept]
    return broken
