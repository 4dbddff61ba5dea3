"""`plan` says "no changes" if and only if the bundles are equal, comments aside: every field of the schema, changed once."""

import copy
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import admission, lock
from gpushare.compare import files
from gpushare.compare.effects import EffectKind
from gpushare.compare.files import settings
from gpushare.pipeline import Compilation
from gpushare.reading import schema
from gpushare.report.effect_words import summary
from tests.compiler.compare import test_amd, test_dra
from tests.compiler.compare.comparisons import comparison, texts
from tests.support import scale
from tests.support.intents import PLATFORM

INTENT = (
    """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: lab, labels: {a: b}, annotations: {a: b}}
spec:
"""
    + PLATFORM
    + """\
    driver: {repository: registry.example.org/nvidia, image: driver, version: "595.91.07"}
    vgpuManager: {repository: registry.example.org/vgpu, image: vgpu-manager, version: "595.71.03"}
    registry: registry.example.org
    image: {repository: gpushare/node-runtime}
    imagePullSecrets: [mirror]
    namespaces: [monitoring]
    values: {dcgm: {enabled: true}}
  accept: {GS734: this is meant}
  prices: {t4: 0.35 EUR/h, slices: 2.10 EUR/h}
  rollout:
    {maxUnavailable: 1, onBusy: wait, drainTimeout: 30m, paused: false,
     windows: [{days: [Sun], start: "22:00", duration: 6h, timezone: Europe/Zurich}]}
  admission: {enforce: warn, scope: tenants, localhostProfiles: [lax]}
  monitoring: {serviceMonitor: true, dashboard: true, alerts: true, labels: {a: b}}
  gitops:
    argocd:
      {repoURL: https://git.example.org/a.git, path: p, targetRevision: main, project: p, namespace: argocd,
       server: https://kubernetes.default.svc}
    flux: {url: https://git.example.org/a.git, path: p, branch: main, namespace: flux-system, interval: 5m, secret: s}
  quotas: {atlas: {notebooks: 4, slices: {1g.5gb: 2}}, cms: {notebooks: {memory: 8Gi}}}
  pools:
    notebooks:
      card: t4
      nodes:
        matchLabels: {flavour: t4}
        matchExpressions: [{key: zone, operator: In, values: [a, b]}, {key: spot, operator: DoesNotExist}]
        expected: 12
      gpusPerNode: 4
      priority: 1
      sharing: {mode: time-slicing, replicas: 4, rename: true, placement: spread}
      memory: {cap: 3Gi, reserve: 300Mi, oversubscribe: 150%}
      enforcement: {action: warn, grace: 10s, tolerance: 10Mi, mechanism: auto, notice: none}
      rollout:
        {maxUnavailable: 1, onBusy: wait, drainTimeout: 30m, paused: false,
         windows: [{days: [Fri, Sat], start: "22:00", duration: 6h, timezone: Europe/Zurich}, {start: "03:00", duration: 2h}]}
      require: {ecc: true, memory: 15Gi}
      namespaces: [atlas, cms]
      default: false
      tolerations:
      - {key: gpu, operator: Equal, value: "yes", effect: NoExecute, tolerationSeconds: 30}
      - {key: spot, operator: Exists}
    slices:
      card: a100-sxm4-40gb
      nodes: {names: [n1, n2]}
      gpusPerNode: 4
      sharing: {mode: mig, layout: {1g.5gb: 3, 2g.10gb: 2}, replicas: {1g.5gb: 2}}
      memory: {cap: {1g.5gb: 1500Mi}}
    groups:
      card: a100-sxm4-40gb
      nodes: {names: [n3]}
      gpusPerNode: 2
      sharing: {mode: mig, layouts: [{gpus: [0], layout: {3g.20gb: 2}}, {gpus: [1], layout: none}]}
    goals:
      card: a100-sxm4-40gb
      nodes: {names: [n4]}
      gpusPerNode: 1
      sharing: {mode: mig, goal: {instances: 3}}
    sized:
      card: a100-sxm4-40gb
      nodes: {names: [n5]}
      gpusPerNode: 1
      sharing: {mode: mig, goal: {memory: 9Gi}, strategy: mixed}
    machines:
      card: a10
      nodes: {names: [n6]}
      gpusPerNode: 2
      sharing: {mode: vgpu, profile: A10-12Q, kernel: "5.15"}
"""
)
P = "spec/pools/notebooks"
CHANGES: tuple[tuple[str, Any], ...] = (
    ("$schema", "./intent.v1.json"),
    ("metadata/name", "lab2"),
    ("metadata/labels", {"c": "d"}),
    ("metadata/annotations", {}),
    ("spec/kubernetes", "1.34"),
    ("spec/kubernetes", "1.36"),
    ("spec/platform/values", {"toolkit": {"enabled": False}}),
    ("spec/namespace", "gpu"),
    ("spec/platform/stack", "existing"),
    ("spec/platform/runtimeClass", "nvidia"),
    ("spec/platform/version", "v25.10.1"),
    ("spec/platform/partitioner", "mig-manager"),
    ("spec/platform/driver/repository", "registry.example.org/other"),
    ("spec/platform/driver/image", "driver2"),
    ("spec/platform/driver/version", "580.95.05"),
    ("spec/platform/vgpuManager/repository", "registry.example.org/other"),
    ("spec/platform/vgpuManager/image", "manager"),
    ("spec/platform/vgpuManager/version", "580.159.01"),
    ("spec/platform/registry", "mirror.example.org"),
    ("spec/platform/charts", "oci://mirror.example.org/charts"),
    ("spec/adoption", "observe"),
    ("spec/platform/image/repository", "own/gpushare"),
    ("spec/platform/image/tag", "own"),
    ("spec/platform/image/digest", f"sha256:{'0f' * 32}"),
    ("spec/platform/imagePullSecrets", ["mirror", "second"]),
    ("spec/platform/namespaces", ["gpu-operator"]),
    ("spec/platform/namespace", "nvidia"),
    ("spec/platform/values", {"dcgm": {"enabled": False}}),
    ("spec/accept", {"GS734": "for another reason"}),
    ("spec/admission/enforce", "deny"),
    ("spec/admission/scope", "cluster"),
    ("spec/admission/localhostProfiles", ["lax", "strict"]),
    ("spec/prices", {"t4": "0.35 EUR/h", "slices": "2 EUR/h"}),
    ("spec/monitoring/serviceMonitor", False),
    ("spec/monitoring/dashboard", False),
    ("spec/monitoring/alerts", False),
    ("spec/monitoring/operator", False),
    ("spec/monitoring/runbooks", "https://docs.example.org/alerts/"),
    ("spec/monitoring/labels", {"a": "c"}),
    ("spec/gitops/argocd/repoURL", "https://git.example.org/b.git"),
    ("spec/gitops/argocd/path", "q"),
    ("spec/gitops/argocd/targetRevision", "next"),
    ("spec/gitops/argocd/project", "q"),
    ("spec/gitops/argocd/namespace", "argo"),
    ("spec/gitops/argocd/server", "https://other.example.org"),
    ("spec/gitops/flux/url", "https://git.example.org/b.git"),
    ("spec/gitops/flux/path", "q"),
    ("spec/gitops/flux/branch", "next"),
    ("spec/gitops/argocd/name", "q"),
    ("spec/gitops/flux/name", "q"),
    ("spec/gitops/flux/namespace", "flux"),
    ("spec/gitops/flux/interval", "6m"),
    ("spec/gitops/flux/secret", "t"),
    ("spec/quotas/atlas/notebooks", 5),
    ("spec/quotas/atlas/slices", {"1g.5gb": 3}),
    ("spec/quotas/cms/notebooks/memory", "16Gi"),
    ("spec/cards", {"lab-card": {"name": "Lab", "computeCapability": "9.0", "memoryMiB": 20000, "migSupported": False}}),
    (f"{P}/card", "l4"),
    (f"{P}/nodes/matchLabels", {"flavour": "other"}),
    (f"{P}/nodes/expected", 13),
    (f"{P}/nodes/autoscaler", "cluster-autoscaler"),
    (f"{P}/nodes/autoscaler", "karpenter"),
    (f"{P}/nodes/matchExpressions", [{"key": "zone", "operator": "Exists"}]),
    ("spec/pools/slices/nodes/names", ["n1", "n9"]),
    (f"{P}/nodes/matchExpressions/0/key", "room"),
    (f"{P}/nodes/matchExpressions/0/operator", "NotIn"),
    (f"{P}/nodes/matchExpressions/0/values", ["a"]),
    (f"{P}/gpusPerNode", 2),
    (f"{P}/priority", 2),
    (f"{P}/sharing/mode", "mps"),
    (f"{P}/sharing/replicas", 5),
    (f"{P}/sharing/rename", False),
    (f"{P}/sharing/placement", "pack"),
    ("spec/pools/slices/sharing/layout", {"1g.5gb": 7}),
    ("spec/pools/slices/sharing/replicas", {"1g.5gb": 3}),
    ("spec/pools/groups/sharing/layouts/0/gpus", [1]),
    ("spec/pools/groups/sharing/layouts/0/layout", {"3g.20gb": 1}),
    ("spec/pools/goals/sharing/goal/instances", 2),
    ("spec/pools/sized/sharing/goal/memory", "4Gi"),
    ("spec/pools/sized/sharing/goal", "balanced"),
    ("spec/pools/sized/sharing/strategy", "single"),
    ("spec/pools/machines/sharing/profile", "A10-24Q"),
    ("spec/pools/machines/sharing/kernel", "5.14"),
    ("spec/pools/machines/nodes/names", ["n7"]),
    (f"{P}/memory/cap", "2Gi"),
    ("spec/pools/slices/memory/cap", {"1g.5gb": "1Gi"}),
    (f"{P}/memory/reserve", "400Mi"),
    (f"{P}/memory/oversubscribe", "200%"),
    (f"{P}/enforcement/action", "kill"),
    (f"{P}/enforcement/grace", "20s"),
    (f"{P}/enforcement/tolerance", "20Mi"),
    (f"{P}/enforcement/mechanism", "watcher"),
    (f"{P}/enforcement/notice", "72h"),
    (f"{P}/rollout/maxUnavailable", 2),
    (f"{P}/rollout/onBusy", "evict"),
    (f"{P}/rollout/drainTimeout", "1h"),
    *(
        (f"{place}/rollout/{path}", value)
        for place in ("spec", P)
        for path, value in (
            ("paused", True),
            ("windows", []),
            ("windows/0/days", ["Mon"]),
            ("windows/0/start", "21:30"),
            ("windows/0/duration", "5h"),
            ("windows/0/timezone", "Asia/Tokyo"),
        )
    ),
    ("spec/rollout/maxUnavailable", 2),
    ("spec/rollout/onBusy", "evict"),
    ("spec/rollout/drainTimeout", "1h"),
    (f"{P}/require/ecc", None),
    (f"{P}/require/nvlink", False),
    (f"{P}/require/memory", "14Gi"),
    (f"{P}/namespaces", ["atlas", "cms", "lhcb"]),
    (f"{P}/default", True),
    (f"{P}/tolerations/0/key", "tpu"),
    (f"{P}/tolerations/0/operator", "Exists"),
    (f"{P}/tolerations/0/value", "no"),
    (f"{P}/tolerations/0/effect", "NoSchedule"),
    (f"{P}/tolerations/0/tolerationSeconds", 31),
)
"""Every field once or more, each with another value. Those that make the intent wrong are told apart below."""

