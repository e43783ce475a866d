"""logits_file.py: the file is the decoder's logits, and bad prompts are told all at once."""

import io
import json
from contextlib import redirect_stdout

import pytest
import torch
from safetensors.torch import load_file

from inkling_core.checkpoint import load_decoder
from inkling_core.cli.settings import CheckpointTinySettings, LogitsSettings
from inkling_core.generate import TokenGenerator
from inkling_core.logits_file import read_prompts, run
from inkling_core.weights import tiny

PROMPTS = {"one": [5], "many": [7, 1, 2, 3, 250, 9, 9]}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Folder with checkpoint, prompts.jsonl, and logits one-shot and in chunks of 3."""
    folder = tmp_path_factory.mktemp("logits")
    lines = [json.dumps({"id": key, "tokens": ids}) for key, ids in PROMPTS.items()]
    (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n\n")
    with redirect_stdout(io.StringIO()):
        tiny.run(CheckpointTinySettings(str(folder / "checkpoint"), dtype="float32"))
        for name, chunk in (("whole", None), ("chunked", 3)):
            run(
                LogitsSettings(
                    prompts=str(folder / "prompts.jsonl"),
                    out=str(folder / "made" / f"{name}.safetensors"),
                    checkpoint=str(folder / "checkpoint"),
                    chunk=chunk,
                )
            )
    return folder


def test_the_file_holds_the_decoders_logits(written):
    found = load_file(written / "made" / "whole.safetensors")
    decoder = load_decoder(written / "checkpoint")
    assert set(found) == set(PROMPTS)
    for key, ids in PROMPTS.items():
        expected = TokenGenerator(decoder, len(ids)).feed(ids)
        assert found[key].dtype == torch.float32
        assert torch.equal(found[key], expected)


def test_chunks_change_nothing_that_counts(written):
    whole = load_file(written / "made" / "whole.safetensors")
    chunked = load_file(written / "made" / "chunked.safetensors")
    for key in PROMPTS:
        assert (whole[key] - chunked[key]).abs().max() <= 1e-5


def test_no_partial_file_stays(written):
    assert {path.suffix for path in (written / "made").iterdir()} == {".safetensors"}


def test_every_bad_line_is_told(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(
        b'{"id": "a", "tokens": [1]}\n'
        b'{"id": "a", "tokens": [1]}\n'
        b'{"id": "", "tokens": [1]}\n'
        b'{"id": "c", "tokens": []}\n'
        b'{"id": "d", "tokens": [1, 300]}\n'
        b'{"id": "e", "tokens": [true]}\n'
        b"not json\n"
        b'{"id": "f", "tokens": [1, 2, 3, 4, 5, 6]}\n'
        b'{"id": "__metadata__", "tokens": [1]}\n'
        b'{"id": "\\ud800", "tokens": [1]}\n'
        b'{"id": "\xff", "tokens": [1]}\n'
        b'{"id": "g", "tokens": ' + b"[" * 200_000 + b"\n"
        b'{"id": "h", "tokens": [1, 2, 3, 4, 5]}\n'
    )
    with pytest.raises(ValueError, match="line 2") as caught:
        read_prompts(path, 300, 5)
    told = str(caught.value)
    assert [number for number in range(1, 14) if f"line {number}:" in told] == [*range(2, 13)]
    assert "token 300 is not an id in 0..299" in told
    assert "6 tokens, but the checkpoint's max_position_embeddings is 5" in told


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "prompts.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="no prompts"):
        read_prompts(tmp_path / "prompts.jsonl", 300, 5)
