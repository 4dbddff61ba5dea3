"""Any bytes give a workload or say why not, and every row is a pod or is left out."""

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpushare.study.workload import Workload, WorkloadError, load
from tests.compiler.study.workload.test_cluster_pods import pod
from tests.support import scale

CELLS = st.one_of(
    st.sampled_from(
        ["", "4Gi", "4096", "0.25", "1/4", "25%", "1/0", "90s", "2h", "2026-10-01T06:00:00Z", "physics", "3", '"x"']
    ),
    st.text(max_size=12),
)
HEADERS = st.permutations(
    ["namespace", "name", "memory", "share", "gpus", "resource", "count", "pool", "card", "arrival", "duration"]
)
TABLES = st.tuples(HEADERS, st.lists(st.lists(CELLS, max_size=12), max_size=6), st.sampled_from(",;\t|")).map(
    lambda parts: "\n".join(parts[2].join(row) for row in [parts[0], *parts[1]])
)
YAML = "kind: Workload\napiVersion: gpushare.dev/v1\nspec:\n  pods: 3\n  sizes: [{share: 1/4}]\n"
SEEDS = (
    json.dumps({"items": [pod(), pod(name="b")]}),
    json.dumps(pod(), indent=1),
    YAML,
    "kind: Pod\nspec: {containers: []}\n",
)


def cut(seed: str) -> st.SearchStrategy[str]:
    """A text with a part of it replaced."""
    at = st.integers(0, len(seed))
    return st.tuples(at, at, st.text(max_size=6)).map(lambda parts: seed[: parts[0]] + parts[2] + seed[parts[1] :])


def attempt(data: bytes) -> Workload | None:
    try:
        return load(data, "x")
    except WorkloadError:
        return None


quick = settings(max_examples=scale.examples(80), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(st.one_of(st.binary(max_size=60), *map(cut, SEEDS)))
def test_nothing_is_raised_but_a_workload_error(data: bytes | str) -> None:
    attempt(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))


@quick
@given(TABLES)
def test_cells_of_any_text(text: str) -> None:
    found = attempt(text.encode("utf-8", "surrogatepass"))
    for one in found.left_out if found else ():
        assert one.line >= 2
        assert one.reason.isprintable()


@quick
@given(
    st.lists(
        st.sampled_from(["4Gi,a", "4096,b", ",c", "4Gi,d,e", "4Gi", '"4Gi","f,g"', '"1Gi","a\nb"', "", "  ", "2G,\x01"]),
        min_size=1,
    )
)
def test_rows_that_are_used_and_left_out_are_all_rows(rows: list[str]) -> None:
    found = attempt("\n".join(["memory,name", *rows, "4Gi,last"]).encode())
    assert found is not None
    assert len(found.pods) + len(found.left_out) == 1 + sum(bool(row.strip()) for row in rows)
    lines = [pod.line for pod in found.pods] + [one.line for one in found.left_out]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize(
    "made", [lambda n: '{"a":' * n, lambda n: "a: " * n, lambda n: '"' * n, lambda n: '"\n' * n, lambda n: "," * n]
)
def test_large_hostile_text_is_answered_soon(made: Callable[[int], str]) -> None:
    attempt(("memory\n" + made(30_000)).encode())
    attempt(made(30_000).encode())
