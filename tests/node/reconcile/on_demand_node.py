"""A node on which NVIDIA's DRA driver makes MIG instances on demand, if its chart's values say so when it starts.

It lists the places of all profiles of GPUs in MIG mode. When it starts it removes the instances that it does not know; it makes
one for each claim that it prepares, and removes it with the claim. That is no doing of the runtime's, which must change none.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gpushare_node.contract.policy import DesiredGpu, ModeSwitch, Policy, PoolDra
from gpushare_node.contract.struct import replace
from gpushare_node.vendors.nvidia.session import Session
from tests.compiler.facts.mig import known_cards
from tests.node.partition import builders as geometry
from tests.node.reconcile.dra_node import DRIVER, SLICE, DraNode, by_claims
from tests.node.reconcile.loop_node import mig
from tests.support.fake_api.refusals import Refusal

_PLACE = re.compile("gpu-([0-9]+)-mig-.+-([0-9]+)-([0-9]+)")


def on_demand(*profiles: str, gpus: int = 1) -> Policy:
    """A pool of GPUs on which these profiles are made on demand."""
    places = {one.name: len(one.placements) for one in geometry.A100}
    desired = tuple(DesiredGpu(index=index, instances=(), on_demand=ModeSwitch.RUNTIME) for index in range(gpus))
    made = by_claims(mig(tuple((profile, 0) for profile in profiles)))
    counts = tuple((share.resource, places[share.profile] * gpus) for share in made.shares)
    return replace(made, gpus=desired, resources=counts, dra=PoolDra(driver=DRIVER, shares=None, on_demand=True))


class OnDemandNode(DraNode):
    """`is_dynamic`: the driver that runs makes the instances. `installed`: the next one does; None: as the pool wants it."""

    installed: bool | None = None
    is_dynamic = False

    def _start_driver(self) -> None:
        wanted = self.goal is not None and self.goal.is_on_demand
        self.is_dynamic = wanted if self.installed is None else self.installed
        if self.is_dynamic:
            self._remove(lambda uuid: uuid not in self.prepared.values())
        super()._start_driver()
        if self.is_dynamic:
            self.seen_by_driver = self._places()
            devices = [_device(profile, name) for profile, _, name in self.seen_by_driver]
            with suppress(Refusal):
                self.api.edit("resourceslices", SLICE, lambda one: one["spec"].update({"devices": devices}))

    def _places(self) -> list[tuple[str | None, str, str]]:
        table = geometry.table(known_cards.geometry(self.card))
        return [
            (str(one.name), "", f"gpu-{gpu}-mig-{_form(str(one.name))}-{one.id}-{place.start}")
            for gpu in range(self.count)
            if self.fake_nvml.mode(gpu)[0]
            for one in table
            for place in one.placements
        ]

    def _remove(self, is_gone: Any) -> None:
        session = Session.open()
        try:
            for gpu in range(self.count):
                for gi, *_ in self.fake_nvml.instances(gpu) if self.fake_nvml.mode(gpu)[0] else ():
                    if is_gone(self.fake_nvml.mig_uuid(gpu, gi)):
                        session.destroy_compute(self.fake_nvml.uuid(gpu), gi, 0)
                        session.destroy_instance(self.fake_nvml.uuid(gpu), gi)
                        self.seen = None
        finally:
            session.close()

    def _prepare(self) -> None:
        if not self.is_dynamic:
            super()._prepare()
            return
        pods = {name for plural, namespace, name in self.api.store._objects if (plural, namespace) == ("pods", "science")}
        listed = {name for _, _, name in self.seen_by_driver or ()}
        for name, device in list(self.bound.items()):
            if name not in pods:
                del self.bound[name]
                self.remembered.pop(name, None)
                uuid = self.prepared.pop(name, None)
                self._remove(lambda one, uuid=uuid: one == uuid)
            elif name not in self.prepared and device in listed:
                gpu, profile, start = _numbers(device)
                with suppress(ValueError):  # its place is taken, as by an instance that somebody else has made
                    gi = self.fake_nvml.add_instance(gpu, profile, start)
                    self.remembered.pop(name, None)
                    self.prepared[name], self.seen = self.fake_nvml.mig_uuid(gpu, gi), None

    def arrive(self, *, is_at_work: bool) -> None:
        """As the scheduler does by the driver's counters, only a place of which no slice is taken is given."""
        for item in self.api.all("resourceslices"):
            whole = item["spec"].get("devices", [])
            free = [one for one in whole if not self.is_dynamic or not self._is_taken(one["name"])]
            self._list(item, free)
            try:
                super().arrive(is_at_work=is_at_work)
            finally:
                self._list(item, whole)
            return
        super().arrive(is_at_work=is_at_work)

    def _list(self, item: dict[str, Any], devices: list[dict[str, Any]]) -> None:
        self.api.edit("resourceslices", item["metadata"]["name"], lambda one: one["spec"].update(devices=devices))

    def _is_taken(self, device: str) -> bool:
        taken = [one for one in self.bound.values() if _PLACE.fullmatch(one)]
        return any(not self._slices(device).isdisjoint(self._slices(one)) for one in taken)

    def _slices(self, device: str) -> set[tuple[int, int]]:
        gpu, profile, start = _numbers(device)
        table = geometry.table(known_cards.geometry(self.card))
        size = next(place.size for one in table if one.id == profile for place in one.placements if place.start == start)
        return {(gpu, start + number) for number in range(size)}

    # What must never happen.

    def changing(self, call: str, uuid: str, *args: Any, **named: Any) -> None:
        assert self.goal is None or not self.goal.is_on_demand or call == "set_mig", f"{call} of what is the driver's"
        super().changing(call, uuid, *args, **named)

    def is_as(self, policy: Policy) -> bool:
        if not policy.is_on_demand:
            return super().is_as(policy)
        return all(self.fake_nvml.mode(gpu.index)[0] for gpu in policy.gpus if gpu.index not in self.lost)

    def offers_what_stands(self) -> bool:
        if not self.is_dynamic or not self.is_driver_running:
            return super().offers_what_stands()
        listed = [device["name"] for one in self.api.all("resourceslices") for device in one["spec"].get("devices", [])]
        return sorted(listed) == sorted(name for _, _, name in self._places()) and not self._offers_by_plugin()

    def instances(self) -> set[str]:
        """The UUIDs of all instances."""
        return {self.fake_nvml.mig_uuid(gpu, gi) for gpu in range(self.count) for gi, *_ in self.fake_nvml.instances(gpu)}


def _numbers(device: str) -> tuple[int, int, int]:
    match = _PLACE.fullmatch(device)
    assert match is not None, device
    gpu, profile, start = match.groups()
    return int(gpu), int(profile), int(start)


def _form(profile: str) -> str:
    return profile.replace(".", "").replace("+", "-")


def _device(profile: str | None, name: str) -> Mapping[str, Any]:
    return {"name": name, "attributes": {"type": {"string": "mig"}, "profile": {"string": profile}}}
