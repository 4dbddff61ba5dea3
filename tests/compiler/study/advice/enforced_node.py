"""Measured use on a node with the real enforcement: whom the runtime's Enforcer ends, and when."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpushare.study.advice.history import ContainerUse
from gpushare.study.advice.replay import ABSENT, changes
from gpushare_node.reporting.log import EventReason
from tests.node.enforce.enforcement import SHARED, EnforcementFixture, await_end, load_two_gpus
from tests.support.process_fixtures import open_process_pool

_MIB = 1 << 20


@contextmanager
def enforced_node(
    folder: Path, monkeypatch: pytest.MonkeyPatch, action: str, cap_mib: int = 4096
) -> Iterator[EnforcementFixture]:
    """Two A100 with 40 GB in shares under this cap, and a grace of two seconds."""
    monkeypatch.setenv("GPUSHARE_FAKE_NVML", "")
    with load_two_gpus(folder) as gpus, open_process_pool() as pool:
        yield EnforcementFixture(folder, gpus, pool, enforcement={"action": action}, share={"capMiB": cap_mib})


def endings(
    node: EnforcementFixture, uses: Sequence[ContainerUse], period: tuple[int, int], step_seconds: int
) -> list[tuple[str, str, int]]:
    """Namespace, pod and time of each ending. Each pod has one process, on all its devices, which are GPU `0` and `1`."""
    pids: dict[tuple[str, str], int] = {}
    for number, use in enumerate(uses, start=1):
        pod = use.namespace, use.pod
        if pod not in pids:
            node.admit(number, use.pod, int(use.device), namespace=use.namespace)
            pids[pod] = node.begin(number, 0)
            node.fake_nvml.take(0, pids[pod])
        else:
            first = list(pids).index(pod) + 1
            node.allocate(first, SHARED, [f"{node.fake_nvml.uuid(int(use.device))}::{first * 100}"])
    traces = [(use, dict(changes(use, period, step_seconds, 3 * step_seconds))) for use in uses]
    found: dict[tuple[str, str], int] = {}
    for now in range(*period):
        for use, trace in traces:
            pod = use.namespace, use.pod
            if now in trace and pod not in found:
                _show(node, int(use.device), pids[pod], trace[now])
        node.run()
        for pod in _ended(node) - found.keys():
            found[pod] = now
            if not node.told.evicted:
                await_end(pids[pod])
            for gpu in (0, 1):
                node.fake_nvml.take(gpu, pids[pod])
    return sorted((namespace, pod, at) for (namespace, pod), at in found.items())


def _show(node: EnforcementFixture, gpu: int, pid: int, used: int | None) -> None:
    if used in {0, ABSENT}:
        node.fake_nvml.take(gpu, pid)
    else:
        node.fake_nvml.put(gpu, pid, None if used is None else used // _MIB)


def _ended(node: EnforcementFixture) -> set[tuple[str, str]]:
    killed = (one.pod for one in node.told.events if one.reason == EventReason.PROCESS_KILLED.value and one.pod)
    return {(pod.namespace, pod.name) for pod in (*killed, *node.told.evicted)}