IGNORED = frozenset({"$schema", "metadata/labels", "metadata/annotations"})
FIXED = frozenset({"apiVersion", "kind"})
"""Fields with one legal value."""


def changed(path: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(INTENT)
    *above, last = path.split("/")
    place: Any = document
    for key in above:
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    place[last] = value
    if path.endswith("/operator") and value in ("Exists", "DoesNotExist"):
        place.pop("value", None)
    if path == "spec/platform/partitioner":
        document["spec"]["pools"].pop("groups")
    if path in ("spec/platform/stack", "spec/platform/runtimeClass"):
        document["spec"]["platform"] = {"stack": "existing", "namespaces": ["monitoring"], last: value}
        document["spec"]["pools"].pop("machines")
    if path == "spec/pools/groups/sharing/layouts/0/gpus":
        document["spec"]["pools"]["groups"]["sharing"]["layouts"][1]["gpus"] = [0]
    if path.endswith("effect"):
        place.pop("tolerationSeconds")
    if path == f"{P}/namespaces":
        document["spec"]["quotas"].pop("cms")
    if value is None:
        place.pop(last)
    if path.endswith("nodes/matchExpressions/0/operator"):
        place["values"] = ["a", "b"]
    return document


def compiled(document: Mapping[str, Any]) -> Compilation:
    return pipeline.compile_intent(yaml.safe_dump(document, sort_keys=False).encode(), "intent.yaml", lock.EMPTY)


BASE = compiled(yaml.safe_load(INTENT))


def bare(side: Compilation) -> dict[str, Any]:
    """The bundle without comments: YAML as it parses, in its order; the lock without digests of files."""
    return _bare_base() if side is BASE else _bare(side)


@functools.cache
def _bare_base() -> dict[str, Any]:
    return _bare(BASE)


def _bare(side: Compilation) -> dict[str, Any]:
    found = {}
    for path, text in texts(side).items():
        has_comments = path.endswith(".yaml") and not path.startswith("chart/templates/")
        found[path] = "\n".join(line for line in text.split("\n") if not has_comments or not line.lstrip().startswith("#"))
    remembered = yaml.safe_load(texts(side)[lock.FILE])
    return found | {lock.FILE: {key: value for key, value in remembered.items() if key != "files"}}


TRIED = scale.part(CHANGES, 5)


def test_the_base_is_an_intent_without_errors() -> None:
    assert BASE.artifacts, BASE.findings
    assert comparison(BASE, BASE).is_empty


@pytest.mark.parametrize(("path", "value"), TRIED, ids=[f"{path}={value}"[:60] for path, value in TRIED])
def test_no_changes_means_equal_bundles(path: str, value: Any) -> None:
    document = changed(path, value)
    after = compiled(document)
    assert after.artifacts, [f"{one.path} {one.code} {one.message}" for one in after.findings]
    told = comparison(BASE, after)
    former, latter = bare(BASE), bare(after)
    assert told.is_empty == (former == latter) == (path in IGNORED)
    if told.is_empty:
        return
    named = {one.path for one in told.files}
    unlike = {name for name in former.keys() | latter.keys() if former.get(name) != latter.get(name)}
    # What is made from the chart's values is named only where these are equal.
    assert named == unlike - ({admission.FILE, admission.TENANCY} if "chart/values.yaml" in unlike else set())
    assert not told.is_configmap_only or configmaps_alone(after)
    assert "0 nodes touched" not in summary(told)
    assert "no node is touched" not in summary(told) or configmaps_alone(after)
    fields = {"/".join(one.path) for one in settings(yaml.safe_load(INTENT), document)}
    assert any(path.startswith(field) or field.startswith(path) for field in fields)


def configmaps_alone(side: Compilation) -> bool:
    """Whether a bundle differs from the base in policies, their digests and quotas that rise or go, and in nothing else."""
    base, other = bare(BASE), bare(side)
    every = base.keys() | other.keys()
    differing = {path for path in every if base.get(path) != other.get(path)} - {"README.md", lock.FILE, lock.INTENT}
    if not all(path.startswith(("chart/files/", "nodes/")) or path == "chart/values.yaml" for path in differing):
        return False
    before, after = (yaml.safe_load(one["chart/values.yaml"]) for one in (base, other))
    for values in (before, after):
        for pool in values["pools"].values():
            pool.pop("policy")
    old, new = (
        {(name, key): number for name, hard in one.pop("quotas").items() for key, number in hard.items()}
        for one in (before, after)
    )
    return before == after and all(number >= old.get(key, number + 1) for key, number in new.items())


def test_a_version_of_kubernetes_that_routes_pods_is_reported_both_ways() -> None:
    other = compiled(changed("spec/kubernetes", "1.36"))
    for told in (comparison(BASE, other), comparison(other, BASE)):
        (only,) = [one for one in told.effects if one.kind is EffectKind.ROUTED]
        assert only.subject == "admission.mutate"
        assert not told.is_configmap_only


def test_driver_rollout_has_an_unknown_number_of_disturbed_pods() -> None:
    tolerated: tuple[str, list[object]] = (f"{P}/tolerations", [])
    registry = ("spec/platform/registry", "mirror.example.org")
    for path, value in (tolerated, registry, ("spec/platform/version", "v25.10.1")):
        told = comparison(BASE, compiled(changed(path, value)))
        assert (told.disturbed, told.touched) == (None, None)


def test_change_in_a_comment_like_line_of_a_text_is_a_change() -> None:
    args = [{"devicePlugin": {"env": [{"name": "A", "value": f"a\n# {word}\nc"}]}} for word in ("b", "ZZ")]
    old, new = (compiled(changed("spec/platform/values", one)) for one in args)
    assert "gpu-operator/values.yaml" in {one.path for one in comparison(old, new).files}


@pytest.mark.parametrize("path", ["chart/templates/_helpers.tpl", "chart/templates/daemonset.yaml"])
def test_comment_like_line_of_a_template_is_a_change(path: str) -> None:
    old, new = ({path: f'a: b\n# {{{{ include "{name}" . }}}}\n'} for name in ("x", "y"))
    assert [one.path for one in files.changes(old, new)] == [path]


def test_comment_line_of_a_yaml_document_is_no_change() -> None:
    assert files.changes({"gpu-operator/values.yaml": "a: b\n# x\n"}, {"gpu-operator/values.yaml": "a: b\n# y\n"}) == ()


@pytest.mark.parametrize(
    ("path", "value", "kind"),
    [
        ("enforce", "audit", EffectKind.ADMITTED),
        ("scope", "cluster", EffectKind.ADMITTED),
        ("enforce", "deny", EffectKind.REFUSED),
    ],
)
def test_no_refused_pods_are_reported_without_deny(path: str, value: str, kind: EffectKind) -> None:
    document = changed("spec/admission/enforce", "none")
    other = copy.deepcopy(document)
    other["spec"]["admission"][path] = value
    told = comparison(compiled(document), compiled(other)).effects
    assert kind in {one.kind for one in told}
    assert kind is EffectKind.REFUSED or not {EffectKind.REFUSED, EffectKind.ENDED} & {one.kind for one in told}


def test_key_order_does_not_change_the_bundle() -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(one) for one in value] if isinstance(value, list) else value

    assert texts(compiled(turned(yaml.safe_load(INTENT)))) == texts(BASE)


