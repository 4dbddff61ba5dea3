"""Facts about NVIDIA's charts: what a path means, what has no effect, and that the facts agree with each other."""

import json
from typing import Any

import pytest

from gpushare.core import resources
from gpushare.facts.catalog import upstream
from gpushare.facts.catalog.upstream import Dropped, Known, OpenMap, Unknown
from gpushare.reading import schema
from tests.compiler.reading.test_schemas import ANNOTATIONS, subschemas

STACKS = ("gpu-operator", "device-plugin")


def check(stack: str, dotted: str) -> Known | OpenMap | Dropped | Unknown:
    return upstream.check_path(upstream.chart(stack), tuple(dotted.split(".")))


def test_charts_are_named_with_their_newest_release() -> None:
    operator, plugin = map(upstream.chart, STACKS)
    assert (operator.name, operator.version, operator.repository) == (
        "gpu-operator",
        "v26.7.0",
        "https://helm.ngc.nvidia.com/nvidia",
    )
    assert (plugin.name, plugin.version, plugin.repository) == (
        "nvidia-device-plugin",
        "0.20.0",
        "https://nvidia.github.io/k8s-device-plugin",
    )


def test_release_has_its_device_plugin_version() -> None:
    operator = upstream.chart("gpu-operator")
    assert operator.plugin_version("v26.3.3") == "v0.19.3"
    assert [operator.plugin_version(release) for release in ("v1.0.0", "v24.3.9", "v26.3.4", "v26.7.0-rc.1", "v99.1.0")] == [
        "v0.12.3",
        "v0.15.0",
        "v0.19.3",
        "v0.19.3",
        "v0.20.0",
    ]


def test_release_without_a_chart_is_known_but_not_the_default() -> None:
    operator = upstream.chart("gpu-operator")
    assert set(operator.uncharted) == {"v26.7.1", "v26.7.2"} <= set(operator.known_versions)
    assert operator.version == "v26.7.0"


@pytest.mark.parametrize(
    ("release", "described"),
    [
        ("v26.7.2", "v26.7.0"),
        ("v24.3.0", "v24.3.0"),
        ("v24.3.9", "v24.3.0"),
        ("v26.7.0-rc.1", "v26.3.3"),
        ("v99.1.0", "v26.7.0"),
        ("v1.0.0", "v23.9.2"),
        (None, ""),
    ],
)
def test_release_without_a_chart_uses_the_last_earlier_chart(release: str | None, described: str) -> None:
    assert upstream.chart("gpu-operator").at(release).described == described


@pytest.mark.parametrize(
    ("release", "driver"),
    [
        ("v23.9.2", "550.54.14"),
        ("v24.3.0", "550.54.15"),
        ("v24.9.2", "550.144.03"),
        ("v25.3.4", "580.82.07"),
        ("v26.3.3", "580.126.20"),
    ],
)
def test_a_release_has_its_own_defaults_and_paths(release: str, driver: str) -> None:
    chart = upstream.chart("gpu-operator").at(release)
    fact = chart.path("driver.version")
    assert (fact and fact.default) == driver
    is_new = release not in ("v23.9.2", "v24.3.0", "v24.9.2")
    assert isinstance(upstream.check_path(chart, ("driver", "kernelModuleType")), Known) is is_new
    assert isinstance(upstream.check_path(chart, ("cdi", "default")), Known) or is_new


def test_the_changes_between_two_schemas_lead_from_one_to_the_other() -> None:
    before = {"a": {"b": 1, "gone": {}}, "same": [1], "flag": True}
    after = {"a": {"b": None, "new": {"c": 2}}, "same": [1], "flag": 1}
    assert list(upstream.schema_changes(before, after)) == [
        [["a", "b"], None],
        [["a", "gone"]],
        [["a", "new"], {"c": 2}],
        [["flag"], 1],
    ]


