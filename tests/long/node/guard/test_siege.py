"""A million rows of a node under siege: nobody within its cap is signalled, and every offender is ended again and again."""

import pytest

from tests.node.guard.test_model import assert_every_offender_was_ended, siege

ROWS = 1_000_000


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_model_kills_only_and_all_offenders_in_a_million_rows(seed: int) -> None:
    assert_every_offender_was_ended(siege(ROWS // 4, seed))
