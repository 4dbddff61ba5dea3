"""AMD's own rules, as its programs have them, to hold bundles against: no code of ours.

After ROCm device-config-manager v1.3.1 (validateProfile), k8s-device-plugin v1.31.0.10 (names of resources) and gpu-operator
v1.5.1 (arguments of the plugin, selectors of DeviceConfigs).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

COMPUTE, MEMORY = {"SPX", "DPX", "QPX", "CPX"}, {"NPS1", "NPS2", "NPS4"}
ARGUMENTS = {"resource_naming_strategy": {"single", "mixed"}}

Mode = tuple[str, str]


def divided(profile: Mapping[str, Any], gpus: int) -> list[Mode | None]:
    """The modes of a node's GPUs after the manager has applied the profile; None: as before. AssertionError: it refuses it."""
    skipped = profile.get("skippedGPUs", {}).get("ids", [])
    assert len(skipped) <= gpus
    assert all(0 <= one < gpus for one in skipped)
    entries = profile["profiles"]
    assert sum(entry["numGPUsAssigned"] for entry in entries) + len(skipped) == gpus
    assert len({entry["memoryPartition"] for entry in entries}) == 1, "one memory mode for a node"
    assert {entry["computePartition"] for entry in entries} <= COMPUTE
    assert {entry["memoryPartition"] for entry in entries} <= MEMORY
    found: list[Mode | None] = [None] * gpus
    free = iter([index for index in range(gpus) if index not in skipped])
    for entry in entries:
        for _ in range(entry["numGPUsAssigned"]):
            found[next(free)] = entry["computePartition"], entry["memoryPartition"]
    return found


def advertised(gpus: Sequence[tuple[Mode | None, int]], strategy: str) -> Mapping[str, int]:
    """What the plugin offers on a node whose GPUs have these modes (None: a card without any) and so many partitions.

    AssertionError: it exits.
    """
    styles = {mode for mode, _ in gpus}
    if strategy == "single":
        assert len(styles) == 1, "Partitions of different styles across GPUs in a node is not supported with single strategy"
    offered = Counter[str]()
    for mode, number in gpus:
        named = mode is not None and strategy == "mixed"
        offered["amd.com/" + ("_".join(mode).lower() if mode and named else "gpu")] += number
    return offered


def check_device_configs(found: Mapping[str, Any]) -> None:
    """No node is selected twice, no image is `latest`, and the plugin gets arguments that it has."""
    selectors = [tuple(sorted(one["selector"].items())) for one in found.values()]
    assert all(len(one) == 1 for one in selectors)
    assert len({one[0][0] for one in selectors}) <= 1, "of labels with unlike keys a node may have both"
    assert len(set(selectors)) == len(selectors)
    for one in found.values():
        plugin, manager = one["devicePlugin"], one["configManager"]
        assert all(value in ARGUMENTS[key] for key, value in plugin["devicePluginArguments"].items())
        for field in ("devicePluginTolerations", "nodeLabellerTolerations"):
            assert all(toleration.get("key") not in (None, "amd-dcm") for toleration in plugin[field])
        images = (plugin["devicePluginImage"], plugin["nodeLabellerImage"], one["metricsExporter"]["image"], manager["image"])
        assert not [image for image in images if image.endswith(":latest") or ":" not in image]
