"""A patch changes what it is to change, and no other character: in every example, and in every style of YAML."""

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gpushare.study.advice.patch import UnpatchableError, difference, patched
from tests.support.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*/intent.yaml"))

HEAD = """\
# the cluster
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: lab}
spec:
  pools:
"""


def plain(data: bytes) -> Any:
    return YAML(typ="safe", pure=True).load(data.decode("utf-8-sig"))


def pools_of(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = plain(data)["spec"]["pools"]
    return found


def kept_lines(before: bytes, after: bytes) -> tuple[list[bytes], list[bytes]]:
    """The lines that are only in the one, and only in the other."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    tail = 0
    while tail < min(len(old), len(new)) - same and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return old[same : len(old) - tail], new[same : len(new) - tail]


def intent(pools: str) -> bytes:
    return (HEAD + pools).encode()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_every_pool_of_every_example_can_be_patched(path: Path) -> None:
    data = path.read_bytes()
    for name, pool in pools_of(data).items():
        one = {"mode": "time-slicing", "replicas": 3}
        after = patched(data, "intent.yaml", {name: {"sharing": one, "memory": {**pool.get("memory", {}), "cap": "even"}}})
        found = plain(after)
        assert found["spec"]["pools"].pop(name) == {**pool, "sharing": one, "memory": {**pool.get("memory", {}), "cap": "even"}}
        expected = plain(data)
        del expected["spec"]["pools"][name]
        assert found == expected
        first, last = part_of(data, name)
        old = data.splitlines(keepends=True)
        assert after.splitlines(keepends=True)[:first] == old[:first]
        assert after.splitlines(keepends=True)[last - len(old) :] == old[last:] or last == len(old)
        comments = re.compile(rb"#.*")
        assert comments.findall(after) == comments.findall(data), "no comment is lost"


def part_of(data: bytes, name: str) -> tuple[int, int]:
    """The lines of a pool, as another YAML library has them: the first, and the first after."""
    pools = YAML(pure=True).load(data.decode())["spec"]["pools"]
    starts = [pools.lc.key(key)[0] for key in pools]
    number = list(pools).index(name)
    return starts[number], starts[number + 1] if number + 1 < len(starts) else len(data.splitlines())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_replicas_alone_change_one_line(path: Path) -> None:
    data = path.read_bytes()
    for name, pool in pools_of(data).items():
        if isinstance(pool["sharing"].get("replicas"), int):
            after = patched(
                data, "intent.yaml", {name: {"sharing": {**pool["sharing"], "replicas": 2 + pool["sharing"]["replicas"]}}}
            )
            old, new = kept_lines(data, after)
            assert len(old) == len(new) == 1
            assert re.sub(rb"replicas: \d+", b"", old[0]) == re.sub(rb"replicas: \d+", b"", new[0])


STYLES = {
    "flow": """
    a: {card: t4, sharing: {mode: time-slicing, replicas: <4|6>}, gpusPerNode: 1<|, memory: {cap: even}>} # small
""",
    "block": """
    a:
      sharing:   # of four
        mode: 'time-slicing'
        # now four
        replicas:  <4|6>  # people<|+      memory: {cap: even}>

  quotas: {}
""",
    "flow-over-lines": """
    a:
        memory:
            cap: "<2Gi|even>"     # each
            reserve: 1Gi
        sharing:
            {
              mode: time-slicing,  # turns
              replicas: <4|6>,  # people
            }
""",
    "json": """
    "a": {"memory": <{}|{cap: even}>, "sharing": {"replicas": <4|6>, "mode": "time-slicing"}}""",
    "anchors": """
    a:
      memory: {reserve: &size 1Gi<|, cap: even>}
      require: {memory: *size}
      sharing: {mode: time-slicing, replicas: &n <4|6>}
""",
    "alias-of-a-number": """
    b: {sharing: {mode: time-slicing, replicas: &n 4}}
    a: {sharing: {mode: time-slicing, replicas: <*n|6>}, memory: {cap: even}}
""",
    "no-last-break": """
    a:
      sharing: {mode: time-slicing, replicas: <4|6>}<|+      memory: {cap: even}>""",
}
"""In angle brackets what there is, and what takes its place; `+` begins a new line."""

REMOVALS = {
    "block": """
    a:
      sharing:
        mode: mig
        layout:
          <1g.5gb: 7|{2g.10gb: 3}>  # seven
<        replicas: 2  # two
|>        strategy: mixed
      gpusPerNode: 1
""",
    "flow": """
    a:
      sharing: {mode: mig, <goal: balanced, |>strategy: mixed<, replicas: 2|, layout: {2g.10gb: 3}>}
""",
    "flow-first": """
    a:
      sharing: {<replicas: 2, goal: {instances: 3}, |>strategy: mixed, mode: mig<|, layout: {2g.10gb: 3}>}
""",
    "flow-over-lines": """
    a:
      sharing: {
        mode: mig,  # hard
        strategy: mixed,  # by profile
        layout: <{1g.5gb: 7}|{2g.10gb: 3}>,
<        replicas: 2,  # two
|>        }
""",
}
_CHOICE = re.compile(r"<([^|>]*)\|([^>]*)>")


def before_and_after(text: str) -> tuple[str, str]:
    old = _CHOICE.sub(lambda found: found[1], text.removeprefix("\n"))
    return old, _CHOICE.sub(lambda found: found[2].replace("+", "\n"), text.removeprefix("\n"))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["", "bom"])
def test_values_are_replaced_and_added_in_every_style(style: str, line_break: str, mark: bytes) -> None:
    before, after = before_and_after(STYLES[style])
    old, new = (mark + intent(text).replace(b"\n", line_break.encode()) for text in (before, after))
    pool = pools_of(intent(before))["a"]
    fields = {"sharing": {**pool["sharing"], "replicas": 6}, "memory": {**pool.get("memory", {}), "cap": "even"}}
    assert patched(old, "intent.yaml", {"a": fields}) == new


@pytest.mark.parametrize("style", REMOVALS)
def test_entries_are_removed_with_their_lines(style: str) -> None:
    before, after = before_and_after(REMOVALS[style])
    new = {"mode": "mig", "strategy": "mixed", "layout": {"2g.10gb": 3}}
    assert patched(intent(before), "intent.yaml", {"a": {"sharing": new}}) == intent(after)


@pytest.mark.parametrize(
    ("pools", "overlays", "problem"),
    [
        ("    b: &all {sharing: {mode: mps, replicas: 4}}\n    a: *all\n", [], "repeats the value of an anchor"),
        ("    a: &all {sharing: {mode: mps, replicas: 4}}\n    b: *all\n", [], "aliases repeat what changes"),
        ("    b: {sharing: &one {mode: mps, replicas: 4}}\n    a: {sharing: *one}\n", [], "repeats the value of an anchor"),
        ("    a: {sharing: {mode: mps, replicas: &n 4}}\n    b: {sharing: {mode: mps, replicas: *n}}\n", [], "aliases repeat"),
        (
            "    a: {sharing: {mode: mps, replicas: 3}}\n",
            ["spec: {pools: {a: {sharing: {replicas: 4}}}}"],
            "north.yaml decides",
        ),
        (
            "    b: {sharing: {mode: mps, replicas: 3}}\n",
            ["spec: {pools: {a: {sharing: {mode: mps, replicas: 4}}}}"],
            "is not in it",
        ),
    ],
)
def test_what_cannot_be_patched_alone_is_said_with_what_to_write(pools: str, overlays: list[str], problem: str) -> None:
    over = [(text.encode(), "north.yaml") for text in overlays]
    with pytest.raises(UnpatchableError, match=problem) as found:
        patched(intent(pools), "intent.yaml", {"a": {"sharing": {"mode": "mps", "replicas": 6}}}, over)
    assert found.value.hint == "write in spec.pools a: {sharing: {mode: mps, replicas: 6}}"


def test_an_overlay_that_says_something_else_does_not_matter() -> None:
    over = [(b"spec: {pools: {a: {sharing: {placement: pack}, gpusPerNode: 2}}}", "north.yaml")]
    base = intent("    a: {sharing: {mode: mps, replicas: 3}}\n")
    after = patched(base, "intent.yaml", {"a": {"sharing": {"mode": "mps", "replicas": 6, "placement": "pack"}}}, over)
    assert after == base.replace(b"replicas: 3", b"replicas: 6")


def test_the_diff_is_a_unified_one() -> None:
    before = intent("    a: {sharing: {mode: mps, replicas: 3}}\r\n")
    text = difference(before, before.replace(b"3", b"6"), "intent.yaml")
    assert text.splitlines()[:2] == ["--- a/intent.yaml", "+++ b/intent.yaml"]
    assert "+    a: {sharing: {mode: mps, replicas: 6}}\n" in text
    assert not difference(before, before, "intent.yaml")
