"""The gates of the core tier, by name. Each yields findings; none stops another.

Not the judging (`verdict`). Cases are held-out cases of the nano tasks, so that on inkling-nano
every answer is known to the letter.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from inkling_core.gates.client import Refusal
from inkling_core.gates.limits import limits
from inkling_core.gates.reference import Reference
from inkling_core.gates.verdict import Finding, Request, Target, request_of, same_answer
from inkling_core.nano import tasks
from inkling_core.nano.conversation import Answer
from inkling_core.nano.words import Words, mingle

SEED = 2026
TOGETHER = 16
NEEDLE_CONTEXTS = (512, 1024, 2048)
DEPTHS = 5


def smoke(target: Target) -> Iterator[Finding]:
    """One sum that anybody can check by eye, then held-out ones."""
    first = Request(({"role": "user", "content": "12+7=?"},), effort=0.0, answer=Answer("", "19"))
    yield target.judge("12+7=?", first, target.ask(first))
    for case in tasks.cases("sum", count=3, seed=SEED):
        yield _judged(target, case)
    for case in tasks.cases("sum_thinking", count=3, seed=SEED):
        yield _judged(target, case)


def tool_call(target: Target) -> Iterator[Finding]:
    """Calls with JSON arguments, with and without thinking, and answers from a tool's result."""
    for task in ("tool", "tool_thinking", "tool_result"):
        for case in tasks.cases(task, count=3, seed=SEED):
            yield _judged(target, case)


def json_schema(target: Target) -> Iterator[Finding]:
    """A demanded schema is kept, whatever the model would rather say."""
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": ["odd", "even"]}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    reply = target.client.chat(
        [{"role": "user", "content": "12+7=?"}],
        effort=0.0,
        max_tokens=64,
        response_format={"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}},
    )
    if isinstance(reply, Refusal):
        yield Finding("schema", 400 <= reply.status < 500, f"HTTP {reply.status}: {reply.message}")
        return
    try:
        value = json.loads(reply.content)
    except ValueError:
        yield Finding("schema", False, f"not JSON: {reply.content!r}")
        return
    ok = value in ({"answer": "odd"}, {"answer": "even"})
    yield Finding("schema", ok, reply.content)


def repeats(target: Target) -> Iterator[Finding]:
    """The same greedy request, five times: one text, one log-probability."""
    request = request_of(tasks.cases("two_turn", count=1, seed=SEED)[0])
    replies = [target.ask(request) for _ in range(5)]
    yield target.judge("first of five", request, replies[0])
    answers = [reply for reply in replies if not isinstance(reply, Refusal)]
    if len(answers) < len(replies):
        yield Finding("five answers", False, str(replies))
        return
    yield Finding("one text", len({answer.text for answer in answers}) == 1)
    logprobs = [answer.logprob for answer in answers if answer.logprob is not None]
    spread = max(logprobs) - min(logprobs)
    yield Finding("one log-probability", spread <= 1e-3, f"spread {spread:.1e} nats")


def streaming(target: Target) -> Iterator[Finding]:
    """Streamed deltas put together equal the whole answer, in every kind of block."""
    for task in ("sum_thinking", "tool_thinking", "tool", "needle_thinking", "copy"):
        request = request_of(tasks.cases(task, count=1, seed=SEED)[0])
        whole = target.ask(request)
        parts = target.client.stream(
            request.messages, tools=request.tools, effort=request.effort, max_tokens=256
        )
        if isinstance(whole, Refusal):
            yield Finding(task, False, whole.message)
            continue
        same = whole.text == parts.text and whole.finish == parts.finish
        detail = f"{parts.deltas} deltas"
        yield Finding(task, same, detail if same else f"{whole.text} != {parts.text}")


def needles(target: Target) -> Iterator[Finding]:
    """Facts at five depths of three contexts, and facts cut by a chunk edge."""
    longest = target.client.max_model_len()
    for context in NEEDLE_CONTEXTS:
        if context + 64 > longest:
            yield _left_out(f"{context} tokens", f"max_model_len is {longest}")
            continue
        for case in tasks.cases("needle", count=DEPTHS, context_tokens=context, seed=SEED):
            yield _judged(target, case, f"{context} tokens, depth {case.depth:.2f}")
    if target.reference is None:
        yield _left_out("chunk edges", "the checkpoint is too large for the dense reference")
    else:
        yield from _cut_facts(target, longest)