def test_every_field_of_the_schema_is_changed_above() -> None:
    paths = [one[0] for changes in (CHANGES, test_amd.CHANGES, test_dra.CHANGES) for one in changes]
    covered = {tuple(part for part in path.split("/") if not part.isdigit()) for path in paths}
    missing = []
    for field in leaves(schema.load("intent.v1"), schema.load("intent.v1")):
        fits = any(len(one) >= len(field) and all(a in (b, "*") for a, b in zip(field, one, strict=False)) for one in covered)
        if not fits and "/".join(field) not in FIXED:
            missing.append("/".join(field))
    assert missing == []


def leaves(part: Mapping[str, Any], root: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all fields that have no fields of their own; `*` where names are the user's."""
    part = resolved(part, root)
    below = dict(part.get("properties", {}))
    if isinstance(part.get("additionalProperties"), dict) and resolved(part["additionalProperties"], root).get("properties"):
        below["*"] = part["additionalProperties"]
    if isinstance(part.get("items"), dict) and resolved(part["items"], root).get("properties"):
        yield from leaves(part["items"], root, path)
        return
    if not below:
        yield path
    for name, inner in below.items():
        yield from leaves(inner, root, (*path, name))


def resolved(part: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = part
    while "$ref" in found:
        found = root["definitions"][found["$ref"].rpartition("/")[2]]
    return found


@pytest.mark.parametrize(
    "path",
    [
        f"{P}/namespaces",
        f"{P}/tolerations",
        f"{P}/nodes/matchExpressions",
        f"{P}/rollout/windows",
        "spec/platform/namespaces",
        "spec/platform/imagePullSecrets",
        "spec/pools/slices/nodes/names",
    ],
)
def test_reordered_lists_are_no_change(path: str) -> None:
    document: Any = yaml.safe_load(INTENT)
    document["spec"]["platform"] |= {"namespaces": ["a", "b"], "imagePullSecrets": ["a", "b"]}
    turned = copy.deepcopy(document)
    *above, last = path.split("/")
    place = turned
    for key in above:
        place = place[key]
    place[last] = place[last][::-1]
    old, new = compiled(document), compiled(turned)
    assert comparison(old, new).is_empty
    assert texts(old) == texts(new)
