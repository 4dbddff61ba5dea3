"""Shapes that a person writes by mistake: the finding's code, and the words that tell what to write instead."""

from pathlib import Path

import pytest

from gpushare import pipeline
from gpushare.core.diagnostics import Finding
from tests.compiler.cli.process import gpushare
from tests.compiler.intent.texts import intent, mig, pool

ALIKE = "shares all GPUs of a node alike"
MODELS = "a node has one card model"


def found(text: str) -> list[tuple[str, str]]:
    findings: tuple[Finding, ...] = pipeline.check(text.encode(), "intent.yaml").findings
    return [(finding.code, " ".join(finding.hints)) for finding in findings]


def quota(text: str) -> str:
    return intent(pool(), quotas=text)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (intent(pool(nodes="[node-1, node-2]")), "GS103", "{names: [node-1, node-2]}"),
        (intent(pool(nodes="node-1")), "GS103", "{names: [node-1]}"),
        (intent(pool(nodes="[{key: a, operator: Exists}]")), "GS103", "{matchExpressions: "),
        (intent(pool(nodes="{node.example.org/gpu: t4}")), "GS102", "{matchLabels: {node.example.org/gpu: t4}}"),
        (intent(pool(card="[t4, a10]")), "GS103", MODELS),
        (intent(pool(card="t4 and a10")), "GS201", MODELS),
        (intent(pool(card="t4, Tesla-P4")), "GS201", MODELS),
        (intent(pool(sharing="{mode: time-slicing, replicas: 1}")), "GS106", "write mode: exclusive, without replicas"),
        (intent(pool(sharing="{mode: mps, replicas: 1}")), "GS106", "write mode: exclusive, without replicas"),
        (intent(mig("layout: {1g.5gb: 7}, replicas: 1")), "GS106", "leave replicas out"),
        (intent(mig("layout: {1g.5gb: 7}, replicas: {1g.5gb: 1}")), "GS106", "leave 1g.5gb out"),
        (intent(pool(sharing="{mode: time-slicing, replicas: 4, gpus: [0]}")), "GS102", ALIKE),
        (intent(pool(sharing="{mode: mps, replicas: 4, devices: 0}")), "GS102", ALIKE),
        (intent(pool(sharing="{mode: time-slicing, replicas: [4, 1]}")), "GS103", ALIKE),
        (intent(pool(sharing='{mode: time-slicing, replicas: {"0": 4, "1": 2}}')), "GS103", ALIKE),
        (intent(pool(sharing="[{mode: exclusive}, {mode: mps}]")), "GS103", ALIKE),
        (intent(pool(sharing="{mode: mps, replicas: 4, layouts: [{gpus: [0], layout: none}]}")), "GS108", ALIKE),
        (quota("{team: {notebooks: 40Gi}}"), "GS103", "{memory: 40Gi}"),
        (quota("{team: {notebooks: 40 GB}}"), "GS103", "{memory: 40Gi}"),
        (quota("{team: {notebooks: {replicas: 10, memory: 40Gi}}}"), "GS102", "is called shares: {shares: 10}"),
        (quota("{team: {notebooks: {1g.5gb: 1, memory: 40Gi}}}"), "GS102", "for each of several write a number alone"),
        (quota("{team: {memory: 40Gi}}"), "GS103", "name the pool, too: {POOL: {memory: 40Gi}}"),
        (quota("{team: 10}"), "GS103", "name the pool, too: {POOL: 10}"),
    ],
)
def test_hint_contains_the_text_to_write(text: str, code: str, words: str) -> None:
    (one,) = [pair for pair in found(text) if pair[0] == code]
    assert words in one[1]


FOREIGN = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\ndata: {config.yaml: 'version: v1'}\n"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (intent(pool(sharing="{mode: time-slicing, replicas:4}")), "GS102", "did you mean replicas: 4?"),
        (intent(pool(sharing="{mode: time-slicing, replicas:4 }")), "GS102", "did you mean replicas: 4?"),
        (
            intent(pool(gpusPerNode="4\n      rollout:\n        maxUnavailable:1")),
            "GS103",
            "write maxUnavailable: 1, with a space",
        ),
        (intent(pool()).replace("gpusPerNode: ", "gpusPerNode:"), "GS003", "write gpusPerNode: 4"),
        (intent(pool(gpusPerNode="4\n      memoryCap: 3Gi")), "GS102", "did you mean memory: {cap: 3Gi}?"),
        (intent(pool(gpusPerNode="4\n      rollout_onBusy: evict")), "GS102", "did you mean rollout: {onBusy: evict}?"),
        (intent(pool(gpusPerNode="4\n      memory: 3Gi")), "GS103", "write {cap: 3Gi}"),
        (intent(pool(sharing="exclusive")), "GS103", "write {mode: exclusive}"),
        (intent(pool(gpusPerNode="4\n      nodeSelector: {a: b}")), "GS102", "write nodes: {matchLabels: "),
        (intent(pool()).replace("      gpusPerNode: 4\n", ""), "GS101", "add gpusPerNode: a whole number from 1 to 16"),
        (intent(pool()).replace("ClusterIntent", "Intent"), "GS104", "write ClusterIntent"),
        (FOREIGN, "GS104", "`gpushare import` makes an intent of a cluster's objects"),
        (intent(pool(card="NVIDIA-H100-80GB-HBM3", sharing="{mode: exclusive}")), "GS201", "write h100-sxm5-80gb"),
    ],
)
def test_one_mistake_is_one_finding_whose_hint_is_its_remedy(text: str, code: str, words: str) -> None:
    findings = [finding for finding in pipeline.check(text.encode(), "intent.yaml").findings if finding.code != "GS725"]
    assert [finding.code for finding in findings] == [code], findings
    assert any(words in hint for hint in findings[0].hints), findings[0].hints


