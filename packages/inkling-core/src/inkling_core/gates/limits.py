"""The gate of refusals: bad requests get a 4xx that says what to do, and the next one is answered.

Not the other gates (`checks`). Every refusal is followed by a short good request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from inkling_core.gates.client import Refusal
from inkling_core.gates.verdict import Finding, Target

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def limits(target: Target) -> Iterator[Finding]:
    """Every refusal is a 4xx whose message names the value and the limit."""
    for what, body, wanted in _bad_requests(target):
        yield refused(what, target.client.post("/v1/chat/completions", body), wanted)
        yield _still_answers(target, what)


def refused(what: str, answer: Refusal | dict[str, Any], wanted: tuple[str, ...]) -> Finding:
    """A 4xx whose message holds every one of `wanted`, regular expressions."""
    if not isinstance(answer, Refusal):
        return Finding(what, False, f"answered: {str(answer)[:120]}")
    missing = [word for word in wanted if not re.search(word, answer.message)]
    ok = 400 <= answer.status < 500 and not missing
    detail = f"HTTP {answer.status}" + (f", lacks {missing}" if missing else "")
    return Finding(what, ok, detail if ok else f"{detail}: {answer.message[:200]}")


def _bad_requests(target: Target) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """(what, body, patterns that the message must hold)."""
    longest = target.client.max_model_len()
    model = target.client.model

    def body(content: Any, **more: Any) -> dict[str, Any]:
        return {"model": model, "messages": [{"role": "user", "content": content}], **more}

    asked = r"prompt \D*[1-9]\d* \D*tokens"  # what was sent, beside what is allowed
    yield "prompt too long", body("river " * (longest // 5)), (rf"\b{longest}\b", asked)
    yield "prompt far too long", body("river stone " * longest), (rf"\b{longest}\b", asked)
    yield "answer too long", body("12+7=?", max_tokens=longest), (rf"\b{longest}\b", asked)
    image = [{"type": "image_url", "image_url": {"url": PIXEL}}]
    yield "image part", body(image), ("image",)
    audio = [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]
    yield "audio part", body(audio), ("audio",)
    video = [{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}]
    yield "video part", body(video), ("video",)
    effort = {"chat_template_kwargs": {"reasoning_effort": "hihg"}}
    yield "unknown effort", body("12+7=?", **effort), ("hihg", "minimal", "high")
    yield "unknown model", {**body("12+7=?"), "model": "nobody"}, ("nobody",)
    yield "no messages", {"model": model}, ("messages",)
    yield "not JSON", b"{", ()


def _still_answers(target: Target, what: str) -> Finding:
    reply = target.client.chat([{"role": "user", "content": "12+7=?"}], effort=0.0, max_tokens=16)
    if isinstance(reply, Refusal):
        return Finding(f"answers after: {what}", False, f"HTTP {reply.status}: {reply.message}")
    ok = bool(reply.content) and (not target.is_nano or reply.content == "19")
    return Finding(f"answers after: {what}", ok, reply.content)