def test_releases_and_their_plugins_are_sorted_by_version() -> None:
    for stack in STACKS:
        for column in zip(*upstream.chart(stack).releases, strict=True):
            order = [upstream.version_order(version) for version in column]
            assert order == sorted(order)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("v26.3.9", "v26.3.10"),
        ("v26.7.0", "v26.10.0"),
        ("v9.0.0", "v22.9.0"),
        ("v26.7.0-rc.1", "v26.7.0"),
        ("1.0.0-rc.2", "1.0.0-rc.10"),
        ("1.0.0-1", "1.0.0-alpha"),
        ("1.0.0-alpha", "1.0.0-alpha.1"),
        ("0.19.3", "v0.20.0"),
    ],
)
def test_versions_compare_by_their_order(earlier: str, later: str) -> None:
    assert upstream.version_order(earlier) < upstream.version_order(later)


def test_a_stack_without_a_chart_is_refused() -> None:
    with pytest.raises(KeyError):
        upstream.chart("existing")


@pytest.mark.parametrize(
    ("stack", "dotted", "kind", "default"),
    [
        ("gpu-operator", "mig.strategy", "string", "single"),
        ("gpu-operator", "cdi.enabled", "boolean", True),
        ("gpu-operator", "toolkit.env", "array", []),
        ("gpu-operator", "daemonsets.labels", "object", {}),
        ("gpu-operator", "devicePlugin.version", "string", "v0.20.0"),
        ("device-plugin", "migStrategy", "string", None),
        ("gpu-operator", "driver.upgradePolicy.maxUnavailable", ["integer", "string"], "25%"),
        ("device-plugin", "image.repository", "string", "nvcr.io/nvidia/k8s-device-plugin"),
        ("device-plugin", "gfd.enabled", "boolean", False),
        ("device-plugin", "failOnInitError", "boolean", None),
    ],
)
def test_a_value_has_its_type_and_default(stack: str, dotted: str, kind: object, default: object) -> None:
    fact = upstream.chart(stack).path(dotted)
    assert fact is not None
    assert (fact.schema["type"], fact.default, "default" in fact.schema) == (kind, default, True)
    assert check(stack, dotted) == Known(fact=fact)


def test_value_has_the_enum_and_bounds_of_the_api_server() -> None:
    operator = upstream.chart("gpu-operator")
    mode, failures = operator.path("ccManager.defaultMode"), operator.path("driver.startupProbe.failureThreshold")
    assert mode is not None
    assert mode.schema["enum"] == ["on", "off", "devtools"]
    assert failures is not None
    assert (failures.schema["minimum"], failures.default) == (1, 120)


def table(stack: str) -> dict[str, Any]:
    text = (resources.upstream() / f"{upstream.FILES[stack]}.values.json").read_text()
    return dict(json.loads(text))


@pytest.mark.parametrize("stack", STACKS)
def test_switches_are_of_parts_that_are_known(stack: str) -> None:
    chart = upstream.chart(stack)
    for part, switches in upstream._read(f"{chart.name}.notes.yaml")["switches"].items():
        assert isinstance(check(stack, part), Known | OpenMap) or part in chart.subcharts
        assert not [path for path in switches if chart.path(path) is None and path != "nfd.enabled"]


@pytest.mark.parametrize("stack", STACKS)
def test_the_schema_of_values_takes_every_default_and_has_known_keywords_alone(stack: str) -> None:
    chart, root = upstream.chart(stack), table(stack)
    for part in subschemas(root):
        known = {"$comment", *ANNOTATIONS, *schema.KEYWORDS}
        assert set(part) <= known, set(part) - known
        assert part.get("format") in {None, *schema.FORMATS}
        assert not {"pattern", "format"} & part.keys() or "patternErrorMessage" in part or "pattern" in part
        assert "$ref" not in part or part["$ref"].removeprefix("#/definitions/") in root["definitions"]
    for fact in upstream.paths(chart.name).values():
        assert upstream.violations(chart, fact, fact.default, ()) == [], fact.path


def test_values_that_only_templates_read_are_known() -> None:
    fact = upstream.chart("gpu-operator").path("dcgmExporter.config.name")
    assert fact is not None
    assert "default" not in fact.schema


