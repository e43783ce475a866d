"""The transformers side of serving_throughput.py: its own process, no vLLM, no inkling_core.

python transformers_decode.py FOLDER THREADS     questions as JSON lines on stdin

logits     float32 logits of a prompt
agreement  mean gap in nats between an answer's tokens and this model's own best, bf16
rate       decode tokens/s of one `generate` over a batch of equal lengths
in turn    the same over a batch's prompts one after the other
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from transformers import InklingForConditionalGeneration, LogitsProcessor, LogitsProcessorList


class Clock(LogitsProcessor):
    """Notes when each step's logits are there."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.times.append(time.perf_counter())
        return scores


class Side:
    """Both dtypes of one checkpoint; float32 only for the one logit check."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.model = self._load(torch.bfloat16)

    def _load(self, dtype: torch.dtype) -> Any:
        return InklingForConditionalGeneration.from_pretrained(self.folder, dtype=dtype).eval()

    def logits(self, ids: list[int], **_: Any) -> list[list[float]]:
        return self._load(torch.float32)(input_ids=torch.tensor([ids])).logits[0].tolist()

    def agreement(self, ids: list[int], answer: list[int], **_: Any) -> float:
        logits = self.model(input_ids=torch.tensor([ids + answer[:-1]])).logits[0]
        rows = logits[len(ids) - 1 :].float().log_softmax(-1)
        chosen = rows.gather(1, torch.tensor(answer)[:, None])[:, 0]
        return float((rows.max(-1).values - chosen).mean())

    def rate(self, batch: int, tokens: int, **_: Any) -> float:
        seconds = self._decode_seconds(prompts(batch), tokens)
        return batch * (tokens - 1) / seconds

    def in_turn(self, batch: int, tokens: int, **_: Any) -> float:
        seconds = sum(self._decode_seconds([prompt], tokens) for prompt in prompts(batch))
        return batch * (tokens - 1) / seconds

    def _decode_seconds(self, rows: list[list[int]], tokens: int) -> float:
        clock = Clock()
        self.model.generate(
            input_ids=torch.tensor(rows),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            logits_processor=LogitsProcessorList([clock]),
        )
        return clock.times[-1] - clock.times[0]


def prompts(count: int) -> list[list[int]]:
    """The same prompts as the served side's."""
    return [[(7 * i + 13 * s) % 8000 for i in range(64)] for s in range(count)]


def main() -> None:
    """Answers until stdin closes."""
    torch.set_num_threads(int(sys.argv[2]))
    with torch.inference_mode():
        side = Side(sys.argv[1])
        for line in sys.stdin:
            question = json.loads(line)
            answer = getattr(side, question.pop("what").replace(" ", "_"))(**question)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
