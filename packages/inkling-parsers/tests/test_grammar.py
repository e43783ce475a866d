"""The tables are total, and differ where they say they do."""

from __future__ import annotations

from itertools import product

from inkling_parsers.grammar import STRICT_TABLE, TABLE, State, Step
from inkling_parsers.markers import MarkerClass

CELLS = set(product(State, MarkerClass))
OPEN = (State.TEXT, State.CALL)


def test_every_state_knows_every_marker():
    assert set(TABLE) == set(STRICT_TABLE) == CELLS
    assert all(cell.steps for cell in [*TABLE.values(), *STRICT_TABLE.values()])


def test_serving_never_takes_a_special_token_for_text():
    assert not any(Step.LITERAL in cell.steps for cell in TABLE.values())


def test_an_open_block_is_ended_before_anything_opens():
    for state, marker in product(OPEN, (MarkerClass.ROLE, MarkerClass.KIND, MarkerClass.CALL)):
        assert TABLE[state, marker].steps[0] is Step.CUT


def test_strict_knows_only_end_inside_a_block():
    for state, marker in product(OPEN, MarkerClass):
        literal = STRICT_TABLE[state, marker].steps == (Step.LITERAL,)
        assert literal == (marker is not MarkerClass.END)


def test_states_follow_their_steps():
    for table in (TABLE, STRICT_TABLE):
        for (state, marker), cell in table.items():
            opened = Step.OPEN in cell.steps
            wanted = State.CALL if marker is MarkerClass.CALL else State.TEXT
            assert not opened or cell.state is wanted
            assert opened or cell.state not in OPEN or cell.state is state
            assert (Step.ROLE in cell.steps) == (
                cell.state is State.HEADER and marker is MarkerClass.ROLE
            )
