"""Pools of DRA, for the tests of rules."""

from tests.compiler.rules.intents import check, pool

A100 = {"card": "a100-pcie-40gb", "nodes": "{matchLabels: {node.example.org/flavour: gpu-a100}}"}
OTHER_T4 = "{matchLabels: {node.example.org/flavour: other}}"
NEW, HERE = '"1.36"', "/spec/pools/notebooks"
PLATFORM = {"kubernetes": NEW, "platform": "{dra: {}}"}
COUNT = {"kubernetes": NEW, "platform": "{dra: {shares: count}}"}
SHORT = "{mode: time-slicing, replicas: 4, interval: short}"
SHARING = {
    "exclusive": "{mode: exclusive}",
    "time-slicing": "{mode: time-slicing, replicas: 4}",
    "mig": "{mode: mig, layout: {3g.20gb: 2}}",
    "mig-replicas": "{mode: mig, layout: {3g.20gb: 2}, replicas: 4}",
    "mps": "{mode: mps, replicas: 4}",
    "partition": "{mode: partition, compute: CPX, memory: NPS4}",
    "vgpu": '{mode: vgpu, profile: A100-10C, kernel: "5.15"}',
}
"""A pool of every mode, and of MIG with replicas, each on a card that has MIG."""


def claimed(name: str = "notebooks", **fields: str) -> str:
    """One pool with `backend: dra`."""
    return pool(name, **{"backend": "dra"} | fields)


def whole(name: str = "whole", **fields: str) -> str:
    """One pool of whole A100 with `backend: dra`."""
    return claimed(name, **{**A100, "sharing": "{mode: exclusive}"} | fields)


def hints(text: str, code: str) -> str:
    """The hints of the only finding of the code."""
    (only,) = [finding for finding in check(text) if finding.code == code]
    return "; ".join(only.hints)
