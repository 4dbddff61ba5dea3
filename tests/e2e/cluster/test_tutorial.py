"""docs/tutorial.md, command by command, on a cluster of which one node has one T4.

The commands run as they are written, and print what the page shows. Two things are replaced. A device plugin already runs, so
its chart is not installed. A program that takes memory of the simulated GPU stands for PyTorch; like it, it ignores SIGTERM.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.test_docs import SKIPPED, is_shown, manifests, sessions
from tests.e2e.cluster.bundles import NAMESPACE, namespace
from tests.e2e.cluster.cluster_fixture import A100, SHARED, ClusterFixture
from tests.e2e.cluster.images import RUNTIME, TENANT
from tests.e2e.cluster.shell import Shell
from tests.support.paths import ROOT

PAGE = ROOT / "docs/tutorial.md"
MANIFESTS = manifests(PAGE)
PLUGIN = "nvidia-device-plugin"


def image() -> str:
    """The name that the page gives to the node runtime's image."""
    [named] = set(re.findall(r"docker-archive:runtime\.tar:(\S+)", PAGE.read_text()))
    assert yaml.safe_load(MANIFESTS["intent.yaml"])["spec"]["platform"]["image"]["repository"] == named.rpartition(":")[0]
    return str(named)


def simulated(text: str) -> str:
    """The pod with a program that takes as much memory of a simulated GPU."""
    pod = yaml.safe_load(text)
    [container] = pod["spec"]["containers"]
    [mib] = re.findall(r"(\d+) << 20", container["args"][0])
    del container["command"]
    taken = ["--gpu", "$(NVIDIA_VISIBLE_DEVICES)", "--mib", mib, "--on-term", "ignore"]
    container |= {"image": TENANT, "imagePullPolicy": "Never", "args": taken}
    return yaml.safe_dump(pod, width=1000)


@pytest.fixture
def shell(cluster_fixture: ClusterFixture, tmp_path: Path) -> Iterator[Shell]:
    """The folder of the page, and a node as it is after step 1."""
    cluster, node = cluster_fixture.cluster, cluster_fixture.node("node-1")
    cluster_fixture.equip(node.name, ("t4",))
    cluster_fixture.equip("node-2", A100)
    for each in cluster.nodes:
        each.ctr("images", "tag", "--force", RUNTIME, image())
    # The page creates it.
    cluster.kubectl("delete", "namespace", NAMESPACE)
    made = Shell(cluster, tmp_path / "lab")
    (made.folder / "intent.yaml").write_text(MANIFESTS["intent.yaml"])
    (made.folder / "share.yaml").write_text(simulated(MANIFESTS["share.yaml"]))
    yield made
    cluster.kubectl("delete", "pods", "share", "offender", "--ignore-not-found", "--now")
    namespace(cluster, NAMESPACE, **{"pod-security.kubernetes.io/enforce": "privileged"})
    cluster_fixture.clear()
    for each in cluster.nodes:
        each.ctr("images", "remove", image())
    cluster_fixture.equip(node.name, A100)


def test_tutorial_walkthrough(shell: Shell, cluster_fixture: ClusterFixture) -> None:
    differing = []
    for command, shown in sessions(PAGE):
        if f" {PLUGIN} " in command:
            continue
        if command.startswith("kubectl get events"):
            # The runtime sends its Events from a queue, while kubelet tells that the pod has failed.
            shell.cluster.wait(lambda shown=shown, line=command: is_same(shown, shell.run(line)), "the Events are there")
        printed = shell.run(command)
        differing += [] if is_same(shown, printed) else [f"$ {command}\n{printed}"]
        if command.startswith("gpushare explain"):
            assert cluster_fixture.phase("share", "default") == "Running"
            assert cluster_fixture.offer("node-1") == {SHARED: 4}
    assert not differing, "\n".join(differing)
    cluster_fixture.await_no_trace()


def is_same(shown: str, printed: str) -> bool:
    """Whether the page shows what was printed, but for numbers, names of GPUs, and where lines are wrapped."""
    shown, printed = (re.sub(r"\d+", "0", re.sub(r"GPU-[\w-]+", "GPU", text)) for text in (shown, printed))
    return is_shown(shown, printed) if f"{SKIPPED}\n" in shown else shown.split() == printed.split()
