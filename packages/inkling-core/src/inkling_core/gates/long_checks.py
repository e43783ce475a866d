"""The gates of the long tier, by name: long contexts, several at once, streams beside them, a soak.

Every length is the one for a context of 262,144 tokens, scaled to the served `max_model_len`
(`Lengths`), so that a small model runs the same gates. Not the judging (`verdict`). Up to
`DENSE_LIMIT` tokens an answer is held to the dense reference as in the core tier; beyond, to the
one right answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from inkling_core.gates.client import Refusal, Reply
from inkling_core.gates.long_prefill import SHORTS, Figures, measure
from inkling_core.gates.verdict import Finding, Request, Target, request_of, same_answer
from inkling_core.nano import tasks
from inkling_core.nano.conversation import Answer
from inkling_core.nano.words import Words, mingle

SEED = 2027
FULL = 262_144  # the context that the lengths below are for
NEEDLES, DEPTHS = (200_000, 250_000), (0.1, 0.5, 0.9)
RESIDENTS, RESIDENT = 3, 100_000
LONG = 250_000
COPIED = 32  # words
KEPT, WAIT = 0.6, 0.25  # of the streams' rate; a short request's part of the long one's wait
SOAK, DISTINCT, TOGETHER = 200, 20, 16
DENSE_LIMIT = 2048  # tokens; one answer at 4,000 takes the reference ten seconds


@dataclass(frozen=True)
class Lengths:
    """Tokens scaled to the server, and characters of filler that make them.

    Args:
        longest: max_model_len.
        characters: of filler text per token, as the server counts.
    """

    longest: int
    characters: float

    @classmethod
    def of(cls, target: Target) -> Lengths:
        """Asks the server twice. RuntimeError: it refuses even that."""
        longest = target.client.max_model_len()
        # LONG leaves 4 % of the context, so the sample has to be large to be that exact
        sizes = (16, max(400, longest // 4))
        used = []
        for size in sizes:
            text = mingle(random.Random(SEED), [], [], size).ljust(size, "-")
            messages = [{"role": "user", "content": text}]
            reply = target.client.chat(messages, effort=0.0, max_tokens=1)
            if isinstance(reply, Refusal):
                raise RuntimeError(f"HTTP {reply.status}: {reply.message}")
            used.append(reply.prompt_tokens)
        characters = (sizes[1] - sizes[0]) / max(1, used[1] - used[0])
        return cls(longest, characters)

    def tokens(self, length: int) -> int:
        """`length` tokens of the full context, scaled."""
        return length * self.longest // FULL

    def text(
        self, draw: random.Random, length: int, facts: list[str], depths: Sequence[float]
    ) -> str:
        """Filler with facts in it, about as many tokens as `length` scales to."""
        return mingle(draw, facts, list(depths), round(self.tokens(length) * self.characters))


def opened(text: str, draw: random.Random) -> str:
    """`text` behind three invented words, so that only who drew the same has it in the cache.

    The rest stays as it is: a model may be wrong about one text in a hundred, and a text drawn anew
    in every run would make that a matter of luck.
    """
    return f"{' '.join(Words(draw, 'heldout').words(3))} {text}"


def long_needles(target: Target) -> Iterator[Finding]:
    """A fact at three depths of two contexts, the whole server to itself."""
    lengths = Lengths.of(target)
    for length in NEEDLES:
        for depth in DEPTHS:
            draw = random.Random(f"{SEED}/needle/{length}/{depth}")
            words = Words(draw, "heldout")
            key, code = words.word(), words.code()
            text = lengths.text(draw, length, [f"the code of {key} is {code}."], [depth])
            request = asking(target, text, key, code)
            what = f"{lengths.tokens(length)} tokens, depth {depth}"
            yield judged(target, what, request, target.ask(request))


def far_copy(target: Target) -> Iterator[Finding]:
    """32 words, told at the far end of the context, verbatim.

    inkling-nano repeats lists of up to three words, so it is asked for eleven lists one by one.
    """
    lengths = Lengths.of(target)
    draw = random.Random(f"{SEED}/copy")
    words = Words(draw, "heldout")
    size = 3 if target.is_nano else COPIED
    keys = words.words(-(-COPIED // size))
    copied = words.words(COPIED)
    values = [" ".join(copied[i * size : (i + 1) * size]) for i in range(len(keys))]
    facts = [f"the list of {key} is {value}." for key, value in zip(keys, values, strict=True)]
    text = lengths.text(draw, LONG, facts, [0.0] * len(facts))
    right = 0
    for key, value in zip(keys, values, strict=True):
        request = asking(target, text, key, value, kind="list")
        found = judged(target, f"list of {key}", request, target.ask(request))
        right += len(value.split()) if found.ok else 0
        if not found.ok:
            yield found
    where = f"{lengths.tokens(LONG)} tokens from the end"
    yield Finding(f"{COPIED} words", right == COPIED, f"{right} of {COPIED}, {where}")


def residents(target: Target) -> Iterator[Finding]:
    """Three long prompts at once, one key with a code in each; asked again, all are still there."""
    lengths = Lengths.of(target)
    asked: list[tuple[Request, Request]] = []
    for number in range(RESIDENTS):
        draw = random.Random(f"{SEED}/resident/{number}")
        keys = Words(random.Random(SEED), "heldout").words(2)  # the same in each
        codes = [Words(draw, "heldout").code() for _ in keys]
        facts = [f"the code of {k} is {c}." for k, c in zip(keys, codes, strict=True)]
        text = opened(lengths.text(draw, RESIDENT, facts, [0.3, 0.7]), random.SystemRandom())
        first, second = (asking(target, text, k, c) for k, c in zip(keys, codes, strict=True))
        asked.append((first, second))
    names = ("vllm:prefix_cache_hits_total", "vllm:num_preemptions_total")
    before = [target.client.metric(name) for name in names]
    for round_, when in enumerate(("at once", "again")):
        requests = [pair[round_] for pair in asked]
        with ThreadPoolExecutor(RESIDENTS) as pool:
            replies = list(pool.map(target.ask, requests))
        for number, (request, reply) in enumerate(zip(requests, replies, strict=True)):
            yield judged(target, f"prompt {number} {when}", request, reply)
    hits, preempted = (target.client.metric(n) - was for n, was in zip(names, before, strict=True))
    least = round(0.9 * RESIDENTS * lengths.tokens(RESIDENT))
    detail = f"{hits:.0f} tokens from the cache, at least {least} wanted"
    yield Finding("all resident", hits >= least, detail)
    yield Finding("no preemption", preempted == 0, f"{preempted:.0f} preemptions")


def beside_streams(target: Target) -> Iterator[Finding]:
    """Eight streams keep their rate and short requests start while a long prompt prefills."""
    lengths = Lengths.of(target)
    if lengths.tokens(LONG) < 4 * target.chunk:
        why = f"{lengths.tokens(LONG)} tokens are fewer than four steps of chunk={target.chunk}"
        yield Finding("streams", True, why, left_out=True)
        return
    long, shorts = beside(target, lengths, random.SystemRandom())
    yield from verdict(measure(target, long, shorts), target, [long, *shorts])


def beside(target: Target, lengths: Lengths, draw: random.Random) -> tuple[Request, list[Request]]:
    """A long prompt, cached where `draw` has opened it before, and short requests."""
    content = random.Random(f"{SEED}/beside")
    words = Words(content, "heldout")
    key, code = words.word(), words.code()
    text = lengths.text(content, LONG, [f"the code of {key} is {code}."], [0.5])
    shorts = [request_of(one) for one in tasks.cases("sum_thinking", count=SHORTS, seed=SEED)]
    return asking(target, opened(text, draw), key, code), shorts


def verdict(figures: Figures, target: Target, requests: Sequence[Request]) -> Iterator[Finding]:
    """What the figures of `beside_streams` have to be, and the answers."""
    kept = f"{figures.kept:.2f} of their rate, at least {KEPT} wanted"
    yield Finding("streams keep", figures.kept >= KEPT, kept)
    waits = ", ".join(f"{wait:.2f}" for wait in figures.waits)
    detail = f"{waits} s beside {figures.seconds:.2f} s: {figures.worst_wait:.2f}, at most {WAIT}"
    yield Finding("short requests start", figures.worst_wait <= WAIT, detail)
    for number, (request, reply) in enumerate(zip(requests, figures.answers, strict=True)):
        # streamed answers carry no log-probabilities: the text is judged
        plain = replace(target, reference=None)
        what = f"short request {number}" if number else "the long prompt"
        yield plain.judge(what, request, reply)


def soak(target: Target) -> Iterator[Finding]:
    """200 requests, 16 at a time: twenty different ones, each with one text and one
    log-probability however often it comes and whoever is beside it."""
    kinds = ("needle", "list", "copy", "sum", "tool_thinking")
    cases = [c for k in kinds for c in tasks.cases(k, count=DISTINCT // len(kinds), seed=SEED)]
    requests = [request_of(case) for case in cases]
    order = [i % DISTINCT for i in range(SOAK)]
    random.Random(SEED).shuffle(order)
    with ThreadPoolExecutor(TOGETHER) as pool:
        replies = list(pool.map(lambda i: target.ask(requests[i]), order))
    first: dict[int, Reply | Refusal] = {}
    for i, reply in zip(order, replies, strict=True):
        if i not in first:
            first[i] = reply
            yield judged(target, f"{cases[i].task} {i}", requests[i], reply)
        else:
            yield same_answer(f"{cases[i].task} {i} again", first[i], reply)


def asking(target: Target, text: str, key: str, value: str, kind: str = "code") -> Request:
    """The question about a fact of `text`: inkling-nano's own words, plain ones for others."""
    question = f"{kind} of {key}?"
    if not target.is_nano:
        question = f"What is the {kind} of {key}? Answer with it alone, exactly as it was told."
    content = ({"role": "user", "content": f"{text} {question}"},)
    room = max(32, min(256, target.client.max_model_len() // 64))  # LONG leaves 4 % of the context
    return Request(content, effort=0.0, answer=Answer("", value), max_tokens=room)


def judged(target: Target, what: str, request: Request, reply: Reply | Refusal) -> Finding:
    """By the dense reference where the prompt is short enough for it, else by the answer."""
    if isinstance(reply, Refusal) or reply.prompt_tokens <= DENSE_LIMIT:
        return target.judge(what, request, reply)
    finding = replace(target, reference=None).judge(what, request, reply)
    return replace(finding, detail=f"{reply.prompt_tokens} tokens; {finding.detail}")


LONG_GATES: dict[str, Callable[[Target], Iterator[Finding]]] = {
    "long_needles": long_needles,
    "far_copy": far_copy,
    "residents": residents,
    "beside_streams": beside_streams,
    "soak": soak,
}
