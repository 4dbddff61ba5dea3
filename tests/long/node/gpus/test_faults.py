"""Every call to the driver failing with every code, at its first and its second time."""

from pathlib import Path

import pytest

from gpushare_node.vendors.driver import Code
from tests.node.gpus.test_faults import MUTATING, READING, run_with_a_fault


@pytest.mark.parametrize("code", list(Code))
@pytest.mark.parametrize("call", MUTATING + READING)
@pytest.mark.parametrize("after", range(2))
def test_every_failing_call_with_every_code_is_reported(tmp_path: Path, call: str, code: Code, after: int) -> None:
    run_with_a_fault(tmp_path, call, code, after)
