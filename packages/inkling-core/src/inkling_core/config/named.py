"""The configuration that a user names: a preset, `nano`, a config.json, or a checkpoint's folder.

Not a reader (read.py, folder.py). Weights are not looked at.
"""

from __future__ import annotations

from pathlib import Path

from inkling_core.config.folder import read_json
from inkling_core.config.presets import PRESETS
from inkling_core.config.schema import InklingConfig
from inkling_core.embedded import checkpoint_folder
from inkling_core.naming import suggestion


def config_of(model: str) -> InklingConfig:
    """Raises ValueError naming the near preset where there is nothing of that name, and
    ConfigError where what is there is no configuration."""
    if model in PRESETS:
        return PRESETS[model]
    if Path(model).is_file():
        return InklingConfig.from_dict(read_json(Path(model)))
    try:
        return InklingConfig.from_checkpoint(checkpoint_folder(model))
    except FileNotFoundError:
        near = suggestion(model, [*PRESETS, "nano"])
        raise ValueError(f"model={model!r} is no preset, folder or config.json; {near}") from None
