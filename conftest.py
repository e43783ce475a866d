"""Every test starts from the same random state: a failure repeats wherever and in whatever order it
is run.

Not a source of draws: a test whose numbers matter names its own `torch.Generator` or
`random.Random`; this catches the draws that name none.
"""

import random
import sys

import pytest


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seeds `random` and, where a test has imported them, numpy's and torch's global generators."""
    random.seed(0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
