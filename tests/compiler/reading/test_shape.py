"""What is wrong with the shape of a document, where, and how it is said: one finding for each real problem."""

import pytest

from gpushare.reading import schema, source
from tests.compiler.reading.texts import FULL, INTENT, of_shape, place

SHARING = "sharing: {mode: time-slicing, replicas: 4}"
NODES = "nodes: {names: [gpu-01]}"
GPUS = "gpusPerNode: 4"
MORE = "gpusPerNode: 4\n      "
NAME = "metadata: {name: physics-batch}"


@pytest.mark.parametrize("text", [INTENT, FULL], ids=["shortest", "full"])
def test_valid_document_has_no_findings(text: str) -> None:
    assert of_shape(text) == []


CASES = [
    # required
    (SHARING, "sharing: {mode: time-slicing}", ["GS101 10:7-14"], "sharing needs replicas"),
    (SHARING, "sharing: {replicas: 4}", ["GS101 10:7-14"], "sharing needs mode"),
    ("      card: t4\n", "", ["GS101 6:5-14"], "pool notebooks needs card"),
    (NODES, "nodes: {}", ["GS101 8:7-12"], "nodes needs at least one of matchLabels, matchExpressions or names"),
    (NODES, "nodes: {expected: 3}", ["GS101 8:7-12"], "at least one of"),
    (NODES, "nodes: {matchExpressions: [{key: a, operator: In}]}", ["GS101 8:34-56"], "matchExpressions[0] needs values"),
    # unknown
    (SHARING, "sharing: {mode: time-slicing, replica: 4}", ["GS102 10:37-44"], "did you mean replicas?"),
    (SHARING, "sharing: {mode: mig, layot: {1g.5gb: 7}}", ["GS102 10:28-33"], "did you mean layout?"),
    (SHARING, "sharing: {mode: mps, replicas: 2, Rename: true}", ["GS102 10:41-47"], "did you mean rename?"),
    (NODES, "nodes: {matchLabel: {a: b}}", ["GS102 8:15-25"], "did you mean matchLabels?"),
    (GPUS, MORE + "replicas: 2", ["GS102 10:7-15"], "replicas belongs in sharing"),
    (GPUS, MORE + "zzz: 2", ["GS102 10:7-10"], "known fields: card, nodes,"),
    # type
    ("spec:\n", "spec:\n  kubernetes: 1.30\n", ["GS103 5:15-19"], 'write it in quotes: "1.30"'),
    ("spec:\n", "spec:\n  platform: {version: 26.70}\n", ["GS103 5:23-28"], 'write it in quotes: "26.70"'),
    (GPUS, 'gpusPerNode: "4"', ["GS103 9:20-23"], "write it without quotes: 4"),
    (GPUS, "gpusPerNode: true", ["GS103 9:20-24"], "gpusPerNode must be a whole number, not true"),
    (GPUS, MORE + "enforcement: {grace: 10}", ["GS103 10:28-30"], "must be a duration in whole seconds, such as 10s or 5m"),
    (GPUS, MORE + "memory: {cap: [1]}", ["GS103 10:21-24"], "must be a size such as 3500Mi, or even, or none"),
    (GPUS, MORE + "namespaces: atlas", ["GS103 10:19-24"], "write a list of one: [atlas]"),
    (SHARING, "sharing:", ["GS103 10:7-14"], "sharing must be a mapping, not nothing"),
    (SHARING, "sharing: []", ["GS103 10:16-18"], "sharing must be a mapping, not a list"),
    (SHARING, "sharing: {mode: mps, replicas: {a: 2}}", ["GS103 10:38-44"], "replicas must be a whole number, not a mapping"),
    (SHARING, "sharing: {mode: mps, replicas: many}", ["GS103 10:38-42"], 'a whole number, not the text "many"'),
    # words
    ("gpushare.dev/v1", "gpushare.dev/v2", ["GS104 1:13-28"], "apiVersion must be gpushare.dev/v1, not gpushare.dev/v2"),
    (SHARING, "sharing: {mode: dra}", ["GS104 10:23-26"], "dra is a back end: write backend: dra in the pool"),
    (SHARING, "sharing: {mode: dra, replicas: 4}", ["GS104 10:23-26"], "dra is a back end: write backend: dra in the pool"),
    (SHARING, "sharing: {mode: MIG}", ["GS104 10:23-26"], "did you mean mig?"),
    (
        SHARING,
        "sharing: {mode: 5, replicas: 4}",
        ["GS104 10:23-24"],
        "mode must be exclusive, time-slicing, mps, mig, partition or vgpu, not 5",
    ),
    (SHARING, "sharing: {mode: mig, goal: balance}", ["GS104 10:34-41"], "did you mean balanced?"),
    (SHARING, "sharing: {mode: mig, layout: all}", ["GS104 10:36-39"], "from profile to number, none or on-demand, not all"),
    # form
    (NAME, "metadata: {name: Physics}", ["GS105 3:18-25"], "lower-case letters, digits and hyphens"),
    (NAME, 'metadata: {name: "a\\n"}', ["GS105 3:18-23"], "lower-case letters, digits and hyphens"),
    (GPUS, MORE + "memory: {cap: 3500MB}", ["GS105 10:21-27"], "must be a size such as 3500Mi"),
    (GPUS, MORE + "memory: {cap: 0.0Ki}", ["GS105 10:21-26"], "must be a size such as 3500Mi"),
    (GPUS, MORE + "memory: {cap: 99E}", ["GS105 10:21-24"], "must be a size such as 3500Mi"),
    (GPUS, MORE + "memory: {reserve: 101%}", ["GS105 10:25-29"], "percentage up to 100"),
    (GPUS, MORE + "rollout: {drainTimeout: 1500ms}", ["GS105 10:31-37"], "a duration in whole seconds"),
    (GPUS, MORE + "rollout: {maxUnavailable: 0%}", ["GS105 10:33-35"], "from 1% to 100%"),
    ("spec:\n", 'spec:\n  platform: {registry: "https://x"}\n', ["GS105 5:24-35"], "without https://"),
    # range
    (GPUS, "gpusPerNode: 17", ["GS106 9:20-22"], "gpusPerNode must be from 1 to 16, not 17"),
    (SHARING, "sharing: {mode: mps, replicas: 1}", ["GS106 10:38-39"], "replicas must be from 2 to 1024, not 1"),
    (SHARING, "sharing: {mode: mig, layout: {1g.5gb: 0}}", ["GS106 10:45-46"], "1g.5gb must be at least 1, not 0"),
    (GPUS, MORE + "rollout: {maxUnavailable: 0}", ["GS106 10:33-34"], "maxUnavailable must be from 1 to 2147483647, not 0"),
    # number of entries
    (NODES, "nodes: {names: []}", ["GS107 8:22-24"], "names needs at least one entry"),
    (NODES, "nodes: {names: [a, b, a]}", ["GS107 8:29-30"], "names has a more than once"),
    (SHARING, "sharing: {mode: mig, layout: {}}", ["GS107 10:36-38"], "write none"),
    (SHARING, "sharing: {mode: mig, goal: {instances: 3, memory: 2Gi}}", ["GS107 10:34-61"], "instances and memory together"),
    ("spec:\n", "spec:\n  quotas: {a: {p: {memory: 1Gi, x: 2}}}\n", ["GS102 5:33-34"], "unknown field x in p"),
    # what excludes each other
    (SHARING, "sharing: {mode: mig}", ["GS108 10:7-14"], "sharing needs exactly one of layout, layouts or goal"),
    (
        SHARING,
        "sharing: {mode: mig, goal: balanced, layout: {a: 1}}",
        ["GS108 10:52-58"],
        "layout cannot be combined with goal",
    ),
    (SHARING, "sharing: {mode: exclusive, replicas: x}", ["GS108 10:34-42"], "replicas does not belong to mode exclusive"),
    (SHARING, "sharing: {mode: mps, replicas: 2, strategy: 7}", ["GS108 10:41-49"], "strategy does not belong to mode mps"),
    (NODES, "nodes: {matchExpressions: [{key: a, operator: Exists, values: [x]}]}", ["GS108 8:61-67"], "to operator Exists"),
]


