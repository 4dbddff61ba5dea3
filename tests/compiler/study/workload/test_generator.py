"""Workloads from parameters: the same for a seed, of the distribution that was asked for."""

import json
import statistics
from collections import Counter
from typing import Any

import pytest
import yaml

from gpushare.reading import schema
from gpushare.study.workload import WorkloadError, load
from gpushare.study.workload.generator import Daily, Lognormal, Parameters, Size, generate

HALF = (Size(milli=500),)


def written(**spec: Any) -> bytes:
    document = {"apiVersion": "gpushare.dev/v1", "kind": "Workload", "spec": {"pods": 9, "sizes": [{"gpus": 1}], **spec}}
    return yaml.safe_dump(document).encode()


def test_same_seed_gives_the_same_pods_in_every_version_of_python() -> None:
    parameters = Parameters(
        name="x",
        pods=6,
        sizes=(Size(memory_bytes=4 << 30, weight=2), Size(milli=250, weight=1)),
        seed=11,
        namespaces=(("a", 1), ("b", 3)),
        arrivals=60.0,
        durations=Lognormal(median=3600, p95=36_000),
    )
    found = generate(parameters)
    assert found == generate(parameters)
    assert [(one.namespace, one.milli, one.arrival, one.duration) for one in found.pods] == [
        ("b", None, 131, 1106),
        ("b", None, 184, 1534),
        ("a", 250, 200, 972),
        ("b", None, 252, 2530),
        ("a", None, 254, 4600),
        ("a", None, 278, 10_496),
    ]
    assert found.assumed == ("6 pods generated with the seed 11",)


def test_sizes_and_namespaces_follow_their_weights() -> None:
    sizes = (Size(milli=500, weight=70), Size(gpus=1, weight=20), Size(gpus=8, weight=10))
    found = generate(Parameters(name="x", pods=20_000, sizes=sizes, namespaces=(("a", 1), ("b", 4))))
    counts = Counter((one.milli, one.gpus) for one in found.pods)
    for size in sizes:
        assert counts[size.milli, size.gpus] == pytest.approx(size.weight * 200, rel=0.05)
    assert Counter(one.namespace for one in found.pods)["a"] == pytest.approx(4000, rel=0.05)


def test_durations_have_the_mean_or_the_quantiles_that_were_asked_for() -> None:
    def durations(rule: int | Lognormal) -> list[int]:
        found = generate(Parameters(name="x", pods=20_000, sizes=HALF, durations=rule)).pods
        return [one.duration or 0 for one in found]

    assert statistics.mean(durations(3600)) == pytest.approx(3600, rel=0.03)
    cut = statistics.quantiles(durations(Lognormal(median=3600, p95=36_000)), n=20)
    assert cut[9] == pytest.approx(3600, rel=0.05)
    assert cut[18] == pytest.approx(36_000, rel=0.08)
    assert {one.duration for one in generate(Parameters(name="x", pods=9, sizes=HALF, fixed=60)).pods} == {60}
    assert {one.duration for one in generate(Parameters(name="x", pods=9, sizes=HALF)).pods} == {None}


def test_arrivals_follow_their_rate_and_the_day() -> None:
    steady = [one.arrival for one in generate(Parameters(name="x", pods=20_000, sizes=HALF, arrivals=100.0)).pods]
    assert steady == sorted(steady)
    assert steady[-1] == pytest.approx(200 * 3600, rel=0.03)
    daily = Daily(per_day=1000, busiest_hour=14, quietest=0.25)
    found = [one.arrival for one in generate(Parameters(name="x", pods=50_000, sizes=HALF, arrivals=daily)).pods]
    assert found[-1] == pytest.approx(50 * 86_400, rel=0.03)
    hours = Counter(at // 3600 % 24 for at in found)
    assert hours[1] / hours[13] == pytest.approx(0.25, rel=0.15)
    assert {one.arrival for one in generate(Parameters(name="x", pods=9, sizes=HALF)).pods} == {0}


def test_other_durations_leave_the_sizes_as_they_are() -> None:
    sizes = (Size(milli=500), Size(milli=250))
    with_mean = generate(Parameters(name="x", pods=99, sizes=sizes, durations=60)).pods
    assert [one.milli for one in with_mean] == [one.milli for one in generate(Parameters(name="x", pods=99, sizes=sizes)).pods]


def test_document_of_parameters() -> None:
    found = load(
        written(
            pods=3,
            seed=2,
            namespaces={"physics": 1},
            sizes=[{"memory": "4Gi", "pool": "notebooks", "card": "T4 l4", "weight": 3}],
            arrivals={"daily": {"perDay": 40}},
            durations={"fixed": "1d"},
        ),
        "w.yaml",
    )
    assert [(one.namespace, one.name, one.memory_bytes, one.pool, one.cards, one.duration) for one in found.pods] == [
        ("physics", f"pod-{number}", 4 << 30, "notebooks", ("t4", "l4"), 86_400) for number in (1, 2, 3)
    ]
    for spec in (
        {"arrivals": {"poisson": {"perHour": 1.5}}, "durations": {"exponential": {"mean": "90s"}}},
        {"sizes": [{"share": 0.25}, {"share": "1/3"}, {"resource": "nvidia.com/gpu", "count": 2}]},
        {"durations": {"lognormal": {"median": "1h", "p95": "10h"}}},
    ):
        assert len(load(written(**spec), "w.yaml").pods) == 9


def test_json_is_read_too() -> None:
    assert schema.accepts(schema.load("workload.v1"), document := yaml.safe_load(written()))
    assert load(json.dumps(document).encode(), "w").pods == load(written(), "w").pods


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"pods": 0}, "pods"),
        ({"pods": 10**9}, "pods"),
        ({"sizes": []}, "sizes"),
        ({"sizes": [{"shares": 1}]}, "unknown field shares"),
        ({"sizes": [{}]}, "a size has one of memory, share, gpus and resource"),
        ({"sizes": [{"gpus": 1, "share": 0.5}]}, "a size has one of"),
        ({"sizes": [{"gpus": 1, "count": 2}]}, "count belongs to resource"),
        ({"sizes": [{"share": 25}]}, "25 is more than a GPU"),
        ({"sizes": [{"memory": 4096}]}, "4096 is less than 1Mi"),
        ({"sizes": [{"resource": "gpu"}]}, "write its whole name"),
        ({"durations": {"fixed": "soon"}}, "'soon' is no duration"),
        ({"durations": {"lognormal": {"median": "2h", "p95": "1h"}}}, "p95 is not more than the median"),
        ({"durations": {"fixed": "1h", "exponential": {"mean": "1h"}}}, "durations"),
        ({"arrivals": {"poisson": {"perHour": 0}}}, "perHour"),
        ({"namespaces": {"A": 1}}, "A"),
        ({"seed": -1}, "seed"),
    ],
)
def test_parameters_that_cannot_be_used(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=r"^w\.yaml:\d+:\d+: ") as caught:
        load(written(**spec), "w.yaml")
    assert message in str(caught.value)


def test_second_document_is_refused() -> None:
    with pytest.raises(WorkloadError, match="more than one object"):
        load(written() + b"---\n" + written(), "w.yaml")
