"""Who a process is, and to which container it belongs. Values only: finding them out is the work of the outside worlds."""

from enum import Enum
from typing import NamedTuple

from gpushare_node.core.structs import Struct


class ContainerId(NamedTuple):
    """One run of one container: the pod's uid and the container runtime's id, both as the cgroup path spells them.

    A tuple, like everything that is made or looked up for each process in each cycle: a dataclass takes three times as long.
    """

    pod_uid: str
    container: str


class Owner(NamedTuple):
    """Who answers for a container: its pod's namespace, and the uid of its pod's controller, else the pod's own.

    It outlives the container: whoever has its containers started anew does not begin anew.
    """

    namespace: str
    uid: str


class ProcessKind(Enum):
    """What a process is to the guard. Told by pod and cgroup, never by the command name: a tenant can choose that."""

    TENANT = "tenant"
    SYSTEM = "system"
    MPS_SERVER = "mps-server"
    UNKNOWN = "unknown"


class Process(Struct):
    """A process as it was recognised: two are the same one only when all of this is equal.

    `start_time` is in clock ticks since boot and tells a reused pid apart. exec changes none of it, so a victim cannot shed
    its identity. `container` is None outside pods and where it could not be found out.
    """

    pid: int
    start_time: int
    cgroup: str
    container: ContainerId | None = None
    kind: ProcessKind = ProcessKind.UNKNOWN
