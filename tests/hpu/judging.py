"""How far generated tokens are from a reference: the teacher-forced logit gap.

    gap of token t_i  =  max_v logits_i[v] - logits_i[t_i],   logits_i = reference(prompt + t_<i)

0 where the reference would have chosen the same token. Tokens are never compared one by one with
the reference's own answer: after one near-tie in bfloat16 two right answers differ for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import checkpoints
import torch
from torch import Tensor

Reference = Callable[[Sequence[int]], Tensor]
"""Token ids -> float32 logits [T, V] of every position."""


def gaps(reference: Reference, prompt: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """The gap of each generated token, `[len(tokens)]`; NaN logits give inf."""
    logits_TV = reference([*prompt, *tokens])[len(prompt) - 1 : -1].float()
    if not bool(logits_TV.isfinite().all()):
        return torch.full((len(tokens),), torch.inf)
    chosen = logits_TV.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    return logits_TV.amax(-1) - chosen


def worst_gap(
    reference: Reference, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> float:
    """The largest gap over all answers."""
    each = [gaps(reference, p, a).max() for p, a in zip(prompts, answers, strict=True)]
    return float(torch.stack(each).max())


def equal_tokens(
    reference: Reference, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> tuple[int, int]:
    """(tokens that are the reference's own choice, tokens)."""
    each = [gaps(reference, p, a) for p, a in zip(prompts, answers, strict=True)]
    return sum(int((gap == 0).sum()) for gap in each), sum(len(gap) for gap in each)


def log_probs(
    reference: Reference, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> Tensor:
    """The log-probability of every generated token, answer after answer."""
    found = []
    for prompt, tokens in zip(prompts, answers, strict=True):
        log_TV = reference([*prompt, *tokens])[len(prompt) - 1 : -1].float().log_softmax(-1)
        found.append(log_TV.gather(1, torch.tensor(tokens)[:, None])[:, 0])
    return torch.cat(found)


def own_gap(
    reference: Reference,
    other: Reference,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
) -> float:
    """The largest gap of `other`'s choices on the same text: the tokens that it would have
    generated where the answers' tokens stand."""
    worst = 0.0
    for prompt, tokens in zip(prompts, answers, strict=True):
        own, text = slice(len(prompt) - 1, -1), [*prompt, *tokens]
        logits_TV = reference(text)[own].float()
        chosen = logits_TV.gather(1, other(text)[own].argmax(-1, keepdim=True))[:, 0]
        worst = max(worst, float((logits_TV.amax(-1) - chosen).max()))
    return worst


def of_transformers(folder: Path) -> Reference:
    """A stock model in float32, by HF transformers."""
    auto = checkpoints.transformers_beside_torchvision().AutoModelForCausalLM
    model = auto.from_pretrained(folder, dtype=torch.float32).eval()

    @cache
    def logits(ids: tuple[int, ...]) -> Tensor:
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0].float()

    return lambda ids: logits(tuple(ids))


def of_the_definition(folder: Path, dtype: torch.dtype = torch.float32) -> Reference:
    """An Inkling checkpoint by inkling_core's dense decoder."""
    from inkling_core.checkpoint import load_decoder
    from inkling_core.logits_file import Prompt, logits_of

    decoder = load_decoder(folder, dtype=dtype)

    @cache
    def logits(ids: tuple[int, ...]) -> Tensor:
        return logits_of(decoder, Prompt("prompt", ids))

    return lambda ids: logits(tuple(ids))


def routing_flips(folder: Path, ids: Sequence[int]) -> tuple[int, int]:
    """(decisions that differ, decisions): experts chosen by the dense decoder per token and MoE
    layer, in bfloat16 against float32."""
    chosen = [_routes(folder, ids, dtype) for dtype in (torch.float32, torch.bfloat16)]
    differing = [(a != b).any(-1).sum() for a, b in zip(*chosen, strict=True)]
    return int(sum(differing)), sum(len(layer) for layer in chosen[0])


def _routes(folder: Path, ids: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    """Per MoE layer the chosen expert ids of each token, sorted: `[T, K]`."""
    from inkling_core import ops
    from inkling_core.backend import Backend
    from inkling_core.checkpoint import load_decoder
    from inkling_core.generate import TokenGenerator

    seen: list[Tensor] = []

    def recording(*arguments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        result = ops.router(*arguments)
        seen.append(result[0].sort(-1).values)
        return result

    decoder = load_decoder(folder, Backend("recording", {"router": recording}), dtype=dtype)
    TokenGenerator(decoder, len(ids)).feed(ids)
    return seen
