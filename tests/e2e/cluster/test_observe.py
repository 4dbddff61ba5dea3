"""A first install that observes nodes with another plugin and its tenants; then enforce, and observe again."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster.cluster_fixture import A100, COURSE, NEVER, SHARED, ClusterFixture, intent
from tests.e2e.cluster.pods import GPU, created, pod
from tests.e2e.cluster.test_changes import BOTH, await_offers, slicing

WOULD = "gpushare.dev/would"
OBSERVE = "  adoption: observe\n  quotas: {course: {training: 1}}\n"
QUOTA = "  quotas: {course: {training: 8}}\n"
REPORTED = 15
"""Seconds within which kubelet has reported a change of its node: it does so every ten."""
OUR_MANAGERS = frozenset({"gpushare", "gpushare-node"})


@pytest.fixture
def nodes(cluster_fixture: ClusterFixture) -> Iterator[ClusterFixture]:
    """Both nodes with A100s that another plugin offers whole, and a tenant on the first."""
    cluster_fixture.clear()
    for node in BOTH:
        cluster_fixture.equip(node, A100)
    cluster_fixture.choose(node_1="training", node_2="training")
    cluster_fixture.cluster.wait(lambda: all(cluster_fixture.offer(node) == {GPU: 2} for node in BOTH), "the plugin runs")
    cluster_fixture.tenant("before", "node-1", GPU, "--mib", "100")
    yield cluster_fixture
    cluster_fixture.dismiss("before", "between", "later")


def node_of(nodes: ClusterFixture, name: str) -> Any:
    """The node without our condition and annotation, what kubelet renews all the time, and the lists of images and owners.

    Of the GPUs it has what the node offers: kubelet forgets the resources of a former plugin minutes after that has gone.
    """
    state = nodes.state(name)
    notes = {key: value for key, value in state["metadata"].get("annotations", {}).items() if key != WOULD}
    status = {key: value for key, value in state["status"].items() if key not in {"conditions", "images"}}
    for resources in (status["capacity"], status["allocatable"]):
        for gone in [key for key in resources if key.startswith("nvidia.com/")]:
            del resources[gone]
    status["offer"] = nodes.offer(name)
    conditions = {one["type"]: one["status"] for one in state["status"]["conditions"] if one["type"] != "GPUShareReady"}
    return state["metadata"]["labels"], notes, state["spec"], status, conditions


def pod_of(nodes: ClusterFixture, name: str) -> Any:
    """The tenant, its containers and their restarts included."""
    found = nodes.cluster.read(f"/api/v1/namespaces/{COURSE}/pods/{name}")
    metadata = {key: found["metadata"].get(key) for key in ("uid", "labels", "annotations", "deletionTimestamp")}
    return metadata, found["spec"], found["status"]["phase"], found["status"]["containerStatuses"]


def world(nodes: ClusterFixture) -> dict[str, Any]:
    """Both nodes, the tenant, its Events and the hardware, each value by its path."""
    found = {"pod": pod_of(nodes, "before"), "events": nodes.events("before")}
    for name in BOTH:
        found |= {name: node_of(nodes, name), f"{name} GPUs": nodes.fake_nvml(name).show()}
    return dict(_values(found))


def settled(nodes: ClusterFixture) -> dict[str, Any]:
    """The same, once it has stayed for longer than kubelet takes to report: of a plugin that was started anew it may still
    report what the former one offered, then nothing, then the offer."""
    seen, since = world(nodes), time.monotonic()

    def has_stayed() -> bool:
        nonlocal seen, since
        now = world(nodes)
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > REPORTED and all(nodes.offer(node) == {GPU: 2} for node in BOTH)

    nodes.cluster.wait(has_stayed, "the nodes stay as they are")
    return seen


def _values(item: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    children = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, (list, tuple)) else ()
    if not children:
        yield path, item
    for key, value in children:
        yield from _values(value, f"{path}/{key}")


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs: the value before and after, by the path."""
    return {path: (before.get(path), after.get(path)) for path in {*before, *after} if before.get(path) != after.get(path)}


