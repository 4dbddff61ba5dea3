"""From a document to an Intent: the user's order, every default, every unit."""

from typing import Any

from hypothesis import HealthCheck, given, settings

from gpushare.core.units import SizeOrPercent
from gpushare.intent import reader, types
from gpushare.intent.types import (
    Admission,
    Balanced,
    CapWord,
    Enforcement,
    Exclusive,
    Expression,
    GpuDriver,
    Instances,
    LayoutGroup,
    Memory,
    MemoryEach,
    Mig,
    MigStrategy,
    MostInstances,
    Mps,
    NodeSelector,
    NvidiaStack,
    Operator,
    Platform,
    Quota,
    Require,
    SharePlacement,
    TimeSlicing,
)
from gpushare.reading import schema, source
from gpushare_node.contract.policy import Action, Mechanism, OnBusy, Partitioner, Rollout
from gpushare_node.contract.tenancy import AdmissionMode, AdmissionScope
from gpushare_node.contract.windows import DAYS, Window
from tests.compiler.reading.test_schemas import INTENT_SCHEMA, mutated
from tests.compiler.reading.texts import FULL, INTENT
from tests.support import scale


def built(text: str) -> types.Intent:
    read = source.read(text.encode(), "intent.yaml")
    assert read.findings == ()
    assert schema.check(read) == []
    return reader.build(read.data)


def test_omitted_fields_have_the_defaults_of_v1() -> None:
    whole = built(INTENT)
    assert (whole.name, whole.kubernetes, whole.namespace) == ("physics-batch", (1, 30), "gpu-system")
    assert whole.admission == Admission()
    assert whole.platform == Platform(
        stack=NvidiaStack.GPU_OPERATOR, version=None, partitioner=Partitioner.GPUSHARE, driver=None
    )
    assert (whole.quotas, whole.monitoring, whole.gitops, whole.cards) == ((), {}, {}, {})
    pool = whole.pools[0]
    assert pool.sharing == TimeSlicing(replicas=4, rename=True, placement=SharePlacement.SPREAD)
    assert pool.memory == Memory(cap=None, reserve=None, oversubscribe_percent=100)
    assert pool.enforcement == Enforcement(
        action=Action.KILL, grace_seconds=10, tolerance=SizeOrPercent(bytes=0), mechanism=Mechanism.AUTO
    )
    assert pool.rollout == Rollout(max_unavailable=1, on_busy=OnBusy.WAIT, drain_timeout_seconds=1800)
    assert (pool.priority, pool.require, pool.namespaces, pool.tolerations) == (0, Require(), (), ())


def test_the_defaults_of_the_schema_are_those_of_the_intent() -> None:
    properties = {name: part["properties"] for name, part in INTENT_SCHEMA["definitions"].items() if "properties" in part}
    spec = INTENT_SCHEMA["properties"]["spec"]["properties"]
    given = {
        (name, field): inner["default"]
        for name, fields in {**properties, "spec": spec}.items()
        for field, inner in fields.items()
        if "default" in inner and name in ("spec", "platform", "pool", "sharing", "memory", "enforcement", "rollout")
    }
    assert given == {
        ("spec", "adoption"): "enforce",
        ("spec", "kubernetes"): "1.30",
        ("spec", "namespace"): "gpu-system",
        ("platform", "stack"): "gpu-operator",
        ("platform", "partitioner"): "gpushare",
        ("platform", "backend"): "device-plugin",
        ("pool", "priority"): 0,
        ("pool", "requests"): "claims",
        ("sharing", "rename"): True,
        ("sharing", "placement"): "spread",
        ("sharing", "strategy"): "mixed",
        ("memory", "cap"): "even",
        ("memory", "oversubscribe"): "100%",
        ("enforcement", "action"): "kill",
        ("enforcement", "grace"): "10s",
        ("enforcement", "tolerance"): 0,
        ("enforcement", "mechanism"): "auto",
        ("enforcement", "notice"): "none",
        ("pool", "default"): False,
        ("rollout", "maxUnavailable"): 1,
        ("rollout", "onBusy"): "wait",
        ("rollout", "drainTimeout"): "30m",
        ("rollout", "paused"): False,
    }


def test_admission_and_platform_namespaces_are_read() -> None:
    text = """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: x}
spec:
  namespace: gpu
  platform: {namespaces: [monitoring, gpu-operator]}
  admission: {scope: cluster, localhostProfiles: [tenant-default]}
  accept: {GS404: the GPU that is left whole is meant}
  quotas: {cms: {a: 2}}
  pools:
    a:
      card: t4
      nodes: {names: [n1]}
      gpusPerNode: 1
      sharing: {mode: time-slicing, replicas: 4}
      enforcement: {notice: 72h}
      namespaces: [atlas]
      default: true
"""
    whole = built(text)
    assert whole.admission == Admission(scope=AdmissionScope.CLUSTER, localhost_profiles=("tenant-default",))
    assert whole.accepted == (("GS404", "the GPU that is left whole is meant"),)
    assert whole.platform_namespaces == ("gpu", "gpu-operator", "kube-system", "monitoring")
    assert whole.tenant_namespaces == ("atlas", "cms")
    assert (whole.pools[0].is_default, whole.pools[0].enforcement.notice_seconds) == (True, 72 * 3600)


