"""Exemptions: a container that ran before its pool's first cap is warned, not terminated, for the time in the policy.

This needs the date: since when each resource has had a cap on this node, and until when a container is exempt.
"""

import json
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from gpushare_node.adapters.host.state_dir import StateDir, StateDirError
from gpushare_node.adapters.host.state_files import Notice
from gpushare_node.adapters.kube.cluster import Cluster, ClusterError
from gpushare_node.adapters.kube.informers import NodeInformer
from gpushare_node.contract.names import FIRST_CAPS_ANNOTATION
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.core.clock import Clock
from gpushare_node.core.worker import WorkQueue
from gpushare_node.guard.inputs import Cap, CapAction, Exemption

SLACK_SECONDS = 60.0
"""How far a host's date may be corrected, or drift, without counting as a jump."""

_BELIEF_SECONDS = 600.0
"""How long a date that jumped must advance evenly before it is accepted."""


class WallClock(Struct, frozen=False):
    """The date on which monotonic time and `wall` agree. The date at the start of the program is accepted.

    A jump of the host's clock is accepted only if it lasts: a date that is a year ahead for a moment, before the host's time is
    set, would permanently end every exemption from a cap.
    """

    clock: Clock
    wall: Callable[[], float]
    _doubted: tuple[float, float] | None = None
    """An offset that is not accepted yet, and since when the date has had it."""

    def __post_init__(self) -> None:
        self._offset = self.wall() - self.clock.now()

    def now(self) -> float:
        """Return the seconds since 1970."""
        now = self.clock.now()
        offset = self.wall() - now
        if abs(offset - self._offset) <= SLACK_SECONDS:
            self._offset, self._doubted = offset, None
        elif self._doubted is None or abs(offset - self._doubted[0]) > SLACK_SECONDS:
            self._doubted = offset, now
        elif now - self._doubted[1] >= _BELIEF_SECONDS:
            self._offset, self._doubted = offset, None
        return now + self._offset


_RETRY_SECONDS = 60
_LOG = logging.getLogger(__name__)


class NodeAnnotations(Struct, frozen=False):
    """The annotations of this node's Node object, and its version; unknown until an informer follows the node."""

    server: Cluster
    node: NodeInformer | None = None

    def annotations(self) -> Mapping[str, str] | None:
        """Return the annotations as last received; None if they are unknown."""
        return None if self.node is None else self.node.annotations()

    def version(self) -> str | None:
        """Return the object's resourceVersion as last received; None if it may be outdated."""
        return None if self.node is None else self.node.version()

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Write these annotations. Raises ClusterError."""
        self.server.annotate(annotations)


class FirstCaps(Struct, frozen=False):
    """Since when each resource has had a cap on this node. For the cycle's thread.

    The dates are stored on the host and on the Node object, and the earlier one counts: the loss of one copy changes no date.

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
            with suppress(StateDirError):  # the monitor reports it
                self.folder.keep_first_caps(found)
        if self.node_annotations is not None and found != annotated and now - self._written_at >= _RETRY_SECONDS:
            self._written_at = now
            self.queue.send(lambda: self._annotate(found))
        return found

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


def renew(notice: Notice | None, *, since: float, seconds: int | None, now: float) -> Notice:
    """Return the notice under a policy that gives `seconds` (None: as long as the container runs). Times are since 1970.

    `since` is when the cap was introduced, for a container that has no notice yet. No container gets a second notice: it is
    stored with the container, its date is never later than the longest notice that a policy gave it, and an exemption that has
    ended stays ended under every later policy.
    """
    if notice is None:
        notice = _begin(since, seconds)
    elif notice.is_over:
        return notice
    elif seconds is not None and notice.until is None:
        notice = _begin(now, seconds)
    elif seconds is not None and notice.until is not None and notice.seconds != seconds and now < notice.until:
        longest, shorter = notice.since + seconds, min(notice.until, int(now) + seconds)
        notice = replace(notice, until=longest if longest >= notice.until else shorter)
    if seconds is not None and notice.until is not None and notice.until > now + seconds:
        # The clock was ahead when the notice began.
        notice = replace(notice, since=int(now), until=int(now) + seconds)
    is_over = seconds is not None and notice.until is not None and now >= notice.until
    return replace(notice, seconds=seconds, is_over=is_over)


def _begin(since: float, seconds: int | None) -> Notice:
    return Notice(since=int(since), seconds=seconds, until=None if seconds is None else int(since) + seconds)


def exempt(cap: Cap, notice: Notice) -> Cap:
    """Return the cap that applies to a container with this notice."""
    if notice.is_over:
        return cap
    action = CapAction.WARN if cap.action in (CapAction.KILL, CapAction.EVICT) else cap.action
    return replace(cap, action=action, exemption=Exemption(until=None if notice.seconds is None else notice.until))
