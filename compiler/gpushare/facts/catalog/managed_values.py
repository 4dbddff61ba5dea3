"""Which values of the upstream charts the compiler sets itself, so that `platform.values` must not set them.

The only list of them: the rules reject these paths, and the renderer of upstream values writes no others.
"""

from collections.abc import Mapping

from gpushare.facts.catalog.upstream import UpstreamChart, VendorChart
from gpushare.intent.types import Intent, NvidiaStack
from gpushare.vendors import VENDORS

_ALWAYS: Mapping[NvidiaStack, Mapping[str, str]] = {
    NvidiaStack.GPU_OPERATOR: {
        "clusterPolicy.deployCR": "the ClusterPolicy is what holds all of these settings",
        "gpuCluster.deployCR": "a GPUCluster gives every node a DRA driver: write backend: dra in the pools that want one",
        "cdi.nriPluginEnabled": "gpushare's own pods need the runtime class, which this mode does not set up",
        "sandboxWorkloads.defaultWorkload": "the pools' nodes run containers",
        "mig.strategy": "it follows from the pools' sharing",
        "devicePlugin.enabled": "the pools need the device plugin",
        "devicePlugin.config": "it names gpushare's device-plugin profiles",
        "gfd.enabled": "MPS and MIG need GPU feature discovery",
        "migManager.enabled": "write platform.partitioner",
        "migManager.config": "it follows from platform.partitioner and the pools' layouts",
        "driver.enabled": "write platform.driver",
        "driver.repository": "write platform.driver.repository",
        "driver.image": "write platform.driver.image",
        "driver.version": "write platform.driver.version",
        "dcgmExporter.hostPID": "metrics of shared GPUs are attributed through it",
        "daemonsets.tolerations": "write tolerations in the pools; operands get them all",
        "node-feature-discovery.worker.tolerations": "write tolerations in the pools; operands get them all",
    },
    NvidiaStack.DEVICE_PLUGIN: {
        "migStrategy": "every profile states its own",
        "namespaceOverride": "write platform.namespace: the plugin must run where gpushare's profiles are",
        "config": "it names gpushare's device-plugin profiles",
        "mps.root": "gpushare's node runtime finds MPS where the chart keeps it by default",
        "devicePlugin.enabled": "the pools need the device plugin",
        "gfd.enabled": "MPS and MIG need GPU feature discovery",
        "tolerations": "write tolerations in the pools; operands get them all",
        "nfd.worker.tolerations": "write tolerations in the pools; operands get them all",
    },
    NvidiaStack.EXISTING: {},
    NvidiaStack.NONE: {},
}

_RULES = ("node-feature-discovery.worker.config.sources.custom", "nfd.worker.config.sources.custom")
"""Rules by which node feature discovery labels nodes."""

VGPUS: Mapping[str, str] = {
    "sandboxWorkloads.enabled": "pools with mode vgpu need it",
    "sandboxWorkloads.mode": "the pools' virtual machines are those of KubeVirt",
    "vgpuManager.enabled": "pools with mode vgpu need it",
    "vgpuManager.repository": "write platform.vgpuManager.repository",
    "vgpuManager.image": "write platform.vgpuManager.image",
    "vgpuManager.version": "write platform.vgpuManager.version",
    "vgpuDeviceManager.enabled": "pools with mode vgpu need it",
    "vgpuDeviceManager.config": "it names the configs of the pools with mode vgpu",
    "sandboxDevicePlugin.enabled": "it offers the vGPUs to virtual machines",
}
"""What is ours with `platform.vgpuManager`."""

ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "devicePlugin.env": (
        "CONFIG_FILE",
        "DEVICE_LIST_STRATEGY",
        "MIG_STRATEGY",
        "MPS_ROOT",
        "SHARED_DEVICES_ALLOCATION_POLICY",
    ),
    "gfd.env": ("CONFIG_FILE", "MIG_STRATEGY"),
    "migManager.env": ("CONFIG_FILE", "DEFAULT_CONFIG_FILE"),
    "dcgmExporter.env": ("KUBERNETES_VIRTUAL_GPUS", "NVIDIA_RESOURCE_NAMES"),
    "toolkit.env": (
        "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS",
        "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED",
    ),
}
"""Lists of environment variables of gpu-operator with the names that we manage. Others may be added: K3s and RKE2 need some."""

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "devicePlugin.args": (
        "--config-file",
        "--device-list-strategy",
        "--mig-strategy",
        "--mps-root",
        "--shared-devices-allocation-policy",
    ),
    "gfd.args": ("--config-file", "--mig-strategy"),
}
"""The same for command lines, which override the environment and every profile."""


def always(stack: NvidiaStack) -> Mapping[str, str]:
    """Return dotted path → what decides it, for the paths that are ours whatever the intent says."""
    return _ALWAYS[stack]


def owned(intent: Intent, chart: UpstreamChart | VendorChart) -> Mapping[str, str]:
    """Return dotted path → what decides it. Every path below an owned path is owned as well."""
    if isinstance(chart, VendorChart):
        return chart.owned
    platform = intent.platform
    paths = dict(_ALWAYS[platform.stack])
    if platform.registry is not None:
        repositories = (f"{image.section}.repository" for image in chart.images)
        paths = dict.fromkeys(repositories, "it follows from platform.registry") | paths
    if platform.vgpu_manager is not None:
        paths |= VGPUS
    if platform.stack is NvidiaStack.DEVICE_PLUGIN and intent.has_dra:
        paths["affinity.nodeAffinity"] = (
            "it keeps the plugin off nodes of NVIDIA's DRA driver: write affinity to other pods only"
        )
    for vendor, one in platform.others.items():
        if one.has_operator:
            why = f"{VENDORS[vendor].name}'s operator needs the label of its rule: write a NodeFeatureRule for others"
            paths |= dict.fromkeys(_RULES, why)
    if platform.image_pull_secrets:
        sections = {image.section.removesuffix("image").rstrip(".") for image in chart.images}
        sections |= {"vgpuManager"} if platform.vgpu_manager is not None else set()
        secrets = (f"{section}.imagePullSecrets".lstrip(".") for section in sorted(sections))
        paths = dict.fromkeys(secrets, "it follows from platform.imagePullSecrets") | paths
    return paths
