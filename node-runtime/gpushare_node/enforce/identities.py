"""Identities: which containers the processes on the GPUs belong to, for the guard. Reads /proc and the pods; sends no signal.

A tenant is identified by its cgroup and by a pod that the API server knows, never by its name. A path may contain several pods,
because a tenant can create cgroups below its own and name them freely: only the first pod in the path is reliable. What runs in
a pod's own cgroup, or in a container of it that no status names, is the pod's: a sandbox in its pause container, an init
container, a container whose hook still runs, or whose pod waits for another image. Its owner decides when a status names it.
"""

from collections.abc import Collection, Iterable, Mapping

from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.adapters.procs import mps
from gpushare_node.adapters.procs.processes import Processes, ProcessIdentity
from gpushare_node.contract.struct import Struct, field
from gpushare_node.guard.inputs import ContainerId, Process, ProcessKind

ROUNDS = 60
"""In how many cycles every known process is read again. One that may be signalled is read in each; one that has ended is
missing from the driver's lists at once."""

PATIENCE_SECONDS = 2
"""How long the driver may list a process that has ended before others are taken to keep its memory."""

POD = "(pod)"
"""How messages name a pod as a whole in place of a container."""


class PodIndex(Struct):
    """The pods of the node by each of their uids. `platform`: the uids of pods whose processes must never be signalled.

    `pooled` are containers that have one cap with others of their pod: their memory is the pod's.
    """

    pods: Mapping[str, PodView] = field(default_factory=dict)
    platform: frozenset[str] = frozenset()
    pooled: frozenset[ContainerId] = frozenset()

    @classmethod
    def of(cls, pods: Iterable[PodView], platform: Collection[str] = (), holders: frozenset[str] = frozenset()) -> "PodIndex":
        """Return the index of these pods. Those in the namespaces `platform` are the platform's, unless they hold a share.

        `holders` are the uids of pods that hold a share.
        """
        found = tuple(pods)
        # Own uids last, so that they win: another pod's second uid must not hide a pod.
        by_uid = {uid: pod for pod in found for uid in pod.uids} | {pod.uids[0]: pod for pod in found}
        exempt = {uid for uid, pod in by_uid.items() if pod.namespace in platform and holders.isdisjoint(pod.uids)}
        return cls(pods=by_uid, platform=frozenset(exempt))

    def find(self, container: ContainerId) -> PodView | None:
        """Return the container's pod; None if it is not known."""
        return self.pods.get(container.pod_uid)

    def name(self, container: ContainerId) -> str | None:
        """Return the container's name in its pod; None while the API server has not listed it."""
        pod = self.find(container)
        if pod is None:
            return None
        return pod.containers.get(container.container) if container.container else POD

    def label(self, container: ContainerId) -> str:
        """Return the container's name, or its id while the API server has not listed it."""
        return self.name(container) or container.container

    def resolve(self, container: ContainerId) -> ContainerId:
        """Return whose memory a process in this container uses: the container's or, if the API does not list it, its pod's."""
        pod = self.find(container)
        is_its_own = pod is None or (container.container in pod.containers and container not in self.pooled)
        return container if is_its_own else ContainerId(container.pod_uid, "")