def writers(nodes: ClusterFixture) -> dict[str, Any]:
    """Who has written what of both nodes and when, newest last, for a failure: a label tells nothing of its writer."""
    keys = ("manager", "operation", "subresource", "time", "fieldsV1")
    fields = {name: nodes.state(name)["metadata"]["managedFields"] for name in BOTH}
    return {
        name: sorted(([one.get(key) for key in keys] for one in found), key=lambda one: str(one[3]))
        for name, found in fields.items()
    }


def owned(nodes: ClusterFixture, name: str) -> list[str]:
    """What the runtime has ever written of the node, by the API server's own record."""
    fields = [one for one in nodes.state(name)["metadata"]["managedFields"] if one["manager"] in OUR_MANAGERS]
    return sorted(f"{path}" for one in fields for path in _paths(one["fieldsV1"]))


def _paths(fields: Any, above: str = "") -> Iterator[str]:
    for key, below in fields.items():
        if key.startswith("f:"):
            yield from _paths(below, f"{above}/{key[2:]}")
        elif key.startswith("k:"):
            yield f"{above}/{json.loads(key[2:])['type']}"
    if not fields:
        yield above


def offending() -> Any:
    """A tenant's pod that admission refuses under enforce."""
    return pod(({GPU: 1},), where=COURSE, hostPID=True)


def test_observe_then_enforce_then_observe(nodes: ClusterFixture) -> None:
    before = settled(nodes)
    tenant = pod_of(nodes, "before")
    fields = slicing(4, ", rollout: {maxUnavailable: 2}")
    nodes.install(intent(training=fields) + OBSERVE)
    for node in BOTH:
        nodes.await_reason(node, "Observing")
    nodes.cluster.wait(lambda: all(map(nodes.is_ready, BOTH)), "the runtime's pods are Ready")

    # Observed: nothing differs, and nothing is refused.
    assert changes(before, world(nodes)) == {}, writers(nodes)
    for node in BOTH:
        assert set(owned(nodes, node)) == {f"/metadata/annotations/{WOULD}", "/status/conditions/GPUShareReady"}
    assert nodes.slots() == []
    assert not nodes.cluster.get("resourcequotas", "--all-namespaces", "--selector", "app.kubernetes.io/name=gpushare")["items"]
    assert created(nodes.cluster, offending()).refusal == ""
    would = json.loads(nodes.state("node-1")["metadata"]["annotations"][WOULD])
    assert would["pods"] == [f"{COURSE}/before"]
    assert would["resources"] == {SHARED: 8}
    assert "pods" not in json.loads(nodes.state("node-2")["metadata"]["annotations"][WOULD])

    # Enforced: the free node changes, the other waits for its tenant.
    nodes.install(intent(training=fields) + QUOTA)
    await_offers(nodes, {SHARED: 8}, ("node-2",))
    nodes.await_reason("node-1", "GPUBusy")
    assert pod_of(nodes, "before") == tenant
    nodes.cluster.wait(lambda: created(nodes.cluster, offending()).refusal != "", "admission refuses again")
    nodes.dismiss("before")
    await_offers(nodes, {SHARED: 8})
    nodes.cluster.wait(
        lambda: not any(WOULD in nodes.state(node)["metadata"]["annotations"] for node in BOTH), "nothing is left to do"
    )

    # Observed again: the node stays as it is and serves, and a tenant over a new cap lives.
    nodes.tenant("between", "node-1", SHARED, "--mib", "100", "--grow-to", "9000", "--grow-after", NEVER)
    modes = [nodes.fake_nvml(name).mode(0) for name in BOTH]
    nodes.install(intent(training=fields + ", memory: {cap: 1Gi}") + OBSERVE)
    for node in BOTH:
        nodes.await_reason(node, "Observing")
    nodes.cluster.wait(lambda: all(map(nodes.is_ready, BOTH)), "the runtime's pods are Ready")
    nodes.let_grow("node-1")
    nodes.await_tenant("between", "grown")
    nodes.cluster.wait(lambda: "would have been sent" in nodes.log("node-1", "enforce"), "the log says what enforce would do")
    assert nodes.phase("between") == "Running"
    assert not any(reason.startswith("GPU") for reason, _ in nodes.events("between"))
    nodes.tenant("later", "node-2", SHARED, "--mib", "100")
    assert [nodes.fake_nvml(name).mode(0) for name in BOTH] == modes
