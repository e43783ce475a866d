"""The configuration of a checkpoint folder: `config.json` and every place that names a stop token.

    stop ids = eos of config.json, else of generation_config.json,
               and the ids that the tokenizer gives to the two end tokens

The document itself is `read`'s; weights are `inkling_core.weights`'.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inkling_core.config.errors import ConfigError, Problem
from inkling_core.config.schema import InklingConfig
from inkling_core.config.validate import is_int

END_TOKENS = ("<|content_model_end_sampling|>", "<|endoftext|>")
"""A generation ends at either: the end of the model's turn, and the end of a document."""

MAX_JSON_BYTES = 256 * 1024 * 1024  # tokenizer.json of a 200k vocabulary has about 30 MB


def read_folder(directory: Path) -> InklingConfig:
    """Reads the folder; see `InklingConfig.from_checkpoint`."""
    if not directory.is_dir():
        raise _fail("checkpoint", str(directory), "is not a folder", "give a checkpoint folder")
    document = read_json(directory / "config.json", required=True)
    generation = read_json(directory / "generation_config.json")
    if document.get("eos_token_id") is None and generation.get("eos_token_id") is not None:
        document = {**document, "eos_token_id": generation["eos_token_id"]}
    try:
        config = InklingConfig.from_dict(document)
        extra = _tokenizer_ids(directory, config.stop_token_ids)
        return config.replace(stop_token_ids=(*config.stop_token_ids, *extra))
    except ConfigError as error:
        raise ConfigError(error.problems, str(directory / "config.json")) from None


def read_json(path: Path, *, required: bool = False) -> dict[str, Any]:
    """A JSON object from a file; empty where the file is absent and not required.

    Raises:
        ConfigError: absent though required, too large, not JSON, or not an object.
    """
    if not path.is_file():
        if required:
            raise _fail(path.name, str(path.parent), "no such file here", "give a folder with it")
        return {}
    size = path.stat().st_size
    if size > MAX_JSON_BYTES:
        raise _fail(path.name, size, "is too large", f"at most {MAX_JSON_BYTES} bytes are read")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _fail(path.name, str(error), "is not JSON", "restore the file") from None
    if not isinstance(value, dict):
        raise _fail(path.name, type(value).__name__, "is not an object", "restore the file")
    return value


def _tokenizer_ids(directory: Path, configured: tuple[int, ...]) -> list[int]:
    """End-token ids of the tokenizer that the configuration does not list.

    Raises:
        ConfigError: the configuration's stop id is another special token of this tokenizer.
    """
    specials = special_tokens(directory)
    names = {token: name for name, token in specials.items()}
    for token in configured:
        name = names.get(token)
        if name is not None and name not in END_TOKENS:
            raise _fail(
                "eos_token_id",
                token,
                f"is {name!r} in this folder's tokenizer, which ends nothing",
                f"use the id of {END_TOKENS[0]!r}: {specials.get(END_TOKENS[0])}",
            )
    found = [specials[name] for name in END_TOKENS if name in specials]
    return [token for token in found if token not in configured]


def special_tokens(directory: Path) -> dict[str, int]:
    """Special-token names and ids from `tokenizer.json` or `tokenizer_config.json`, or empty.

    Raises:
        ConfigError: an entry that has no name (text) or no id (number).
    """
    path = directory / "tokenizer.json"
    added = read_json(path).get("added_tokens")
    if isinstance(added, list) and added:
        return dict(_named_id(path, one) for one in added)
    path = directory / "tokenizer_config.json"
    decoder = read_json(path).get("added_tokens_decoder")
    if isinstance(decoder, dict):
        pairs = [
            {**one, "id": int(token)} if isinstance(one, dict) and token.isdecimal() else one
            for token, one in decoder.items()
        ]
        return dict(_named_id(path, one) for one in pairs)
    return {}


def _named_id(path: Path, entry: Any) -> tuple[str, int]:
    """Name and id of one added token."""
    if isinstance(entry, dict):
        name, token = entry.get("content"), entry.get("id")
        if isinstance(name, str) and isinstance(token, int) and is_int(token) and token >= 0:
            return name, token
    raise _fail(
        path.name, entry, "is no added token", "an entry has a `content` (text) and an `id` (>= 0)"
    )


def _fail(key: str, value: Any, message: str, remedy: str) -> ConfigError:
    return ConfigError([Problem(key, value, message, remedy)], "checkpoint")
