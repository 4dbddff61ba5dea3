"""Measured use from the metrics of NVIDIA's dcgm-exporter: only of devices that one pod has.

The exporter measures devices, and names with each a pod that has it. Of a shared device it names one of its pods, or none:
these devices are left out. It knows no pool: a pool has the GPUs of its card, if no other pool of the intent has that card.
"""

import re
from collections import Counter
from collections.abc import Iterator

from gpushare.core.units import MIB
from gpushare.core.wording import join_first, pluralize
from gpushare.render.monitoring import showback
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare.study.advice.history import History
from gpushare.study.advice.sampled_series import Collected, Labels, Window
from gpushare.study.measured import scraped_labels
from gpushare.study.measured.prometheus import PrometheusError, Series

METRIC = "DCGM_FI_DEV_FB_USED"
_TENANT = ("namespace", "pod", "container")
_KEYS = ", ".join(("UUID", "GPU_I_ID", "GPU_I_PROFILE", "modelName", *_TENANT, *(f"exported_{label}" for label in _TENANT)))
_OWN_POD = re.compile(r"(?:.+-)?dcgm-exporter-[a-z0-9]{5}\Z")
_AT_ONCE = 2
"""In so many steps a device may have two pods: one that ends, and one that begins."""
_HINT = "its window or its retention may be too short, or it scrapes another cluster: docs/monitoring.md"
_SHARED = "shares its devices: dcgm-exporter names one of the pods of a shared device, or none"


def read(window: Window, plan: Plan, cluster: str) -> History:
    """Return the history of pools whose devices are not shared. PrometheusError if there is none."""
    own = showback.of_cluster(cluster)
    used = showback.series(METRIC, *own)
    clusters = {
        one.labels.get("cluster", "")
        for _, last in window.days()
        for one in window.prometheus.at(f"group by (cluster) (last_over_time({METRIC}[1d]))", last - 1)
    }
    if not clusters:
        raise PrometheusError(f"Prometheus has no sample of {showback.USED} or of {METRIC} in this window", _HINT)
    scraped_labels.refuse_several(clusters, cluster)
    scraped_labels.refuse_unknown(clusters, cluster)
    pools = {pool.name: reason for pool in plan.pools if (reason := _why_not(pool, plan))}
    if len(pools) == len(plan.pools):
        reasons = "; ".join(f"pool {name} {reason}" for name, reason in sorted(pools.items()))
        raise PrometheusError(f"Prometheus has no sample of {showback.USED}, and {METRIC} does not do: {reasons}", _HINT)
    return _Reading(window, plan, pools).history(used)


def _why_not(pool: PoolPlan, plan: Plan) -> str:
    """Return why the exporter does not tell the use of a pool's containers; empty if it does."""
    if any(device.replicas > 1 for device in pool.devices):
        return _SHARED
    others = [other.name for other in plan.pools if other.card.id == pool.card.id and other.name != pool.name]
    return f"has the same card as {join_first(others)}: dcgm-exporter names no pool" if others else ""


class _Reading:
    """What the exporter says of devices and the pods that have them."""

    def __init__(self, window: Window, plan: Plan, unusable: dict[str, str]) -> None:
        self._window, self._unusable = window, unusable
        self._pools = {
            _model(name): pool.name
            for pool in plan.pools
            for name in (pool.card.name, pool.card.product, *pool.card.name_aliases)
        }

    def history(self, used: str) -> History:
        window = self._window
        interval = window.interval(used)
        step = window.step(used, _KEYS, interval or 60)
        answers = [(one, list(points)) for one, points in window.maxima(used, _KEYS, step)]
        is_renamed = any(one.labels.get("exported_pod") for one, _ in answers)
        collected = Collected()
        refused: dict[Labels, str] = {}
        for one, points in answers:
            labels = self._labels(one, is_renamed=is_renamed)
            if labels is None:
                continue
            reason = self._unusable.get(labels.pool, "") if labels.pool else "has a card that the intent does not have"
            if reason:
                refused[labels] = f"its pool {labels.pool} {reason}" if labels.pool else reason
            else:
                collected.add(labels, points, MIB)
        for labels in _shared(collected):
            collected.drop(labels)
            refused[labels] = "has a device that several pods have"
        counted = Counter(refused.values())
        of_model = f"count_over_time(group by (modelName) ({used})[1h:5m])"
        missing = {
            self._pools[_model(name)]: part
            for name, part in window.missing(of_model, "modelName").items()
            if _model(name) in self._pools
        }
        return History(
            source="dcgm-exporter's metrics in Prometheus",
            start=window.start,
            end=window.end,
            step_seconds=step,
            containers=collected.uses({}),
            left_out=(
                *(f"{pluralize(number, 'container')}: {reason}" for reason, number in counted.most_common()),
                *collected.left_out,
            ),
            warnings=tuple(window.prometheus.warnings),
            assumed=tuple(_assumed(step, interval)),
            missing={pool: missing.get(pool, 1.0) for pool in sorted({*self._pools.values()} - self._unusable.keys())},
        )

    def _labels(self, one: Series, *, is_renamed: bool) -> Labels | None:
        """Return whose use the series is; None: no pod has the device, and the labels are those of the exporter's own pod."""
        prefix = "exported_" if is_renamed else ""
        namespace, pod, container = (one.labels.get(f"{prefix}{label}", "") for label in _TENANT)
        if not pod or (not is_renamed and _OWN_POD.match(pod)):
            return None
        instance = one.labels.get("GPU_I_ID", "")
        device = scraped_labels.value(one, "UUID", METRIC)
        return Labels(
            namespace=namespace,
            pod=pod,
            container=container,
            pool=self._pools.get(_model(one.labels.get("modelName", "")), ""),
            device=f"{device}/{instance}" if instance else device,
            node="",
        )


def _shared(collected: Collected) -> list[Labels]:
    """Return the containers whose device other containers have at the same time."""
    times: dict[str, Counter[int]] = {}
    listed = list(collected.times())
    for labels, measured in listed:
        times.setdefault(labels.device, Counter()).update(measured)
    shared = {device for device, counts in times.items() if sum(number > 1 for number in counts.values()) > _AT_ONCE}
    return [labels for labels, _ in listed if labels.device in shared]


def _model(name: str) -> str:
    """Return a card's name as NVML and as GFD write it, without their difference."""
    return re.sub(r"[ -]+", "-", name.strip().lower())


def _assumed(step: int, interval: int) -> Iterator[str]:
    yield "use is all memory in use of the device that a container has, as dcgm-exporter measures it"
    yield "a GPU is of the pool that has its card"
    yield "no container had a cap: dcgm-exporter knows none"
    yield f"each step of {step} s has the most of all samples in it; between two samples, {interval} s apart, nothing is known"
