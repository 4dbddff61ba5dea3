"""What `plan` says of those who are affected: by whom, how, in which order, and how long nodes are out."""

import copy
from typing import Any

import pytest
import yaml

from gpushare.compare.changes import Comparison
from gpushare.compare.effects import EffectKind
from gpushare.compare.files import FileKind, SettingChange, changes
from gpushare.compare.stack_effects import of_upstream
from gpushare.pipeline import Compilation
from gpushare.report import markdown
from gpushare.report import setting_words as words
from tests.compiler.compare.comparisons import comparison, report_of
from tests.compiler.compare.test_invariant import BASE, INTENT, P, changed, compiled


@pytest.mark.parametrize(
    ("path", "value", "kind"),
    [
        (f"{P}/enforcement/action", "kill", EffectKind.ENDED),
        (f"{P}/memory/cap", "2Gi", EffectKind.KEEPS_CAP),
        ("spec/admission/enforce", "deny", EffectKind.REFUSED),
        ("spec/admission/enforce", "audit", EffectKind.ADMITTED),
        (f"{P}/namespaces", ["atlas"], EffectKind.ADMITTED),
        ("spec/quotas/atlas/notebooks", 2, EffectKind.REFUSED),
        ("spec/platform/driver/version", "580.95.05", EffectKind.DRIVER),
        ("spec/platform/version", "v25.10.1", EffectKind.DRIVER),
        ("spec/platform/values", {"toolkit": {"enabled": False}}, EffectKind.UPSTREAM),
        (f"{P}/tolerations", [], EffectKind.RESTARTS),
        (f"{P}/namespaces", ["atlas", "cms", "lhcb"], EffectKind.ADMITTED),
        ("spec/platform/stack", "existing", EffectKind.REINSTALLED),
        ("spec/namespace", "gpu", EffectKind.REINSTALLED),
        ("spec/platform/namespace", "nvidia", EffectKind.REINSTALLED),
        ("spec/platform/registry", "mirror.example.org", EffectKind.RESTARTS),
        ("spec/platform/image/tag", "own", EffectKind.RESTARTS),
        (f"{P}/rollout/maxUnavailable", 2, EffectKind.ROLLOUT),
        ("spec/pools/machines/sharing/profile", "A10-24Q", EffectKind.VMS),
        (f"{P}/enforcement/grace", "20s", EffectKind.ENFORCED),
        (f"{P}/enforcement/action", "none", EffectKind.ENFORCED),
    ],
)
def test_effect_on_users_is_reported(path: str, value: Any, kind: EffectKind) -> None:
    told = comparison(BASE, compiled(changed(path, value)))
    assert kind in {one.kind for one in told.effects}
    if kind in (EffectKind.ENDED, EffectKind.REFUSED, EffectKind.REINSTALLED, EffectKind.DRIVER, EffectKind.UPSTREAM):
        assert not told.is_configmap_only


@pytest.mark.parametrize(("field", "value"), [("repository", "own/agent"), ("tag", "own"), ("digest", f"sha256:{'0f' * 32}")])
def test_new_runtime_image_restarts_only_the_runtime(field: str, value: str) -> None:
    told = comparison(BASE, compiled(changed(f"spec/platform/image/{field}", value)))
    assert [(one.kind, one.pool, one.subject) for one in told.effects] == [(EffectKind.RESTARTS, None, "image")]
    assert not told.outages
    assert not told.is_configmap_only


@pytest.mark.parametrize("image", ["image: null", "image: [a]", "image: {tag: 1}", "image: {repository: 5, tag: x}", ""])
def test_bundle_with_an_edited_image_is_still_compared(image: str) -> None:
    files = {"chart/values.yaml": f"cluster: lab\n{image}\n", "images.txt": "# Every image\nown/agent:1\n"}
    other = files | {"images.txt": "# Every image\nown/agent:2\n"}
    found = list(of_upstream(files, other, changes(files, other)))
    assert [(one.subject, one.before, one.after) for one in found] == [("images", ["own/agent:1"], ["own/agent:2"])]


