"""What is advised: as many shares as measured use allows, tested on what it was not learned from, or a refusal."""

import math
from pathlib import Path
from typing import Any

import pytest

from gpushare import pipeline
from gpushare.core.prices import Price
from gpushare.intent.types import Mig, Sharing, TimeSlicing
from gpushare.study.advice import advising
from gpushare.study.advice.advised import Refusal
from gpushare.study.advice.candidates import Isolation
from gpushare.study.advice.history import ContainerUse, History
from gpushare.study.advice.replay import Measured, Terms, replay
from gpushare_node.contract.policy import Action
from gpushare_node.contract.struct import replace
from tests.compiler.study.advice.advised_intents import GIB, MIB, advised, compiled, document
from tests.compiler.study.advice.enforced_node import endings, enforced_node
from tests.support import scale
from tests.support.usage_series import DAY, START, Shape, history

STEP = 600
A_WEEK = 7


def used(*shapes: tuple[str, int, Shape], days: float = A_WEEK, seed: int = 1, **more: Any) -> History:
    return history(shapes or [("atlas", 12, Shape(base_mib=1500, burst_mib=500))], seed, days, step_seconds=STEP, **more)


def steady(mib: int, number: int = 12) -> History:
    """Each container uses just this."""
    return used(("atlas", number, Shape(base_mib=mib, spread=0, bursts=0)))


def replicas(sharing: Sharing) -> object:
    assert isinstance(sharing, TimeSlicing | Mig)
    return sharing.replicas


def test_more_shares_are_advised_if_the_cap_can_be_lower() -> None:
    found = advised(steady(1800), price=Price(per_hour=0.5, currency="EUR"))
    change = found.change
    assert change is not None
    assert found.refusal is None
    assert replicas(change.sharing) == 8
    assert change.fields == {"sharing": {"mode": "time-slicing", "replicas": 8}}
    assert change.cap_bytes is not None
    assert change.cap_bytes >= 1800 * MIB
    assert (change.shares_before, change.shares_after) == (3, 8)
    assert (change.gpus_before, change.gpus_after, change.saved_per_hour) == (4, 2, 1.0), "12 containers at once"
    assert change.freed_mib == 2 * 15360
    assert (change.back_test.containers, change.back_test.endings) == (12, ())
    assert change.back_test.rate.value == 0 < change.back_test.rate.high < math.inf
    assert found.present is not None
    assert [one.namespace for one in found.distributions] == ["atlas"]


def test_the_pool_stays_as_it_is_if_nothing_serves_it_better() -> None:
    found = advised(steady(4500))
    assert (found.change, found.refusal) == (None, None)
    assert found.present is not None
    assert not found.present.endings


def test_fewer_shares_are_advised_if_the_present_cap_ends_containers() -> None:
    found = advised(used(("atlas", 12, Shape(base_mib=4700, spread=0, bursts=4, burst_mib=1500))))
    assert found.present is not None
    assert found.present.endings
    assert found.change is not None
    assert replicas(found.change.sharing) == 2
    assert not found.change.back_test.endings
    assert any("time-slicing ×3" not in note for note in found.notes)


def test_what_fails_the_back_test_is_named_and_the_next_is_taken() -> None:
    quiet, late = steady(1800, 11), START + 6 * DAY
    jump = ContainerUse(
        namespace="cms",
        pod="late",
        container="main",
        pool="notebooks",
        device="GPU-x",
        points=tuple((at, 2500 * MIB if at == late else 1800 * MIB) for at in range(START, START + 7 * DAY, STEP)),
    )
    found = advised(replace(quiet, containers=(*quiet.containers, jump)))
    assert found.change is not None
    assert replicas(found.change.sharing) == 5
    notes = " ".join(found.notes)
    for count in (6, 7, 8):
        assert f"time-slicing ×{count} failed the back-test: 1 container ended (cms/late)" in notes
    assert "chosen after these failures" in notes


