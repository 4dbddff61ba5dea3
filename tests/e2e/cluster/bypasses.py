"""Ways to GPUs that nobody allocated, each as a pod, or as what comes into a pod that was allowed long ago."""

from typing import Any

from tests.e2e.cluster.pods import GPU, SHARED, SLICE, Object, affinity, pod, term

ENV = "NVIDIA_VISIBLE_DEVICES"
PRIVILEGED = {"securityContext": {"privileged": True}}


def container(**fields: Any) -> Object:
    """A container beside the pod's own."""
    return {"name": "beside", "image": "example.org/job", **fields}


def host(path: str, **mount: Any) -> Object:
    """A pod with a folder of the host."""
    mounted = {"volumeMounts": [{"name": "v", "mountPath": "/mnt", **mount}]}
    return pod(container=mounted, volumes=[{"name": "v", "hostPath": {"path": path}}])


def mounted(path: str) -> Object:
    """A pod with an empty folder at the path."""
    return pod(container={"volumeMounts": [{"name": "v", "mountPath": path}]}, volumes=[{"name": "v", "emptyDir": {}}])


def secured(**context: Any) -> Object:
    """A pod whose container has this security context."""
    return pod(container={"securityContext": context})


def set_to(name: str, value: str = "all") -> Object:
    """A container's variable."""
    return {"env": [{"name": name, "value": value}]}


PLACE = "/var/run/nvidia-container-devices"
PATHS = (
    f"{PLACE}/all",
    f"/{PLACE}/all",
    "/run/nvidia-container-devices/all",
    "/var/run/./nvidia-container-devices/0",
    "/var/run/nvidia/../nvidia-container-devices/all",
    f"{PLACE}/all/",
    "//var//run//nvidia-container-devices//all",
    "var/run/nvidia-container-devices/all",
    f"{PLACE}/cdi/nvidia.com/gpu/all",
    f"{PLACE}/imex/0",
    "/run/x/../nvidia-container-devices/all",
)
FOLDERS = (
    "/",
    "//",
    "/.",
    "/dev",
    "//dev",
    "/dev/",
    "/dev/.",
    "/dev/nvidia0",
    "/dev/null",
    "/run",
    "/var/run",
    "/var/run/",
    "/run/nvidia",
    "/run/nvidia/driver/dev",
    "/proc/1/root",
    "/proc/1/root/dev",
    "/proc/self/root",
    "/sys",
    "/var/lib/kubelet",
    "/var/lib/kubelet/device-plugins",
    "/run/containerd/containerd.sock",
    "/home/tenant/link",
    "/tmp",
)
VARIABLES = (
    ENV,
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_NVSWITCH",
    "NVIDIA_GDS",
    "NVIDIA_GDRCOPY",
    "NVIDIA_MOFED",
)
CAPABILITIES = (
    "ALL",
    "SYS_ADMIN",
    "CAP_SYS_ADMIN",
    "sys_admin",
    "Cap_Sys_Rawio",
    "SYS_MODULE",
    "DAC_READ_SEARCH",
    "BPF",
    "all",
)
ANNOTATIONS = ("cdi.k8s.io/a", "nvidia.cdi.k8s.io/container.c0", "io.kubernetes.cri-o.Devices", "devices.nri.io/pod")

