"""Both back ends of NVIDIA's on the nodes, as DaemonSets whose pods serve the fake GPUs: the device plugin and the DRA driver.

A node's label decides which of them runs there, by the settings that the values of NVIDIA's charts have for it.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster.bundles import namespace
from tests.e2e.cluster.cluster_fixture import COURSE, ClusterFixture, intent
from tests.e2e.cluster.dra import driver
from tests.e2e.cluster.dra.devices import DRIVER, Object
from tests.e2e.cluster.images import PAUSE, RUNTIME
from tests.e2e.cluster.release import UNCHECKED
from tests.support.paths import ROOT

BACK_END = "gpushare.dev/backend"
PLUGIN_SPACE, DRIVER_SPACE = "nvidia-device-plugin", "dra-driver-nvidia-gpu"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CHECKPOINT = f"/var/lib/kubelet/plugins/{DRIVER}/checkpoint.json"
STATE = "/var/lib/kubelet/dra_manager_state"
"""What kubelet remembers of claims."""

_HOST = "/host"
_ENTER = "import os, sys; os.chroot(sys.argv[1]); os.chdir('/'); os.execv(sys.argv[2], sys.argv[2:])"
_DEVICES, _INSTANCES = "/run/nvidia/dra-devices.json", "/run/nvidia/dra-instances.sock"
_ENUMERATE = 'mkdir -p /run/nvidia && exec "$@" > "$0"'
_PLUGIN = {"app.kubernetes.io/name": "nvidia-device-plugin"}
_DRIVER = {
    "app.kubernetes.io/name": "dra-driver-nvidia-gpu",
    "app.kubernetes.io/instance": DRIVER_SPACE,
    "dra-driver-nvidia-gpu-component": "kubelet-plugin",
}
_DISCOVERED = "feature.node.kubernetes.io/pci-10de.present"
"""The label of a node with NVIDIA's devices, as feature discovery sets it. The charts of both programs want it."""
_ACCOUNT = f"{DRIVER_SPACE}-service-account-kubeletplugin"
_RULES = [
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["get", "list", "watch", "create", "update", "delete"],
    },
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "update", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
]
"""What the chart of the driver grants it."""


def dra_intent(shares: str = "memory", *, backend: str = "dra", **pools: str) -> str:
    """An intent of these pools, which the driver serves, or the device plugin of its own chart."""
    common = f"backend: {backend}, namespaces: [{COURSE}], enforcement: {{grace: 2s}}"
    dra = f", dra: {{via: chart, shares: {shares}}}" if backend == "dra" else ""
    spaces = f"namespaces: [{PLUGIN_SPACE}, {DRIVER_SPACE}]"
    platform = f"  platform: {{stack: device-plugin, {spaces}, values: {{runtimeClassName: nvidia}}{dra}}}\n"
    held = {name: f"{common}, {fields}" for name, fields in pools.items()}
    return intent(**held) + '  kubernetes: "1.36"\n' + platform


