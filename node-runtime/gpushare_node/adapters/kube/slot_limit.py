"""SlotLimit: enforces a limit that was reduced while nodes still hold slots beyond it.

One Lease of the pool contains the number of slots that may be held. A node reads it before it acquires a slot, never while it
waits, and writes it when the limit changes. A smaller limit takes effect once every slot beyond it was seen free.
"""

from collections.abc import Callable

from gpushare_node.adapters.kube.connection import Json
from gpushare_node.adapters.kube.slots import Slots

_ANNOTATION = "gpushare.dev/slots"
_NAME = "slots"
_MAX_CHECKED = 4
"""Slots that are checked in one call: a limit that falls from 500 to 5 must not cause a burst of requests."""


class SlotLimit:
    """The limit, as one node sees it. `is_held` returns whether another node still holds the slot of a Lease."""

    def __init__(self, slots: Slots, is_held: Callable[[Json], bool]) -> None:
        self._slots = slots
        self._is_held = is_held
        self._known = 0
        self._free_from = 0
        """Of `_known` slots, all from this number on were seen free."""

    def allows(self, slot: int, count: int) -> bool:
        """Whether this slot may be acquired now under a limit of `count`. ClusterError."""
        lease = self._slots.read(self._slots.name(_NAME))
        known = _number(lease)
        if slot >= known:
            return self._write(lease, count)
        return known <= count or (self._is_free(count, known) and self._write(lease, count))

    def _is_free(self, count: int, known: int) -> bool:
        """Whether every slot from `count` on was seen free; checks at most `_MAX_CHECKED` more."""
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
        # Nodes that start together write the same number: the fastest has written it for all.
        return lease is not None or _number(self._slots.read(name, is_fresh=True)) == count


def _number(lease: Json | None) -> int:
    """Return the number of slots; one if the Lease has no usable number: the first slot is below every limit."""
    text = ((lease or {}).get("metadata", {}).get("annotations") or {}).get(_ANNOTATION, "")
    return int(text) if text.isdecimal() and text.isascii() and 0 < len(text) < 6 else 1
