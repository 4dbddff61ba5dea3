"""Finds rows that put several tenants over their caps and contradict their device: the guard then selects no target. Pure.

A driver that returns wrong rows returns them for every tenant. A tenant's allocations cannot make the contradiction last: each
of its rows is part of what the device reports as used, unless the memory was taken and freed between two readings of a cycle.
"""

from collections.abc import Iterable

from gpushare_node.guard.identity import ContainerId, ProcessKind
from gpushare_node.guard.inputs import GuardInput
from gpushare_node.guard.process_list import Device


def find_contradicting(devices: Iterable[Device], inputs: GuardInput) -> frozenset[str]:
    """Return the namespaces that would have a container over its cap if the rows of these devices were true."""
    namespaces = set()
    for device in devices:
        for (container, place), used_bytes in _sums(device, inputs).items():
            grant = inputs.grants[container]
            cap = grant.caps.get(place)
            if cap is not None and used_bytes > cap.limit_bytes:
                namespaces.add(grant.owner.namespace)
    return frozenset(namespaces)


def _sums(device: Device, inputs: GuardInput) -> dict[tuple[ContainerId, str], int]:
    """Return how much of each device each container would use; a row in several lists counts with its largest value."""
    largest: dict[tuple[int, str], int] = {}
    for row in device.rows or ():
        place = device.place_of(row) or device.uuid
        largest[row.pid, place] = max(largest.get((row.pid, place), 0), row.used_bytes or 0)
    sums: dict[tuple[ContainerId, str], int] = {}
    for (pid, place), used_bytes in largest.items():
        process = inputs.identities.get(pid)
        container = process.container if process is not None and process.kind is ProcessKind.TENANT else None
        if container is not None and container in inputs.grants:
            sums[container, place] = sums.get((container, place), 0) + used_bytes
    return sums