class Identities:
    """The processes seen so far. Not safe for several threads.

    `_ended_at`: when listed processes were found to have ended; `_torn`: listed pids that have passed to another container;
    `_missing`: since when listed pids have no identity.
    """

    def __init__(self, processes: Processes, *, own_pid: int) -> None:
        self._processes = processes
        self._own_pid = own_pid
        self._seen: dict[int, ProcessIdentity] = {}
        self._known: Mapping[int, Process] = {}
        self._roster: PodIndex | None = None
        self._round = 0
        self._ended_at: dict[int, float] = {}
        self._torn: set[int] = set()
        self._missing: dict[int, float] = {}
        self._sorted: Mapping[int, Process] = self._known
        self._looked: frozenset[ContainerId] = frozenset()
        self._ended: frozenset[ContainerId] = frozenset()

    def find_ended(self) -> frozenset[ContainerId]:
        """Return the listed containers in which nothing runs, of pods that have processes on the GPUs in others.

        Kubelet has started the container again, and its status does not say so yet; or all that the pod runs is in a sandbox.
        The processes of all pods are looked at only when such a container appears.
        """
        if self._sorted is self._known:
            return self._ended
        self._sorted, roster = self._known, self._roster or PodIndex()
        inside = {pid for pid, process in self._known.items() if process.container and not process.container.container}
        places = {self._seen[pid].candidates[0] for pid in inside}
        pods = {one.pod_uid: pod for one in places if (pod := roster.find(one)) is not None}
        listed = frozenset(ContainerId(uid, run) for uid, pod in pods.items() for run in pod.started)
        looked = listed.union(places)
        if looked != self._looked:
            alive = {seen.candidates[0] for seen in self._processes.in_pods()} if listed else ()
            self._looked, self._ended = looked, listed.difference(alive)
        return self._ended

    def recognise(
        self, pids: Collection[int], pod_index: PodIndex, suspects: Collection[int] = (), now: float = 0.0
    ) -> Mapping[int, Process]:
        """Return the identities of these processes, also of those that have ended; those that were never read are missing.

        New ones and `suspects` are read now, the others in turn. Until then a reused pid counts as its former owner: that
        cannot last for as many samples as a violation needs, and every signal checks again. While no process appears, ends or
        changes its identity, the same object is returned.

        While the driver lists a pid without a pause, its memory is that of the container in which it was seen, and no other's:
        once the pid is a process of another container, it is not known which of both the driver means.
        """
        self._round = (self._round + 1) % ROUNDS
        present = set(pids)
        in_turn = [pid for pid in present if pid % ROUNDS == self._round]
        due = (present - self._seen.keys()).union(self._ended_at.keys() & present, present.intersection(suspects), in_turn)
        looked = self._processes.look(due)
        gone = self._seen.keys() - present
        new = [pid for pid, seen in looked.items() if seen != self._seen.get(pid) and pid not in self._torn]
        for pid in [pid for pid in new if self._is_other(looked[pid], self._seen.get(pid))]:
            self._torn.add(pid)
            new.remove(pid)
            gone.add(pid)
        self._torn &= present
        for pid in due & self._seen.keys() - looked.keys() - self._ended_at.keys():
            if self._seen[pid].candidates and self._processes.has_ended(self._seen[pid]):
                self._ended_at[pid] = now
            else:
                gone.add(pid)
        for pid in gone:
            del self._seen[pid]
        self._ended_at = {
            pid: at for pid, at in self._ended_at.items() if pid in self._seen and (pid not in looked or pid in self._torn)
        }
        self._seen.update((pid, looked[pid]) for pid in new)
        new += [pid for pid, at in self._ended_at.items() if now - at >= PATIENCE_SECONDS and not self._is_gone(pid)]
        self._missing = {pid: self._missing.get(pid, now) for pid in present - self._seen.keys()}
        if pod_index is not self._roster:
            self._roster, new = pod_index, list(self._seen)
        if gone or new:
            known = {pid: process for pid, process in self._known.items() if pid in self._seen}
            known.update((pid, self._identify(self._seen[pid], pod_index, now)) for pid in new)
            self._known = known
        return self._known

    def unseen(self, now: float) -> frozenset[int]:
        """Return the pids that the driver goes on listing, and that could not be read, or are another container's now."""
        return frozenset(pid for pid, since in self._missing.items() if now - since >= PATIENCE_SECONDS)

    def _is_gone(self, pid: int) -> bool:
        return pid in self._known and self._known[pid].is_gone

    def _is_other(self, seen: ProcessIdentity, former: ProcessIdentity | None) -> bool:
        """Whether the pid has passed to another container's process."""
        return former is not None and seen.start_time != former.start_time and seen.candidates != former.candidates

    def of_pods(self, uids: Collection[str]) -> list[int]:
        """Return the processes that were last known in one of these pods."""
        known = self._known.items()
        return [pid for pid, process in known if process.container is not None and process.container.pod_uid in uids]

    def _identify(self, seen: ProcessIdentity, pod_index: PodIndex, now: float) -> Process:
        container = pod_index.resolve(seen.candidates[0]) if seen.candidates else None
        return Process(
            pid=seen.pid,
            start_time=seen.start_time,
            cgroup=seen.cgroup,
            container=container,
            kind=self._kind(seen, container, pod_index),
            is_gone=now - self._ended_at.get(seen.pid, now) >= PATIENCE_SECONDS,
        )

    def _kind(self, seen: ProcessIdentity, container: ContainerId | None, pod_index: PodIndex) -> ProcessKind:
        if seen.is_kernel or seen.pid <= 2 or seen.pid == self._own_pid:
            return ProcessKind.SYSTEM
        if container is not None and container.pod_uid in pod_index.platform:
            return ProcessKind.SYSTEM
        if container is None:
            is_server = mps.is_server(self._processes.details(seen.pid), is_tenant=False)
            return ProcessKind.MPS_SERVER if is_server else ProcessKind.UNKNOWN
        return ProcessKind.TENANT if pod_index.name(container) is not None else ProcessKind.UNKNOWN
