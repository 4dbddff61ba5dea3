"""The closed list of reasons of the node condition `GPUShareReady`, each with its meaning and remedy. Values only.

The node runtime reports them, alerts select them, and commands explain them. docs/reasons.md is generated from this list. A
reason is never reused with another meaning.
"""

from enum import Enum

from gpushare_node.contract.struct import Struct

CONDITION = "GPUShareReady"
"""The node condition's type."""


class ConditionSpec(Struct):
    """`word` is the condition's reason; its status is True if `is_ready`, else False.

    `is_failure`: the policy cannot be applied to the node until a person acts; no wait helps. `is_hardware`: the hardware is
    not what the policy says; `is_gpu_fault`: a GPU does not work. `lacks_driver`: no GPU can be read; `needs_new_container`:
    nor will it be before a new container has another library, or its devices again. `prevents_rollback`: the GPU does not
    respond, or waits for a reset, after which the change continues. `caps_unenforced`: no cap is enforced. `is_held`: the
    pool's rollout settings hold the change back, and the node serves its former layout.
    """

    word: str
    is_ready: bool
    means: str
    remedy: str
    is_failure: bool = False
    is_hardware: bool = False
    is_gpu_fault: bool = False
    lacks_driver: bool = False
    needs_new_container: bool = False
    prevents_rollback: bool = False
    caps_unenforced: bool = False
    is_held: bool = False


def _ready(word: str, means: str, remedy: str = "No action required.") -> ConditionSpec:
    return ConditionSpec(word=word, is_ready=True, means=means, remedy=remedy)


def _not(word: str, means: str, remedy: str, **traits: bool) -> ConditionSpec:
    return ConditionSpec(word=word, is_ready=False, means=means, remedy=remedy, **traits)


def _failed(word: str, means: str, remedy: str, **traits: bool) -> ConditionSpec:
    return _not(word, means, remedy, is_failure=True, **traits)


