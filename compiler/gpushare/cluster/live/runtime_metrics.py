"""What the runtime's metrics say about containers, caps and kills: asked through the API server's proxy, bounded, optional.

docs/metrics.md lists the names. One unreachable runtime costs one timeout; a cluster's size never decides how long this takes.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any
from urllib.parse import quote as quoted

from gpushare.cluster.live.objects import Pod, ReadFailure, RuntimeMetrics, Usage
from gpushare.cluster.live.pages import Api, NoClusterError, RequestError
from gpushare.core.wording import clean, pluralize

PORT = 9408
MAX_NODES = 200
_MAX_BYTES = 4 << 20
_SECONDS_EACH = 3.0
_SECONDS = 20.0
_AT_ONCE = 8
_LATE = "no time was left"
_SERIES = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? ([0-9.eE+-]+)\Z')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_DEVICE = ("namespace", "pod", "container", "gpu")
_FIELDS: Mapping[str, str] = {
    "gpushare_container_gpu_memory_used_bytes": "used",
    "gpushare_container_gpu_memory_cap_bytes": "cap",
    "gpushare_container_over_cap": "is_over",
}
_COUNTERS: Mapping[str, str] = {
    "gpushare_kills_total": "kills",
    "gpushare_evictions_total": "evictions",
    "gpushare_over_cap_total": "warnings",
    "gpushare_would_act_total": "would_act",
}
_POLICY_CHECKS = "apiserver_validating_admission_policy_check_total"
_POLICIES = frozenset({"gpushare-pods", "gpushare-devices"})
"""Those that refuse pods under `enforce`: charts/gpushare/templates/admission/pods.yaml."""
_MAX_BYTES_OF_API_SERVER = 64 << 20


def read(api: Api, pods: Sequence[Pod]) -> tuple[tuple[RuntimeMetrics, ...], list[ReadFailure]]:
    """Return what the runtime's pods report, and which did not. Asks at most MAX_NODES, for at most 20 seconds."""
    deadline = time.monotonic() + _SECONDS
    queried = pods[:MAX_NODES]
    workers = ThreadPoolExecutor(_AT_ONCE)
    futures = [workers.submit(_ask, api, pod, deadline) for pod in queried]
    wait(futures, timeout=_SECONDS)
    workers.shutdown(wait=False, cancel_futures=True)  # an answer that never ends is not waited for
    answers = [future.result() if future.done() and not future.cancelled() else _LATE for future in futures]
    found = tuple(answer for answer in answers if isinstance(answer, RuntimeMetrics))
    refused = [answer for answer in answers if isinstance(answer, str)]
    unseen = []
    if refused:
        hint = "`gpushare rbac --metrics` prints the right; a NetworkPolicy must let the API server reach port 9408"
        unseen.append(
            ReadFailure(what="metrics", why=f"{pluralize(len(refused), 'runtime')} did not answer: {refused[0]}", hint=hint)
        )
    if len(pods) > len(queried):
        why = f"only {MAX_NODES} of {len(pods)} runtimes were queried"
        unseen.append(ReadFailure(what="metrics", why=why, hint="name a node"))
    return found, unseen


def refused(api: Api) -> tuple[int | None, list[ReadFailure]]:
    """Return how many requests our policies let pass with a warning since this API server's start; None if it cannot be read.

    The metric and its labels: k8s.io/apiserver, pkg/admission/plugin/policy/validating/metrics. A binding with `Warn` and
    `Audit` counts a request under both.
    """
    try:
        data = api.read("/metrics", most_bytes=_MAX_BYTES_OF_API_SERVER, timeout_seconds=_SECONDS)
    except RequestError as problem:
        hint = "`gpushare rbac --metrics` prints the right"
        return None, [ReadFailure(what="metrics of the API server", why=clean(str(problem), 200), hint=hint)]
    checks: dict[str, dict[str, int]] = {}
    lines = (line for line in data.decode(errors="replace").splitlines() if line.startswith(_POLICY_CHECKS))
    for _, labels, value in _series("\n".join(lines)):
        action = labels.get("enforcement_action", "")
        if action in {"warn", "audit"} and labels.get("policy") in _POLICIES:
            of_policy = checks.setdefault(labels["policy"], {})
            of_policy[action] = of_policy.get(action, 0) + int(value)
    return sum(max(each.values()) for each in checks.values()), []


def _ask(api: Api, pod: Pod, deadline: float) -> RuntimeMetrics | str:
    left = min(_SECONDS_EACH, deadline - time.monotonic())
    if left <= 0:
        return _LATE
    path = f"/api/v1/namespaces/{quoted(pod.namespace, safe='')}/pods/{quoted(pod.name, safe='')}:{PORT}/proxy/metrics"
    try:
        data = api.read(path, most_bytes=_MAX_BYTES, timeout_seconds=left)
    except (RequestError, NoClusterError) as problem:
        return clean(str(problem), 200)
    return parse(pod.node, data.decode(errors="replace"))


def parse(node: str, text: str) -> RuntimeMetrics:
    """Return the metrics in Prometheus' text form; lines that are not ours or not in that form are ignored."""
    usages: dict[tuple[str, ...], dict[str, Any]] = {}
    sums = dict.fromkeys(_COUNTERS, 0)
    is_paused = False
    for name, labels, value in _series(text):
        if name in _FIELDS:
            key = tuple(labels.get(label, "") for label in _DEVICE)
            usages.setdefault(key, {})[_FIELDS[name]] = bool(value) if name.endswith("over_cap") else int(value)
        elif name in sums:
            sums[name] += int(value)
        elif name == "gpushare_kill_breaker_open":
            is_paused = bool(value)
    found = (Usage(**{"node": node, **dict(zip(_DEVICE, key, strict=True)), **usages[key]}) for key in sorted(usages))
    counters = {_COUNTERS[name]: number for name, number in sums.items()}
    return RuntimeMetrics(node=node, usages=tuple(found), is_paused=is_paused, **counters)


def _series(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        match = _SERIES.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if abs(value) < 1 << 63:  # neither infinite nor beyond what a counter of bytes can be
            labels = {name: clean(_unescaped(value)) for name, value in _LABEL.findall(match[2] or "")}
            yield match[1], labels, value


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), text)
