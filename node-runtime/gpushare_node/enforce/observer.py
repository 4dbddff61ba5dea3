"""Observer: keeps the condition and the annotation of a node that is only observed current. In place of `NodeMonitor`.

It repairs, releases and deletes nothing. A node in a steady state costs one read in ten minutes.
"""

import logging
from collections.abc import Callable
from functools import partial

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import jitter
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct
from gpushare_node.enforce.enforcer import Enforcer
from gpushare_node.vendors.driver import GpuInfo

_CHANGE_SECONDS = 60.0
"""How often a change on the node is looked at: pods come and go all the time."""

_NODE_SECONDS = 600.0
"""How often the node is read without a change here: its labels may have changed."""

_RETRY_SECONDS = 15.0

_LOG = logging.getLogger(__name__)

Trouble = tuple[ConditionReason, str] | None


class Observer(Struct, frozen=False):
    """`publish` writes what is found, from the work queue's thread; it raises ClusterError."""

    enforcer: Enforcer
    publish: Callable[[tuple[GpuInfo, ...], Trouble], None]
    is_leaving: bool = False
    _seen: object = None
    _next_at: float = float("-inf")
    _changed_at: float = float("-inf")

    def look(self, now: float) -> None:
        """Publish if something changed, or if it is time to. `now` is monotonic seconds."""
        trouble, inventory = self.enforcer.reason(), self.enforcer.inventory
        seen = (inventory.surveys, frozenset(inventory.grants), trouble and trouble[0])
        is_changed = seen != self._seen and now >= self._changed_at + _CHANGE_SECONDS
        if not is_changed and now < self._next_at:
            return
        self._seen, self._changed_at = seen, now if is_changed else self._changed_at
        self._next_at = now + _RETRY_SECONDS
        reason = (trouble[0] if trouble else ConditionReason.OBSERVING).word
        self.enforcer.metrics.ready.replace([((reason,), 1)])
        self.enforcer.queue.send(partial(self._publish, inventory.surveys or (), trouble, now))

    def _publish(self, surveys: tuple[GpuInfo, ...], trouble: Trouble, now: float) -> None:
        """On the work queue's thread."""
        try:
            self.publish(surveys, trouble)
            self._next_at = now + jitter(_NODE_SECONDS)
        except ClusterError as error:
            self.enforcer.metrics.api_errors.add("node")
            _LOG.warning("the node's status could not be updated: %s", error)
