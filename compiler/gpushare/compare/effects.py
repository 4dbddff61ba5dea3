"""What a difference between two bundles does to those who run there, as plain values: kinds of effects, and single ones."""

from enum import StrEnum
from typing import Any

from gpushare.core.record import Record


class EffectKind(StrEnum):
    """What happens to whom.

    KEEPS_CAP: running containers keep the cap of before, later ones get the other. ENDED: running containers over their cap
    are ended from now on; without a pool, those of tenants on GPUs that they were not given. SPARED: they no longer are.
    ENFORCED: how caps are held changes otherwise. REFUSED, ADMITTED: pods that are created from now on. RESTARTS: the runtime's
    pods start anew, tenants go on. REINSTALLED: the release that is installed must be uninstalled first. ROLLOUT: how changes
    pace themselves. UPSTREAM: NVIDIA's components start anew. DRIVER: the driver does, so tenants leave its nodes. ROUTED: pods
    that name no pool, and are created from now on, go to other nodes. UNPLACED: so do not those that name a pool that is gone.
    """

    KEEPS_CAP = "keeps-cap"
    ENDED = "ended"
    SPARED = "spared"
    ENFORCED = "enforced"
    REFUSED = "refused"
    ADMITTED = "admitted"
    RESTARTS = "restarts"
    REINSTALLED = "reinstalled"
    ROLLOUT = "rollout"
    UPSTREAM = "upstream"
    DRIVER = "driver"
    ROUTED = "routed"
    UNPLACED = "unplaced"


class Effect(Record):
    """One effect. `pool` None: the whole cluster. `subject` is the setting or resource; before and after are its values."""

    kind: EffectKind
    pool: str | None
    subject: str
    before: Any = None
    after: Any = None

    @property
    def is_harmless(self) -> bool:
        """Whether it neither ends a container nor refuses or moves a pod, changes ConfigMaps alone, and needs no hand."""
        return self.kind in _HARMLESS or (self.kind is EffectKind.RESTARTS and self.subject == "policy")


_HARMLESS = frozenset({EffectKind.ROLLOUT, EffectKind.KEEPS_CAP, EffectKind.SPARED, EffectKind.ADMITTED})
