"""The image at work: the chart's own container holds a real tenant's container to its cap, and nobody else is touched."""

import json
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare_node import __version__
from tests.compiler.render import compiled
from tests.e2e.image import containers
from tests.e2e.image.building import built
from tests.e2e.image.containers import Container, loaded, mounts, of_one_program, running
from tests.support import helm
from tests.support.certificates import certify
from tests.support.fake_api.server import ApiServer
from tests.support.fake_nvml import FakeNvml
from tests.support.fake_nvml.build import library, tenant
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, wait_for

NODE = "node-1"
MAX_RESIDENT_MIB = 64
SHARED = "nvidia.com/gpu.shared"
POOL = (
    "{card: a100-sxm4-40gb, nodes: {matchLabels: {p: x}}, gpusPerNode: 2, sharing: {mode: time-slicing, replicas: 10},"
    " enforcement: {grace: 1s}}"
)
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
STATE = "/dev/nvidia-fake-nvml"
"""In a tenant the state file lies where a driver's device would: that is how a process is known to use a GPU."""

OFFENDER, NEIGHBOUR, SYSTEM = (str(uuid.uuid4()) for _ in range(3))
"""Pods, and so cgroups: no other run on this machine has them."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """What compile and Helm make of a pool of time-sliced GPUs."""

    policy: str
    enforce: dict[str, Any]
    host_pid: bool


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    with loaded(built()) as name:
        yield name


@pytest.fixture(scope="module")
def program() -> Iterator[str]:
    with of_one_program(tenant()) as name:
        yield name


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle")
    files = compiled.files("notebooks", notebooks=POOL)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    command: list[str | Path] = [helm.helm(), "template", "gpushare", folder / "chart", "--namespace", "gpu-system"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    documents = [one for one in yaml.safe_load_all(printed) if one]
    [pod] = [
        one["spec"]["template"]["spec"]
        for one in documents
        if one["kind"] == "DaemonSet" and one["metadata"]["name"] == "gpushare-notebooks"
    ]
    [enforce] = pod["containers"]
    return Bundle(policy=files["chart/files/policies/notebooks.yaml"], enforce=enforce, host_pid=pod["hostPID"])


@dataclass(kw_only=True)
class Node:
    """A node of fake GPUs and real containers."""

    folder: Path
    fake_nvml: FakeNvml
    api: ApiServer
    stack: ExitStack
    program: str
    port: int
    """Of the runtime's metrics; its containers are in the machine's own network."""

    @property
    def state(self) -> Path:
        return Path(self.fake_nvml.environment["GPUSHARE_FAKE_NVML"])

    def tenant(self, *arguments: str, parent: str = "", user: int = 0) -> Container:
        """A container that uses GPU 0, in this cgroup; ready when this returns."""
        options = [f"--env=GPUSHARE_FAKE_NVML={STATE}", f"--user={user}", *mounts({STATE: self.state})]
        options += [f"--cgroup-parent={parent}"] if parent else []
        container = self.stack.enter_context(running(self.program, "/program", "--gpu", "0", *arguments, options=options))
        wait_for(lambda: "ready" in container.logs())
        return container

    def pod(self, name: str, uid: str, container: Container, **more: Any) -> None:
        """What the API server knows of it."""
        ids = {"main": f"containerd://{container.id}"}
        self.api.add_pod(name, namespace=more.pop("namespace", "team"), node=NODE, uid=uid, containers=ids, **more)

    def allocate(self, *uids: str) -> None:
        """One share of GPU 0 to each, as kubelet writes it down."""
        ids = [[f"{self.fake_nvml.uuid(gpu)}::{number}" for number in range(10)] for gpu in (0, 1)]
        entries = [
            {"PodUID": uid, "ContainerName": "main", "ResourceName": SHARED, "DeviceIDs": {"-1": [share]}}
            for uid, share in zip(uids, ids[0], strict=False)
        ]
        registered = {SHARED: ids[0] + ids[1]}
        text = json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 0})
        (self.folder / "kubelet" / "kubelet_internal_checkpoint").write_text(text)

    def runtime(self, image: str, bundle: Bundle, *, without: str = "") -> Container:
        """The runtime's container, with what the chart gives it and no more; `without` one of its capabilities."""
        security = bundle.enforce["securityContext"]
        environment = {
            "NODE_NAME": NODE,
            "POD_NAME": "runtime",
            "POD_NAMESPACE": "gpu-system",
            "POD_UID": "9",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": self.api.url.rpartition(":")[2],
            "GPUSHARE_FAKE_NVML": "/fake-nvml",
        }
        places = {"/var/lib/gpushare": self.folder / "state", "/fake-nvml": self.state}
        fixed = {
            "/var/lib/kubelet/device-plugins": self.folder / "kubelet",
            "/etc/gpushare": self.folder / "policy",
            "/var/run/secrets/kubernetes.io/serviceaccount": self.folder / "account",
            LIBRARY: library(),
        }
        options = [
            *(["--pid=host"] if bundle.host_pid else []),
            *(["--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp"] if security["readOnlyRootFilesystem"] else []),
            *([] if security["allowPrivilegeEscalation"] else ["--security-opt=no-new-privileges"]),
            *(f"--cap-drop={name}" for name in security["capabilities"]["drop"]),
            *(f"--cap-add={name}" for name in security["capabilities"]["add"] if name != without),
            f"--user={security['runAsUser']}",
            *(f"--env={name}={value}" for name, value in environment.items()),
            *mounts(places),
            *mounts(fixed, "ro"),
            "--entrypoint=[]",
        ]
        return self.stack.enter_context(running(image, *bundle.enforce["command"], "--port", str(self.port), options=options))


