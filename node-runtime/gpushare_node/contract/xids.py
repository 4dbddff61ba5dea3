"""XIDs: what NVIDIA's catalogue says is to be done at once after an error that the driver logs. Facts alone.

From https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, column "immediate action", by three public copies of
it that agreed in 2026-11: the page itself was not read whole. One table for the reasons of the node condition, the alerts and
the remedies. A person looks up there what is not listed here.
"""

from enum import Enum

from gpushare_node.contract.struct import Struct


class XidAction(Enum):
    """What is to be done, as the end of a sentence."""

    RESET_GPU = "the GPU must be reset"
    REBOOT = "the node must be rebooted"
    CHECK_LINKS = "NVLink must be checked, by the bits in the kernel's log"
    CHECK = "a person must look: power, or the hardware's vendor"
    RESTART_APP = "the application must be started again"
    IGNORE = "nothing must be done"

    @property
    def needs_reset(self) -> bool:
        """Whether the GPU works again only after a reset or a reboot. Nothing else may bring it back."""
        return self in (XidAction.RESET_GPU, XidAction.REBOOT)

    @property
    def is_fault(self) -> bool:
        """Whether hardware or driver are at fault, and not an application."""
        return self not in (XidAction.RESTART_APP, XidAction.IGNORE)


class XidFact(Struct):
    """What an XID is called, and what is to be done."""

    name: str
    action: XidAction


def _facts(action: XidAction, **names: str) -> dict[int, XidFact]:
    return {int(number.removeprefix("x")): XidFact(name=name, action=action) for number, name in names.items()}


_NVLINK_5 = dict.fromkeys((f"x{number}" for number in range(144, 151)), "NVLink 5 error")

XIDS: dict[int, XidFact] = {
    **_facts(
        XidAction.RESET_GPU,
        x46="GPU stopped processing",
        # Its workflow begins with a reset; with 63 or 64 the GPU is drained before.
        x48="double-bit ECC error",
        x62="halt of an internal microcontroller",
        x64="failure to remap a row of memory",
        x95="uncontained memory error",
        x109="timeout of a context switch",
        x110="security fault",
        x119="timeout of the GPU's system processor",
        x120="error of the GPU's system processor",
        x136="failed link training",
        x140="unrecovered ECC error",
        x143="GPU initialization error",
        x155="NVLink error that software defines",
        x156="retirement of a resource",
        x158="fatal timeout",
    ),
    **_facts(XidAction.REBOOT, x79="GPU has fallen off the bus", x151="key rotation error"),
    **_facts(XidAction.CHECK_LINKS, x74="NVLink error", **_NVLINK_5),
    **_facts(XidAction.CHECK, x54="auxiliary power not connected", x142="video encoder error"),
    **_facts(
        XidAction.RESTART_APP,
        x11="invalid push buffer",
        x13="exception of the graphics engine",
        x25="invalid push buffer",
        x31="page fault",
        x32="invalid push buffer",
        x45="cleanup after another error",
        x94="contained memory error",
    ),
    **_facts(
        XidAction.IGNORE,
        x43="GPU stopped processing for one application",
        x63="row of memory remapped",
        x92="many single-bit ECC errors",
        x137="NVLink access that was not allowed",
        # Its text has the new recovery action, which the driver also tells directly.
        x154="recovery action changed",
        x157="resource not retired",
    ),
}
"""Every XID of which the catalogue's action matters here, by number."""

FAULTS = tuple(sorted(number for number, fact in XIDS.items() if fact.action.is_fault))
"""Those that page a person."""

RECOVERY_ACTIONS = {
    1: "GPU reset",
    2: "node reboot",
    3: "drain P2P",
    4: "drain and reset",
    5: "recover the IMEX domain",
    6: "bus reset",
    7: "system reboot",
}
"""NVML's recovery actions, field 230 (`nvmlDeviceGpuRecoveryAction_t`); 0 is none."""


def describe(number: int) -> str:
    """Return the XID with its name and what is to be done, as a clause."""
    fact = XIDS.get(number)
    return f"XID {number}: see NVIDIA's XID catalogue" if fact is None else f"XID {number} ({fact.name}): {fact.action.value}"


def needs_reset(number: int) -> bool:
    """Whether the GPU works again only after a reset or a reboot."""
    return number in XIDS and XIDS[number].action.needs_reset