def test_line_whose_colon_lacks_a_space_is_the_position_of_the_finding() -> None:
    text = intent(pool()).replace("gpusPerNode: ", "gpusPerNode:")
    [finding] = pipeline.check(text.encode(), "intent.yaml").findings
    assert finding.span is not None
    assert text.splitlines()[finding.span.line - 1].strip() == "gpusPerNode:4"


def test_a_number_in_place_of_text_is_shown_as_written() -> None:
    (finding,) = pipeline.check(intent(pool(), kubernetes="1.30").encode(), "intent.yaml").findings
    assert (finding.message, finding.hints) == ("kubernetes must be text, not the number 1.30", ('write it in quotes: "1.30"',))


def test_an_address_is_no_key_whose_colon_lacks_a_space() -> None:
    text = intent(pool()).replace("  pools:", "  http://example.org\n  pools:")
    [finding] = pipeline.check(text.encode(), "intent.yaml").findings
    assert "space" not in finding.message


BODY = "card: t4\n{0}nodes: {{names: [{1}]}}\n{0}gpusPerNode: 4\n{0}sharing: {{mode: exclusive}}\n"
HEAD = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: prod}\nspec:\n  pools:\n"
ONE = "    one:\n      " + BODY.format(" " * 6, "a")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (
            HEAD + ONE + "      two:\n      " + BODY.format(" " * 6, "b"),
            "GS004",
            "two in line 11 has nothing below it: indent it",
        ),
        (HEAD + ONE + "      two:\n        " + BODY.format(" " * 8, "b"), "GS102", "two reads like a pool: indent it"),
        (HEAD + ONE + "  two:\n    " + BODY.format(" " * 4, "b"), "GS102", "two reads like a pool: indent it"),
        (HEAD + ONE + "    two:\n", "GS103", "indent its fields further than its name"),
        (HEAD + "    one:\n    card: t4\n    gpusPerNode: 4\n", "GS103", "card is a field of a pool: indent it"),
        (HEAD + "    - name: one\n      " + BODY.format(" " * 6, "a"), "GS103", "write a mapping by name: {one: "),
    ],
)
def test_wrongly_indented_pool_is_reported_as_such(text: str, code: str, words: str) -> None:
    assert any(one == code and words in hint for one, hint in found(text)), found(text)


def test_fields_below_an_empty_key_are_one_finding_and_other_repeated_keys_their_own() -> None:
    moved = HEAD + ONE + "      two:\n      " + BODY.format(" " * 6, "b")
    assert [code for code, _ in found(moved)] == ["GS004"]
    twice = HEAD + ONE.replace("gpusPerNode: 4\n", "gpusPerNode: 4\n      gpusPerNode: 8\n      card: l4\n")
    assert [hint for _, hint in found(twice)] == ["keep one of the two"] * 2


def test_quota_with_a_number_of_another_name_gets_a_hint_to_call_it_shares() -> None:
    text = quota("{team: {" + "notebooks: {replicas: 10}}}")
    name = next(iter(pipeline.check(intent(pool()).encode(), "i").intent.pools)).name  # type: ignore[union-attr]
    renamed = text.replace("notebooks: {replicas", f"{name}: {{replicas")
    assert ("GS603", "the number of shares is called shares: {shares: 10}") in found(renamed)


def test_pools_that_share_one_node_get_a_hint() -> None:
    both = HEAD + ONE + "    two:\n      " + BODY.format(" " * 6, "a")
    assert [code for code, hint in found(both) if ALIKE in hint] == ["GS203"]
    models = both.replace("card: t4", "card: l4", 1)
    assert [code for code, hint in found(models) if MODELS in hint] == ["GS203"]


def test_all_overlapping_pools_are_listed_with_an_excluding_selector() -> None:
    def other(name: str, key: str, value: str) -> str:
        body = BODY.format(" " * 6, "a").replace("names: [a]", f"matchLabels: {{{key}: {value}}}")
        return f"    {name}:\n      {body}"

    text = HEAD + "".join(other(f"p{n}", "x.example/gpu", f"v{n}") for n in range(5)) + other("late", "y.example/z", "w")
    (finding,) = [one for one in pipeline.check(text.encode(), "i").findings if one.code == "GS203"]
    assert "pools p0, p1, p2, p3 and p4" in finding.message
    assert "{key: x.example/gpu, operator: NotIn, values: [v0, v1, v2, v3, v4]}] to pool late" in finding.hints[0]


def test_a_bundle_is_not_an_intent(tmp_path: Path) -> None:
    (tmp_path / "gpushare.lock.yaml").write_text("kind: Lock\n")
    done = gpushare("check", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "that is a bundle: name the intent that it was compiled from" in done.stderr
