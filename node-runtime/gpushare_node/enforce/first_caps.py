"""FirstCaps: since when each resource has had a cap on this node. Containers that ran before are warned first.

The dates are stored on the host and on the Node object, and the earlier one counts: the loss of one copy changes no date.
"""

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from gpushare_node.adapters.host.state_dir import StateDir, StateDirError
from gpushare_node.adapters.kube.cluster import FIRST_CAPS_ANNOTATION, ClusterError
from gpushare_node.contract.struct import Struct
from gpushare_node.enforce.wall_clock import SLACK_SECONDS
from gpushare_node.enforce.work_queue import WorkQueue

_RETRY_SECONDS = 60
_LOG = logging.getLogger(__name__)


class NodeAnnotations(Protocol):
    """The annotations of this node's Node object, and whether that has changed."""

    def version(self) -> str | None:
        """Return the object's resourceVersion as last received; None if it may be outdated."""
        ...

    def annotations(self) -> Mapping[str, str] | None:
        """Return the annotations as last received; None before the first time."""
        ...

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Write these annotations. Raises ClusterError."""
        ...


class FirstCaps(Struct, frozen=False):
    """Finds and stores the dates. For the cycle's thread.

    `node_annotations` None: there is no Node object to write to. A dry run writes nothing, because no cap begins.
    `observes`: containers are compared with the cap as if they had been started under it, so no date is of interest.
    """

    folder: StateDir
    node_annotations: NodeAnnotations | None
    queue: WorkQueue
    wall: Callable[[], float]
    dry_run: bool
    observes: bool = False
    _known: Mapping[str, int] | None = None
    _written_at: float = float("-inf")

    def find(self, resources: Collection[str], now: float) -> Mapping[str, int] | None:
        """Return since when these have a cap, in seconds since 1970; None until the Node object, which may have it, is read."""
        if self.observes:
            return {}
        annotations = {} if self.node_annotations is None else self.node_annotations.annotations()
        if annotations is None:
            return self._known
        if self._known is None:
            self._known = self.folder.first_caps()
        annotated = _read(annotations.get(FIRST_CAPS_ANNOTATION, ""))
        found = {
            name: min(known[name] for known in (self._known, annotated) if name in known)
            for name in {**self._known, **annotated}
        }
        today = int(self.wall())
        found = {name: _plausible_date(found.get(name, today), today) for name in {*found, *resources}}
        self._known = found
        if self.dry_run:
            return found
        if found != self.folder.first_caps():
            self._keep(found)
        if self.node_annotations is not None and found != annotated and now - self._written_at >= _RETRY_SECONDS:
            self._written_at = now
            self.queue.send(lambda: self._annotate(found))
        return found

    def _keep(self, found: Mapping[str, int]) -> None:
        try:
            self.folder.keep_first_caps(found)
        except StateDirError as error:
            _LOG.warning("%s", error)

    def _annotate(self, found: Mapping[str, int]) -> None:
        """On the work queue's thread."""
        try:
            if self.node_annotations is not None:
                self.node_annotations.annotate({FIRST_CAPS_ANNOTATION: json.dumps(found, sort_keys=True)})
        except ClusterError as error:
            _LOG.warning("%s", error)


def _plausible_date(since: int, today: int) -> int:
    """Return the date, but today if it is slightly in the future, and 0 if it is further ahead.

    Then the clock was ahead when the cap began, or is behind now, and the date shows no container's age. The caps of containers
    that ran then are stored. All others count as newer than the cap, because otherwise every container that starts before that
    date would be exempt.
    """
    if since <= today:
        return since
    return today if since - today <= SLACK_SECONDS else 0


def _read(text: str) -> Mapping[str, int]:
    """Return the dates in the annotation; none if its text is not what this program writes."""
    try:
        found = json.loads(text)
        return {str(name): int(since) for name, since in found.items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}
