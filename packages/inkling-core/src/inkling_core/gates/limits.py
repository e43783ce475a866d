"""The gate of refusals: bad requests get a 4xx that says what to do, and the next one is answered.

Not the other gates (`checks`). Every refusal is followed by a short good request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inkling_core.gates.client import Refusal
from inkling_core.gates.verdict import Finding, Target

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def limits(target: Target) -> Iterator[Finding]:
    """Every refusal is a 4xx whose message names the value and the limit."""
    for what, body, wanted in _bad_requests(target):
        answer = target.client.post("/v1/chat/completions", body)
        if not isinstance(answer, Refusal):
            yield Finding(what, False, f"answered: {str(answer)[:120]}")
        else:
            missing = [word for word in wanted if word not in answer.message]
            ok = 400 <= answer.status < 500 and not missing
            detail = f"HTTP {answer.status}" + (f", lacks {missing}" if missing else "")
            yield Finding(what, ok, detail if ok else f"{detail}: {answer.message[:200]}")
        yield _still_answers(target, what)


def _bad_requests(target: Target) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """(what, body, words that the message must hold)."""
    longest = target.client.max_model_len()
    model = target.client.model

    def body(content: Any, **more: Any) -> dict[str, Any]:
        return {"model": model, "messages": [{"role": "user", "content": content}], **more}

    words = "river stone " * longest
    yield "prompt too long", body(words), (str(longest),)
    yield "answer too long", body("12+7=?", max_tokens=longest), (str(longest),)
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
