"""Every row of the parser's own cases through vLLM: it says what the parser alone says.

What a row means is the business of `test_cases`; here only the way through the detokenizer, the
text cut at special ids and vLLM's objects may not change it. The shared rows join in where they are
at hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inkling_parsers.check.parser_rows import segments_of
from inkling_parsers.check.splits import prompt_segments
from inkling_parsers.markers import SpecialTokens
from inkling_parsers.parser import parse

OWN = Path(__file__).parents[1] / "data" / "answers.jsonl"
SHARED = Path(__file__).parents[5] / "shared" / "cases" / "parser-cases.jsonl"


def rows() -> list[Any]:
    lines = OWN.read_text(encoding="utf-8").split("\n")
    if SHARED.exists():
        lines += SHARED.read_text(encoding="utf-8").split("\n")
    found = [json.loads(line) for line in lines if line]
    return [row for row in found if row.get("kind") in ("whole", "stream")]


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["id"])
def test_a_row_says_the_same_served(serve, tokenizer, encode, vllm_version, row):
    prompt = prompt_segments(row.get("prompt_tail") or ["<|message_model|>"])
    choice = "none" if row.get("tool_choice") == "none" else "auto"
    ids = encode(tokenizer, segments_of(row))
    server = serve(prompt=prompt)
    request = server.request(adjust=False, tools=[TOOL], tool_choice=choice)
    request.skip_special_tokens = False
    alone = parse(
        ids,
        SpecialTokens.from_vocab(tokenizer.get_vocab()),
        decode=lambda run: tokenizer.decode(run, skip_special_tokens=False),
        prompt=server.prompt,
        tool_choice=choice,
    )
    calls = [[call.name, call.arguments] for call in alone.tool_calls]
    expected = (alone.reasoning or "", alone.content or "", calls)
    assert server.stream(request, [[token] for token in ids] or [[]]).plain() == expected
    assert server.stream(request, [ids]).plain() == expected
    if vllm_version.startswith(("0.26", "0.30")) and len(prompt) > 1:
        return  # a whole answer has no prompt there
    assert server.whole(request, [ids]).plain() == expected
