"""What AMD's own device plugin offers over GPUs in a pool's modes is what the pool's policy promises, by name and number.

Needs `AMD=FOLDER`; left out without it, and `make test-all` says so.
"""

from pathlib import Path
from typing import Any

import pytest

from gpushare.facts.catalog import cards
from tests.compiler.render.compiled import document, files
from tests.contract import amd_validators
from tests.e2e.amd import device_plugin
from tests.support.fake_amd.sysfs import CARDS, FakeSysfs

pytestmark = pytest.mark.skipif(device_plugin.folder() is None, reason="AMD=FOLDER is not given")

SHARINGS = [
    *((card, "{mode: exclusive}") for card in CARDS),
    *(
        (card, f"{{mode: partition, compute: {mode.compute}, memory: {mode.memory}, strategy: {strategy}}}")
        for card in CARDS
        for mode in cards.load(card).partition_modes
        if mode.compute in amd_validators.COMPUTE
        for strategy in ("mixed", "single")
    ),
]
UNLIKE = "{mode: partition, memory: NPS1, layouts: [{gpus: [0, 1, 2, 3, 4], compute: SPX}, {gpus: [5, 6, 7], compute: CPX}]}"


def compiled(card: str, sharing: str) -> tuple[Any, str]:
    """The policy of a pool, and how AMD's plugin is to name resources."""
    pool = f"{{card: {card}, nodes: {{matchLabels: {{p: a}}, expected: 1}}, gpusPerNode: 8, sharing: {sharing}}}"
    texts = files("pool", platform="{stack: amd-gpu-operator}", pool=pool)
    plugin = document(texts, "chart/files/amd/device-configs/pool.yaml")["devicePlugin"]
    spec = document(texts, "chart/files/policies/pool.yaml")["spec"]
    return spec, plugin["devicePluginArguments"]["resource_naming_strategy"]


def node(folder: Path, card: str, spec: Any) -> FakeSysfs:
    """A node whose GPUs are in the modes of the policy."""
    made = FakeSysfs(folder, *[card] * spec["gpusPerNode"])
    for group in spec["gpus"]:
        if partition := group.get("partition"):
            for index in group["indexes"]:
                made.gpus[index].compute, made.gpus[index].memory = partition["compute"], partition["memory"]
    made.load()
    return made


def offer(folder: Path, card: str, spec: Any, strategy: str) -> dict[str, frozenset[str]]:
    """What the plugin offers of such a node."""
    made = node(folder / "sys", card, spec)
    return device_plugin.offered(folder / "kubelet", folder / "sys", strategy, sum(gpu.parts for gpu in made.gpus))


@pytest.mark.parametrize(("card", "sharing"), [*SHARINGS, ("mi300x", UNLIKE)])
def test_the_plugin_offers_what_the_policy_promises(tmp_path: Path, card: str, sharing: str) -> None:
    spec, strategy = compiled(card, sharing)
    found = offer(tmp_path, card, spec, strategy)
    assert {resource: len(ids) for resource, ids in found.items()} == spec["resources"]
    assert len(frozenset().union(*found.values())) == sum(map(len, found.values()))


def test_the_plugin_exits_with_gpus_unlike_each_other_under_one_name(tmp_path: Path) -> None:
    spec, _ = compiled("mi300x", UNLIKE)
    with pytest.raises(AssertionError, match="different styles"):
        offer(tmp_path, "mi300x", spec, "single")