DEVICES: dict[str, tuple[Object, str]] = {
    **{f"mount {path}": (mounted(path), "were not allocated") for path in PATHS},
    **{f"host's {path}": (host(path), "a folder of the host") for path in FOLDERS},
    **{f"variable {name}": (pod(container=set_to(name)), "ask for a GPU resource") for name in VARIABLES},
    **{f"capability {name}": (secured(capabilities={"add": [name]}), "reach the host") for name in CAPABILITIES},
    **{f"annotation {name}": (pod(annotations={name: "nvidia.com/gpu=all"}), "add devices") for name in ANNOTATIONS},
    "the host's folder by subPath": (host("/var", subPath="run/nvidia"), "a folder of the host"),
    "the host's folder that no container mounts yet": (
        pod(volumes=[{"name": "v", "hostPath": {"path": "/dev"}}]),
        "a folder of the host",
    ),
    "a mount of a device that is a claim": (
        pod(
            container={"volumeDevices": [{"name": "v", "devicePath": f"{PLACE}/all"}]},
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        ),
        "were not allocated",
    ),
    "a CSI volume of the host": (
        pod(volumes=[{"name": "v", "csi": {"driver": "hostpath.csi.k8s.io"}}]),
        "a folder of the host",
    ),
    "a flex volume": (pod(volumes=[{"name": "v", "flexVolume": {"driver": "example.org/bind"}}]), "a folder of the host"),
    "devices from elsewhere": (
        pod(container={"env": [{"name": ENV, "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]}),
        "ask for a GPU resource",
    ),
    "devices by another variable": (
        pod(container={"env": [{"name": "A", "value": "all"}, {"name": ENV, "value": "$(A)"}]}),
        "ask for a GPU resource",
    ),
    "devices by number": (pod(container=set_to(ENV, "0")), "ask for a GPU resource"),
    "devices in an init container": (pod(initContainers=[container(**set_to(ENV))]), "ask for a GPU resource"),
    "devices in a sidecar": (pod(initContainers=[container(restartPolicy="Always", **set_to(ENV))]), "ask for a GPU resource"),
    "a mount in an init container": (
        pod(
            initContainers=[container(volumeMounts=[{"name": "v", "mountPath": PATHS[0]}])],
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        "were not allocated",
    ),
    "privileged": (pod(container=PRIVILEGED), "gpushare.dev/admission"),
    "privileged in an init container": (pod(initContainers=[container(**PRIVILEGED)]), "gpushare.dev/admission"),
    "privileged in a sidecar": (
        pod(initContainers=[container(restartPolicy="Always", **PRIVILEGED)]),
        "gpushare.dev/admission",
    ),
    "hostPID": (pod(hostPID=True), "hostPID"),
    "hostPID with KILL": (pod(hostPID=True, container={"securityContext": {"capabilities": {"add": ["KILL"]}}}), "hostPID"),
    "hostIPC": (pod(hostIPC=True), "hostIPC"),
    "the runtime class without a GPU": (pod(runtimeClassName="nvidia"), "runtime class"),
    **{
        f"the runtime class with {zero} of a GPU": (
            pod(({"nvidia.com/gpu": zero},), runtimeClassName="nvidia"),
            "runtime class",
        )
        for zero in ("0", "0m", "0k", "0e3", "0Gi", 0)
    },
    "the runtime class with none in an init container": (
        pod(runtimeClassName="nvidia", initContainers=[container(resources={"limits": {"nvidia.com/gpu": "0"}})]),
        "runtime class",
    ),
    "the runtime class with none of two kinds": (
        pod(({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "0"}, {"nvidia.com/gpu.shared": 0}), runtimeClassName="nvidia"),
        "runtime class",
    ),
    "the runtime class with a made-up resource": (
        pod(({"nvidia.com/anything": 1},), runtimeClassName="nvidia"),
        "runtime class",
    ),
    "the runtime class with a claim that no container uses": (
        pod(runtimeClassName="nvidia", resourceClaims=[{"name": "a", "resourceClaimName": "b"}]),
        "runtime class",
    ),
    "another runtime class of NVIDIA": (pod(runtimeClassName="nvidia-cdi"), "runtime class"),
    "an AppArmor profile of the node": (secured(appArmorProfile={"type": "Localhost", "localhostProfile": "mute"}), "AppArmor"),
    "an AppArmor profile of the pod": (
        pod(securityContext={"appArmorProfile": {"type": "Localhost", "localhostProfile": "mute"}}),
        "AppArmor",
    ),
    "an AppArmor profile of an init container": (
        pod(initContainers=[container(securityContext={"appArmorProfile": {"type": "Localhost", "localhostProfile": "mute"}})]),
        "AppArmor",
    ),
    "an AppArmor profile by annotation": (
        pod(annotations={"container.apparmor.security.beta.kubernetes.io/c0": "localhost/mute"}),
        "AppArmor",
    ),
    "an SELinux type": (secured(seLinuxOptions={"type": "spc_t"}), "SELinux"),
    "an SELinux type of the pod": (pod(securityContext={"seLinuxOptions": {"type": "unconfined_t"}}), "SELinux"),
}
"""What reaches devices: refused in a tenant's namespace, told elsewhere."""

POOLS: dict[str, tuple[Object, str]] = {
    "two shares": (pod(({SHARED: 2},), choose="serving"), "Write 1"),
    "two shares in an init container": (
        pod(choose="serving", initContainers=[container(resources={"limits": {SHARED: 2}})]),
        "Write 1",
    ),
    "a share and a slice": (pod(({SHARED: 1, SLICE: 1},), choose="serving"), "write one of them"),
    "a whole GPU of any pool": (pod(({GPU: 1},)), "nodeSelector: {gpushare.dev/pool: POOL}"),
    "a share that means two things": (pod(({SHARED: 1},), where="course"), "nodeSelector: {gpushare.dev/pool: POOL}"),
    "a pool of others": (pod(({SHARED: 1},), choose="notebooks"), "namespace physics may not use pool notebooks"),
    "a pool of others by affinity": (pod(({SHARED: 1},), **affinity(term("In", "notebooks"))), "may not use pool notebooks"),
    "one of two pools by affinity": (pod(({SHARED: 1},), **affinity(term("In", "serving", "notebooks"))), "may not use pool"),
    "one of two pools by two terms": (
        pod(({SHARED: 1},), **affinity(term("In", "serving"), term("In", "notebooks"))),
        "may not",
    ),
    "a choice in one term only": (
        pod(({GPU: 1},), **affinity(term("In", "whole"), {"matchExpressions": [{"key": "a", "operator": "Exists"}]})),
        "several pools offer this",
    ),
    "a choice of what it is not": (pod(({GPU: 1},), **affinity(term("NotIn", "notebooks"))), "several pools offer this"),
}
"""What asks for more than one share, or for what others have."""

DEBUGGING: dict[str, tuple[Object, str]] = {
    "all devices": (set_to(ENV), "ask for a GPU resource"),
    "privileged": (PRIVILEGED, "privileged"),
    "a capability": ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "reach the host"),
    "a mount": ({"volumeMounts": [{"name": "v", "mountPath": "/run/nvidia-container-devices/all"}]}, "were not allocated"),
    "an AppArmor profile": (
        {"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "mute"}}},
        "AppArmor",
    ),
    "an SELinux type": ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "SELinux"),
}
"""What debugging containers of a tenant's pod may not have."""
