"""Settings of `inkling buckets`; the convention is that of `inkling_core.cli.settings`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from inkling_core.cli.settings import check_choice
from inkling_hpu.buckets.profile import Limits, Profile

FORMATS = ("table", "json", "file")


@dataclass(frozen=True)
class BucketsSettings(Limits):
    """Settings of `inkling buckets`.

    max_model_len: longest request in tokens, prompt and answer; several make a row each.
    seconds_per_graph: warm-up time of one graph. The default is 29 minutes for 126 graphs, which a
    user of vllm-gaudi reported for another model (its pull request 1160); put your own here.
    check: file of buckets to examine instead of ours.
    format: table, json, or file (the text for VLLM_BUCKETING_FROM_FILE).
    """

    max_model_len: tuple[int, ...] = (65536, 131072, 262144)
    seconds_per_graph: float = 13.8
    check: str | None = None
    format: str = "table"

    def __post_init__(self) -> None:
        check_choice("format", self.format, FORMATS)
        if not self.max_model_len:
            raise ValueError("max_model_len=[] names no length: give one or more, [65536,262144]")
        if self.format == "file" and len(self.max_model_len) != 1:
            raise ValueError(
                f"format=file needs one max_model_len, not {list(self.max_model_len)}: name the "
                "server's"
            )
        if not self.seconds_per_graph > 0:
            raise ValueError(f"seconds_per_graph={self.seconds_per_graph} must be above 0")
        self.profiles()

    def profiles(self) -> list[Profile]:
        """One for each length. Raises ValueError as `Profile` does."""
        shared = {field.name: getattr(self, field.name) for field in fields(Limits)}
        return [Profile(length, **shared) for length in self.max_model_len]