class ConditionReason(Enum):
    """Why the node matches its pool's policy, or does not."""

    READY = _ready("Ready", "The GPUs have the pool's layout, and the node offers exactly the planned resources.")

    OBSERVING = _not(
        "Observing",
        "The pool's intent has `adoption: observe`: the runtime changes nothing on this node, and only compares usage with the "
        "caps. The annotation gpushare.dev/would lists what `enforce` would do.",
        "No action required. Set `adoption: enforce` in the intent to apply it.",
    )

    # Before any change.
    POLICY_INVALID = _failed(
        "PolicyInvalid",
        "The policy cannot be read; no GPU was changed.",
        "Reinstall the bundle as `gpushare compile` wrote it; the runtime's image and the bundle must have the same version.",
    )
    WAITING_FOR_DRIVER = _not(
        "WaitingForDriver",
        "The GPUs' driver does not answer yet.",
        "Wait for the driver's installation. If this persists, check the driver's pod, run `nvidia-smi` on the node, and check "
        "that the runtime class of gpushare's pods injects the driver: `platform.runtimeClass` sets it for stack `existing`.",
        lacks_driver=True,
        prevents_rollback=True,
    )
    DRIVER_MISMATCH = _not(
        "DriverMismatch",
        "The driver's library and its kernel module have different versions.",
        "Finish the driver upgrade, or reboot the node. The runtime restarts by itself to load the new library.",
        lacks_driver=True,
        needs_new_container=True,
        prevents_rollback=True,
    )
    ACCESS_LOST = _not(
        "AccessLost",
        "The runtime's container has lost access to the GPUs; on the host the driver works.",
        "No action required: the container restarts and regains access. `systemctl daemon-reload` causes this where the "
        "container runtime injects devices without CDI; other pods with GPUs lose access too: restart them.",
        lacks_driver=True,
        needs_new_container=True,
    )
    NO_PERMISSION = _failed(
        "NoPermission",
        "The driver denies the runtime access.",
        "The init container must be privileged; check for an admission policy that removes the privilege.",
    )
    STATE_UNWRITABLE = _failed(
        "StateUnwritable",
        "The directory /var/lib/gpushare is not writable: no GPU is changed.",
        "Free disk space on the node, or make the directory writable.",
    )
    MIG_MANAGER_PRESENT = _failed(
        "MigManagerPresent",
        "A mig-manager pod runs on the node; only one program may partition GPUs.",
        "Set `migManager.enabled: false` in gpu-operator's values, as the bundle does, or `partitioner: mig-manager`.",
    )
    CARD_MISMATCH = _failed(
        "CardMismatch",
        "A GPU of the node is not of the model in the pool's `card`.",
        "Correct the pool's `card`, or its node selector. A GPU that only drives a display must be hidden from NVIDIA's driver "
        "(bind its PCI device to `vfio-pci`): the device plugin offers every GPU that the driver lists.",
        is_hardware=True,
    )
    GPU_COUNT_MISMATCH = _failed(
        "GpuCountMismatch",
        "The node does not have the number of GPUs that the pool specifies.",
        "Correct `gpusPerNode`. If GPUs are missing, check `nvidia-smi` and the kernel log.",
        is_hardware=True,
    )
    INVALID_LAYOUT = _failed(
        "InvalidLayout",
        "The driver cannot place the requested MIG instances on this GPU, or does not offer the requested partitions.",
        "Compare `gpushare cards CARD` with the output of `nvidia-smi mig -lgipp` on the node, or on AMD's of "
        "`amd-smi partition --accelerator`.",
        is_hardware=True,
    )
    PARTITION_MISMATCH = _failed(
        "PartitionMismatch",
        "An AMD GPU is divided by other modes than the pool's, and no program of the pool's stack changes them.",
        "Set the modes with AMD's tools (`amd-smi set --memory-partition`, then `--compute-partition`) once no process uses "
        "the GPUs, or let `stack: amd-gpu-operator` with its config manager do it.",
        is_hardware=True,
    )
    GPU_LOST = _not(
        "GpuLost",
        "A GPU has fallen off the bus; the other GPUs have the layout.",
        "Drain and reboot the node; if it recurs, replace the GPU.",
        is_hardware=True,
        is_gpu_fault=True,
        prevents_rollback=True,
    )
    GPU_UNREADABLE = _not(
        "GpuUnreadable",
        "A GPU returns errors; the other GPUs have the layout.",
        "Check the message and the kernel log. A reboot may help, or a GPU reset: first take the runtime off the node with"
        " `kubectl label node NODE gpushare.dev/runtime=away`, and remove that label afterwards.",
        is_hardware=True,
        is_gpu_fault=True,
        prevents_rollback=True,
    )
    GPU_FAULTY = _not(
        "GpuFaulty",
        "A GPU has a fault that only a reset or a reboot ends: an XID, a recovery action of the driver, or a taint of the DRA "
        "driver. The runtime neither flips the plugin's label nor repairs or changes the node, which would bring the GPU back.",
        "The message names the GPU and the fault. NVSentinel or another remediator, the operator, or a person acts: cordon and "
        "drain the node, then reboot it; or take the runtime off it with `kubectl label node NODE gpushare.dev/runtime=away`, "
        "reset the GPU (`nvidia-smi -i GPU --gpu-reset`), and remove that label. If the GPU was reset in another way: `kubectl "
        "annotate node NODE gpushare.dev/retry=now`. A taint of the DRA driver goes when its pod on the node starts again "
        "after the reset. If the fault recurs, replace the GPU.",
        is_hardware=True,
        is_gpu_fault=True,
        prevents_rollback=True,
    )
    PENDING_FOREIGN_CHANGE = _failed(
        "PendingForeignChange",
        "Another program requested a MIG mode change, which is pending until the next GPU reset.",
        "To cancel it, request the current mode again (`nvidia-smi -i GPU -mig 0` where MIG is off now, `-mig 1` where it is "
        "on), then delete the runtime's pod. To complete it, first take the runtime off the node, because it has the GPU open "
        "(`kubectl label node NODE gpushare.dev/runtime=away`), reset the GPU (`nvidia-smi -i GPU --gpu-reset`), and remove "
        "that label.",
    )

    # During the change.
    ROLLOUT_PAUSED = _not(
        "RolloutPaused",
        "The pool's intent has `rollout.paused: true`, so no disruptive change begins; the node keeps its layout and caps.",
        "Set `rollout.paused: false` in the intent when the change may begin.",
        is_held=True,
    )
    WAITING_FOR_WINDOW = _not(
        "WaitingForWindow",
        "A disruptive change waits for a window of `rollout.windows` that leaves enough time for drain and change; the node "
        "keeps its layout and caps.",
        "Wait for the opening in the message. To begin earlier, add a window to the intent, or remove all of them.",
        is_held=True,
    )
    TIME_ZONE_UNKNOWN = _failed(
        "TimeZoneUnknown",
        "The node runtime's time zone database lacks the zones of all windows, so no disruptive change can begin.",
        "Correct `rollout.windows.timezone` in the intent, or build the runtime's image on a base with the package tzdata.",
        is_held=True,
    )
    WAITING_FOR_TURN = _not(
        "WaitingForTurn",
        "The node waits for a rollout slot of its pool: `maxUnavailable` limits how many nodes are changed at once.",
        "Wait. If this persists, check the nodes that hold the pool's Leases; if one is permanently gone, delete its Node "
        "object.",
    )
    WAITING_FOR_POOL = _not(
        "WaitingForPool",
        "The node still belongs to another pool, whose runtime has not left it yet.",
        "Wait. If this persists, check which pools select the node.",
    )
    UNSELECTED = _not(
        "Unselected",
        "The pool's selectors do not match the node's labels; after five minutes the node leaves the pool.",
        "Restore the labels by which the pool selects the node; feature discovery's labels are absent while its pods restart. "
        "To make the node leave the pool now, run `kubectl annotate node NODE gpushare.dev/retry=now`.",
    )
    GPU_BUSY = _not(
        "GPUBusy",
        "Pods or processes use the GPUs that must change; the previous layout and caps stay in force.",
        "Drain the node, delete the pods in the message, or set `onBusy: evict` in the pool. A process outside pods belongs to "
        "the host: stop its unit with `systemctl stop`, or `kill` it if a deleted pod left it behind.",
    )
    CLIENTS_RUNNING = _not(
        "ClientsRunning",
        "Programs that keep the GPU open have not stopped.",
        "Stop the pods in the message, and the host's services with `systemctl stop` (nvidia-dcgm and nvsm on DGX "
        "systems, a display manager elsewhere); unload nvidia_drm if it holds the GPU (`rmmod nvidia_drm`). Then delete the "
        "runtime's pod, and restart the services when the node is Ready.",
    )
    PARTITIONING = _not("Partitioning", "The GPUs are being partitioned.", "Wait.")
    WAITING_FOR_PLUGIN = _not(
        "WaitingForPlugin",
        "The layout is in place; the device plugin does not offer it yet.",
        "Check the device plugin's pod on the node, and that it reads the label nvidia.com/device-plugin.config. The ConfigMap "
        "gpushare-profiles must be in the plugin's namespace: set that as `platform.namespace` in the intent.",
    )
    WRONG_RESOURCES = _not(
        "WrongResources",
        "The node's GPU resources differ from the plan.",
        "If the node offers more, a second plugin, or one that ignores its config, may be running. If it offers less, check "
        "the device plugin's pod and its log on the node: it logs each GPU that it considers unhealthy, with its XID. If no "
        "plugin has registered a resource for five minutes, kubelet has failed to remove it: run the commands in the message.",
    )
    BACK_END_RUNNING = _not(
        "BackEndRunning",
        "The device plugin or the DRA driver offers the node's GPUs, although the label gpushare.dev/backend does not permit "
        "it. Neither knows what the other gave to pods.",
        "Wait for the pods in the message to end. If the message names no pod but says that no plugin has registered a "
        "resource, kubelet has failed to remove it: run the commands in the message. If pods stay, their DaemonSet ignores "
        "the label: install the device plugin and the DRA driver with the bundle's values. One that another tool installed "
        "needs the same: a device plugin the node affinity `gpushare.dev/backend NotIn [none, dra]`, a DRA driver the node "
        "selector `gpushare.dev/backend: dra`. A ResourceSlice that stays although its driver has gone: kubelet removes it "
        "within a minute of its own start; else delete it.",
    )
    KUBELET_REMEMBERS_PLUGIN = _failed(
        "KubeletRemembersPlugin",
        "Kubelet still has allocations of the device plugin under a name by which pods now ask for devices of DRA: such pods "
        "would fail with CreateContainerConfigError.",
        "Run the commands in the message: they restart kubelet without that file, and take from the Node object what it would "
        "otherwise keep offering. Other device plugins register again; restart the pods that hold their devices. Or replace "
        "the node.",
    )
    WAITING_FOR_SLICES = _not(
        "WaitingForSlices",
        "The layout is in place; the DRA driver has not published the node's ResourceSlices yet.",
        "Check the DRA driver's pod on the node, and that its DaemonSet has the node selector `gpushare.dev/backend: dra`.",
    )
    WRONG_SLICES = _not(
        "WrongSlices",
        "The node's ResourceSlices differ from the plan.",
        "If claims share devices in another way than planned, install the DRA driver with the bundle's values. If devices "
        "differ, check the DRA driver's pod on the node and its log, and who else writes ResourceSlices of the node: `kubectl "
        "get resourceslices`. If the driver's pod is deleted, it reads the GPUs again. A taint of a device says that the "
        "driver found a fault: its log has the XID.",
    )
    RESET_REQUIRED = _failed(
        "ResetRequired",
        "The new MIG mode takes effect at the next GPU reset, which the runtime cannot perform.",
        "Drain and reboot the node; the runtime continues after that.",
        prevents_rollback=True,
    )
    PARTITION_FAILED = _failed(
        "PartitionFailed",
        "The driver refused a step, and the rollback failed.",
        "Check the message. The runtime waits one minute, then two, and from the third attempt on five minutes to six hours. A "
        "reboot, another driver, another policy or `kubectl annotate node NODE gpushare.dev/retry=now` starts it "
        "immediately.",
    )
    CONFIG_MANAGER_FAILED = _failed(
        "ConfigManagerFailed",
        "AMD's config manager did not divide the GPUs as the pool requires; the node keeps the taint amd-dcm.",
        "Check the message, and the log of the pod device-config-manager on the node; `amd-smi partition` shows what the GPUs "
        "have. A process with /dev/kfd open keeps it from working. The runtime requests the change again after one to ten "
        "minutes, or immediately with `kubectl annotate node NODE gpushare.dev/retry=now`.",
    )
    ROLLED_BACK = _failed(
        "RolledBack",
        "The driver refused a step; the previous layout is restored.",
        "Check the message. The runtime waits one minute, then two, and from the third attempt on five minutes to six hours. A "
        "reboot, another driver, another policy or `kubectl annotate node NODE gpushare.dev/retry=now` starts it "
        "immediately.",
    )

    # While caps are enforced.
    LABEL_CONFLICT = _not(
        "LabelConflict",
        "Another program keeps overwriting a label that the runtime sets.",
        "Stop the program in the message: two managers cannot share a node.",
    )
    MPS_UNAVAILABLE = _not(
        "MpsUnavailable",
        "The MPS control daemon does not answer: containers with a share get no CUDA context.",
        "Check the pod nvidia-device-plugin-mps-control-daemon on the node, and that the runtime's container has the program "
        "nvidia-cuda-mps-control, which the NVIDIA container toolkit puts there. When the daemon runs again, restart the pods "
        "that were its clients.",
    )
    MPS_SERVER_FAULT = _not(
        "MpsServerFault",
        "An MPS server serves no client, although its control daemon answers: containers with a share get no CUDA context.",
        "A server in state FAULT recovers once all the clients that it had at the fault have exited: delete the pods that hold "
        "shares of its GPU. If it does not, delete the pod nvidia-device-plugin-mps-control-daemon on the node first.",
    )
    FABRIC_NOT_READY = _not(
        "FabricNotReady",
        "The fabric manager has not set up NVLink: CUDA programs fail with error 802 (system not yet initialized).",
        "Check `systemctl status nvidia-fabricmanager` on the node, or the driver's pod: the fabric manager must run and have "
        "the driver's version.",
    )
    DRIFTED = _not(
        "Drifted",
        "The GPUs no longer have the layout that the runtime applied.",
        "Wait for the repair, and find out what changed them.",
        is_hardware=True,
    )
    WRONG_INSTANCES = _not(
        "WrongInstances",
        "MIG instances on demand are not those of the claims that the DRA driver has prepared: one has no claim, or a claim "
        "has none. Nothing is removed.",
        "If an instance has no claim, delete the DRA driver's pod on the node: when it starts it removes the instances that it "
        "does not know. If a claim's instance is gone, delete the pods that use the claim. Nothing else may make or remove "
        "instances on such a node.",
    )
    ENFORCEMENT_BLIND = _not(
        "EnforcementBlind",
        "GPU memory is or may be in use that cannot be attributed to a container: the driver lists no process or no amount, "
        "the process has exited, or kubelet's checkpoint of its allocations is missing. Caps are not enforced there.",
        "Check the message. If it reports no process: the runtime's pod needs hostPID and access to all GPUs. If it reports a "
        "missing checkpoint: mount kubelet's device-plugins directory, and restart the pods in the message. If it names "
        "several containers: delete the one that should not hold the memory, or kill its processes that have a GPU open.",
        caps_unenforced=True,
    )
    CAP_EXCEEDED = _not(
        "CapExceeded",
        "A container is still over its cap, although it should have been terminated by now.",
        "Delete the pod in the message. If the container stays, its processes wait in the kernel (D state) or a "
        "security module blocks signals: check the Events of the pod, then reset the GPU or reboot the node.",
    )
    PROCESS_LIST_UNRELIABLE = _not(
        "ProcessListUnreliable",
        "The driver's process lists are inconsistent, so no cap is enforced.",
        "Upgrade the driver: versions from 530 up to 535.154.05 return scrambled lists.",
        caps_unenforced=True,
    )
    CAPABILITY_MISSING = _not(
        "CapabilityMissing",
        "The runtime lacks the capability KILL, so it cannot terminate processes over their cap.",
        "Install the chart without changes; check for an admission policy that drops capabilities.",
        caps_unenforced=True,
    )
    SIGNALS_DENIED = _not(
        "SignalsDenied",
        "A security module of the kernel blocks the runtime's signals; pods over their cap are evicted instead.",
        "Let the runtime's pods run unconfined (AppArmor) or as spc_t (SELinux), as the chart sets; find what overrides that.",
    )
    TENANCY_UNKNOWN = _not(
        "TenancyUnknown",
        "The list of tenant and platform namespaces cannot be read; the last list that was read stays in force. Without "
        "one, no process is terminated for using a GPU that was not allocated to it. Caps are enforced.",
        "Check that the ConfigMap gpushare-tenancy is as the chart created it; bundle and runtime must have the same version.",
    )
    DRIVER_HUNG = _not(
        "DriverHung",
        "A call to the driver does not return, so no cap is enforced.",
        "Reboot the node.",
        lacks_driver=True,
        prevents_rollback=True,
        caps_unenforced=True,
    )

    # When the node leaves the pool.
    RELEASING = _not("Releasing", "The node is leaving the pool.", "Wait.")
    RELEASED = _not(
        "Released",
        "The node offers whole GPUs again, and gpushare has removed everything except this condition.",
        "No action required.",
    )

    @property
    def word(self) -> str:
        """Return the reason as it is written to the condition."""
        return self.value.word


REASONS = {one.word: one.value for one in ConditionReason}
"""All reasons by their words."""
