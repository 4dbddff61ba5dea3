"""GPUs and policies for the tests of partitioning: real geometries of the catalogue, as NVML would report them."""

from collections.abc import Iterable
from typing import Any

from gpushare.facts.catalog.cards import Geometry
from gpushare_node.contract.policy import (
    Action,
    DesiredGpu,
    DesiredInstance,
    Enforcement,
    ExpectedCard,
    Mechanism,
    Mode,
    OnBusy,
    Partitioner,
    Policy,
    Rollout,
    Share,
    Stack,
)
from gpushare_node.partition.state import Gpu, Instance, Mig, NodeGpus, Placement, Profile
from tests.compiler.facts.mig import known_cards

CARD = ExpectedCard(id="a100-sxm4-40gb", name="NVIDIA A100-SXM4-40GB", pci_device_ids=("0x20B010DE",), memory_mib=40537)

Stands = tuple[str, int]
"""A profile name and a start."""


def table(geometry: Geometry) -> tuple[Profile, ...]:
    """The card's profiles as NVML lists them."""
    return tuple(
        Profile(
            id=profile.nvml_enum if profile.profile_id is None else profile.profile_id,
            name=profile.name,
            placements=tuple(Placement(start=place.start, size=place.size) for place in profile.placements),
        )
        for profile in geometry.profiles
    )


A100 = table(known_cards.geometry(known_cards.A100))


def instance(name: str, start: int, gi_id: int = 1, *, profiles=A100, is_whole: bool = True, is_busy: bool = False) -> Instance:
    """An instance of a profile at a place that the profile has."""
    profile = next(one for one in profiles if one.name == name)
    size = next(place.size for place in profile.placements if place.start == start)
    return Instance(gi_id=gi_id, profile_id=profile.id, start=start, size=size, is_whole=is_whole, is_busy=is_busy)


def instances(*existing: Stands, profiles=A100) -> tuple[Instance, ...]:
    """Idle instances with ids from 1 on."""
    return tuple(instance(name, start, number + 1, profiles=profiles) for number, (name, start) in enumerate(existing))


def mig(*existing: Instance, current=True, pending=None, profiles=A100, is_pending_ours=False) -> Mig:
    """The MIG side of a GPU; nothing is pending unless told."""
    pending = current if pending is None else pending
    return Mig(current=current, pending=pending, is_pending_ours=is_pending_ours, instances=existing, profiles=profiles)


def gpu(own: Mig | None, index: int = 0, **changed) -> Gpu:
    """An idle GPU of CARD."""
    fields: dict[str, Any] = {
        "name": CARD.name,
        "pci_device_id": "0x20B010DE",
        "memory_mib": 40960,
        "is_busy": False,
        "fault": None,
    }
    return Gpu(index=index, uuid=f"GPU-{index}", mig=own, **(fields | changed))


def state(*gpus: Gpu) -> NodeGpus:
    return NodeGpus(gpus=gpus)


def mig_of(node: NodeGpus) -> Mig:
    """The MIG side of the first GPU."""
    own = node.gpus[0].mig
    assert own is not None
    return own


def desired(*existing: Stands, profiles=A100) -> tuple[DesiredInstance, ...]:
    """Instances as a policy asks for them."""
    found = [(name, instance(name, start, profiles=profiles)) for name, start in existing]
    return tuple(
        DesiredInstance(profile=name, profile_id=one.profile_id, start=one.start, size=one.size) for name, one in found
    )


def policy(*layouts: Iterable[DesiredInstance], card: ExpectedCard = CARD) -> Policy:
    """A policy with one GPU for each layout."""
    return Policy(
        pool="training",
        cluster="physics",
        card=card,
        mode=Mode.MIG,
        stack=Stack.GPU_OPERATOR,
        partitioner=Partitioner.GPUSHARE,
        profile="mig-01234567",
        mig_config=None,
        namespaces=(),
        resources=(("nvidia.com/gpu", 1),),
        gpus=tuple(DesiredGpu(index=index, instances=tuple(layout)) for index, layout in enumerate(layouts)),
        shares=(Share(resource="nvidia.com/gpu", profile=None, replicas=1, memory_mib=None, cap_mib=None, tolerance_mib=0),),
        enforcement=Enforcement(action=Action.KILL, grace_seconds=10, mechanism=Mechanism.AUTO),
        rollout=Rollout(max_unavailable=1, on_busy=OnBusy.WAIT, drain_timeout_seconds=1800),
    )