def _left_out(what: str, why: str) -> Finding:
    return Finding(what, True, why, left_out=True)


def _cut_facts(target: Target, longest: int) -> Iterator[Finding]:
    """Facts cut by the first and the second chunk edge."""
    assert target.reference is not None
    for edge in (target.chunk, 2 * target.chunk):
        if edge + 192 > longest:
            yield _left_out(f"chunk edge {edge}", f"max_model_len is {longest}")
            continue
        for into in (1, 2, 3):
            request = cut_fact(target.reference, edge, into)
            yield target.judge(
                f"chunk edge {edge}, {into} into the code", request, target.ask(request)
            )


def cut_fact(reference: Reference, edge: int, into: int) -> Request:
    """A question about a fact whose code has `into` characters before token `edge` of the prompt.

    Characters of content are tokens of the prompt, as in the tokenizers of nano and tiny.
    """
    draw = random.Random(f"{SEED}/{edge}/{into}")
    words = Words(draw, "heldout")
    key, code = words.word(), words.code()
    fact = f" the code of {key} is {code}."
    head = _length_before(reference, edge - len(fact) + 1 + len(code) - into)
    text = mingle(draw, [], [], head).ljust(head, "-") + fact
    content = f"{text} {mingle(draw, [], [], 40)} code of {key}?"
    return Request(({"role": "user", "content": content},), effort=0.0, answer=Answer("", code))


def _length_before(reference: Reference, tokens: int) -> int:
    """Characters of content that put its end at token `tokens` of the prompt (one byte a token)."""
    ids = [reference.prompt_ids(({"role": "user", "content": c},), (), 0.0) for c in "ab"]
    before = next(i for i, pair in enumerate(zip(*ids, strict=True)) if pair[0] != pair[1])
    return max(tokens - before, 1)


def prefix_hit(target: Target) -> Iterator[Finding]:
    """The same long prompt cold and from the prefix cache: one text, one log-probability."""
    name = "vllm:prefix_cache_hits_total"
    for task in ("needle", "list", "near"):
        # the context is unique to this run, so that the first answer is computed cold; a model may
        # be wrong about it, so where there is a reference, that says what the answer is
        seed = random.SystemRandom().randrange(2**31)
        request = request_of(tasks.cases(task, count=1, context_tokens=900, seed=seed)[0])
        if target.reference is not None:
            request = replace(request, answer=None)
        before = target.client.metric(name)
        cold = target.ask(request)
        between = target.client.metric(name)
        warm = target.ask(request)
        after = target.client.metric(name)
        yield target.judge(f"{task} cold", request, cold)
        yield target.judge(f"{task} from the cache", request, warm)
        yield same_answer(f"{task} cold and from the cache", cold, warm)
        hits = f"hits {between - before:.0f}, then {after - between:.0f} tokens"
        yield Finding(f"{task} was a hit", after - between > between - before, hits)


def concurrent(target: Target) -> Iterator[Finding]:
    """Sixteen at once; pairs ask for the same key, each with its own code."""
    requests = []
    for pair in range(TOGETHER // 2):
        draw = random.Random(f"{SEED}/pair/{pair}")
        words = Words(draw, "heldout")
        key = words.word()
        for code in (words.code(), words.code()):
            text = mingle(draw, [f"the code of {key} is {code}."], [draw.random()], 500)
            content = f"{text} code of {key}?"
            requests.append(
                Request(
                    ({"role": "user", "content": content},), effort=0.0, answer=Answer("", code)
                )
            )
    with ThreadPoolExecutor(TOGETHER) as pool:
        replies = list(pool.map(target.ask, requests))
    for number, (request, reply) in enumerate(zip(requests, replies, strict=True)):
        yield target.judge(f"pair {number // 2}, code {number % 2}", request, reply)


def _judged(target: Target, case: tasks.Case, what: str | None = None) -> Finding:
    request = request_of(case)
    return target.judge(what or case.task, request, target.ask(request))


GATES: dict[str, Callable[[Target], Iterator[Finding]]] = {
    "smoke": smoke,
    "tool_call": tool_call,
    "json_schema": json_schema,
    "repeats": repeats,
    "streaming": streaming,
    "needles": needles,
    "prefix_hit": prefix_hit,
    "concurrent": concurrent,
    "limits": limits,
}
