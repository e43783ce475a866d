"""Configuration of the Inkling family: read, validated, written, preset. Needs no torch."""

from inkling_core.config.errors import ConfigError, Problem
from inkling_core.config.presets import PRESETS
from inkling_core.config.schema import AudioConfig, InklingConfig, MtpConfig, VisionConfig

__all__ = [
    "PRESETS",
    "AudioConfig",
    "ConfigError",
    "InklingConfig",
    "MtpConfig",
    "Problem",
    "VisionConfig",
]