class Agents:
    """The DaemonSets of a cluster whose fixture runs no plugin itself."""

    def __init__(self, cluster_fixture: ClusterFixture) -> None:
        self._fixture, self._cluster = cluster_fixture, cluster_fixture.cluster

    def install_plugin(self, values: Mapping[str, Any]) -> None:
        """The device plugin, with these values of its chart."""
        namespace(self._cluster, PLUGIN_SPACE)
        self._cluster.apply(self.plugin(values))

    def plugin(self, values: Mapping[str, Any]) -> Object:
        """Its DaemonSet. Of the values `affinity`, `nodeSelector` and `tolerations` count."""
        command = [sys.executable, "-m", "tests.e2e.cluster.plugin", "--node", "$(NODE_NAME)"]
        container = self._on_host("plugin", *command, "--proxy", str(self._cluster.control_plane.proxy))
        return daemon_set(PLUGIN_SPACE, "nvidia-device-plugin", _PLUGIN, values, containers=[container])

    def install_driver(self, values: Mapping[str, Any]) -> None:
        """The DRA driver, with these values of its chart."""
        namespace(self._cluster, DRIVER_SPACE)
        self._cluster.apply(*self.driver(values))

    def driver(self, values: Mapping[str, Any]) -> list[Object]:
        """Its rights and its DaemonSet. Of the values gates, `consumableShares` and where `kubeletPlugin` runs count."""
        gates = values.get("featureGates", {})
        shares = values.get("consumableShares", "") if gates.get("ConsumableShares") else ""
        enumeration = ["/bin/sh", "-euc", _ENUMERATE, _DEVICES, sys.executable, "-m", "tests.e2e.cluster.dra.enumerate"]
        enumeration += [json.dumps(self._edits()), shares, *(["on-demand"] if gates.get("DynamicMIG") else [])]
        instances = [sys.executable, "-m", "tests.e2e.cluster.dra.instances", _INSTANCES]
        arguments = ["--node", "$(NODE_NAME)", "--devices", _DEVICES]
        mounts = {"plugins": "/var/lib/kubelet/plugins", "registry": "/var/lib/kubelet/plugins_registry"}
        mounts |= {"cdi": "/var/run/cdi", "devices": "/run/nvidia", "program": str(driver.program().parent)}
        container = {
            "name": "gpus",
            "image": PAUSE,
            "imagePullPolicy": "Never",
            "command": [str(driver.program()), *arguments],
            "env": [_NODE_NAME],
            "securityContext": {"privileged": True},
            "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
        }
        programs = daemon_set(
            DRIVER_SPACE,
            f"{DRIVER_SPACE}-kubelet-plugin",
            _DRIVER,
            values["kubeletPlugin"],
            serviceAccountName=_ACCOUNT,
            initContainers=[self._on_host("enumerate", *enumeration)],
            containers=[container, *([self._on_host("instances", *instances)] if gates.get("DynamicMIG") else [])],
            volumes=[{"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for name, path in mounts.items()],
        )
        return [*_rights(), programs]

    def _on_host(self, name: str, *command: str) -> Object:
        """A container whose program runs among the files of its node, with NVML."""
        folder = self._fixture.fleet.folder / "$(NODE_NAME)"
        environment = {
            "GPUSHARE_FAKE_NVML": str(folder / "fake-nvml"),
            "LD_LIBRARY_PATH": str(folder / "driver"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        }
        return {
            "name": name,
            "image": RUNTIME,
            "imagePullPolicy": "Never",
            "command": ["/usr/bin/python3", "-ISBc", _ENTER, _HOST, *command],
            "env": [_NODE_NAME, *({"name": key, "value": value} for key, value in environment.items())],
            "securityContext": {"privileged": True},
            "volumeMounts": [{"name": "host", "mountPath": _HOST, "mountPropagation": "HostToContainer"}],
        }

    def _edits(self) -> Object:
        """The driver's files, which it lays into containers of every runtime class."""
        files = self._fixture.fleet.files("$(NODE_NAME)")
        mounts = [
            {"hostPath": str(here), "containerPath": inside, "options": ["bind", "rw"]} for inside, here in files.files.items()
        ]
        return {"env": [f"{name}={value}" for name, value in files.environment.items()], "mounts": mounts}

    def install(self, text: str, edit: Callable[[Path], None] | None = None) -> None:
        """Compile the intent, and install all that its bundle has: the release and NVIDIA's programs, as its README says.

        `edit` changes the bundle before.
        """
        bundle = self._fixture.compile(text)
        if edit is not None:
            edit(bundle)
        for file in bundle.glob("*namespace.yaml"):
            self._cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename", file)
        self._fixture.release.install(bundle, UNCHECKED)
        self.install_plugin(yaml.safe_load((bundle / "device-plugin/values.yaml").read_text()))
        values = bundle / "dra-driver-nvidia-gpu/values.yaml"
        if values.exists():
            self.install_driver(yaml.safe_load(values.read_text()))

    def uninstall(self) -> None:
        """Both, with what is of use with them alone: slices go half a minute after their driver.

        Claims go after their pods; one that is there yet has its device, also from the next driver.
        """
        for space in (PLUGIN_SPACE, DRIVER_SPACE):
            self._cluster.kubectl("delete", "daemonset", "--all", "--namespace", space, "--cascade=foreground", "--wait")
        self._cluster.kubectl("delete", "deviceclasses,resourceclaimtemplates,resourceclaims", "--all", "--all-namespaces")
        self._cluster.wait(lambda: not self.slices(), "kubelet has removed the slices")

    def pods(self, node: str) -> list[str]:
        """The pods of either program on the node, those that are ending too."""
        found = [self._cluster.read(f"/api/v1/namespaces/{space}/pods")["items"] for space in (PLUGIN_SPACE, DRIVER_SPACE)]
        return [str(pod["metadata"]["name"]) for pods in found for pod in pods if pod["spec"].get("nodeName") == node]

    def slices(self, node: str = "") -> list[Object]:
        """The driver's slices, of one node or all."""
        items = self._cluster.read(SLICES)["items"]
        return [one for one in items if one["spec"]["driver"] == DRIVER and node in ("", one["spec"]["nodeName"])]

    def devices(self, node: str) -> dict[str, Object]:
        """The devices that the node's slices have, by name."""
        return {str(one["name"]): one for part in self.slices(node) for one in part["spec"].get("devices", ())}


PLACEMENT = ("affinity", "nodeSelector", "tolerations")
"""The values of either chart that decide where its pods run."""

CHARTS_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": _DISCOVERED, "operator": "In", "values": ["true"]}]}]
        }
    }
}
"""Where both charts run their pods by themselves."""

_NODE_NAME: Object = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def _rights() -> list[Object]:
    name = {"name": f"{DRIVER_SPACE}-clusterrole-kubeletplugin"}
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": DRIVER_SPACE}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT, "namespace": DRIVER_SPACE}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": name, "rules": _RULES},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": name,
            "subjects": [subject],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", **name},
        },
    ]


def daemon_set(
    space: str, name: str, labels: Mapping[str, str], values: Mapping[str, Any], *, volumes: Any = (), **spec: Any
) -> Object:
    """A DaemonSet with the chart's values for where its pods run."""
    chosen = {"affinity": CHARTS_AFFINITY} | {key: values[key] for key in PLACEMENT if key in values}
    host = {"name": "host", "hostPath": {"path": "/"}}
    pod = {"hostNetwork": True, "terminationGracePeriodSeconds": 5, "volumes": [host, *volumes], **chosen, **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": space},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


@contextmanager
def with_agents(cluster_fixture: ClusterFixture, make: type[Agents] = Agents) -> Iterator[Agents]:
    """The cluster with the plugin's DaemonSet to install in place of the processes that the fixture runs for it."""
    agents, fleet = make(cluster_fixture), cluster_fixture.fleet
    for node in cluster_fixture.cluster.nodes:
        fleet.stop_plugin(node)
        cluster_fixture.cluster.kubectl("label", "node", node.name, f"{_DISCOVERED}=true")
    try:
        yield agents
    finally:
        # While the driver is there: without it no pod with a claim ends.
        cluster_fixture.clear()
        agents.uninstall()
        for node in cluster_fixture.cluster.nodes:
            cluster_fixture.cluster.kubectl("label", "node", node.name, f"{_DISCOVERED}-")
            fleet.start_plugin(cluster_fixture.cluster, node)
