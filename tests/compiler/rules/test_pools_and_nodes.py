"""Rules on pools, their cards, their nodes and the words in them: code, place and sentence."""

from collections.abc import Callable

import pytest

from gpushare import rules
from gpushare.core.wording import join_words
from gpushare.facts.catalog import cards
from gpushare.intent import reader
from gpushare.reading import source
from gpushare_node.contract.names import OUR_TAINTS
from tests.compiler.rules.intents import check, found, pool, written
from tests.support.costs import grows_in_line

A100 = "a100-sxm4-40gb"


def one(code: str, *pools: str, **spec: str) -> tuple[str, bool, str]:
    (only,) = found(written(*pools, **spec), code)
    return only


def clean(*pools: str, **spec: str) -> None:
    assert [finding.code for finding in check(written(*pools, **spec))] == []


def nodes(**parts: str) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in parts.items()) + "}"


def test_a_plain_intent_has_no_findings() -> None:
    clean(pool())


def test_unknown_card_finding_suggests_the_nearest_cards() -> None:
    findings = check(written(pool(card="a100-sxm4-40g")))
    assert [(f.code, f.path[-1]) for f in findings] == [("GS201", "card")]
    assert A100 in findings[0].hints[0]


@pytest.mark.parametrize(
    ("selector", "place", "words"),
    [
        (
            "{matchLabels: {a: x}, matchExpressions: [{key: a, operator: In, values: [z]}]}",
            "/matchExpressions/0",
            "a In [z] together with a=x",
        ),
        (
            "{matchExpressions: [{key: a, operator: Exists}, {key: b, operator: Exists}, {key: a, operator: DoesNotExist}]}",
            "/matchExpressions/2",
            "a DoesNotExist together with a Exists",
        ),
        (
            "{matchExpressions: [{key: a, operator: In, values: [x, z]}, {key: a, operator: NotIn, values: [z, x]}]}",
            "/matchExpressions/1",
            "a NotIn [z, x] together with a In [x, z]",
        ),
    ],
)
def test_a_contradiction_is_reported_at_the_later_entry_and_names_the_earlier(selector: str, place: str, words: str) -> None:
    path, _, message = one("GS202", pool(nodes=selector))
    assert path == "/spec/pools/notebooks/nodes" + place
    assert words in message


def test_satisfiable_selector_has_no_findings() -> None:
    clean(pool(nodes="{matchLabels: {a: x}, matchExpressions: [{key: b, operator: NotIn, values: [x]}]}"))


def test_overlapping_pools_are_reported_at_the_later_one_with_a_fix() -> None:
    pools = pool("one", nodes="{matchLabels: {a: x}}"), pool("two", nodes="{matchLabels: {b: z}}")
    path, _, message = one("GS203", *pools)
    assert path == "/spec/pools/two/nodes"
    assert "pool one" in message
    (finding,) = (finding for finding in check(written(*pools)) if finding.code == "GS203")
    assert "{key: a, operator: NotIn, values: [x]}" in finding.hints[0]


def test_the_label_of_the_hint_does_separate_them() -> None:
    separated = "{matchLabels: {b: z}, matchExpressions: [{key: a, operator: NotIn, values: [x]}]}"
    clean(pool("one", nodes="{matchLabels: {a: x}}"), pool("two", nodes=separated))


def test_node_name_in_two_pools_is_reported_at_its_position() -> None:
    path, _, message = one("GS203", pool("one", nodes="{names: [n1, n2]}"), pool("two", nodes="{names: [n3, n2]}"))
    assert path == "/spec/pools/two/nodes/names/1"
    assert message == "node n2 is in pool one as well"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{matchLabels: {a: x}}", "{matchLabels: {a: z}}"),
        ("{matchLabels: {a: x}}", "{names: [n1]}"),
        ("{names: [n1]}", "{names: [n2]}"),
    ],
)
def test_disjoint_pools_do_not_overlap(first: str, second: str) -> None:
    clean(pool("one", nodes=first), pool("two", nodes=second))


