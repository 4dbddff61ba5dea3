"""Pods that run on living GPU clusters, with what their public manifests ask of a node, and nothing else of them."""

from typing import Any

Object = dict[str, Any]

PRIVILEGED = {"securityContext": {"privileged": True}}


def _host(*paths: str) -> Object:
    volumes = [{"name": f"v{number}", "hostPath": {"path": path}} for number, path in enumerate(paths)]
    mounts = [{"name": f"v{number}", "mountPath": path} for number, path in enumerate(paths)]
    return {"volumes": volumes, "mounts": mounts}


def _pod(
    name: str, namespace: str, *paths: str, container: Object | None = None, env: Object | None = None, **spec: Any
) -> Object:
    host = _host(*paths)
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    one = {"name": name, "image": f"example.org/{name}", "volumeMounts": host["mounts"], "env": variables, **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{name}-", "namespace": namespace},
        "spec": {"containers": [one], "volumes": host["volumes"], **spec},
    }


def _work(name: str, namespace: str, limits: Object, *, container: Object | None = None, **spec: Any) -> Object:
    shm = {"name": "dshm", "emptyDir": {"medium": "Memory"}}
    one = {
        "name": name,
        "image": f"example.org/{name}",
        "resources": {"limits": limits},
        "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
        **(container or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{name}-", "namespace": namespace},
        "spec": {"containers": [one], "volumes": [shm], **spec},
    }


DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
RUNTIME: Object = {"runtimeClassName": "nvidia"}
ALL = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
UNPRIVILEGED = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
ISTIO = {
    "name": "istio-init",
    "image": "example.org/proxyv2",
    "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}, "runAsUser": 0},
}

AGENTS: dict[str, Object] = {
    "the operator's device plugin": _pod(
        "nvidia-device-plugin",
        "gpu-operator",
        DEVICE_PLUGINS,
        "/run/nvidia",
        "/",
        "/var/run/cdi",
        "/run/nvidia/mps",
        container=PRIVILEGED,
        env=ALL | {"NVIDIA_MIG_MONITOR_DEVICES": "all"},
        priorityClassName="system-node-critical",
        **RUNTIME,
    ),
    "the operator's toolkit": _pod(
        "nvidia-container-toolkit",
        "gpu-operator",
        "/",
        "/run/nvidia",
        "/etc/containerd",
        "/usr/local/nvidia",
        container=PRIVILEGED,
        hostPID=True,
    ),
    "the operator's driver": _pod(
        "nvidia-driver",
        "gpu-operator",
        "/run/nvidia",
        "/dev/log",
        "/sys/module",
        "/lib/modules",
        container=PRIVILEGED,
        hostPID=True,
    ),
    "the plugin's own chart": _pod(
        "nvidia-device-plugin",
        "nvidia",
        DEVICE_PLUGINS,
        "/",
        "/var/run/cdi",
        container={"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
        env=ALL,
    ),
    "GPU feature discovery": _pod(
        "gpu-feature-discovery",
        "gpu-operator",
        "/etc/kubernetes/node-feature-discovery/features.d",
        "/sys",
        container=PRIVILEGED,
        env=ALL,
        **RUNTIME,
    ),
    "the MPS control daemon": _pod(
        "mps-control-daemon",
        "gpu-operator",
        "/run/nvidia/mps",
        "/run/nvidia/mps/shm",
        container=PRIVILEGED,
        env=ALL,
        hostPID=True,
        **RUNTIME,
    ),
    "DCGM exporter in monitoring": _pod(
        "dcgm-exporter",
        "monitoring",
        "/var/lib/kubelet/pod-resources",
        container={"securityContext": {"capabilities": {"add": ["SYS_ADMIN"], "drop": ["ALL"]}, "runAsUser": 0}},
        hostPID=True,
        **RUNTIME,
    ),
    "MIG manager": _pod(
        "mig-manager",
        "gpu-operator",
        "/",
        "/sys",
        "/run/nvidia",
        container=PRIVILEGED,
        env=ALL | {"NVIDIA_MIG_CONFIG_DEVICES": "all"},
        hostPID=True,
        hostIPC=True,
        **RUNTIME,
    ),
    "node-exporter": _pod("node-exporter", "monitoring", "/proc", "/sys", "/", hostNetwork=True, hostPID=True),
    "a CNI agent": _pod(
        "cilium",
        "cilium",
        "/sys/fs/bpf",
        "/proc",
        "/run/cilium",
        "/opt/cni/bin",
        container={
            "securityContext": {
                "capabilities": {"add": ["NET_ADMIN", "SYS_MODULE", "SYS_ADMIN", "BPF", "KILL"]},
                "seLinuxOptions": {"type": "spc_t"},
            }
        },
        hostNetwork=True,
    ),
    "another CNI agent": _pod(
        "calico-node",
        "calico-system",
        "/lib/modules",
        "/var/run/calico",
        "/var/run/nodeagent",
        container=PRIVILEGED,
        hostNetwork=True,
    ),
    "a CSI node plugin": _pod(
        "csi-rbdplugin",
        "rook-ceph",
        "/var/lib/kubelet/pods",
        "/dev",
        "/sys",
        "/run/mount",
        container=PRIVILEGED,
        hostNetwork=True,
        hostPID=True,
    ),
    "a log shipper": _pod("fluent-bit", "logging", "/var/log", "/etc/machine-id"),
    "a security agent": _pod("falco", "falco", "/dev", "/proc", "/host/boot", container=PRIVILEGED),
    "kubectl debug node": _pod("node-debugger", "default", "/", hostPID=True, hostIPC=True, hostNetwork=True),
    "a pod with an AppArmor profile": _pod(
        "confined",
        "default",
        container={"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "site"}}},
    ),
}
"""Pods of namespaces that no intent names, and that ask for no GPU."""

WORK: dict[str, Object] = {
    "a Kubeflow notebook": _work(
        "notebook",
        "course",
        {"nvidia.com/gpu.shared": 1},
        initContainers=[ISTIO],
        nodeSelector={"gpushare.dev/pool": "notebooks"},
        securityContext={"fsGroup": 100},
    ),
    "a Kubeflow training worker": _work(
        "pytorchjob-worker",
        "physics",
        {"nvidia.com/gpu": 4},
        nodeSelector={"gpushare.dev/pool": "whole"},
        initContainers=[{"name": "init-pytorch", "image": "example.org/alpine"}],
    ),
    "an MPI launcher": _work("mpi-launcher", "physics", {}, container=UNPRIVILEGED),
    "a KubeRay head": _work(
        "ray-head",
        "physics",
        {"cpu": "4"},
        container={
            "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},
            "lifecycle": {"preStop": {"exec": {"command": ["ray", "stop"]}}},
        },
    ),
    "a KubeRay worker": _work(
        "ray-worker",
        "physics",
        {"nvidia.com/mig-1g.5gb": 1},
        container={"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}},
        initContainers=[{"name": "wait-gcs-ready", "image": "example.org/ray"}],
    ),
    "a worker with RDMA": _work(
        "nccl",
        "physics",
        {"nvidia.com/gpu": 4, "rdma/hca": 1},
        nodeSelector={"gpushare.dev/pool": "whole"},
        container={"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}},
        hostNetwork=True,
    ),
    "an inference server": _work(
        "vllm",
        "strangers",
        {"nvidia.com/gpu.shared": 1},
        nodeSelector={"gpushare.dev/pool": "serving"},
        runtimeClassName="nvidia",
    ),
    "a sidecar with a restart policy": _work(
        "kserve",
        "physics",
        {},
        initContainers=[{"name": "agent", "image": "example.org/agent", "restartPolicy": "Always"}],
        serviceAccountName="default",
    ),
    "volumes of every harmless kind": _work("volumes", "physics", {})
    | {
        "spec": {
            "containers": [
                {"name": "a", "image": "example.org/a", "volumeDevices": [{"name": "raw", "devicePath": "/dev/xvda"}]}
            ],
            "volumes": [
                {"name": "raw", "persistentVolumeClaim": {"claimName": "raw"}},
                {"name": "token", "projected": {"sources": [{"secret": {"name": "a"}}, {"configMap": {"name": "a"}}]}},
                {"name": "secrets", "csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}},
                {"name": "bucket", "csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": "a"}}},
                {"name": "nfs", "nfs": {"server": "nfs.example.org", "path": "/export"}},
            ],
        }
    },
}
"""Pods of tenants: in namespaces that the intent of the tests names, or asking for a share."""
