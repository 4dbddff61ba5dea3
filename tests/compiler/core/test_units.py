"""Sums of GPU memory: what is not known stays unknown."""

from gpushare.core import units
from gpushare.core.units import UNKNOWN_MEMORY, MemoryTotals


def test_totals_of_a_node_and_of_several() -> None:
    node = units.memory_of_node(100, 2, [(40, 2, 15), (30, 1, None), (20, 1, None)])
    assert node == MemoryTotals(gpus=200, offered=90, caps=80)
    assert node.stranded == 110
    assert node.of_nodes(3) == MemoryTotals(gpus=600, offered=270, caps=240)


def test_unknown_numbers_stay_unknown() -> None:
    assert units.memory_of_node(None, 1, [(None, 4, 10)]) == MemoryTotals(gpus=None, offered=None, caps=40)
    assert units.memory_of_node(100, 1, []).of_nodes(None) == UNKNOWN_MEMORY
    assert UNKNOWN_MEMORY.stranded is None