def test_priority_resolves_overlapping_pools() -> None:
    clean(pool("one", nodes="{matchLabels: {a: x}}"), pool("two", nodes="{matchLabels: {b: z}}", priority="1"))


def test_several_overlaps_of_one_pool_are_one_finding() -> None:
    same = [pool(name, nodes="{matchLabels: {a: x}}") for name in ("one", "two", "three")]
    assert [path for path, _, _ in found(written(*same), "GS203")] == ["/spec/pools/two/nodes", "/spec/pools/three/nodes"]


def test_a_selector_that_is_refused_overlaps_no_other() -> None:
    refused = pool(name="late", nodes="{matchLabels: {nvidia.com/gpu.product: Tesla-T4}}")
    assert [finding.code for finding in check(written(pool(), refused))] == ["GS204"]


@pytest.mark.parametrize(
    "key",
    [
        "nvidia.com/gpu.product",
        "amd.com/gpu.family",
        "gpushare.dev/pool",
        "feature.node.kubernetes.io/pci-10de.present",
        "example.feature.node.kubernetes.io/gpu",
    ],
)
def test_labels_that_sharing_rewrites_are_refused_as_labels_and_in_expressions(key: str) -> None:
    path, on_key, _ = one("GS204", pool(nodes=f"{{matchLabels: {{{key}: x}}}}"))
    assert (path, on_key) == (f"/spec/pools/notebooks/nodes/matchLabels/{key.replace('/', '~1')}", True)
    path, on_key, _ = one("GS204", pool(nodes=f"{{matchExpressions: [{{key: {key}, operator: Exists}}]}}"))
    assert (path, on_key) == ("/spec/pools/notebooks/nodes/matchExpressions/0/key", False)


def test_labels_of_kubernetes_and_of_other_domains_may_select() -> None:
    clean(pool(nodes='{matchLabels: {node.kubernetes.io/x: "true", nvidia.com.example.org/x: z}}'))


@pytest.mark.parametrize("name", ["Upper", "a_b", "-a", "a" * 49, "release", "a.b"])
def test_invalid_pool_names_are_reported_at_the_key(name: str) -> None:
    path, on_key, _ = one("GS205", pool(name))
    assert (path, on_key) == (f"/spec/pools/{name}", True)


@pytest.mark.parametrize("name", ["4gpus", "a" * 48, "release-2"])
def test_valid_pool_names_have_no_findings(name: str) -> None:
    clean(pool(name))


def test_invalid_node_name_is_reported_at_its_position() -> None:
    assert one("GS206", pool(nodes="{names: [good-1, Bad_2]}"))[0] == "/spec/pools/notebooks/nodes/names/1"


def test_expected_is_refused_with_names_and_allowed_with_labels() -> None:
    assert one("GS207", pool(nodes="{names: [n1], expected: 0}"))[0] == "/spec/pools/notebooks/nodes/expected"
    clean(pool(nodes="{matchLabels: {a: x}, expected: 0}"))


@pytest.mark.parametrize(
    ("card", "require", "field", "words"),
    [
        ("t4", "{nvlink: true}", "nvlink", "a Tesla T4 has no NVLink"),
        ("t4", "{ecc: false}", "ecc", "a Tesla T4 has ECC memory"),
        ("t4", "{memory: 16Gi}", "memory", "reports 15360 MiB, less than 16Gi"),
        ("l2", "{memory: 1Gi}", "memory", "has not been measured"),
    ],
)
def test_an_unmet_requirement_is_reported_at_its_field(card: str, require: str, field: str, words: str) -> None:
    path, _, message = one("GS208", pool(card=card, sharing="{mode: exclusive}", require=require))
    assert path == f"/spec/pools/notebooks/require/{field}"
    assert words in message


def test_chip_to_chip_links_count_as_nvlink() -> None:
    assert not found(written(pool(card="gh200-96gb", sharing="{mode: exclusive}", require="{nvlink: true}")), "GS208")


