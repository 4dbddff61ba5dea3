"""A comparison reports every change of a field that concerns pools of DRA."""

from typing import Any

import pytest
import yaml

from gpushare.bundle import lock
from gpushare.bundle.lock import Lock
from gpushare.compare.changes import Change, Comparison
from gpushare.compare.effects import EffectKind
from gpushare.pipeline import Compilation
from tests.compiler.compare.comparisons import comparison, compiled

INTENT = """
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: lab}
spec:
  kubernetes: "1.36"
  platform: {backend: device-plugin, dra: {via: chart, version: 0.5.0, shares: memory, driverRoot: /}}
  pools:
    claimed:
      card: t4
      nodes: {names: [n1, n2]}
      gpusPerNode: 2
      backend: dra
      sharing: {mode: time-slicing, replicas: 4}
      sizes: {large: 7680Mi}
      namespaces: [atlas]
    named:
      card: a100-pcie-40gb
      nodes: {names: [n3]}
      gpusPerNode: 2
      backend: dra
      requests: both
      sharing: {mode: mig, layout: {3g.20gb: 2}}
    offered: {card: l4, nodes: {names: [n4]}, gpusPerNode: 1, sharing: {mode: time-slicing, replicas: 4}}
"""

CHANGES: tuple[tuple[str, Any], ...] = (
    ("spec/platform/backend", "dra"),
    ("spec/platform/dra/via", "existing"),
    ("spec/platform/dra/version", "0.5.1"),
    ("spec/platform/dra/shares", "count"),
    ("spec/platform/dra/driverRoot", "/run/nvidia/driver"),
    ("spec/pools/claimed/backend", "device-plugin"),
    ("spec/pools/offered/backend", "dra"),
    ("spec/pools/named/requests", "claims"),
    ("spec/pools/named/requests", "limits"),
    ("spec/pools/claimed/sizes", {"large": "5Gi"}),
    ("spec/pools/claimed/sizes", {"big": "7680Mi"}),
    ("spec/pools/named/sharing/profiles", ["3g.20gb"]),
    ("spec/pools/claimed/sharing/interval", "short"),
)
"""Every field that only pools of DRA have."""


def changed(path: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(INTENT)
    *above, last = path.split("/")
    place: Any = document
    for key in above:
        place = place[key]
    place[last] = value
    if last == "profiles":
        place["layout"] = "on-demand"
    if value in ("count", "device-plugin"):
        document["spec"]["pools"]["claimed"].pop("sizes")
    return document


BASE = compiled(yaml.safe_load(INTENT))


def after(first: Compilation, document: dict[str, Any]) -> Compilation:
    """Another intent, compiled in the place of the first."""
    (text,) = [file.text for file in first.artifacts if file.path == lock.FILE]
    previous = lock.read(text.encode())
    assert isinstance(previous, Lock)
    return compiled(document, previous)


def test_a_class_that_stays_is_told() -> None:
    told = comparison(BASE, after(BASE, changed("spec/pools/claimed/backend", "device-plugin")))
    assert [(one.pool, one.subject) for one in told.effects if one.kind is EffectKind.CLASS_KEPT] == [
        ("claimed", "gpushare-claimed")
    ]


def test_equal_intents_have_no_changes() -> None:
    assert comparison(BASE, BASE).is_empty


@pytest.mark.parametrize(("path", "value"), CHANGES, ids=[f"{path}={value}" for path, value in CHANGES])
def test_every_change_is_reported(path: str, value: Any) -> None:
    for told in (comparison(BASE, compiled(changed(path, value))), comparison(compiled(changed(path, value)), BASE)):
        assert not told.is_empty
        assert told.files


def test_the_back_end_of_the_platform_changes_only_pools_without_one() -> None:
    told = comparison(BASE, compiled(changed("spec/platform/backend", "dra")))
    assert {one.name for one in told.pools if one.change is not Change.NONE} == {"offered"}


def test_a_change_of_the_back_end_takes_as_long_as_it_was_measured() -> None:
    """To DRA with names in limits kubelet must forget first that the plugin had them."""
    plugin = changed("spec/pools/named/backend", "device-plugin")
    del plugin["spec"]["pools"]["named"]["requests"]
    (back,) = comparison(BASE, compiled(plugin)).outages
    (there,) = comparison(compiled(plugin), BASE).outages
    (claims,) = comparison(compiled(changed("spec/pools/claimed/backend", "device-plugin")), BASE).outages
    assert (back.seconds, there.seconds, claims.seconds) == (15, 75, 10)


def kinds(told: Comparison) -> set[EffectKind]:
    return {effect.kind for effect in told.effects}


def test_an_interval_makes_new_pods_wait_and_restarts_the_driver_once() -> None:
    short, long = (changed("spec/pools/claimed/sharing/interval", word) for word in ("short", "long"))
    first = compiled(short)
    told = comparison(BASE, first)
    assert kinds(told) == {EffectKind.INTERVAL, EffectKind.DRA_UPSTREAM}
    assert [(one.pool, one.before, one.after) for one in told.effects if one.kind is EffectKind.INTERVAL] == [
        ("claimed", "default", "short")
    ]
    for later in (after(first, long), after(first, yaml.safe_load(INTENT))):
        assert kinds(comparison(first, later)) == {EffectKind.INTERVAL}


@pytest.mark.parametrize("sharing", [{"mode": "exclusive"}, {"mode": "mig", "layout": {"3g.20gb": 2}}])
@pytest.mark.parametrize("back", [False, True])
def test_pods_of_another_mode_wait_for_no_interval(sharing: dict[str, Any], back: bool) -> None:
    """They get no GPU on which a pod of the former mode is."""
    short, other = changed("spec/pools/claimed/sharing/interval", "short"), changed("spec/pools/claimed/sharing", sharing)
    for document in (short, other):
        document["spec"]["pools"]["claimed"] |= {"card": "a100-sxm4-40gb"}
        document["spec"]["pools"]["claimed"].pop("sizes", None)
    sides = [compiled(short), compiled(other)]
    assert EffectKind.INTERVAL not in kinds(comparison(*(reversed(sides) if back else sides)))


@pytest.mark.parametrize("back", [False, True])
def test_the_first_pool_of_dra_restarts_no_other_program(back: bool) -> None:
    """The driver's image joins the list, and the operator's values stay as they are."""
    document: dict[str, Any] = yaml.safe_load(INTENT)
    del document["spec"]["platform"]["dra"], document["spec"]["pools"]["named"], document["spec"]["pools"]["claimed"]
    sides = [compiled(document), compiled(yaml.safe_load(INTENT))]
    assert EffectKind.UPSTREAM not in kinds(comparison(*(reversed(sides) if back else sides)))


def test_another_release_of_the_driver_restarts_the_driver_alone() -> None:
    told = kinds(comparison(BASE, compiled(changed("spec/platform/dra/version", "0.5.1"))))
    assert EffectKind.DRA_UPSTREAM in told
    assert EffectKind.UPSTREAM not in told
