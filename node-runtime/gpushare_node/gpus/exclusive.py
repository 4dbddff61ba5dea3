"""The policy of a node that leaves its pool: whole GPUs, no MIG, no sharing. Pure.

AMD's GPUs keep their modes: only a profile of the config manager changes them, and a policy names no other than its own.
"""

import hashlib
from collections.abc import Sequence

from gpushare_node.contract.policy import (
    Action,
    Backend,
    Card,
    DesiredGpu,
    Enforcement,
    Mechanism,
    Mode,
    OnBusy,
    Partitioner,
    Policy,
    Rollout,
    Share,
    Stack,
    Vendor,
)
from gpushare_node.contract.struct import replace
from gpushare_node.vendors import of
from gpushare_node.vendors.driver import GpuInfo

_WHOLE_BY = {Vendor.NVIDIA: Partitioner.GPUSHARE, Vendor.AMD: Partitioner.NONE}
"""What divides the GPUs of a node without a policy."""

_MIG_CONFIG = "all-disabled"
"""The config that every mig-manager has."""

_DRAIN_SECONDS = 1800


def exclusive(policy: Policy) -> Policy:
    """Return the policy of a node that leaves this pool. The pool's rollout settings on tenants still apply."""
    whole = _whole(policy.vendor)
    return replace(
        policy,
        mode=Mode.EXCLUSIVE,
        backend=Backend.DEVICE_PLUGIN,
        dra=None,
        profile="",
        mig_config=_MIG_CONFIG if policy.partitioner is Partitioner.MIG_MANAGER else None,
        manager_config=None,
        gpus=tuple(DesiredGpu(index=gpu.index, instances=()) for gpu in policy.gpus),
        resources=((whole.resource, len(policy.gpus)),),
        shares=(whole,),
    )


def exclusive_of(surveys: Sequence[GpuInfo], pool: str, vendor: Vendor = Vendor.NVIDIA) -> Policy:
    """Return the exclusive policy if no former one is known: the card is the first working GPU's, and it waits for tenants."""
    whole = _whole(vendor)
    name = next((one.name for one in surveys if one.fault is None), "unknown")
    indexes = sorted({survey.index for survey in surveys}) or [0]
    return Policy(
        pool=pool,
        cluster="unknown",
        card=Card(id="unknown", name=name, pci_device_ids=(), memory_mib=None),
        mode=Mode.EXCLUSIVE,
        stack=Stack.GPU_OPERATOR,
        partitioner=_WHOLE_BY[vendor],
        profile="",
        mig_config=None,
        gpus=tuple(DesiredGpu(index=index, instances=()) for index in indexes),
        resources=((whole.resource, len(indexes)),),
        shares=(whole,),
        namespaces=(),
        enforcement=Enforcement(action=Action.NONE, grace_seconds=0, mechanism=Mechanism.AUTO),
        vendor=vendor,
        rollout=Rollout(max_unavailable=1, on_busy=OnBusy.WAIT, drain_timeout_seconds=_DRAIN_SECONDS),
    )


def _whole(vendor: Vendor) -> Share:
    return Share(resource=of(vendor).whole_gpu, profile=None, replicas=1, memory_mib=None, cap_mib=None, tolerance_mib=0)


def digest(policy: Policy) -> str:
    """Return the policy digest that the journal uses for leaving: attempts to leave are not attempts to join."""
    return f"release-{hashlib.sha256(repr(policy).encode()).hexdigest()[:16]}"