def test_no_cap_is_below_what_a_running_container_uses_now() -> None:
    quiet = steady(1000)
    points = ((START + 7 * DAY - 2 * STEP, 1000 * MIB), (START + 7 * DAY - STEP, 6 * GIB))
    new = ContainerUse(namespace="cms", pod="new", container="main", pool="notebooks", device="", points=points)
    running = advised(replace(quiet, containers=(*quiet.containers, new)), risk=99.0)
    assert running.change is not None
    assert running.change.cap_bytes is not None
    assert running.change.cap_bytes >= 6 * GIB
    ended = replace(new, points=tuple((at - DAY, size) for at, size in points))
    gone = advised(replace(quiet, containers=(*quiet.containers, ended)), risk=99.0)
    assert gone.change is not None
    assert gone.change.cap_bytes is not None
    assert gone.change.cap_bytes < 6 * GIB
    assert [one.pod for one in gone.change.back_test.endings] == ["new"]


def test_a_container_still_runs_if_only_the_clock_of_another_is_ahead() -> None:
    quiet = steady(1000)
    ahead = replace(quiet.containers[0], points=tuple((at + 3600, size) for at, size in quiet.containers[0].points))
    points = ((START + 7 * DAY - 2 * STEP, 1000 * MIB), (START + 7 * DAY - STEP, 6 * GIB))
    new = ContainerUse(namespace="cms", pod="new", container="main", pool="notebooks", device="", points=points)
    found = advised(replace(quiet, containers=(ahead, *quiet.containers[1:], new)), risk=99.0)
    assert found.change is None or (found.change.cap_bytes or 0) >= 6 * GIB
    assert any("run used up to 6 GiB at the end" in note for note in found.notes)


def test_a_risk_allows_lower_caps_and_names_whom_they_end() -> None:
    shape = Shape(base_mib=1000, spread=0.05, bursts=0.2, burst_mib=3000, burst_minutes=30)
    cautious, bold = (advised(used(("atlas", 30, shape)), risk=risk) for risk in (0.0, 1.5))
    assert cautious.change is None or not cautious.change.back_test.endings
    assert bold.change is not None
    assert bold.change.shares_after > (cautious.change.shares_after if cautious.change else 3)
    assert bold.change.back_test.endings
    assert bold.change.back_test.rate.value <= 1.5


@pytest.mark.parametrize(
    ("measured", "refusal"),
    [
        (replace(used(), containers=()), Refusal.NO_USE),
        (used(days=0.4), Refusal.SHORT),
        (used(gaps=[(DAY, 4 * DAY)]), Refusal.GAPS),
        (used(gaps=[(5 * DAY, 6.5 * DAY)]), Refusal.GAPS),
        (used(("atlas", 9, Shape())), Refusal.FEW),
        (used(("atlas", 12, Shape(base_mib=1900, cap_mib=2000))), Refusal.CAPPED),
        (replace(used(), missing={"notebooks": 0.3}), Refusal.GAPS),
    ],
    ids=["none", "short", "gaps", "gaps-in-the-test", "few", "capped", "missing"],
)
def test_nothing_is_advised_from_a_history_that_tells_too_little(measured: History, refusal: Refusal) -> None:
    found = advised(measured)
    assert (found.refusal, found.change) == (refusal, None)


def test_there_is_no_layout_to_advise_where_instances_are_made_for_claims() -> None:
    of = document("a100-pcie-40gb", {"mode": "mig", "layout": "on-demand"}, backend="dra")
    of["spec"]["platform"]["dra"] = {}
    of["spec"]["kubernetes"] = "1.36"
    found = advised(used(), of)
    assert (found.refusal, found.change) == (Refusal.ON_DEMAND, None)


def test_less_history_and_fewer_containers_suffice_if_the_user_says_so() -> None:
    assert advised(used(days=0.4), min_seconds=3600).refusal is None
    assert advised(used(("atlas", 3, Shape())), min_containers=3).refusal is None


def test_a_cap_that_few_ran_against_is_not_lowered() -> None:
    free, capped = used(("atlas", 30, Shape(base_mib=1000))), used(("cms", 1, Shape(base_mib=5000, cap_mib=4966)), seed=2)
    both = replace(free, containers=(*free.containers, *capped.containers))
    assert advised(free).change is not None
    assert advised(both).change is None


