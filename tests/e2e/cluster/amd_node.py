"""AMD's GPUs on a node of the cluster, and AMD's programs there: real pods of DaemonSets, whose work is done from here.

The device plugin runs as long as its pod does: the manager's taint ends it, and a new pod reads the GPUs again.
"""

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.e2e.cluster import machine
from tests.e2e.cluster.bundles import namespace
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.cluster_fixture import A100, ClusterFixture
from tests.e2e.cluster.images import PAUSE
from tests.e2e.cluster.machine import MachineError
from tests.support.fake_amd.config_manager import LABEL, FakeConfigManager
from tests.support.fake_amd.sysfs import FakeSysfs
from tests.support.paths import ROOT

SPACE = "kube-amd-gpu"
CONFIGS = f"/apis/amd.com/v1alpha1/namespaces/{SPACE}/deviceconfigs"
INSIDE = "/var/lib/fake-sys"
"""Where the node has the made-up sysfs. The bundle's chart mounts it in place of /sys."""

_NAME = "app.kubernetes.io/name"
_PROGRAMS = {"device-plugin": {}, "node-labeller": {}, "device-config-manager": {_NAME: "device-config-manager"}}
_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "deviceconfigs.amd.com"},
    "spec": {
        "group": "amd.com",
        "names": {"kind": "DeviceConfig", "plural": "deviceconfigs"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def define_device_configs(cluster: Cluster) -> None:
    """The namespace of AMD's operator and its kind, any content of it: the operator itself is not there."""
    namespace(cluster, SPACE)
    cluster.apply(_CRD)
    cluster.await_kinds("deviceconfigs")


class AmdGpus:
    """The GPUs of one node, and AMD's operator, which runs the programs for the one DeviceConfig that there is."""

    def __init__(self, cluster_fixture: ClusterFixture, name: str, strategy: str) -> None:
        self._fixture, self._cluster, self.name = cluster_fixture, cluster_fixture.cluster, name
        self._strategy = strategy
        self._config = ""
        self.node = cluster_fixture.node(name)
        root = self.node.path(INSIDE)
        (root / "fs/cgroup").mkdir(parents=True)  # containerd mounts the cgroups there
        self.sysfs = FakeSysfs(root, "mi300x", "mi300x")
        self.manager = FakeConfigManager(self.sysfs, {}, self._write, self._tell)
        self.manager.work_seconds, self.manager.retry_seconds, self.manager.give_up_seconds = 3.0, 3.0, 5.0
        self._numbers = itertools.count()
        self._plugin: tuple[str, int] | None = None
        self._manager_uid = self._manager_name = ""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def start(self) -> None:
        define_device_configs(self._cluster)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._serve("")
        self._operate([])

    def _operate(self, configs: list[Any]) -> None:
        """Make what a DeviceConfig says when it comes, and remove it when it goes."""
        config = next(iter(configs), None)
        name = "" if config is None else str(config["metadata"]["name"])
        if name == self._config:
            return
        if config is None:
            programs = [f"{self._config}-{program}" for program in _PROGRAMS]
            self._cluster.kubectl("delete", "daemonset", *programs, "--namespace", SPACE)
        else:
            selector = config["spec"]["selector"]
            self._cluster.apply(*(_daemon_set(name, program, labels, selector) for program, labels in _PROGRAMS.items()))
        self._config = name

    # What the programs do.

    def _work(self) -> None:
        while not self._is_over.wait(0.25):
            with suppress(MachineError):
                self._operate(self._cluster.read(CONFIGS)["items"])
                self._serve(self._pod("device-plugin")[0])
                uid, self._manager_name = self._pod("device-config-manager")
                label = self._fixture.labels(self.name).get(LABEL)
                if uid and uid != self._manager_uid:
                    self.manager.start(label, time.monotonic())
                elif uid:
                    self.manager.look(label, time.monotonic())
                self._manager_uid = uid

    def _pod(self, name: str) -> tuple[str, str]:
        """The uid and the name of the program's pod that runs; empty without one."""
        pods = self._cluster.read(f"/api/v1/namespaces/{SPACE}/pods", labelSelector=f"tests/program={name}")["items"]
        running = (
            pod for pod in pods if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        )
        return next(((str(pod["metadata"]["uid"]), str(pod["metadata"]["name"])) for pod in running), ("", ""))

    def _serve(self, uid: str) -> None:
        """Have the device plugin run for the pod of this uid, and no other."""
        if self._plugin is not None and self._plugin[0] != uid:
            machine.stop([self._plugin[1]], seconds=30)
            self._plugin = None
        if uid and self._plugin is None:
            command = self.node.command(sys.executable, "-m", "tests.e2e.cluster.amd_plugin", INSIDE, self._strategy)
            environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
            self._plugin = uid, machine.start(command, self.node.folder / "amd-plugin.log", environment)

    def _write(self, name: str, value: str) -> None:
        self._cluster.kubectl("label", "node", self.name, f"{name}={value}", "--overwrite")

    def _tell(self, reason: str, message: str) -> None:
        """The manager's Event names its pod without a uid."""
        about = {"kind": "Pod", "namespace": SPACE, "name": self._manager_name}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"manager-{next(self._numbers)}", "namespace": SPACE},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "lastTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        self._cluster.apply(event)


def _daemon_set(config: str, program: str, labels: dict[str, str], selector: dict[str, str]) -> dict[str, Any]:
    labels = {"daemonset-name": config, "tests/program": program} | labels
    everything = [{"operator": "Exists"}]
    ours = [{"key": f"gpushare.dev/{word}", "operator": "Exists"} for word in ("not-ready", "repartitioning")]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": f"{config}-{program}", "namespace": SPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": selector,
                    "tolerations": everything if _NAME in labels else ours,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "main", "image": PAUSE, "imagePullPolicy": "Never"}],
                },
            },
        },
    }


@contextmanager
def with_amds_gpus(cluster_fixture: ClusterFixture, name: str, strategy: str) -> Iterator[AmdGpus]:
    """The node has AMD's GPUs in place of its fake ones of NVIDIA's, which come back afterwards."""
    cluster_fixture.withdraw_plugin(name)
    gpus = AmdGpus(cluster_fixture, name, strategy)
    gpus.start()
    try:
        yield gpus
    finally:
        gpus.stop()
        cluster_fixture.equip(name, A100)
