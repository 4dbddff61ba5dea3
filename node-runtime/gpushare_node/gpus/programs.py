"""Which programs besides tenants' pods use the GPUs: MPS servers, and processes that hold a GPU open. Changes nothing."""

import os
import re
from collections.abc import Callable, Collection, Iterable

from gpushare_node.adapters.host.programs import Machine
from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.adapters.procs import mps
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.processes import GpuUse, ProcessIdentity
from gpushare_node.contract.struct import replace
from gpushare_node.reporting.outcome import join_first

_MAX_NAMED = 5
_UNIT = re.compile(
    r"/(?:(?:system|machine)\.slice/(?:[^/]+\.slice/)*|user\.slice/user-[0-9]+\.slice/(?=session-))"
    r"(?P<unit>[A-Za-z0-9:_.@\\-]{1,80}\.(?:service|scope))(?:/|$)"
)
"""The cgroup path of a systemd unit of the host, as a service, a login or a container; it may begin in our cgroup namespace."""


def with_programs(
    machine: Machine,
    processes: LinuxProcesses,
    *,
    pods: Callable[[], Iterable[PodView]],
    is_system: Callable[[ProcessIdentity, Iterable[PodView]], bool],
) -> Machine:
    """Return the machine with its programs found. `is_system` tells the cluster's and host's own processes from tenants'."""

    def find_servers(pids: Collection[int]) -> frozenset[int]:
        return frozenset(mps.find_servers(processes, pids, is_system=lambda seen: is_system(seen, pods())))

    def name_openers() -> tuple[str, ...]:
        found = sorted(pid for pid in processes.pids() if pid != os.getpid() and processes.uses_gpu(pid) is GpuUse.YES)
        names = _names(pods())
        return tuple(_name(pid, processes, names) for pid in found)

    def name_processes(pids: Collection[int]) -> dict[int, str]:
        names = _names(pods())
        return {pid: _name(pid, processes, names) for pid in pids}

    def find_units(pids: Collection[int]) -> dict[int, str]:
        found = {pid: _unit(seen) for pid, seen in processes.look(tuple(pids)).items() if not seen.candidates}
        return {pid: unit for pid, unit in found.items() if unit}

    return replace(
        machine, find_servers=find_servers, name_openers=name_openers, name_processes=name_processes, find_units=find_units
    )


def openers_text(openers: tuple[str, ...]) -> str:
    """Return the openers as a text for people; empty if none was found."""
    return join_first(openers, _MAX_NAMED)


def _names(pods: Iterable[PodView]) -> dict[str, str]:
    return {uid: f"{pod.namespace}/{pod.name}" for pod in pods for uid in pod.uids}


def _name(pid: int, processes: LinuxProcesses, names: dict[str, str]) -> str:
    details, seen = processes.details(pid), processes.look((pid,)).get(pid)
    uid = seen.candidates[0].pod_uid if seen is not None and seen.candidates else ""
    comm = f" ({', '.join(filter(None, (details.comm, details.state)))})" if details is not None else ""
    pod = names.get(uid, f"uid {uid}, which is no longer on the node")
    unit = _unit(seen)
    where = f" of pod {pod}" if uid else f" of the host's {unit}" if unit else ""
    return f"process {pid}{comm}{where}"


def _unit(seen: ProcessIdentity | None) -> str:
    """Return the host's unit that a process outside pods belongs to: what must be stopped. Empty if there is none."""
    found = _UNIT.search(seen.cgroup) if seen is not None else None
    return found["unit"] if found else ""
