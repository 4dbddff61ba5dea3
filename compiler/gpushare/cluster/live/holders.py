"""Which pods hold shares, and the memory that they use of their caps. Pure.

The API server knows the requests, a pool's policy the cap of each share. Only the runtimes' metrics have the memory in use.
"""

from collections.abc import Iterable, Mapping

from gpushare.cluster.live.snapshot import Pod, RuntimeMetrics, Usage
from gpushare.core.units import MIB, total
from gpushare_node.contract.struct import NOTHING, Struct


class Holder(Struct):
    """One pod that may have devices. `shares` is resource → number.

    `used` and `cap` are bytes on all its devices: `used` None if not known, `cap` None if it has none or it is not known.
    """

    namespace: str
    pod: str
    node: str
    shares: Mapping[str, int]
    used: int | None = None
    cap: int | None = None

    @property
    def full_name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.pod}"


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return the pods that hold shares, by node."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.holds:
            found.setdefault(pod.node, []).append(pod)
    return found


def of_node(
    pods: Iterable[Pod], metrics: RuntimeMetrics | None, caps: Mapping[str, int | None] = NOTHING
) -> tuple[Holder, ...]:
    """Return the holders among one node's pods, by name. `caps` is resource → MiB of a share, None for no cap."""
    usages: dict[tuple[str, str], list[Usage]] = {}
    for usage in metrics.usages if metrics else ():
        usages.setdefault((usage.namespace, usage.pod), []).append(usage)
    found = (_holder(pod, usages.get((pod.namespace, pod.name), ()), caps) for pod in pods)
    return tuple(sorted(found, key=lambda one: (one.namespace, one.pod)))


def largest(holders: Iterable[Holder], most: int) -> list[Holder]:
    """Return at most so many holders, those of the most shares first."""
    return sorted(holders, key=lambda one: (-sum(one.shares.values()), one.namespace, one.pod))[:most]


def _holder(pod: Pod, usages: Iterable[Usage], caps: Mapping[str, int | None]) -> Holder:
    measured = list(usages)
    return Holder(
        namespace=pod.namespace,
        pod=pod.name,
        node=pod.node,
        shares=pod.requests,
        used=total(one.used for one in measured) if measured else None,
        # A container that is older than a change of the policy keeps its cap: the runtime knows, the policy does not.
        cap=total(one.cap for one in measured) if measured else _granted(pod, caps),
    )


def _granted(pod: Pod, caps: Mapping[str, int | None]) -> int | None:
    sizes = ((caps.get(resource), number) for resource, number in pod.requests.items())
    return total(None if size is None else size * number * MIB for size, number in sizes) if pod.requests else None