def test_removed_stack_is_not_reported_as_restarting() -> None:
    told = {one.kind for one in comparison(BASE, compiled(changed("spec/platform/stack", "existing"))).effects}
    assert EffectKind.REINSTALLED in told
    assert not told & {EffectKind.UPSTREAM, EffectKind.DRIVER}


def test_long_values_are_shown_around_their_difference() -> None:
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    before, after = ([toleration, {"key": key, "operator": "Exists"}] for key in ("one.example.org", "two.example.org"))
    line = words.format_setting(SettingChange(path=("tolerations",), kind=FileKind.CHANGED, before=before, after=after))
    assert "one.example.org" in line
    assert "two.example.org" in line
    assert (
        words.format_setting(SettingChange(path=("a",), kind=FileKind.CHANGED, before="nvidia", after="")) == 'a: nvidia → ""'
    )


@pytest.mark.parametrize("mode", ["deny", "warn"])
def test_new_quota_namespace_restarts_no_pods_and_makes_its_pods_tenants(mode: str) -> None:
    document = changed("spec/admission/enforce", mode)
    other = copy.deepcopy(document)
    other["spec"]["quotas"]["lhcb"] = {"slices": {"1g.5gb": 1}}
    told = comparison(compiled(document), compiled(other)).effects
    kinds = [EffectKind.REFUSED, EffectKind.ENDED] if mode == "deny" else [EffectKind.ADMITTED]
    named = [(one.kind, one.pool, one.subject) for one in told if one.subject == "admission.tenants"]
    assert named == [(kind, None, "admission.tenants") for kind in kinds]


def test_removed_kill_action_is_reported_as_no_longer_killed() -> None:
    told = comparison(compiled(changed(f"{P}/enforcement/action", "kill")), BASE)
    assert EffectKind.SPARED in {one.kind for one in told.effects}


@pytest.mark.parametrize(
    ("rollout", "at_once", "rounds"),
    [({"maxUnavailable": 5}, 5, 3), ({"maxUnavailable": "30%"}, 3, 4), ({"maxUnavailable": "1%"}, 1, 12)],
)
def test_outage_length_follows_the_rollout_settings(rollout: dict[str, Any], at_once: int, rounds: int) -> None:
    document: Any = yaml.safe_load(INTENT)
    document["spec"]["pools"]["notebooks"]["rollout"] = rollout
    other = copy.deepcopy(document)
    other["spec"]["pools"]["notebooks"]["sharing"]["replicas"] = 5
    (only,) = comparison(compiled(document), compiled(other)).outages
    assert (only.pool, only.nodes, only.at_once, only.rounds) == ("notebooks", 12, at_once, rounds)
    assert (only.drain_seconds, only.on_busy) == (1800, "wait")


def sides_of(old: str, new: str) -> tuple[Compilation, Compilation]:
    """Two sets of pools, by name."""
    head = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: x}\nspec:\n  pools:\n"
    return compiled(yaml.safe_load(head + old)), compiled(yaml.safe_load(head + new))


def told_of(old: str, new: str) -> Comparison:
    """A comparison of two sets of pools."""
    return comparison(*sides_of(old, new))


def page_of(old: str, new: str) -> str:
    """The same as Markdown."""
    return markdown.render(report_of(*sides_of(old, new)))


SLICED = "sharing: {mode: time-slicing, replicas: 4}"
MIG = "sharing: {mode: mig, layout: {1g.5gb: 7}}"


def test_changed_pool_priority_moves_nodes() -> None:
    pool = "    {}: {{card: a100-sxm4-40gb, gpusPerNode: 2, priority: {}, nodes: {{matchLabels: {{{}}}, expected: 4}}, {}}}\n"
    first = pool.format("a", 1, "x: a", "sharing: {mode: exclusive}")
    told = told_of(first + pool.format("b", 0, "z: b", MIG), first + pool.format("b", 2, "z: b", MIG))
    assert all(one.selector_changes and one.touched is None for one in told.pools)
    assert not told.is_configmap_only
    assert {one.pool for one in told.outages} == {"a", "b"}


