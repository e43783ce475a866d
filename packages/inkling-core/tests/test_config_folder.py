"""`InklingConfig.from_checkpoint`: where stop ids come from, and folders that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inkling_core.config import ConfigError, InklingConfig

PUBLISHED = json.loads(
    (Path(__file__).parent / "data" / "inkling_small_config.json").read_text(encoding="utf-8")
)


def folder(tmp_path: Path, files: dict[str, Any]) -> Path:
    """A folder with `files`; a dict is written as JSON, text as it is."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def without_eos() -> dict[str, Any]:
    return {key: value for key, value in PUBLISHED.items() if key != "eos_token_id"}


def tokenizer(**ids: int) -> dict[str, Any]:
    names = {"end": "<|content_model_end_sampling|>", "text": "<|endoftext|>"}
    return {
        "added_tokens": [{"id": i, "content": names.get(n, f"<|{n}|>")} for n, i in ids.items()]
    }


@pytest.mark.parametrize(
    ("files", "stops"),
    [
        ({"config.json": PUBLISHED}, (200006,)),
        (
            {"config.json": without_eos(), "generation_config.json": {"eos_token_id": 9}},
            (9,),
        ),
        (
            {"config.json": PUBLISHED, "generation_config.json": {"eos_token_id": 9}},
            (200006,),
        ),
        (
            {"config.json": PUBLISHED, "tokenizer.json": tokenizer(end=200006, text=199999)},
            (200006, 199999),
        ),
        (
            {
                "config.json": {**PUBLISHED, "eos_token_id": 199999},
                "tokenizer.json": tokenizer(end=200006, text=199999),
            },
            (199999, 200006),
        ),
        (
            {
                "config.json": PUBLISHED,
                "tokenizer_config.json": {
                    "added_tokens_decoder": {"199999": {"content": "<|endoftext|>"}}
                },
            },
            (200006, 199999),
        ),
    ],
    ids=["config", "generation", "config-first", "tokenizer", "endoftext-only", "decoder-table"],
)
def test_stop_ids(tmp_path: Path, files: dict[str, Any], stops: tuple[int, ...]) -> None:
    assert InklingConfig.from_checkpoint(folder(tmp_path, files)).stop_token_ids == stops


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "config.json"),
        ({"config.json": "{"}, "is not JSON"),
        ({"config.json": "[1]"}, "is not an object"),
        ({"config.json": "[" * 100_000}, "is not JSON"),
        ({"config.json": without_eos()}, "no token would ever end a generation"),
        (
            {"config.json": PUBLISHED, "tokenizer.json": tokenizer(message_user=200006, end=3)},
            "'<|message_user|>' in this folder's tokenizer",
        ),
        *(
            ({"config.json": PUBLISHED, "tokenizer.json": {"added_tokens": [entry]}}, "no added")
            for entry in (1, {"id": 3}, {"content": [], "id": 3}, {"content": "a", "id": "x"})
        ),
        *(
            (
                {
                    "config.json": PUBLISHED,
                    "tokenizer_config.json": {"added_tokens_decoder": table},
                },
                "no added",
            )
            for table in ({"x": {"content": "a"}}, {"3": 4})
        ),
    ],
)
def test_bad_folders(tmp_path: Path, files: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        InklingConfig.from_checkpoint(folder(tmp_path, files))
    assert words in str(caught.value)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        InklingConfig.from_checkpoint(tmp_path / "absent")
