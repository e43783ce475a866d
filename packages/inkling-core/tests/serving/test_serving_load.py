"""Right under load: a real server with every cache mechanism at work answers as the dense model.

16 prompts of 1 to 700 tokens, many with shared prefixes, 8 at a time, 64 tokens a step, two rounds
with the prefix cache on. Before each round a crowd: 8 prompts in one request, which fit into the
pool together and outgrow it while they decode, so that some are preempted whatever the machine
does. Each greedy token is compared with the float32 reference decoder's own choice at that position
(one dense forward over prompt and answer, teacher forced).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from inkling_core.config import InklingConfig
from inkling_core.embedded import EMBEDDED
from inkling_core.generate import TokenGenerator
from inkling_core.model import Decoder
from inkling_core.weights import load

ANSWER, TOGETHER, ROUNDS = 24, 8, 2
HITS, PREEMPTIONS = "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total"


def prompts(vocabulary: int) -> list[list[int]]:
    """16 prompts; lengths around block and chunk edges; four families of shared prefixes."""
    generator = torch.Generator().manual_seed(11)

    def draw(count: int) -> list[int]:
        return torch.randint(0, vocabulary, (count,), generator=generator).tolist()

    first, second, third = draw(320), draw(96), draw(640)
    return [
        [*first, *draw(5)],
        [*first, *draw(1)],
        [*first[:256], *draw(40)],
        [*first, *draw(64)],
        [*second, *draw(3)],
        [*second, *draw(31)],
        [*second, *draw(33)],
        draw(1),
        [*third, *draw(60)],
        [*third, *draw(1)],
        [*third[:127], *draw(2)],
        draw(63),
        draw(64),
        draw(65),
        [*first[:128]],
        [*third[:512], *draw(129)],
    ]


def crowd(vocabulary: int) -> list[list[int]]:
    """8 prompts of 90 tokens: 3 blocks of 32 each and 4 before they end; the pool has 29."""
    generator = torch.Generator().manual_seed(12)
    return torch.randint(0, vocabulary, (TOGETHER, 90), generator=generator).tolist()


def dense_choices(
    decoder: Decoder, prompt: list[int], answer: list[int]
) -> tuple[list[int], float]:
    """Greedy choice of the reference after the prompt and after each answer token but the last;
    and the smallest lead of a choice over the runner-up."""
    ids = [*prompt, *answer[:-1]]
    logits_TV = TokenGenerator(decoder, len(ids)).feed(ids)[len(prompt) - 1 :]
    best_T2 = logits_TV.float().topk(2, dim=-1).values
    lead = float((best_T2[:, 0] - best_T2[:, 1]).min())
    return logits_TV.argmax(-1).tolist(), lead


def ask(server: Any, prompts: list[list[int]]) -> list[list[int]]:
    """Answers to prompts that arrive in one request."""
    body = {
        "prompt": prompts,
        "max_tokens": ANSWER,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    answer = server.post("/v1/completions", body)
    assert answer.status == 200, answer.body
    choices = sorted(answer.body["choices"], key=lambda choice: choice["index"])
    return [choice["token_ids"] for choice in choices]


def server_of(name: str, share: float | None, request: pytest.FixtureRequest) -> Any:
    tiny = request.getfixturevalue("tiny_server")
    if name == "tiny":
        return tiny
    if not (EMBEDDED / "config.json").is_file():
        pytest.skip("NO NANO LOAD TEST: the embedded checkpoint is not in this tree")
    settings = replace(
        tiny.settings,
        checkpoint=None,
        served_model_name=None,
        long_prefill_share=share,
        port=8112 if share is None else 8114,
    )
    return request.getfixturevalue("start")(**vars(settings)).wait_ready()


@pytest.mark.server
@pytest.mark.parametrize(
    ("name", "share"),
    [("tiny", None), ("nano", None), ("nano", 0.5)],
    ids=["tiny", "nano", "share"],
)
def test_every_greedy_token_is_the_dense_references(
    name: str, share: float | None, request: Any
) -> None:
    """With a share of long prefill the pool need not fill, so no preemption is asked for."""
    server = server_of(name, share, request)
    folder = server.settings.checkpoint or EMBEDDED
    config = InklingConfig.from_checkpoint(folder)
    before = {metric: server.metric(metric) for metric in (HITS, PREEMPTIONS)}
    decoder = Decoder(config).load_weights(load(folder, config, progress="off").items())
    vocabulary = min(256, config.unpadded_vocab_size)
    together, alone = crowd(vocabulary), prompts(vocabulary)
    asked = [*together, *alone]
    expected: dict[int, tuple[list[int], list[int]]] = {}
    wrong = []
    for round_ in range(ROUNDS):
        answers = ask(server, together)
        with ThreadPoolExecutor(TOGETHER) as pool:
            answers += [one for (one,) in pool.map(lambda prompt: ask(server, [prompt]), alone)]
        for index, (prompt, answer) in enumerate(zip(asked, answers, strict=True)):
            assert len(answer) == ANSWER
            if index not in expected or expected[index][0] != answer:
                choices, lead = dense_choices(decoder, prompt, answer)
                expected[index] = (answer, choices)
                print(f"round {round_} prompt {len(prompt)}: smallest lead {lead:.2e}")
            wrong += [
                (round_, len(prompt), i)
                for i, (a, b) in enumerate(zip(answer, expected[index][1], strict=True))
                if a != b
            ]
    hits, preemptions = (server.metric(m) - before[m] for m in (HITS, PREEMPTIONS))
    print(f"{name}: {ROUNDS * len(asked) * ANSWER} tokens, hits {hits}, preemptions {preemptions}")
    assert not wrong, f"{len(wrong)} tokens differ: {wrong[:20]}"
    assert hits > 0
    assert preemptions > 0 or share is not None
