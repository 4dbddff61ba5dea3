"""`python -m tests.e2e.cluster.dra.instances SOCKET`: makes and removes MIG instances for the driver, which has no NVML itself.

NVIDIA's driver does it in its own process. Each connection has one order and one answer, as JSON.
"""

import json
import socketserver
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpushare_node.vendors.driver import DriverError, GpuInfo, GpuInstance
from gpushare_node.vendors.nvidia.session import Session
from tests.e2e.cluster.dra.devices import Object


def _make(session: Session, place: Object) -> Object:
    """Make an instance with one compute instance of its whole size at this place."""
    uuid = place["gpu"]
    gpu = next(one for one in session.survey() if one.uuid == uuid)
    profile = next(one for one in gpu.mig.profiles if one.id == place["profile"]) if gpu.mig is not None else None
    if profile is None:
        raise LookupError(f"{uuid} has no MIG")
    size = next(one.size for one in profile.placements if one.start == place["start"])
    gi = session.create_instance(uuid, profile_id=place["profile"], start=place["start"], size=size)
    session.create_compute(uuid, gi)
    [made] = [one for owner, one in _instances(session) if (owner.uuid, one.gi_id) == (uuid, gi)]
    [compute] = made.compute
    ids = {"giId": gi, "ciId": compute.ci_id, "migUUID": compute.uuid}
    return {"parentMinor": place["minor"], "parentUUID": uuid, **ids}


def _remove(session: Session, is_meant: Callable[[GpuInfo, GpuInstance], bool]) -> None:
    for gpu, instance in list(_instances(session)):
        if is_meant(gpu, instance):
            for compute in instance.compute:
                session.destroy_compute(gpu.uuid, instance.gi_id, compute.ci_id)
            session.destroy_instance(gpu.uuid, instance.gi_id)


def _instances(session: Session) -> Iterator[tuple[GpuInfo, GpuInstance]]:
    return ((gpu, one) for gpu in session.survey() if gpu.mig is not None for one in gpu.mig.instances)


def _uuids(instance: GpuInstance) -> set[str | None]:
    return {compute.uuid for compute in instance.compute}


def _carry_out(order: Object) -> Object:
    session = Session.open()
    try:
        if "make" in order:
            return {"instance": _make(session, order["make"])}
        if "clear" in order:
            there = tuple(order["clear"][key] for key in ("gpu", "profile", "start"))
            _remove(session, lambda gpu, one: (gpu.uuid, one.profile_id, one.start) == there)
        elif "remove" in order:
            _remove(session, lambda _, one: order["remove"] in _uuids(one))
        else:
            _remove(session, lambda _, one: _uuids(one).isdisjoint(order["keep"]))
        return {}
    finally:
        session.close()


class _Orders(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        answer: dict[str, Any]
        try:
            answer = _carry_out(json.loads(self.rfile.readline()))
        except (DriverError, LookupError, StopIteration) as error:
            answer = {"problem": f"{type(error).__name__}: {error}"}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


path = Path(sys.argv[1])
path.parent.mkdir(parents=True, exist_ok=True)
path.unlink(missing_ok=True)
socketserver.UnixStreamServer(str(path), _Orders).serve_forever()