def test_sections_are_known_and_have_no_fact() -> None:
    assert check("gpu-operator", "driver") == Known(fact=None)
    assert check("gpu-operator", "driver.upgradePolicy.drain") == Known(fact=None)


@pytest.mark.parametrize(
    ("stack", "dotted", "above"),
    [
        ("gpu-operator", "daemonsets.labels.team", "daemonsets.labels"),
        ("gpu-operator", "operator.resources.limits.hugepages", "operator.resources"),
        ("gpu-operator", "node-feature-discovery.worker.nodeSelector.zone", "node-feature-discovery"),
        ("device-plugin", "nfd.worker.annotations", "nfd"),
        ("device-plugin", "affinity.podAffinity", "affinity"),
    ],
)
def test_any_path_is_accepted_below_a_map_or_subchart(stack: str, dotted: str, above: str) -> None:
    assert check(stack, dotted) == OpenMap(above=above)


@pytest.mark.parametrize(
    ("stack", "dotted", "replacement"),
    [
        ("gpu-operator", "operator.defaultRuntime", "toolkit.env"),
        ("gpu-operator", "driver.licensingConfig.configMapName", "driver.licensingConfig.secretName"),
        ("gpu-operator", "devicePlugin.mps.root", None),
        ("gpu-operator", "psp.enabled", "psa.enabled"),
        ("gpu-operator", "node-feature-discovery.worker.options.sources", "node-feature-discovery.worker.config"),
        ("device-plugin", "gfd.noTimestamp", "noTimestamp"),
        ("device-plugin", "legacyDaemonsetAPI", None),
    ],
)
def test_ineffective_value_names_its_replacement(stack: str, dotted: str, replacement: str | None) -> None:
    judgement = check(stack, dotted)
    assert isinstance(judgement, Dropped)
    assert judgement.replacement == replacement
    assert judgement.reason


@pytest.mark.parametrize(
    ("dotted", "nearest"),
    [
        ("driver.enable", "driver.enabled"),
        ("devicePlugin.config.nam", "devicePlugin.config.name"),
        ("driver.enabled.deep", "driver.enabled"),
        ("toolkit.env.0", "toolkit.env"),
    ],
)
def test_an_unknown_path_names_the_nearest(dotted: str, nearest: str) -> None:
    judgement = check("gpu-operator", dotted)
    assert isinstance(judgement, Unknown)
    assert judgement.nearest[0] == nearest


def test_unrelated_path_gets_no_suggestions() -> None:
    judgement = check("gpu-operator", "zzzzzzzzzzzz")
    assert isinstance(judgement, Unknown)
    assert judgement.nearest == ()


@pytest.mark.parametrize("stack", STACKS)
def test_replacement_of_a_dropped_value_is_a_known_path(stack: str) -> None:
    chart = upstream.chart(stack)
    dropped = upstream.dropped(chart.name)
    assert dropped
    for row in dropped.values():
        assert chart.path(row.path) is None
        if row.replacement:
            assert isinstance(upstream.check_path(chart, tuple(row.replacement.split("."))), Known)


@pytest.mark.parametrize("stack", STACKS)
def test_image_and_toleration_paths_are_values_of_the_chart(stack: str) -> None:
    chart = upstream.chart(stack)
    assert all(chart.path(path) for image in chart.images for path in image.values)
    for path, default in chart.tolerations.items():
        fact = chart.path(path)
        assert fact is not None
        assert fact.default == list(default)
        assert all(toleration["operator"] in ("Exists", "Equal") for toleration in default)


def test_images_are_split_as_their_values_are() -> None:
    images = {image.section: image for image in upstream.chart("gpu-operator").images}
    driver, nfd = images["driver"], images["node-feature-discovery.image"]
    assert driver.values == {"driver.repository": "nvcr.io/nvidia", "driver.image": "driver", "driver.version": "595.91.07"}
    assert nfd.values == {
        "node-feature-discovery.image.repository": "registry.k8s.io/nfd/node-feature-discovery",
        "node-feature-discovery.image.tag": "v0.19.0",
    }
    assert images["operator"].tag is None
    assert (images["dcgm"].installed, images["gfd"].installed) == (False, True)
