"""docs/first-week.md, command by command, on a cluster with configs made by hand, a plugin that serves them, and tenants.

The commands run as they are written, in one folder, with Helm, kubectl and git themselves. Only the upgrade of the operator's
release, of which the page shows the changed values, is replaced: the plugin starts with the other ConfigMap.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpushare.core import resources
from tests.e2e.cluster.bundles import namespace
from tests.e2e.cluster.cluster_fixture import COURSE, SHARED, T4, ClusterFixture
from tests.e2e.cluster.images import RUNTIME
from tests.e2e.cluster.pods import GPU
from tests.e2e.cluster.shell import Shell
from tests.support.paths import ROOT

PAGE = ROOT / "docs/first-week.md"
OPERATOR = "gpu-operator"
HAND_MADE = {
    "any": {"version": "v1"},
    "t4": {
        "version": "v1",
        "sharing": {
            "timeSlicing": {
                "renameByDefault": True,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": GPU, "replicas": 4}],
            }
        },
    },
}
FROM_HAND_MADE = {"node-1": {SHARED: 8}, "node-2": {GPU: 2}}
"""What the nodes offer from these configs, and are to offer under gpushare, too."""
DISCOVERED = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "2"}
"""What GPU feature discovery writes."""
CONFIG = "nvidia.com/device-plugin.config"
TENANTS = {"sliced": ("node-1", SHARED), "whole": ("node-2", GPU)}


def commands(part: str) -> list[str]:
    """The page's commands under the heading that begins with `part`."""
    text = PAGE.read_text().partition(f"\n## {part}")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


class Week:
    """The folder in which the page's commands run."""

    def __init__(self, cluster_fixture: ClusterFixture, folder: Path) -> None:
        self.cluster_fixture = cluster_fixture
        self.folder = folder / "lab"
        self.run = Shell(cluster_fixture.cluster, self.folder).run
        self.run("git init --quiet")

    def tenants(self) -> dict[str, object]:
        """Everything of the tenants' pods that changes where somebody disturbs them."""
        found = {name: self.cluster_fixture.cluster.read(f"/api/v1/namespaces/{COURSE}/pods/{name}") for name in TENANTS}
        return {
            name: (pod["metadata"]["uid"], pod["status"]["phase"], pod["status"]["containerStatuses"])
            for name, pod in found.items()
        }


@pytest.fixture
def week(cluster_fixture: ClusterFixture, tmp_path: Path) -> Iterator[Week]:
    """Two nodes as they are before the page begins."""
    cluster = cluster_fixture.cluster
    namespace(cluster, OPERATOR)
    image = yaml.safe_load((resources.chart() / "values.yaml").read_text())["image"]
    named = f"{image['repository']}:{image['tag']}"
    for node in cluster.nodes:
        # The name that a bundle has without `platform.image`: the page's commands need no other one.
        node.ctr("images", "tag", "--force", RUNTIME, named)
    data = {key: yaml.safe_dump(config) for key, config in HAND_MADE.items()}
    metadata = {"name": "slicing", "namespace": OPERATOR}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    for name, config in (("node-1", "t4"), ("node-2", "any")):
        cluster_fixture.equip(name, T4)
        labels = [f"{key}={value}" for key, value in {**DISCOVERED, CONFIG: config}.items()]
        cluster.kubectl("label", "node", name, *labels, "--overwrite")
    serve(cluster_fixture, "slicing")
    await_offers(cluster_fixture, FROM_HAND_MADE)
    for tenant, (name, resource) in TENANTS.items():
        cluster_fixture.tenant(tenant, name, resource, "--mib", "100")
    yield Week(cluster_fixture, tmp_path)
    cluster_fixture.dismiss(*TENANTS)
    for node in cluster.nodes:
        # Other files install bundles whose pods must not start: with the image there they would write to the nodes.
        node.ctr("images", "remove", named)
    cluster.kubectl("label", "node", "--all", *(f"{key}-" for key in (*DISCOVERED, CONFIG)))
    cluster.kubectl("delete", "configmaps", "--namespace", OPERATOR, "slicing", "gpushare-profiles", "--ignore-not-found")
    serve(cluster_fixture)
    await_offers(cluster_fixture, {node.name: {GPU: 2} for node in cluster.nodes})


def await_offers(cluster_fixture: ClusterFixture, nodes: dict[str, dict[str, int]]) -> None:
    """Until each node offers this."""
    cluster_fixture.cluster.wait(lambda: all(cluster_fixture.offer(name) == nodes[name] for name in nodes), f"offers {nodes}")


def serve(cluster_fixture: ClusterFixture, config_map: str = "", where: str = OPERATOR) -> None:
    """Start the plugins anew with this ConfigMap; without one as all other tests have them."""
    chosen = ("--namespace", where, "--config-map", config_map) if config_map else ()
    for node in cluster_fixture.cluster.nodes:
        cluster_fixture.fleet.stop_plugin(node)
        cluster_fixture.fleet.start_plugin(cluster_fixture.cluster, node, *chosen)


def test_first_week_walkthrough(week: Week) -> None:
    cluster_fixture, before = week.cluster_fixture, week.tenants()
    labels = {node: cluster_fixture.labels(node) for node in ("node-1", "node-2")}

    for command in commands("1."):
        week.run(command)
    written = yaml.safe_load((week.folder / "intent.yaml").read_text())
    assert [pool["sharing"] for pool in written["spec"]["pools"].values()]

    said = [week.run(command) for command in commands("2.")]
    assert said[-1].count("1 observed") == 2, said[-1]
    assert {node: cluster_fixture.labels(node) for node in labels} == labels
    assert week.tenants() == before

    said = [week.run(command) for command in commands("3.")]
    assert "course/sliced" not in said[1], "the shares stay the same"

    for command in commands("4."):
        week.run(command)
        if command.startswith("kubectl apply"):
            serve(cluster_fixture, "gpushare-profiles")
    assert week.tenants() == before
    await_offers(cluster_fixture, FROM_HAND_MADE)
    for command in commands("5."):
        week.run(command)
        assert week.tenants() == before, command
    assert not cluster_fixture.condition("node-1")
    await_offers(cluster_fixture, {"node-1": {SHARED: 8}})
