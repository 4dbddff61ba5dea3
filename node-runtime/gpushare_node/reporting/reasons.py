"""The closed list of reasons of the node condition `GPUShareReady`, each with what it means and what to do. Values only.

docs/reasons.md is written from it. A reason is never reused for something else.
"""

from enum import Enum

from gpushare_node.core.structs import Struct

CONDITION = "GPUShareReady"
"""The node condition's type."""


class Meaning(Struct):
    """`word` stands in the condition; `is_ready` makes its status True, else False."""

    word: str
    is_ready: bool
    means: str
    way_out: str


def _ready(word: str, means: str, way_out: str = "Nothing is to be done.") -> Meaning:
    return Meaning(word=word, is_ready=True, means=means, way_out=way_out)


def _not(word: str, means: str, way_out: str) -> Meaning:
    return Meaning(word=word, is_ready=False, means=means, way_out=way_out)


class Reason(Enum):
    """Why the node is, or is not, what its pool's policy says."""

    READY = _ready("Ready", "The GPUs have the pool's layout, and the node offers what the plan promises and nothing else.")

    # Before anything is touched.
    POLICY_INVALID = _not(
        "PolicyInvalid", "The policy cannot be read; nothing was touched.",
        "Install the bundle again as `gpushare compile` wrote it; runtime and bundle must be of one version.")
    WAITING_FOR_DRIVER = _not(
        "WaitingForDriver", "The NVIDIA driver does not answer yet.",
        "Wait for the driver's installation; if it lasts, look at the driver's pod or at `nvidia-smi` on the node.")
    DRIVER_MISMATCH = _not(
        "DriverMismatch", "The driver's library and its kernel module are of different versions.",
        "Finish the driver's upgrade, or reboot the node; the runtime starts anew by itself, to get the library of then.")
    NO_PERMISSION = _not(
        "NoPermission", "The driver refuses the runtime.",
        "The init container must be privileged; look for an admission policy that takes that away.")
    STATE_UNWRITABLE = _not(
        "StateUnwritable", "The folder /var/lib/gpushare cannot be written; nothing was touched.",
        "Free space on the node's disk, or make the folder writable.")
    MIG_MANAGER_PRESENT = _not(
        "MigManagerPresent", "A mig-manager pod runs on the node, and two may not partition.",
        "Set `migManager.enabled: false` in gpu-operator's values, as the bundle does, or `partitioner: mig-manager`.")
    CARD_MISMATCH = _not(
        "CardMismatch", "A GPU of the node is not the pool's card.", "Correct the pool's `card`, or the nodes that it selects.")
    GPU_COUNT_MISMATCH = _not(
        "GpuCountMismatch", "The node has not as many GPUs as the pool says.",
        "Correct `gpusPerNode`; if GPUs are missing, look at `nvidia-smi` and the kernel's log.")
    INVALID_LAYOUT = _not(
        "InvalidLayout", "The driver cannot place the wanted instances on this GPU.",
        "Compare `gpushare cards CARD` with `nvidia-smi mig -lgipp` on the node.")
    GPU_LOST = _not(
        "GpuLost", "A GPU has fallen off its bus; the others have been brought to the layout.",
        "Reboot the node, or drain it.")
    GPU_UNREADABLE = _not(
        "GpuUnreadable", "A GPU does not answer as it should; the others have been brought to the layout.",
        "Look at the message and at the kernel's log; a reset or a reboot may help.")
    PENDING_FOREIGN_CHANGE = _not(
        "PendingForeignChange", "Somebody else has asked for another MIG mode, and it waits for a reset.",
        "Finish or call off that change (`nvidia-smi -i GPU -mig 0|1`), then delete the runtime's pod.")

    # On the way.
    WAITING_FOR_TURN = _not(
        "WaitingForTurn", "As many nodes of the pool as `maxUnavailable` allows are being changed.",
        "Wait; if it lasts, look at the nodes that hold the pool's Leases. Where one is gone for good, delete its Node object.")
    WAITING_FOR_POOL = _not(
        "WaitingForPool", "Another pool's runtime has not let go of the node yet.",
        "Wait; if it lasts, see which pools select the node.")
    GPU_BUSY = _not(
        "GPUBusy", "Tenants are in the way of the change; the former layout and caps still hold.",
        "Drain the node, delete the pods in the message, or let the pool say `onBusy: evict`.")
    CLIENTS_RUNNING = _not(
        "ClientsRunning", "Programs that keep the GPU open do not go away.",
        "Stop the pods in the message, and services of the host by `systemctl stop` (nvidia-dcgm and nvsm on a DGX); then "
        "delete the runtime's pod, and start the services again when the node is Ready.")
    PARTITIONING = _not("Partitioning", "The GPUs are being brought to the layout.", "Wait.")
    WAITING_FOR_PLUGIN = _not(
        "WaitingForPlugin", "The layout stands; the device plugin has not offered it yet.",
        "Look at the device plugin's pod on the node, and whether it reads the label nvidia.com/device-plugin.config.")
    WRONG_RESOURCES = _not(
        "WrongResources", "The node offers other GPU resources than the plan promises.",
        "Look at the device plugin's config; a second plugin, or one that ignores its config, may run.")
    RESET_REQUIRED = _not(
        "ResetRequired", "The MIG mode changes with the next reset of the GPU, which cannot be done from here.",
        "Drain and reboot the node; the runtime goes on from there.")
    PARTITION_FAILED = _not(
        "PartitionFailed", "The driver refused a step; nothing could be brought back.",
        "Look at the message. From the third attempt on, pauses of five minutes to six hours come before the next; a reboot, "
        "another driver, another policy, or `kubectl annotate node NODE gpushare.dev/retry=now` begins anew at once.")
    ROLLED_BACK = _not(
        "RolledBack", "The driver refused a step; the former layout stands again.",
        "Look at the message. From the third attempt on, pauses of five minutes to six hours come before the next; a reboot, "
        "another driver, another policy, or `kubectl annotate node NODE gpushare.dev/retry=now` begins anew at once.")

    # While caps are held.
    LABEL_CONFLICT = _not(
        "LabelConflict", "Somebody else keeps writing a label that the runtime sets.",
        "Stop the writer in the message: two managers cannot share a node.")
    DRIFTED = _not("Drifted", "The hardware is no longer what it was made to be.", "Wait for the repair; find who changed it.")
    ENFORCEMENT_BLIND = _not(
        "EnforcementBlind", "GPU shares are in use and the driver shows no process of theirs.",
        "The pod needs hostPID, and the driver a container runtime that shows it all GPUs.")
    PROCESS_LIST_UNRELIABLE = _not(
        "ProcessListUnreliable", "The driver's process lists cannot be true, so nobody is held to a cap.",
        "Upgrade the driver: lists of 530 up to 535.154.05 are scrambled.")
    CAPABILITY_MISSING = _not(
        "CapabilityMissing", "The runtime lacks the capability KILL, so nobody is ended for being over a cap.",
        "Install the chart as it is; look for an admission policy that takes capabilities away.")
    SIGNALS_DENIED = _not(
        "SignalsDenied", "A security module of the kernel refuses the runtime's signals; who is over a cap loses its pod.",
        "Let the runtime's pods run unconfined (AppArmor) or as spc_t (SELinux), as the chart asks; find what overrides that.")
    TENANCY_UNKNOWN = _not(
        "TenancyUnknown", "Who is a tenant and who is the platform cannot be read: the last list that could holds. Without one "
        "nobody is ended for being on a GPU that was not allocated to it. Caps are held.",
        "See that the ConfigMap gpushare-tenancy is there as the chart made it; bundle and runtime must be of one version.")
    DRIVER_HUNG = _not("DriverHung", "A call to the driver does not come back; nobody is held to a cap.", "Reboot the node.")

    # Leaving.
    RELEASING = _not("Releasing", "The node leaves the pool.", "Wait.")
    RELEASED = _not(
        "Released", "The node is exclusive again and carries nothing of gpushare but this.",
        "Nothing is to be done.")

    @property
    def word(self) -> str:
        """As it stands in the condition."""
        return self.value.word