def test_moved_nodes_and_replaced_pools_have_outages() -> None:
    pool = "    {}: {{card: a100-sxm4-40gb, gpusPerNode: 2, nodes: {}, {}, rollout: {{maxUnavailable: 2}}}}\n"
    old = pool.format("a", "{names: [n1, n2]}", SLICED) + pool.format("b", "{names: [n3]}", MIG)
    new = pool.format("a", "{names: [n1]}", SLICED) + pool.format("b", "{names: [n2, n3]}", MIG)
    (only,) = told_of(old, new).outages
    assert (only.pool, only.nodes, only.at_once, only.seconds) == ("b", 1, 2, 60)
    labels = "{matchLabels: {p: a}, expected: 5}"
    (only,) = told_of(pool.format("a", labels, SLICED), pool.format("b", labels, MIG)).outages
    assert (only.pool, only.nodes, only.seconds) == ("b", 5, 60)


def test_nodes_leaving_for_no_pool_use_the_slots_of_their_old_pool() -> None:
    pool = "    {}: {{card: a100-sxm4-40gb, gpusPerNode: 2, nodes: {}, {}, rollout: {{maxUnavailable: {}}}}}\n"
    stays = pool.format("z", "{names: [n9]}", SLICED, 1)
    labels = "{matchLabels: {p: a}, expected: 6}"
    for nodes, count in ((labels, 6), ("{names: [n1, n2, n3]}", 3)):
        for sharing, seconds in ((MIG, 60), (SLICED, 5)):
            (only,) = told_of(stays + pool.format("a", nodes, sharing, 2), stays).outages
            assert (only.pool, only.nodes, only.at_once, only.seconds, only.on_busy) == ("a", count, 2, seconds, "wait")
    three, one = (stays + pool.format("a", names, MIG, 1) for names in ("{names: [n1, n2, n3]}", "{names: [n1]}"))
    (only,) = told_of(three, one).outages
    assert (only.pool, only.nodes, only.at_once, only.seconds) == ("a", 2, 1, 60)
    assert told_of(stays + pool.format("a", labels, "sharing: {mode: exclusive}", 1), stays).outages == ()


def test_merge_request_page_shows_the_operators_strategy() -> None:
    pool = "    a: {{card: a100-sxm4-40gb, gpusPerNode: 2, nodes: {{names: [n1]}}, {}}}\n"
    single = "sharing: {mode: mig, strategy: single, layout: {1g.5gb: 7}}"
    told = page_of(pool.format(MIG), pool.format(single))
    assert "- mig.strategy mixed → single: the operator restarts the device plugin of every node" in told
    assert told.index("1. upgrade gpu-operator first\n") < told.index("2. then gpushare's chart: until a node changes")
    assert "mig.strategy" not in page_of(pool.format(MIG), pool.format("sharing: {mode: mig, layout: {2g.10gb: 3}}"))


def test_renamed_pool_still_shows_its_changes() -> None:
    pool = "    {}: {{card: t4, gpusPerNode: 2, nodes: {{matchLabels: {{p: a}}, expected: 5}}, "
    pool += "sharing: {{mode: time-slicing, replicas: 2}}, memory: {{cap: {}}}, {}}}\n"
    told = told_of(
        pool.format("a", "7Gi", "enforcement: {action: warn}"),
        pool.format("b", "1Gi", "enforcement: {action: kill}, namespaces: [z]"),
    )
    kinds = {(one.pool, one.kind) for one in told.effects}
    assert {("a", EffectKind.UNPLACED), ("b", EffectKind.KEEPS_CAP), ("b", EffectKind.ENDED)} <= kinds
    assert "namespaces" in {one.subject for one in told.effects if one.pool == "b"}
    assert told.outages == ()
