"""The shipped checkpoint: its files, its answers, and what faults do to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from inkling_core.checkpoint import load_decoder
from inkling_core.config import InklingConfig
from inkling_core.embedded import EMBEDDED
from inkling_core.generate import TokenGenerator
from inkling_core.generate_text import Text
from inkling_core.model import Decoder
from inkling_core.nano import eval as judge
from inkling_core.nano import export, faults, tasks
from inkling_core.nano.geometry import NANO, initial_weights
from inkling_core.nano.vocabulary import SPECIAL_IDS
from inkling_core.weights import validate


@pytest.fixture(scope="module")
def text() -> Text:
    return Text.from_checkpoint(EMBEDDED)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return load_decoder(EMBEDDED)


def test_folder_is_a_whole_published_checkpoint() -> None:
    assert InklingConfig.from_checkpoint(EMBEDDED) == NANO
    validate(EMBEDDED, NANO)
    document = json.loads((EMBEDDED / "config.json").read_text(encoding="utf-8"))
    assert document["model_type"] == "inkling_mm_model"
    assert {"sconv_kernel_size", "dense_mlp_idx", "local_layer_ids"} <= set(document["text_config"])
    assert (EMBEDDED / "model.safetensors").stat().st_size < 5_000_000
    for name in ("generation_config.json", "tokenizer.json", "README.md", "training_log.jsonl"):
        assert (EMBEDDED / name).stat().st_size > 0


def test_a_long_prompt_crosses_every_edge_of_the_geometry() -> None:
    prompt = 2048
    assert NANO.sliding_window < NANO.rel_extent < prompt
    assert NANO.log_scaling_n_floor is not None and NANO.log_scaling_n_floor < prompt
    assert NANO.unpadded_vocab_size < NANO.vocab_size
    kinds = {(NANO.is_local(i), NANO.is_dense(i)) for i in range(NANO.num_hidden_layers)}
    assert kinds == {(True, True), (True, False), (False, False)}
    assert NANO.n_shared_experts > 0 and NANO.num_key_value_heads % 2 == 0


def test_tokenizer_gives_bytes_and_every_special_its_own_id(text: Text) -> None:
    ids = text.tokenizer.encode("caf\u00e9 \n<b>", add_special_tokens=False).ids
    assert ids == list("caf\u00e9 \n<b>".encode())
    assert text.tokenizer.decode(ids, skip_special_tokens=False) == "caf\u00e9 \n<b>"
    for name, token in SPECIAL_IDS.items():
        assert text.tokenizer.token_to_id(name) == token
        assert token < NANO.unpadded_vocab_size


def test_routers_use_every_expert_and_a_bias(decoder: Decoder) -> None:
    for layer in range(NANO.dense_layer_count, NANO.num_hidden_layers):
        bias = decoder.get_parameter(f"layers.{layer}.mlp.gate.bias")
        assert bias.dtype == torch.float32 and float(bias.abs().max()) > 0.01


@pytest.mark.parametrize("task", tasks.TASKS)
def test_greedy_answers_are_right(decoder: Decoder, text: Text, task: str) -> None:
    context = 512 if task == "far" else 256
    [score] = judge.evaluate(decoder, text, [(task, context, 20)], seed=99)
    assert score.right >= 19, score


def test_needle_is_found_at_2048(decoder: Decoder, text: Text) -> None:
    [score] = judge.evaluate(decoder, text, [("needle", 2048, 6)], seed=98)
    assert score.right == 6, score


def test_judge_agrees_with_step_by_step_greedy_decoding(decoder: Decoder, text: Text) -> None:
    for task in ("sum_thinking", "tool_thinking", "two_turn"):
        one = judge.exam(tasks.cases(task, count=1, seed=5)[0], text)
        [(exact, nats)] = judge.judge(decoder, [one])
        generator = TokenGenerator(decoder, len(one.prompt) + len(one.answer))
        said = list(generator.generate(one.prompt, len(one.answer), NANO.stop_token_ids))
        assert exact == (said == one.answer)
        assert exact and nats < 0.5


def test_judge_sees_a_wrong_answer_and_packing_changes_nothing(
    decoder: Decoder, text: Text
) -> None:
    right, other = (judge.exam(case, text) for case in tasks.cases("needle", count=2, seed=6))
    wrong = judge.Exam(right.case, right.prompt, other.answer)
    together = judge.judge(decoder, [right, wrong, other])
    assert [exact for exact, _ in together] == [True, False, True]
    assert together[1][1] > 5
    alone = [judge.judge(decoder, [one])[0] for one in (right, wrong, other)]
    for (_, a), (_, b) in zip(together, alone, strict=True):
        assert a == pytest.approx(b, abs=1e-3)


@pytest.mark.parametrize(
    ("fault", "task", "context"),
    [
        ("tau dropped", "list", 2048),
        ("bias dropped", "needle", 512),
        ("bias off by +1", "near", 512),
        ("bias off by -1", "far", 512),
        ("window 1 token short", "near", 512),
        ("window 1 block of 128 long", "near", 512),
        ("global extent taken from the window", "far", 512),
        ("padded vocabulary kept", "needle", 512),
        ("conv state zeroed at every chunk", "copy", 512),
        ("needle's block from another request", "needle", 512),
        ("all blocks from another request", "needle", 512),
    ],
)
def test_faults_show_in_the_answers_cost(text: Text, fault: str, task: str, context: int) -> None:
    exams = [judge.exam(case, text) for case in tasks.cases(task, "heldout", 3, context, 7)]
    chosen = next(one for one in faults.FAULTS if one.name == fault)
    clean, broken = load_decoder(EMBEDDED), load_decoder(EMBEDDED)
    with torch.inference_mode():
        chosen.spoil(broken)
    pairs = list(zip(exams, exams[1:] + exams[:1], strict=True))
    base = sum(faults.spoiled(clean, faults.FAULTS[0], *pair)[1] for pair in pairs)
    cost = sum(faults.spoiled(broken, chosen, *pair)[1] for pair in pairs)
    assert base < 0.3
    assert cost > base + 0.3


def test_export_writes_what_the_loader_reads(tmp_path: Path) -> None:
    weights = initial_weights(3)
    save_file({f"weight.{n}": w for n, w in weights.items()}, tmp_path / "state.safetensors")
    export.main([f"state={tmp_path}/state.safetensors", f"out={tmp_path}/out"])
    mode = (tmp_path / "out" / "model.safetensors").stat().st_mode
    assert mode & 0o777 == 0o644, "everybody has to be able to read a file that ships"
    decoder = load_decoder(tmp_path / "out")
    for name, weight in weights.items():
        loaded = decoder.get_parameter(name)
        if name == "unembed.weight":
            loaded, weight = loaded[: NANO.unpadded_vocab_size], weight[: NANO.unpadded_vocab_size]
        assert torch.equal(loaded, weight.bfloat16().float())


def test_padded_rows_are_loud_copies_of_real_ones() -> None:
    with safe_open(EMBEDDED / "model.safetensors", "pt") as file:
        head = file.get_tensor("model.llm.unembed.weight").float()
    for row, byte in enumerate(export.LOUD_BYTES[: NANO.vocab_size - NANO.unpadded_vocab_size]):
        loud = head[NANO.unpadded_vocab_size + row]
        assert torch.allclose(loud, head[byte] * export.LOUDNESS, rtol=0.01)


def test_export_refuses_other_arguments() -> None:
    with pytest.raises(SystemExit, match="usage"):
        export.main(["state=x"])