@pytest.fixture
def node(tmp_path: Path, program: str, bundle: Bundle) -> Iterator[Node]:
    for name in ("state", "kubelet", "policy", "account"):
        (tmp_path / name).mkdir()
    (tmp_path / "policy" / "policy.yaml").write_text(bundle.policy)
    (tmp_path / "account" / "token").write_text("token")
    fake_nvml = FakeNvml.make(tmp_path, ("a100-sxm4-40gb",) * 2)
    certificate = certify(tmp_path / "account" / "ca.crt")
    with ApiServer(token="token", certificate=certificate) as api, ExitStack() as stack:
        api.add_node(NODE, labels={"p": "x", "gpushare.dev/pool": "notebooks"})
        yield Node(folder=tmp_path, fake_nvml=fake_nvml, api=api, stack=stack, program=program, port=free_port())


def resident_mib(container: Container) -> float:
    text = Path(f"/proc/{container.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def pod_cgroup(uid: str, quality: str = "burstable") -> str:
    return f"/kubepods/{quality}/pod{uid}"


def test_only_the_tenant_over_its_cap_is_killed(node: Node, image: str, bundle: Bundle) -> None:
    assert bundle.enforce["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["KILL", "SYS_PTRACE"]}
    greed = ("--mib", "1000", "--grow-to", "9000", "--grow-after", "4", "--on-term", "ignore")
    offender = node.tenant(*greed, parent=pod_cgroup(OFFENDER))
    neighbour = node.tenant("--mib", "3000", parent=pod_cgroup(NEIGHBOUR))
    system = node.tenant("--mib", "8000", parent=pod_cgroup(SYSTEM, "besteffort"))
    server = node.tenant("--mib", "15000", "--comm", "nvidia-cuda-mps-server")
    node.pod("greedy", OFFENDER, offender)
    node.pod("modest", NEIGHBOUR, neighbour)
    node.pod("exporter", SYSTEM, system, namespace="kube-system", priority_class="system-node-critical")
    node.allocate(OFFENDER, NEIGHBOUR)
    runtime = node.runtime(image, bundle)
    wait_for(lambda: not offender.is_running())
    assert offender.exit_code() == 128 + 9
    time.sleep(3)  # Three more cycles: whoever is touched wrongly would be by now.
    assert all(other.is_running() for other in (neighbour, system, server, runtime))
    wait_for(lambda: {"GPUMemoryOverCap", "GPUProcessKilled"} <= {event["reason"] for event in node.api.events("team")})
    assert resident_mib(runtime) < MAX_RESIDENT_MIB
    told = [json.loads(line) for line in runtime.logs().splitlines()]
    kills = [line for line in told if line.get("event") == "kill"]
    assert {line["pod"] for line in kills} == {"greedy"}
    assert {(line["signal"], line["outcome"]) for line in kills} >= {("SIGTERM", "sent"), ("SIGKILL", "exited_kill")}
    assert all(line["node"] == NODE and line["pool"] == "notebooks" for line in told[1:])


@pytest.mark.failure_case(43)
def test_missing_kill_permission_is_reported_and_no_process_is_killed(node: Node, image: str, bundle: Bundle) -> None:
    # Somebody else's processes: to its own user's, root's, it needs no capability.
    greed = ("--mib", "9000", "--on-term", "ignore")
    offender = node.tenant(*greed, parent=pod_cgroup(OFFENDER), user=1000)
    neighbour = node.tenant("--mib", "3000", parent=pod_cgroup(NEIGHBOUR), user=1001)
    node.pod("greedy", OFFENDER, offender)
    node.pod("modest", NEIGHBOUR, neighbour)
    node.allocate(OFFENDER, NEIGHBOUR)
    runtime = node.runtime(image, bundle, without="KILL")
    wait_for(lambda: "GPUProcessKillFailed" in [event["reason"] for event in node.api.events("team")])
    time.sleep(3)  # Three more cycles: it goes on to watch, and tries nobody else.
    assert all(one.is_running() for one in (offender, neighbour, runtime))
    told = [event["reason"] for event in node.api.events("team")]
    assert "GPUProcessKilled" not in told
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port}/metrics", timeout=PATIENCE) as answer:
        kills = [line for line in answer.read().decode().splitlines() if line.startswith("gpushare_kills_total{")]
    assert kills == ['gpushare_kills_total{signal="SIGTERM",outcome="eperm",reason="over-cap"} 1']
    assert {line["pod"] for line in map(json.loads, runtime.logs().splitlines()) if line.get("event") == "kill"} == {"greedy"}


def test_containerised_runtime_prints_its_version_and_exports_the_hardware(node: Node, image: str) -> None:
    version = containers.run(image, "--version")
    options = ["--env=GPUSHARE_FAKE_NVML=/fake-nvml", *mounts({"/fake-nvml": node.state}), *mounts({LIBRARY: library()}, "ro")]
    exported = containers.run(image, "export", options=options)
    assert (version.returncode, version.stdout) == (0, f"gpushare-node {__version__}\n"), version.stderr
    assert exported.returncode == 0, exported.stderr
    assert [gpu["uuid"] for gpu in yaml.safe_load(exported.stdout)["gpus"]] == [node.fake_nvml.uuid(0), node.fake_nvml.uuid(1)]


def test_image_knows_when_a_window_opens(image: str) -> None:
    program = """
import sys
sys.path.insert(0, "/opt/gpushare")
from gpushare_node.contract.windows import Window
from gpushare_node.contract.windows import locate
window = Window(days=("Sat",), start="22:00", duration_seconds=3600, timezone="Europe/Zurich")
print(locate([window], 0.0).opening)
"""
    done = containers.run(image, "-ISBc", program, options=("--entrypoint=/usr/bin/python3",))
    assert done.stdout == "Sat 1970-01-03 22:00 Europe/Zurich (1970-01-03 21:00 UTC)\n", done.stderr


def test_missing_driver_is_reported(image: str) -> None:
    done = containers.run(image, "export")
    assert done.returncode == 69
    assert done.stderr.startswith("gpushare-node: the driver does not answer: ")


def test_runtime_exits_cleanly_on_sigterm(node: Node, image: str, bundle: Bundle) -> None:
    node.allocate()
    runtime = node.runtime(image, bundle)
    wait_for(lambda: "enforcing the caps" in runtime.logs())
    containers.podman("kill", "--signal=TERM", runtime.id)
    assert runtime.exit_code() == 0, runtime.logs()