def test_an_unconfirmed_fact_warns_only_where_it_is_relied_on() -> None:
    by_layout = pool(card="rtx-pro-5000-48gb", sharing="{mode: mig, layout: {1g.24gb: 2}}")
    path, _, message = one("GS209", by_layout)
    assert path == "/spec/pools/notebooks/card"
    assert "placements of 1g.24gb, profile id of 1g.24gb" in message
    assert "NVLink" not in message
    clean(pool(card="rtx-pro-5000-48gb", sharing="{mode: exclusive}"))


def test_unlike_shares_under_one_name_warn_once_and_name_the_pools() -> None:
    other = [
        pool(name, card="l40s", nodes=f"{{matchLabels: {{node.example.org/flavour: {name}}}}}") for name in ("serving", "batch")
    ]
    path, _, message = one("GS210", pool(), *other)
    assert path == "/spec/pools/serving/card"
    assert "nvidia.com/gpu.shared" in message
    assert "notebooks" in message
    assert "serving" in message


def test_shares_with_different_caps_count_as_different() -> None:
    elsewhere = "{matchLabels: {node.example.org/flavour: other}}"
    assert one("GS210", pool(), pool("two", nodes=elsewhere, memory="{cap: 2Gi}"))[0] == "/spec/pools/two/memory/cap"
    clean(pool(), pool("two", nodes=elsewhere))


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("nodes", "{matchLabels: {-bad: x}}", "nodes/matchLabels/-bad"),
        ("nodes", "{matchLabels: {good: -bad}}", "nodes/matchLabels/good"),
        ("nodes", "{matchExpressions: [{key: a/b/c, operator: Exists}]}", "nodes/matchExpressions/0/key"),
        ("nodes", "{matchExpressions: [{key: a, operator: In, values: [x, -z]}]}", "nodes/matchExpressions/0/values/1"),
        ("namespaces", "[good, Bad]", "namespaces/1"),
        ("tolerations", "[{key: a, operator: Exists, value: b}]", "tolerations/0/value"),
        ("tolerations", "[{key: -a}]", "tolerations/0/key"),
        ("tolerations", "[{operator: Equal, value: b}]", "tolerations/0/key"),
        ("tolerations", "[{key: a, operator: Exists, tolerationSeconds: 5}]", "tolerations/0/tolerationSeconds"),
        ("tolerations", "[{key: a, value: -b}]", "tolerations/0/value"),
    ],
)
def test_values_the_api_server_refuses_are_reported_at_their_position(field: str, value: str, place: str) -> None:
    path, _, _ = one("GS211", pool(**{field: value}))
    assert path == "/spec/pools/notebooks/" + place.replace("a/b/c", "a~1b~1c")


def test_tolerations_valid_in_kubernetes_are_accepted() -> None:
    limited = "{key: a, value: b, effect: NoExecute, tolerationSeconds: 5}"
    clean(pool(tolerations=f"[{{key: a, operator: Exists}}, {limited}, {{key: a}}]"))


def test_pool_with_too_many_named_nodes_is_reported() -> None:
    names = ", ".join(f"node-{number:05}" for number in range(15_000))
    path, _, message = one("GS212", pool(nodes=f"{{names: [{names}]}}"))
    assert path == "/spec/pools/notebooks/nodes"
    assert "KiB" in message


def test_pools_with_too_many_named_nodes_together_are_reported_once() -> None:
    names = ", ".join(f"a-rather-long-node-name-{number}" for number in range(2000))
    labelled = [pool(f"pool-{number}", nodes=f"{{matchLabels: {{a: x{number}}}}}") for number in range(120)]
    text = written(pool("named", nodes=f"{{names: [{names}]}}"), *labelled)
    assert [path for path, _, _ in found(text, "GS212")] == ["/spec/pools"]


def test_many_pools_may_name_many_nodes() -> None:
    named = {f"pool-{number}": ", ".join(f"n{number}-{m}" for m in range(20)) for number in range(120)}
    pools = [pool(name, nodes=f"{{names: [{names}]}}") for name, names in named.items()]
    assert found(written(*pools), "GS212") == []


