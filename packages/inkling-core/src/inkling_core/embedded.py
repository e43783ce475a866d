"""Where the checkpoint is that a command works on: a folder given by the user, or the embedded nano
model.

Not a reader: `weights` and `config` check what is inside. Needs no torch.
"""

from __future__ import annotations

from pathlib import Path

EMBEDDED = Path(__file__).parent / "nano" / "checkpoint"
"""Folder of the trained model that ships inside this package."""


def checkpoint_folder(checkpoint: str | None) -> Path:
    """The folder of `checkpoint`; None, or `nano`, is the embedded model.

    Raises:
        FileNotFoundError: no such folder, with what to give instead.
    """
    if checkpoint in (None, "nano"):
        return EMBEDDED
    folder = Path(str(checkpoint)).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"checkpoint={checkpoint}: no such folder; give one with config.json and "
            "*.safetensors, or leave it out for the embedded nano model"
        )
    return folder
