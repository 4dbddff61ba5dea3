"""Advice of each kind, and its history: a change, none, and a refusal."""

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.intent.types import TimeSlicing
from gpushare.resolved.plan import Plan
from gpushare.study.advice import distribution
from gpushare.study.advice.advised import Advice, AdvisedSharing, BackTest, Ending, PoolAdvice, Refusal
from gpushare.study.advice.history import History
from gpushare_node.contract.struct import replace
from tests.compiler.rules.intents import pool, written
from tests.support import usage_series
from tests.support.usage_series import DAY, MIB, START, Shape

DAYS = 10
LEARNED, TESTED = (START, START + 7 * DAY), (START + 7 * DAY, START + DAYS * DAY)
BURSTING = Shape(base_mib=1500, bursts=6, burst_mib=900, trend_mib=20, cap_mib=3400)


def plan() -> Plan:
    nodes = "{{matchLabels: {{node.example.org/flavour: {}}}}}"
    text = written(
        pool(),
        pool("lab", nodes=nodes.format("lab"), sharing="{mode: exclusive}"),
        pool(
            "training", card="a100-sxm4-40gb", nodes=nodes.format("a"), sharing="{mode: mig, layout: {1g.5gb: 7}, replicas: 2}"
        ),
    )
    found = pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY).plan
    assert found is not None
    return found


def history() -> History:
    gaps = [(3 * DAY, 3 * DAY + 8 * 3600)]
    busy = usage_series.history([("physics", 30, BURSTING), ("chemistry", 4, Shape())], days=DAYS, step_seconds=600, gaps=gaps)
    calm = usage_series.history([("physics", 3, Shape(base_mib=9000))], days=DAYS, pool="lab", step_seconds=600)
    return replace(
        busy,
        containers=(*busy.containers, *calm.containers),
        left_out=("3 rows (lines 5, 9, 12): used is negative",),
        warnings=("PromQL warning: `partial` response",),
        assumed=("use is sampled every 600 s",),
    )


def advice(found: History) -> Advice:
    ending = Ending(namespace="physics", pod="pod-3", container="main", at=TESTED[0] + 7000, used_bytes=2900 * MIB)
    tested = BackTest(containers=34, endings=(ending,), rate=distribution.rate(1, 34 * 3 / 7))
    covered = distribution.coverage(found, "notebooks", LEARNED)
    distributions = distribution.of(found, "notebooks", LEARNED)
    change = AdvisedSharing(
        sharing=TimeSlicing(replicas=5),
        cap_bytes=2800 * MIB,
        shares_before=16,
        shares_after=20,
        gpus_before=9,
        gpus_after=7,
        saved_per_hour=0.7,
        freed_mib=30 << 10,
        back_test=tested,
    )
    return Advice(
        learned=LEARNED,
        tested=TESTED,
        pools=(
            PoolAdvice(
                pool="lab",
                distributions=distribution.of(found, "lab", LEARNED),
                change=None,
                refusal=None,
                present=BackTest(containers=3, endings=(), rate=distribution.rate(0, 9 / 7)),
                notes=(),
            ),
            PoolAdvice(
                pool="notebooks",
                distributions=distributions,
                change=change,
                refusal=None,
                present=BackTest(containers=34, endings=(), rate=distribution.rate(0, 34 * 3 / 7)),
                notes=tuple(distribution.limits(covered, distributions)),
            ),
            PoolAdvice(
                pool="training",
                distributions=(),
                change=None,
                refusal=Refusal.NO_USE,
                present=None,
                notes=("nothing was measured",),
            ),
        ),
        currency="EUR",
        assumed=("use is sampled every 600 s", "all containers hold one share"),
    )
