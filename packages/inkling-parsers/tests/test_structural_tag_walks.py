"""Random answers sampled under the compiled grammar, read by the parser and by a schema validator.

Needs xgrammar and jsonschema (both come with vLLM); skipped with that reason elsewhere.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from inkling_parsers.events import Termination
from inkling_parsers.markers import Marker, SpecialTokens
from inkling_parsers.parser import parse
from inkling_parsers.result import Parsed
from inkling_parsers.structural_tag import structural_tag

xgrammar = pytest.importorskip("xgrammar", reason="xgrammar is not installed; it comes with vLLM")
jsonschema = pytest.importorskip(
    "jsonschema", reason="jsonschema is not installed; it comes with vLLM"
)

# A byte-level vocabulary: bytes, tokens that straddle the grammar's edges, characters cut and
# whole, and the special tokens, the published slot names among them. Four lead bytes are left out:
# after them the grammar library lets bytes into strings that are not UTF-8 (surrogates, overlong).
PIECES = [
    *("get", "_weather", "now", '{"', 'name":"', '","', 'args":{', '{"name":', '"}', "}}", '":'),
    *("<|", "|>", "<|end", "_message|>", "\\u00", "\\n", " " * 4, "true", "false", "null", "12"),
    *("city", "Łódź", "日本", "🌍", "-1.5e3", "[[", "]]", "[]", "{}", '":"', '","args":{"'),
]
SPECIAL_NAMES = [
    *(marker.value for marker in Marker if marker is not Marker.UNNAMED),
    *(f"<|unused_{slot}|>" for slot in (199998, 200007, 200024, 200025)),
]
BYTES = [bytes([byte]) for byte in range(256) if byte not in b"\xe0\xed\xf0\xf4"]
ORDINARY = BYTES + [piece.encode() for piece in PIECES]
VOCABULARY = ORDINARY + [name.encode() for name in SPECIAL_NAMES]
TOKENS = SpecialTokens.from_vocab(
    {name: len(ORDINARY) + index for index, name in enumerate(SPECIAL_NAMES)}
)
END = TOKENS.ids[Marker.END_MESSAGE]
CLOSERS = {END, *(VOCABULARY.index(text) for text in (b"}", b"]", b'"', b'"}', b"}}", b"]]"))}
PATIENCE = 120  # steps after which a walk takes the way out where it sees one
LIMIT = 4000

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "maxLength": 12},
        "unit": {"enum": ["c", "f"]},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 7}},
        "where": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}},
            "required": ["lat"],
            "additionalProperties": False,
        },
        "note": {"type": "string"},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
ANYTHING = {"type": "object"}
CODE = {
    "type": "object",
    "properties": {"code": {"type": "string", "pattern": "^[A-Z]{3}[0-9]*$"}},
    "required": ["code"],
    "additionalProperties": False,
}
SCHEMAS = {"get_weather": WEATHER, "now": ANYTHING, 'od"d 名': CODE}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]


@pytest.fixture(scope="module")
def vocabulary() -> Any:
    return xgrammar.TokenizerInfo(
        VOCABULARY, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=list(TOKENS.stop_ids)
    )


@pytest.fixture(scope="module")
def compiler(vocabulary: Any) -> Any:
    return xgrammar.GrammarCompiler(vocabulary, max_threads=1)


def allowed_ids(matcher: Any, mask: Any) -> list[int]:
    matcher.fill_next_token_bitmask(mask)
    words = [word & 0xFFFFFFFF for word in mask[0].tolist()]
    return [id_ for id_ in range(len(VOCABULARY)) if words[id_ >> 5] >> (id_ & 31) & 1]


def walk(compiled: Any, rng: random.Random) -> list[int]:
    """One sampled answer, its stop token included."""
    matcher = xgrammar.GrammarMatcher(compiled)
    mask = xgrammar.allocate_token_bitmask(1, len(VOCABULARY))
    ids: list[int] = []
    while not matcher.is_terminated():
        choices = allowed_ids(matcher, mask)
        assert choices, f"dead end after {ids[-20:]}"
        ways_out = [id_ for id_ in choices if id_ in TOKENS.stop_ids]
        if not ways_out and len(ids) > PATIENCE:
            ways_out = [id_ for id_ in choices if id_ in CLOSERS]
        chosen = rng.choice(ways_out or choices)
        assert matcher.accept_token(chosen)
        ids.append(chosen)
        assert len(ids) < LIMIT, "the walk does not end"
    return ids


def read(ids: list[int]) -> Parsed:
    parsed = parse(ids, TOKENS, decode=lambda run: b"".join(VOCABULARY[id_] for id_ in run))
    assert parsed.diagnostics == ()
    assert parsed.termination is Termination.STOP_TOKEN
    return parsed


def check_calls(parsed: Parsed, demanded: Callable[[str], bool], strict: bool) -> None:
    for call in parsed.tool_calls:
        assert demanded(call.name)
        assert call.valid
        arguments = json.loads(call.arguments)
        jsonschema.validate(arguments, SCHEMAS[call.name] if strict else ANYTHING)


@pytest.mark.parametrize("reasoning", [False, True], ids=["direct", "thinking"])
@pytest.mark.parametrize("strict", [False, True], ids=["loose", "strict"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_named_tool_is_called_once_with_valid_arguments(
    compiler: Any, name: str, strict: bool, reasoning: bool
) -> None:
    choice = {"type": "function", "function": {"name": name}}
    tag = structural_tag(TOOLS, choice, reasoning=reasoning, strict=strict, tokens=TOKENS)
    compiled = compiler.compile_structural_tag(tag)
    rng = random.Random(f"{name} {strict} {reasoning}")
    thoughts = 0
    for _ in range(50):
        parsed = read(walk(compiled, rng))
        check_calls(parsed, lambda called: called == name, strict)
        assert len(parsed.tool_calls) == 1
        assert parsed.content is None
        thoughts += parsed.reasoning is not None
    assert (thoughts > 0) == reasoning


@pytest.mark.parametrize("parallel", [False, True], ids=["one", "several"])
@pytest.mark.parametrize("strict", [False, True], ids=["loose", "strict"])
def test_required_calls_some_tool(compiler: Any, strict: bool, parallel: bool) -> None:
    tag = structural_tag(
        TOOLS, "required", reasoning=True, strict=strict, parallel=parallel, tokens=TOKENS
    )
    compiled = compiler.compile_structural_tag(tag)
    rng = random.Random(f"{strict} {parallel}")
    called = set()
    for _ in range(75):
        parsed = read(walk(compiled, rng))
        check_calls(parsed, SCHEMAS.__contains__, strict)
        assert parsed.content is None
        assert len(parsed.tool_calls) >= 1 if parallel else len(parsed.tool_calls) == 1
        called |= {call.name for call in parsed.tool_calls}
    assert called == set(SCHEMAS)


def test_auto_may_answer_or_call(compiler: Any) -> None:
    tag = structural_tag(TOOLS, "auto", reasoning=True, strict=True, tokens=TOKENS)
    compiled = compiler.compile_structural_tag(tag)
    rng = random.Random(7)
    kinds = set()
    for _ in range(100):
        parsed = read(walk(compiled, rng))
        check_calls(parsed, SCHEMAS.__contains__, strict=True)
        kinds |= {"call"} if parsed.tool_calls else set()
        kinds |= {"text"} if parsed.content is not None else set()
        kinds |= {"thinking"} if parsed.reasoning is not None else set()
    assert kinds == {"call", "text", "thinking"}


def test_grammars_that_share_a_compiler_do_not_mix(compiler: Any, vocabulary: Any) -> None:
    """xgrammar 0.2.8 shares masks between rules of one shape that differ in their tokens."""
    masks = [xgrammar.allocate_token_bitmask(1, len(VOCABULARY)) for _ in range(2)]
    rng = random.Random(3)
    for tag in every_tag():
        shared = xgrammar.GrammarMatcher(compiler.compile_structural_tag(tag))
        fresh = xgrammar.GrammarCompiler(vocabulary, max_threads=1, cache_enabled=False)
        own = xgrammar.GrammarMatcher(fresh.compile_structural_tag(tag))
        for step in range(100):
            choices = allowed_ids(own, masks[0])
            assert allowed_ids(shared, masks[1]) == choices
            closers = [id_ for id_ in choices if id_ in CLOSERS] if step > 40 else []
            chosen = rng.choice(closers or choices)
            assert shared.accept_token(chosen) and own.accept_token(chosen)
            if own.is_terminated():
                break


def every_tag() -> list[Any]:
    """Forced calls first: what they leave in the compiler is what an answer must not find."""
    named = {"type": "function", "function": {"name": "now"}}
    return [
        structural_tag(
            TOOLS, choice, strict=True, reasoning=reasoning, role_open=role_open, tokens=TOKENS
        )
        for choice in ("required", named, "auto")
        for reasoning, role_open in itertools.product((False, True), repeat=2)
    ]


def test_without_the_vocabulary_the_markers_are_found_by_spelling(compiler: Any) -> None:
    tag = structural_tag(TOOLS, "required", reasoning=False, strict=True)
    matcher = xgrammar.GrammarMatcher(compiler.compile_structural_tag(tag))
    by_id = structural_tag(TOOLS, "required", reasoning=False, strict=True, tokens=TOKENS)
    same = xgrammar.GrammarMatcher(compiler.compile_structural_tag(by_id))
    mask = xgrammar.allocate_token_bitmask(1, len(VOCABULARY))
    assert allowed_ids(matcher, mask) == allowed_ids(same, mask)


def test_text_that_spells_a_marker_does_not_stand_for_it(compiler: Any) -> None:
    choice = {"type": "function", "function": {"name": "now"}}
    tag = structural_tag(TOOLS, choice, reasoning=False, strict=False, tokens=TOKENS)
    matcher = xgrammar.GrammarMatcher(compiler.compile_structural_tag(tag))
    assert matcher.accept_string("now")
    assert not matcher.accept_string("<|content_invoke_tool_json|>")
    assert matcher.accept_token(TOKENS.ids[Marker.CONTENT_INVOKE_TOOL_JSON])
