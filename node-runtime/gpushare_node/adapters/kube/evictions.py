"""EvictionClient: how a pod of this node is evicted: the requests to the API server, and the meaning of its answers.

An eviction with dryRun checks the budget; then the pod is deleted, by its uid. An Eviction object does not contain its pod's
node, so no policy could restrict it to the node of a token; a deletion contains the pod itself. The budget does not count a dry
run: until it has counted the deletion, it would allow the next pod too. So in each namespace, which is the scope of a budget,
the next eviction waits for a pause; that two nodes are allowed one at the same moment remains possible.
"""

from gpushare_node.adapters.kube.cluster import ClusterError, Eviction, PodView
from gpushare_node.adapters.kube.connection import Connection, Request
from gpushare_node.core.clock import Clock

RECOUNT_SECONDS = 5.0
"""The disruption controller counts a deletion within a fraction of a second; under load it may take this long."""

_BUDGET = "DisruptionBudget"
"""The cause in an answer from a budget. Other answers with status 429 are about the server's own load."""

_ANSWERS = {403: Eviction.FORBIDDEN, 404: Eviction.GONE, 409: Eviction.GONE, 429: Eviction.THROTTLED}


class EvictionClient:
    """Not thread-safe."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._ended: dict[str, float] = {}
        """When a pod was last deleted, by namespace."""

    def evict(self, pod: PodView, *, is_forced: bool = False) -> Eviction:
        """Evict the pod with this uid, because another pod may have its name now. ClusterError if there is no usable answer.

        `is_forced`: without a check of its budget.
        """
        now = self._clock.now()
        self._ended = {name: at for name, at in self._ended.items() if now - at < RECOUNT_SECONDS}
        if pod.namespace in self._ended and not is_forced:
            return Eviction.THROTTLED
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        options = {"preconditions": {"uid": pod.uids[0]}}
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        ask = Request(method="POST", path=f"{path}/eviction", query={"dryRun": "All"}, body=eviction, is_repeatable=False)
        refusal = None if is_forced else self._refusal(ask)
        refusal = refusal or self._refusal(Request(method="DELETE", path=path, body=options))
        if refusal is not None:
            return refusal
        self._ended[pod.namespace] = now
        return Eviction.EVICTED

    def _refusal(self, request: Request) -> Eviction | None:
        """Send the request, and return why the server refuses it; None if it does not."""
        try:
            self._connection.ask(request)
        except ClusterError as error:
            if _BUDGET in error.causes:
                return Eviction.REFUSED
            if error.status in _ANSWERS:
                return _ANSWERS[error.status]
            raise
        return None
