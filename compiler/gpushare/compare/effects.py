"""What a difference between two bundles does to pods and components, as plain values: kinds of effects, and single effects."""

from enum import StrEnum
from typing import Any

from gpushare_node.contract.struct import Struct


class EffectKind(StrEnum):
    """What happens, and to what.

    KEEPS_CAP: running containers keep the previous cap, later ones get the new cap. ENDED: running containers over their cap
    are ended from now on; without a pool, those of tenants on GPUs that were not allocated to them. SPARED: they no longer are.
    ENFORCED: another change of how caps are enforced. REFUSED, ADMITTED: pods that are created from now on. RESTARTS: the
    runtime's pods restart, tenants keep running. REINSTALLED: the installed release must be uninstalled first. ROLLOUT: the
    pace of changes. UPSTREAM: NVIDIA's components restart. DRIVER: the driver restarts, so tenants leave its nodes. ROUTED:
    pods that name no pool, and are created from now on, go to other nodes. UNPLACED: those that name a removed pool go to none.
    ADOPTED: the bundle begins to act on the cluster, or stops. RAISED: running containers may use more at once. RELEASED: a
    GitOps tool deletes what installs gpushare, so every node is released. HANDED_OVER: another tool, or none, takes over.
    APPLIED: a file that no tool syncs must be applied again. DRIVERLESS: the operator's driver is removed, and nothing replaces
    it. FIRST_CAP: there was no cap; running containers are only warned, later ones held to it. NOTICED: the same, and running
    containers are held to it, too, when the policy's notice is over. BEGINS: changes of an earlier bundle that nodes still hold
    back may begin; `after` is the next opening as text, None: at once. VMS: a person gives nodes for virtual machines other
    vGPUs; `before` and `after` are types or configs, None: no such pool. TAINTED: while the vendor's own program divides the
    GPUs of a node, a taint ends every pod on it that does not tolerate the taint. RENAMED: all nodes of a pool offer what they
    have under names of the new kind. WITHDRAWN: the vendor's device plugin leaves the nodes of a pool. VENDOR_UPSTREAM:
    programs of another vendor than NVIDIA restart. VENDOR_REINSTALLED: its stack is another release. UNINSTALLED: the bundle no
    longer has a chart. BACKEND: the nodes of a pool change hands between the device plugin and NVIDIA's DRA driver. CLASSES: a
    DeviceClass is edited in place. CLASS_KEPT: no pool has a DeviceClass any more, which stays for its nodes. DRA_UPSTREAM: the
    DRA driver restarts. INTERVAL: claims configure a GPU in another way, and share none with those of before.
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
    ADOPTED = "adopted"
    RAISED = "raised"
    RELEASED = "released"
    HANDED_OVER = "handed-over"
    APPLIED = "applied"
    DRIVERLESS = "driverless"
    FIRST_CAP = "first-cap"
    NOTICED = "noticed"
    BEGINS = "begins"
    VMS = "vms"
    TAINTED = "tainted"
    RENAMED = "renamed"
    WITHDRAWN = "withdrawn"
    VENDOR_UPSTREAM = "vendor-upstream"
    VENDOR_REINSTALLED = "vendor-reinstalled"
    UNINSTALLED = "uninstalled"
    BACKEND = "backend"
    CLASSES = "classes"
    CLASS_KEPT = "class-kept"
    DRA_UPSTREAM = "dra-upstream"
    INTERVAL = "interval"

    def word(self, vendor: str) -> str:
        """Return what documents call it: what is so of one vendor is named by the vendor's word, such as `amd-upstream`."""
        return self.value.replace("vendor", vendor)


class Effect(Struct):
    """One effect. `pool` None: the whole cluster. `subject` is the setting or resource; `before` and `after` are its values.

    `vendor` is the word of the one whose programs do it, empty where that is none or NVIDIA.
    """

    kind: EffectKind
    pool: str | None
    subject: str
    before: Any = None
    after: Any = None
    vendor: str = ""

    @property
    def is_harmless(self) -> bool:
        """Whether it ends no container, rejects or moves no pod, changes only ConfigMaps and needs no manual action."""
        return self.kind in _HARMLESS or (self.kind is EffectKind.RESTARTS and self.subject == "policy")


_HARMLESS = frozenset(
    {EffectKind.ROLLOUT, EffectKind.KEEPS_CAP, EffectKind.FIRST_CAP, EffectKind.RAISED, EffectKind.SPARED, EffectKind.ADMITTED}
)