def test_a_pools_rollout_replaces_the_clusters_field_by_field() -> None:
    text = """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: x}
spec:
  rollout:
    onBusy: evict
    windows: [{days: [Sat, Sun], start: "22:00", duration: 6h, timezone: Europe/Zurich}, {start: "03:00", duration: 1h30m}]
  pools:
    a: {card: t4, nodes: {names: [n1]}, gpusPerNode: 1, sharing: {mode: exclusive}}
    b: {card: t4, nodes: {names: [n2]}, gpusPerNode: 1, sharing: {mode: exclusive}, rollout: {onBusy: fail, paused: true}}
    c: {card: t4, nodes: {names: [n3]}, gpusPerNode: 1, sharing: {mode: exclusive}, rollout: {windows: []}}
"""
    windows = (
        Window(days=("Sat", "Sun"), start="22:00", duration_seconds=6 * 3600, timezone="Europe/Zurich"),
        Window(days=DAYS, start="03:00", duration_seconds=5400, timezone="UTC"),
    )
    assert [pool.rollout for pool in built(text).pools] == [
        Rollout(on_busy=OnBusy.EVICT, windows=windows),
        Rollout(on_busy=OnBusy.FAIL, is_paused=True, windows=windows),
        Rollout(on_busy=OnBusy.EVICT),
    ]


def test_given_fields_are_read_with_unit_and_order() -> None:
    whole = built(FULL)
    assert (whole.kubernetes, whole.admission) == ((1, 33), Admission(mode=AdmissionMode.AUDIT))
    assert whole.platform == Platform(
        stack=NvidiaStack.GPU_OPERATOR,
        version="v26.7.0",
        partitioner=Partitioner.MIG_MANAGER,
        driver=GpuDriver(repository="registry.example.org/nvidia", image="driver", version="595.91.07"),
        registry="registry.example.org:5000/mirror",
        image_pull_secrets=("mirror",),
        values={"dcgm": {"enabled": True, "args": None}},
    )
    notebooks, serving, dense, goals, hpc = whole.pools
    assert [pool.name for pool in whole.pools] == ["notebooks", "serving", "dense", "goals", "hpc"]
    zone = Expression(key="zone", operator=Operator.IN, values=("a", "b"))
    broken = Expression(key="broken", operator=Operator.DOES_NOT_EXIST)
    assert notebooks.nodes == NodeSelector(
        match_labels=(("node.example.org/flavour", "gpu-t4"),), match_expressions=(zone, broken), expected=12
    )
    assert notebooks.priority == 10
    assert notebooks.sharing == TimeSlicing(replicas=4, rename=False, placement=SharePlacement.PACK)
    assert notebooks.memory == Memory(
        cap=CapWord.EVEN, reserve=SizeOrPercent(percent_hundredths=500), oversubscribe_percent=150
    )
    assert notebooks.enforcement == Enforcement(
        action=Action.EVICT, grace_seconds=90, tolerance=SizeOrPercent(percent_hundredths=250), mechanism=Mechanism.WATCHER
    )
    assert notebooks.namespaces == ("atlas", "cms")
    assert notebooks.tolerations[0]["tolerationSeconds"] == 30
    assert serving.sharing == Mps(replicas=8)
    assert serving.nodes.count == 2
    assert serving.rollout == Rollout(max_unavailable="10%", on_busy=OnBusy.EVICT, drain_timeout_seconds=7200)
    groups = (LayoutGroup(gpus=(0, 1, 2, 3), layout=(("2g.10gb", 2), ("1g.5gb", 3))), LayoutGroup(gpus=(4, 5, 6, 7), layout=()))
    assert dense.sharing == Mig(wanted=groups, strategy=MigStrategy.MIXED, replicas=(("1g.5gb", 2),))
    assert dense.memory == Memory(cap=(("1g.5gb", 2200 << 20),), reserve=SizeOrPercent(bytes=256 << 20))
    assert dense.rollout.max_unavailable == 2
    assert goals.sharing == Mig(wanted=MemoryEach(size_bytes=9 << 30), replicas=3)
    assert (hpc.sharing, hpc.require) == (Exclusive(), Require(nvlink=True, ecc=True, memory_bytes=79 << 30))
    assert whole.quotas == (
        Quota(namespace="atlas", pool="dense", per_resource=(("2g.10gb", 4),)),
        Quota(namespace="atlas", pool="notebooks", shares=8),
        Quota(namespace="cms", pool="notebooks", memory_bytes=56 << 30),
    )
    assert whole.monitoring["labels"] == {"release": "kube-prometheus-stack"}
    assert whole.gitops["argocd"]["project"] == "default"
    assert whole.cards == {"my-card": {"name": "My Card"}}


def test_every_form_of_a_mig_layout_is_read() -> None:
    def wanted(sharing: str) -> object:
        pool = built(INTENT.replace("mode: time-slicing, replicas: 4", f"mode: mig, {sharing}")).pools[0].sharing
        assert isinstance(pool, Mig)
        return pool.wanted

    assert wanted("goal: most-instances") == MostInstances()
    assert wanted("goal: balanced") == Balanced()
    assert wanted("goal: {instances: 3}") == Instances(count=3)
    assert wanted("layout: none") == ()
    assert wanted("layout: {3g.20gb: 1, 1g.5gb: 2.0}") == (("3g.20gb", 1), ("1g.5gb", 2))


@settings(max_examples=scale.examples(1500), suppress_health_check=list(HealthCheck))
@given(mutated())
def test_every_document_that_passes_the_schema_can_be_built(document: Any) -> None:
    if schema.accepts(INTENT_SCHEMA, document):
        assert len(reader.build(document).pools) == len(document["spec"]["pools"])
