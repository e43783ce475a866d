"""settings.py: limits that hold for every value, and messages that name the near choice."""

import re

import pytest

from inkling_core.cli.settings import (
    CheckpointTinySettings,
    GatesSettings,
    GenerateSettings,
    LogitsSettings,
)


def test_limits_refuse_nan():
    try:
        GatesSettings(timeout=float("nan"))
    except ValueError as error:
        told = str(error)
    else:
        told = "nothing"
    assert told == "timeout=nan must be at least 1"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GenerateSettings("x", dtype="float23"), "did you mean 'float32'?"),
        (lambda: GenerateSettings("x", max_tokens=0), "max_tokens=0 must be at least 1"),
        (lambda: LogitsSettings("p", "o", chunk=0), "chunk=0 must be at least 1"),
        (lambda: GatesSettings(url="localhost:1"), "must start with http://"),
        (lambda: CheckpointTinySettings("o", dtype="auto"), "must be one of float32, bfloat16"),
        (lambda: CheckpointTinySettings("o", shards=0), "shards=0 must be at least 1"),
    ],
)
def test_a_value_out_of_range_is_refused(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