@pytest.mark.parametrize(("old", "new", "expected", "words"), CASES)
def test_each_mistake_is_one_finding_in_plain_words(old: str, new: str, expected: list[str], words: str) -> None:
    assert old in INTENT
    found = of_shape(INTENT.replace(old, new))
    assert [place(finding) for finding in found] == expected
    assert words in " | ".join([found[0].message, *found[0].hints])
    assert "^" not in found[0].message, "a regular expression is not a user's word"


def test_several_mistakes_are_several_findings() -> None:
    text = INTENT.replace(GPUS, "gpusPerNodes: 4\n      prio: 1").replace("time-slicing", "mpss").replace("kind", "kin")
    found = sorted(place(finding) for finding in of_shape(text))
    assert found == ["GS102 10:7-11", "GS102 2:1-4", "GS102 9:7-19", "GS104 11:23-27"]


@pytest.mark.parametrize("text", ["[]", "5", "text"])
def test_document_that_is_not_a_mapping_is_one_finding(text: str) -> None:
    assert [place(finding) for finding in of_shape(text)] == ["GS103 1:1-2"]


def test_missing_top_level_fields_are_located_at_the_first_character() -> None:
    assert [place(finding) for finding in of_shape("# comment\nkind: ClusterIntent\n")] == ["GS101 2:1-2"] * 3


def test_an_intent_without_pools_is_refused() -> None:
    text = INTENT.partition("  pools:")[0]
    assert [place(finding) for finding in of_shape(text + "  pools: {}\n")] == ["GS107 5:10-12"]
    assert [place(finding) for finding in of_shape(text + "  pools:\n")] == ["GS103 5:3-8"]


def test_many_findings_end_with_the_number_not_shown() -> None:
    pools = "".join(f"    p{number}: 1\n" for number in range(150))
    found = of_shape(INTENT.partition("    notebooks:")[0] + pools)
    assert len(found) == 101
    assert found[-1].message == "50 more findings are not shown"


def test_paths_of_a_sub_schema_start_at_the_document() -> None:
    found = schema.violations({"kind": 1}, "intent.v1", ("spec", "cards", "x"))
    assert ("x needs spec", ("spec", "cards", "x", "spec")) in [(finding.message, finding.path) for finding in found]
    assert schema.violations(source.read(FULL.encode(), "f").data, "intent.v1", ()) == []


def test_finding_order_is_independent_of_the_hash_seed() -> None:
    text = "&a {card: t4, nodes: {names: [a]}, gpusPerNode: 1, sharing: {}}"
    pools = "".join(f"    p{number}: {'*a' if number else text}\n" for number in range(8))
    document = f"apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {{name: a}}\nspec:\n  pools:\n{pools}"
    found = schema.check(source.read(document.encode(), "intent.yaml"))
    assert [finding.path[2] for finding in found] == [f"p{number}" for number in range(8)]