def test_isolation_is_not_weakened_unless_that_is_allowed() -> None:
    whole = document("a100-sxm4-40gb", {"mode": "exclusive"})
    present = advised(steady(4000), whole)
    assert present.change is not None
    assert present.change.fields == {"sharing": {"mode": "mig", "layout": {"1g.5gb": 7}}}
    assert present.change.cap_bytes is None
    assert any("with less isolation (--isolation none)" in note for note in present.notes)
    assert any("pods must request nvidia.com/mig-1g.5gb in place of nvidia.com/gpu" in note for note in present.notes)
    assert any("a smaller part of a GPU's compute" in note for note in present.notes)
    assert any("running pods lose their shares when the nodes change" in note for note in present.notes)
    free = advised(steady(4000), whole, isolation=Isolation.NONE)
    assert free.change is not None
    assert free.change.fields["sharing"]["mode"] in {"mps", "time-slicing", "mig"}
    assert free.change.shares_after > 7
    shared = advised(steady(4000), document("a100-sxm4-40gb"), isolation=Isolation.MEMORY)
    assert shared.change is not None
    assert shared.change.fields["sharing"]["mode"] == "mig"


def test_mig_keeps_its_layout_if_only_the_replicas_change() -> None:
    goal = document("a100-sxm4-40gb", {"mode": "mig", "goal": "most-instances", "replicas": 2, "placement": "pack"})
    found = advised(steady(900), goal)
    assert found.change is not None
    assert found.change.fields["sharing"] == {"mode": "mig", "goal": "most-instances", "replicas": 5, "placement": "pack"}
    made = compiled(advising.changed(goal, {"notebooks": found.change.fields}))  # type: ignore[arg-type]
    assert made.plan is not None
    assert {device.cap_mib for device in made.plan.pools[0].devices} == {found.change.cap_bytes // MIB}  # type: ignore[operator]


def test_shares_of_several_sizes_are_left_alone() -> None:
    mixed = document("a100-sxm4-40gb", {"mode": "mig", "layout": {"3g.20gb": 1, "1g.5gb": 4}})
    found = advised(steady(900), mixed)
    assert (found.change, found.present) == (None, None)
    assert any("several sizes" in note for note in found.notes)


@pytest.mark.parametrize("times", [0.5, 1.5, 2])
def test_a_cap_that_was_another_before_says_nothing_of_a_containers_shares(times: float) -> None:
    """A container has one share, because the plugin refuses more: after a change from three to six a cap is not that of two."""
    made = compiled(document())
    assert made.plan is not None
    (device,) = made.plan.pools[0].devices
    assert device.cap_mib is not None
    cap = int(times * device.cap_mib) * MIB
    own = steady(2000)
    former = advised(replace(own, containers=tuple(replace(one, cap_bytes=cap) for one in own.containers)))
    present = advised(own)
    assert former.change is not None
    assert present.change is not None
    assert former.change.cap_bytes == present.change.cap_bytes
    assert former.change.gpus_before == present.change.gpus_before


def test_explicit_caps_and_actions_that_end_nobody() -> None:
    small = document(memory={"cap": "2Gi", "reserve": "512Mi"}, enforcement={"action": "warn"})
    found = advised(steady(1800), small)
    assert found.change is not None
    assert found.change.fields["memory"] == {"cap": "even", "reserve": "512Mi"}
    assert any("as if it were kill" in note for note in found.notes)
    free = advised(steady(1800), document(memory={"cap": "none"}))
    assert free.change is not None
    assert any("introduces one" in note for note in free.notes)


def test_containers_without_a_pool_are_of_the_only_one() -> None:
    own = steady(1800)
    nameless = replace(own, containers=tuple(replace(one, pool="") for one in own.containers))
    made = compiled(document())
    assert made.plan is not None
    found = advising.advise(made.plan, made.source.data, pipeline.findings_of, nameless, {}, advising.Caution())
    assert found.pools[0].change is not None
    assert "containers without a pool are of notebooks, the only one" in found.assumed


def test_containers_of_no_pool_are_left_out_with_a_count() -> None:
    own = steady(1800)
    late = replace(
        own.containers[0], pool="desktops", points=tuple((at + 9 * DAY, size) for at, size in own.containers[0].points)
    )
    made = compiled(document())
    assert made.plan is not None
    found = advising.of_pools(replace(own, containers=(*own.containers, late)), made.plan)
    assert found.containers == own.containers
    assert found.left_out == ("1 container of pools that the intent does not have for containers: desktops",)
    assert advising.split(found) == advising.split(own)


@pytest.mark.parametrize(
    ("seed", "is_present"), scale.some([(seed, is_present) for seed in range(3) for is_present in (True, False)], 6)
)
def test_predicted_endings_are_those_of_the_real_enforcement(
    seed: int, is_present: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, minutes = 15, 75 if scale.is_long else 15
    shapes = [
        ("atlas", 6, Shape(base_mib=1500, bursts=400, burst_mib=4000, burst_minutes=1)),
        ("cms", 5, Shape(base_mib=1500, spread=0.5, trend_mib=1440 * 500 / minutes)),
        ("lhcb", 5, Shape(base_mib=1000, bursts=200, burst_mib=2500, leak_mib=500, restarts=200)),
    ]
    made = history(shapes, seed, minutes / 1440, step_seconds=step)
    placed = (replace(one, device=str(number % 2)) for number, one in enumerate(made.containers))
    measured = replace(made, containers=tuple(one for one in placed if one.points))
    of = document("a100-sxm4-40gb", {"mode": "time-slicing", "replicas": 13}, gpus=2, enforcement={"grace": "2s"})
    found, plan = advised(measured, of, risk=1e9, min_seconds=60), compiled(of).plan
    assert found.present is not None
    assert plan is not None
    if is_present:
        predicted, cap_mib = found.present.endings, plan.pools[0].devices[0].cap_mib or 0
        assert len(predicted) > 2
    else:
        assert found.change is not None
        assert found.change.cap_bytes is not None
        predicted, cap_mib = found.change.back_test.endings, found.change.cap_bytes // MIB
    _, tested = advising.split(measured)
    with enforced_node(tmp_path, monkeypatch, "kill", cap_mib) as node:
        real = endings(node, measured.containers, tested, step)
    assert sorted((one.namespace, one.pod, one.at) for one in predicted) == real


LIKE_THE_PUBLIC_ONE = Shape(base_mib=2500, spread=0.8, bursts=20, burst_mib=900, burst_minutes=60)
"""Each container has a size of its own, and bursts at most of which the last part exceeds those before."""


def ended(own: History, window: tuple[int, int], cap_of: Any) -> int:
    """How many containers the guard ends if each has a cap of its own, from what it used before the window."""
    found = 0
    for one in own.containers:
        before = [size for at, size in one.points if at < window[0]]
        terms = Terms(cap_bytes=int(cap_of(before)), tolerance_bytes=0, action=Action.KILL, grace_seconds=10)
        found += len(replay(Measured([one], window, own.step_seconds, own.gap_seconds), terms).endings)
    return found


@pytest.mark.parametrize("seed", scale.part(range(30), 30))
def test_what_is_advised_by_default_ends_no_more_on_later_data_than_it_says(seed: int) -> None:
    days = 4
    whole = used(("atlas", 24, LIKE_THE_PUBLIC_ONE), days=days + 2, seed=seed)
    later = (START + days * DAY, START + (days + 2) * DAY)
    known = replace(
        whole,
        end=later[0],
        containers=tuple(
            replace(one, points=tuple(point for point in one.points if point[0] < later[0])) for one in whole.containers
        ),
    )
    means = ended(whole, later, lambda before: sum(before) / len(before))
    highs = ended(whole, later, lambda before: sorted(before)[len(before) * 95 // 100])
    maxima = ended(whole, later, max)
    assert means == 24
    assert means >= highs > maxima > 0, "as on a public trace: the mean ends all, p95 most, the maximum some"
    found = advised(known, document("a100-sxm4-40gb", {"mode": "time-slicing", "replicas": 4}))
    assert found.change is not None
    assert found.change.cap_bytes is not None
    assert not found.change.back_test.endings
    terms = Terms(cap_bytes=found.change.cap_bytes, tolerance_bytes=0, action=Action.KILL, grace_seconds=10)
    test = replay(Measured(whole.containers, later, whole.step_seconds, whole.gap_seconds), terms)
    assert found.change.back_test.rate.low <= test.rate.value <= found.change.back_test.rate.high
