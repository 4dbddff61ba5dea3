"""SlotLimit: sees to it that a limit which has become smaller is kept, although slots beyond it are still held.

One Lease of the pool carries the number of slots that may be held. It is read before a slot is acquired, never while a node
waits, and written when the limit changes. A smaller limit counts once every slot beyond it was seen free.
"""

from collections.abc import Callable

from gpushare_node.adapters.kube.connection import Json
from gpushare_node.adapters.kube.slots import Slots

_ANNOTATION = "gpushare.dev/slots"
_NAME = "slots"
_MAX_CHECKED = 4
"""Slots that are checked at one look: a limit that falls from 500 to 5 is no burst of requests."""


class SlotLimit:
    """The limit, as one node sees it. `is_held` says of a Lease whether somebody still has that slot."""

    def __init__(self, slots: Slots, is_held: Callable[[Json], bool]) -> None:
        self._slots = slots
        self._is_held = is_held
        self._known = 0
        self._free_from = 0
        """Of `_known` slots, those from this number on were seen free."""

    def allows(self, slot: int, count: int) -> bool:
        """Whether this slot may be acquired now under a limit of `count`. ClusterError."""
        lease = self._slots.read(self._slots.name(_NAME))
        known = _number(lease)
        if slot >= known:
            return self._write(lease, count)
        return known <= count or (self._is_free(count, known) and self._write(lease, count))

    def _is_free(self, count: int, known: int) -> bool:
        """Whether no slot from `count` on is held, as far as was looked."""
        if known != self._known:
            self._known = self._free_from = known
        for _ in range(_MAX_CHECKED):
            if self._free_from <= count:
                return True
            lease = self._slots.read(self._slots.name(self._free_from - 1))
            if lease is not None and self._is_held(lease):
                return False
            self._free_from -= 1
        return self._free_from <= count

    def _write(self, lease: Json | None, count: int) -> bool:
        name, annotations = self._slots.name(_NAME), {_ANNOTATION: str(count)}
        if lease is None:
            lease = self._slots.create(name, {}, annotations)
        else:
            metadata = {**lease["metadata"], "annotations": annotations}
            lease = self._slots.update({**lease, "metadata": metadata}, {})
        # Many that start together write the same: the one who was faster has said it for all.
        return lease is not None or _number(self._slots.read(name, is_fresh=True)) == count


def _number(lease: Json | None) -> int:
    """The number of slots; one where nobody has written a usable one: the first slot is below every limit."""
    text = ((lease or {}).get("metadata", {}).get("annotations") or {}).get(_ANNOTATION, "")
    return int(text) if text.isdecimal() and text.isascii() and 0 < len(text) < 6 else 1
