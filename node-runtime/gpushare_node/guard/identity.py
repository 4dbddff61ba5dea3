"""The identity of a process, and the container that it belongs to. Values only: the adapters determine them."""

from enum import Enum
from typing import NamedTuple

from gpushare_node.contract.struct import Struct


class ContainerId(NamedTuple):
    """One run of one container: the pod's uid and the container runtime's id, both as in the cgroup path.

    Without the latter it is the pod itself, in whose own cgroup sandboxes (gVisor, Kata) run everything.

    A tuple, like everything that is made or looked up for each process in each cycle: a dataclass takes three times as long.
    """

    pod_uid: str
    container: str


class Owner(NamedTuple):
    """Whose a container is: its pod's namespace, and its place there: the pod's uid and the container's name in it.

    It outlives the container: a debt does not end when kubelet starts the container again.
    """

    namespace: str
    uid: str


class ProcessKind(Enum):
    """How the guard classifies a process: by pod and cgroup, never by command name alone, which a tenant can choose."""

    TENANT = "tenant"
    SYSTEM = "system"
    MPS_SERVER = "mps-server"
    UNKNOWN = "unknown"


class Process(Struct):
    """An identified process: two are the same process only if all fields are equal.

    `start_time` is in clock ticks since boot and distinguishes a reused pid. exec changes none of the fields, so a target
    cannot lose its identity. `container` is None outside pods and if it could not be determined.
    """

    pid: int
    start_time: int
    cgroup: str
    container: ContainerId | None = None
    kind: ProcessKind = ProcessKind.UNKNOWN
