"""GPUs whose instances the DRA driver makes: the runtime switches MIG on where the driver cannot, and changes no instance."""

import pytest

from gpushare_node.contract.policy import DesiredGpu, ModeSwitch, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.partition import plan
from gpushare_node.partition.operations import EnableMig
from tests.node.partition.builders import gpu, instances, mig, policy, state


def on_demand(switch: ModeSwitch, count: int = 1) -> Policy:
    gpus = tuple(DesiredGpu(index=index, instances=(), on_demand=switch) for index in range(count))
    return replace(policy(()), gpus=gpus)


@pytest.mark.parametrize("switch", list(ModeSwitch))
def test_no_instance_is_made_or_removed(switch: ModeSwitch) -> None:
    existing = mig(*instances(("3g.20gb", 4), ("1g.5gb", 0)))
    assert plan(state(gpu(existing, is_busy=True)), on_demand(switch)).operations == ()


def test_mig_is_switched_on_before_the_driver_starts_where_it_cannot() -> None:
    planned = plan(state(gpu(mig(current=False))), on_demand(ModeSwitch.RUNTIME))
    assert planned.operations == (EnableMig(uuid="GPU-0"),)
    assert planned.gpus[0].needs_idle_gpu
    assert plan(state(gpu(mig(current=False))), on_demand(ModeSwitch.DRIVER)).operations == ()


def test_a_gpu_without_mig_is_unfit() -> None:
    planned = plan(state(gpu(None)), on_demand(ModeSwitch.RUNTIME))
    assert [one.reason for one in planned.unfit] == [ConditionReason.INVALID_LAYOUT]


def test_a_switch_that_another_program_requested_is_not_undone() -> None:
    planned = plan(state(gpu(mig(current=True, pending=False))), on_demand(ModeSwitch.RUNTIME))
    assert [one.reason for one in planned.unfit] == [ConditionReason.PENDING_FOREIGN_CHANGE]
