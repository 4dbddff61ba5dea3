"""The table of XIDs: what needs a reset, what pages a person, and what does neither."""

import re

import pytest

from gpushare.render.monitoring import alerts
from gpushare_node.contract.xids import FAULTS, XIDS, XidAction, describe, needs_reset

RESETS = {46, 48, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158}


def test_gpu_works_again_only_after_a_reset_of_these() -> None:
    assert {number for number in range(1000) if needs_reset(number)} == RESETS


@pytest.mark.parametrize("number", [13, 31, 43, 45, 63, 92, 94, 137, 154, 157])
def test_application_or_nothing_is_no_fault(number: int) -> None:
    assert (number in FAULTS, needs_reset(number)) == (False, False)


@pytest.mark.parametrize("number", [54, 74, 142, 144, 147, 150])
def test_some_faults_are_looked_at_before_anything_is_reset(number: int) -> None:
    assert (number in FAULTS, needs_reset(number)) == (True, False)


def test_alert_pages_for_the_faults_of_the_table_and_no_others() -> None:
    [expr] = [one.expr for one in alerts.ALERTS if one.name == "GPUShareXid"]
    [listed] = set(re.findall(r'xid=~"([0-9|]+)"', expr))
    assert [int(number) for number in listed.split("|")] == list(FAULTS)
    assert set(FAULTS) > RESETS


def test_an_xid_is_described_with_what_is_to_be_done() -> None:
    assert describe(95) == "XID 95 (uncontained memory error): the GPU must be reset"
    assert describe(999) == "XID 999: see NVIDIA's XID catalogue"
    assert XIDS[79].action is XidAction.REBOOT