def test_pool_covered_by_higher_priority_pools_is_reported() -> None:
    wide = pool("wide", nodes="{matchLabels: {a: x}}", priority="1")
    narrow = pool("narrow", nodes="{matchLabels: {a: x, b: z}}")
    assert one("GS214", wide, narrow)[0] == "/spec/pools/narrow/nodes"


def test_the_rules_judge_a_thousand_pools_without_comparing_each_with_each() -> None:
    catalog = cards.Catalog()

    def job(count: int) -> Callable[[], None]:
        pools = [pool(f"p{n}", nodes=f"{{matchLabels: {{node.example.org/flavour: f{n}}}}}") for n in range(count)]
        document = source.read(written(*pools, platform="{registry: registry.example.org}").encode(), "intent.yaml").data
        built = reader.build(document)

        def judge() -> None:
            assert {finding.code for finding in rules.run_rules(built, catalog, document)} <= {"GS218"}

        return judge

    assert grows_in_line(job, 1000)


@pytest.mark.parametrize(
    ("toleration", "bears"),
    [
        ("{operator: Exists}", join_words(OUR_TAINTS)),
        ("{operator: Exists, effect: NoSchedule}", join_words(OUR_TAINTS)),
        (f"{{key: {OUR_TAINTS[2]}, operator: Exists}}", OUR_TAINTS[2]),
        ("{key: gpushare.dev/not-ready, operator: Exists}", "gpushare.dev/not-ready"),
        ("{key: gpushare.dev/repartitioning}", "gpushare.dev/repartitioning"),
        ("{operator: Exists, effect: NoExecute}", ""),
        ("{key: gpushare.dev/not-ready, value: x}", ""),
        ("{key: gpushare.dev/not-ready, operator: Exists, effect: PreferNoSchedule}", ""),
    ],
)
def test_a_toleration_that_also_bears_the_start_up_taint(toleration: str, bears: str) -> None:
    places = [("/spec/pools/notebooks/tolerations/1", False)] if bears else []
    text = written(pool(tolerations=f"[{{key: a, operator: Exists}}, {toleration}]"))
    assert [found_at[:2] for found_at in found(text, "GS215")] == places
    assert all(f"also tolerates {bears}, so" in message for _, _, message in found(text, "GS215"))


@pytest.mark.parametrize(
    ("selector", "warns"),
    [
        ("{matchExpressions: [{key: a, operator: DoesNotExist}]}", True),
        ("{matchExpressions: [{key: a, operator: NotIn, values: [b]}]}", True),
        ("{matchLabels: {kubernetes.io/os: linux}}", True),
        ("{matchLabels: {kubernetes.io/arch: arm64, beta.kubernetes.io/os: linux}}", True),
        ("{matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}", True),
        ("{matchLabels: {kubernetes.io/hostname: gpu-01}}", False),
        ("{matchLabels: {kubernetes.io/os: linux, a: b}}", False),
        ("{matchExpressions: [{key: a, operator: Exists}, {key: b, operator: DoesNotExist}]}", False),
        ("{names: [n1], matchExpressions: [{key: a, operator: DoesNotExist}]}", False),
    ],
)
def test_selector_matching_every_node_is_reported(selector: str, warns: bool) -> None:
    message = "pool notebooks selects nodes without GPUs too: no part of its selector is specific to GPU nodes"
    expected = [("/spec/pools/notebooks/nodes", False, message)] if warns else []
    assert found(written(pool(nodes=selector)), "GS216") == expected


@pytest.mark.parametrize("count", [300, 301])
def test_more_pools_than_the_tests_compile(count: int) -> None:
    pools = [pool(f"p{number}", nodes=f"{{names: [n{number}]}}") for number in range(count)]
    message = "301 pools are more than the 300 that gpushare is tested with"
    assert found(written(*pools), "GS218") == ([("/spec/pools", True, message)] if count > 300 else [])
