"""Pods of a cluster, as `kubectl get pods -A -o json` prints them, or as YAML, to a workload.

JSON is read object by object: reading a `kubectl get -o json` of ten thousand pods with all positions would take minutes.

A pod asks for what Kubernetes counts for it: the sum of its containers and sidecars, or the most that its init containers
need one after the other, whichever is more.
"""

import json
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from gpushare import vendors
from gpushare.core.units import is_dns_label, is_label_key
from gpushare.core.wording import join_words, pluralize, shorten, visible
from gpushare.reading import source
from gpushare.study.workload.requests import MAX_PODS, LeftOut, PodRequest, Workload, WorkloadError
from gpushare_node.contract import objects, quantity
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.struct import Struct, replace

_MAX_YAML = 16 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
_MARK = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_AMBIGUOUS, _EMPTY = "GS005", "GS011"
_DECODER = json.JSONDecoder()

Entry = tuple[int, Any]
"""A line, counted from 1, and the object that begins there."""


def of_json(text: str, name: str) -> Iterator[Entry]:
    """Yield the objects of one or several JSON values; of a value with `items` those. Raises WorkloadError."""
    at, lines = _skip(text, 0), _Lines(text)
    try:
        while at < len(text):
            if text[at] == "[":
                at = yield from _elements(text, at, lines)
            elif text[at] == "{":
                at = yield from _members(text, at, lines)
            else:
                raise json.JSONDecodeError("an object is expected", text, at)
            at = _skip(text, at)
    except json.JSONDecodeError as problem:
        where = f"{name}:{problem.lineno}:{problem.colno}"
        raise WorkloadError(f"{where}: this is no JSON: {problem.msg}", "was the file cut off?") from problem
    except (ValueError, RecursionError) as problem:  # a number of ten thousand digits, ten thousand brackets
        raise WorkloadError(f"{name}:{lines.of(at)}: this JSON is too deep, or has a number that is too long") from problem


class _Lines:
    """The line of offsets that only grow."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at, self._line = 0, 1

    def of(self, offset: int) -> int:
        """Return the line, counted from 1."""
        self._line += self._text.count("\n", self._at, offset)
        self._at = max(self._at, offset)
        return self._line


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _elements(text: str, at: int, lines: _Lines) -> Generator[Entry, None, int]:
    """Yield the elements of the list that begins at the offset; return the offset behind it."""
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        line = lines.of(at)
        value, at = _DECODER.raw_decode(text, at)
        yield line, value
        at = _behind(text, at, "]")
    return at + 1


def _members(text: str, start: int, lines: _Lines) -> Generator[Entry, None, int]:
    """Yield the elements of the member `items`, or the whole object if it has none; return the offset behind it."""
    line, at, others, is_list = lines.of(start), _skip(text, start + 1), {}, False
    while text[at : at + 1] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if not isinstance(key, str) or text[at : at + 1] != ":":
            raise json.JSONDecodeError("a key and a colon are expected", text, at)
        at = _skip(text, at + 1)
        if key == "items" and text[at : at + 1] == "[":
            is_list = True
            at = yield from _elements(text, at, lines)
        else:
            others[key], at = _DECODER.raw_decode(text, at)
        at = _behind(text, at, "}")
    if not is_list:
        yield line, others
    return at + 1


def _behind(text: str, at: int, end: str) -> int:
    """Return the offset of the next element, or of the end of the list or object."""
    at = _skip(text, at)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1)
    if text[at : at + 1] != end:
        raise json.JSONDecodeError(f"a comma or {end} is expected", text, at)
    return at


def of_yaml(text: str, name: str) -> Iterator[Entry]:
    """Yield the objects of the documents of a YAML text; of a document with `items` those. Raises WorkloadError."""
    if len(text) > _MAX_YAML:
        hint = "JSON is read faster: kubectl get pods -A -o json"
        raise WorkloadError(f"{name} has more than {_MAX_YAML >> 20} MiB of YAML, which is the limit", hint)
    starts = [0, *(found.start() for found in _MARK.finditer(text) if found.start()), len(text)]
    before = 0
    for start, end in pairwise(starts):
        part = text[start:end]
        read = source.read(part.encode(), name, own=True)
        wrong = next((one for one in read.findings if one.code not in (_AMBIGUOUS, _EMPTY)), None)
        if wrong is not None:
            line, column = (wrong.span.line, wrong.span.column) if wrong.span else (1, 1)
            raise WorkloadError(f"{name}:{before + line}:{column}: {wrong.message}", "".join(wrong.hints[:1]))
        data = read.data
        is_list = isinstance(data, dict) and isinstance(data.get("items"), list)
        if is_list or isinstance(data, list):
            path = ("items",) if is_list else ()
            for at, one in enumerate(data["items"] if is_list else data):
                yield before + read.line_of(read.offset((*path, at))), one
        elif data is not None:
            yield before + read.line_of(read.offset(())), data
        before += part.count("\n")


_OTHER_GPUS = re.compile(r"(?:[^/]*\.)?gpu\.[^/]*/.|.*/(?:.*[.-])?(?:v?gpu|xpu|gaudi)(?:[.-].*)?\Z")
"""Resources of vendors that no backend serves: gpu.intel.com/i915, habana.ai/gaudi."""
_MOST = 10**9
_MAX_NAME = 253
_ENDED = ("Succeeded", "Failed")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z\Z")
_HINT = "write the pods into a file with `kubectl get pods -A -o json`"


class _NotUsedError(Exception):
    """Why an object is not simulated."""


class _Timed(Struct):
    """A pod whose arrival is still a time of the calendar, None if it has none."""

    pod: PodRequest
    created: int | None


def read(entries: Iterable[Entry], name: str) -> Workload:
    """Return the workload of objects. Raises WorkloadError if none of them is a pod that asks for GPUs."""
    used: list[_Timed] = []
    left: list[LeftOut] = []
    seen: Counter[str] = Counter()
    for line, value in entries:
        try:
            used.append(_pod(value, line, seen))
        except _NotUsedError as reason:
            left.append(LeftOut(line=line, column=0, reason=str(reason)))
        if len(used) + len(left) > MAX_PODS:
            raise WorkloadError(f"{name} has more than {MAX_PODS:,} objects", "simulate a part of them, such as one namespace")
    if not used:
        raise _nothing(name, left)
    times = [one.created for one in used if one.created is not None]
    earliest = min(times, default=0)
    return Workload(
        source=name,
        pods=tuple(replace(one.pod, arrival=0 if one.created is None else one.created - earliest) for one in used),
        left_out=tuple(left),
        assumed=tuple(_words(used, seen, has_times=bool(times))),
    )


def _nothing(name: str, left: list[LeftOut]) -> WorkloadError:
    if not left:
        return WorkloadError(f"{name} has no pods", _HINT)
    reason, number = Counter(one.reason for one in left).most_common(1)[0]
    return WorkloadError(f"no object of {name} can be used: {number} of {len(left)} are left out because {reason}", _HINT)


def _words(used: list[_Timed], seen: Counter[str], *, has_times: bool) -> Iterator[str]:
    if has_times:
        yield "the beginning is the earliest creation of a pod that asks for GPUs"
    if number := sum(one.created is None for one in used):
        yield f"{pluralize(number, 'pod')} without a creation time: at the beginning"
    if number := sum(one.pod.duration is None for one in used):
        yield f"{pluralize(number, 'pod')} not ended: the pod stays"
    if number := seen["short"]:
        yield f"{pluralize(number, 'pod')} ended within the second in which it began: it lasts one second"
    if number := seen["namespace"]:
        yield f"{pluralize(number, 'pod')} without a namespace: default"
    if number := seen["selected"]:
        yield f"{pluralize(number, 'pod')} with a node affinity or other labels in nodeSelector, which are not simulated"


def _pod(value: object, line: int, seen: Counter[str]) -> _Timed:
    """Return the pod of an object. Raises _NotUsedError."""
    kind = _get(value, "kind")
    spec, status, metadata = (objects.mapping(value, field) for field in ("spec", "status", "metadata"))
    if kind not in (None, "Pod"):
        raise _NotUsedError(f"a {shorten(visible(str(kind)))} is not a pod")
    if not isinstance(_get(spec, "containers"), list):
        raise _NotUsedError("it is not a pod: it has no containers")
    asked = _asked(spec)
    if not asked:
        claims = bool(_get(spec, "resourceClaims"))
        raise _NotUsedError("it asks by a ResourceClaim, which is not read" if claims else "it asks for no GPU")
    if len(asked) > 1:
        raise _NotUsedError(f"it asks for several GPU resources: {join_words(sorted(asked))}")
    ((resource, count),) = asked.items()
    selector = objects.mapping(spec, "nodeSelector")
    namespace, name, pool = _get(metadata, "namespace"), _get(metadata, "name"), selector.get(POOL_LABEL)
    if namespace is not None and not (isinstance(namespace, str) and is_dns_label(namespace)):
        raise _NotUsedError("its namespace has no name that Kubernetes allows")
    if pool is not None and not (isinstance(pool, str) and is_dns_label(pool)):
        raise _NotUsedError(f"its nodeSelector {POOL_LABEL} has no name of a pool")
    created = _time(_get(metadata, "creationTimestamp"))
    begun = _time(_get(status, "startTime"))
    duration = _duration(status, begun, seen) if _get(status, "phase") in _ENDED else None
    seen["namespace"] += namespace is None
    seen["selected"] += bool(_get(_get(spec, "affinity"), "nodeAffinity")) or bool({*selector} - {POOL_LABEL})
    pod = PodRequest(
        namespace=namespace or "default",
        name=visible(name[:_MAX_NAME]) if isinstance(name, str) and name else f"line-{line}",
        resource=resource,
        count=count,
        per_container=max(_of_container(one)[resource] for one in _containers(spec)),
        pool=pool or "",
        duration=duration,
        line=line,
    )
    return _Timed(pod=pod, created=begun if created is None else created)


def _duration(status: Mapping[str, Any], begun: int | None, seen: Counter[str]) -> int:
    """Return how long a pod that has ended held its GPUs, in seconds. Raises _NotUsedError."""
    states = [
        _get(_get(one, "state"), "terminated")
        for field in ("initContainerStatuses", "containerStatuses")
        for one in objects.mappings(status, field)
    ]
    ends = [end for state in states if (end := _time(_get(state, "finishedAt"))) is not None]
    starts = [start for state in states if (start := _time(_get(state, "startedAt"))) is not None]
    start = min(starts, default=None) if begun is None else begun
    if not ends or start is None:
        raise _NotUsedError("it has ended, and its status does not say when it began and ended")
    lasted = max(ends) - start
    if lasted < 0:
        raise _NotUsedError("it ended before it began: clocks differ")
    seen["short"] += not lasted
    return max(1, lasted)


def _asked(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the GPU resources that Kubernetes counts for a pod. Raises _NotUsedError."""
    return objects.pod_requests(spec, _of_container)


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*objects.mappings(spec, "containers"), *objects.mappings(spec, "initContainers")]


def _of_container(container: Mapping[str, Any]) -> Counter[str]:
    """Return the GPU resources of a container. Raises _NotUsedError."""
    found: Counter[str] = Counter()
    for name, value in objects.container_resources(container).items():
        if not is_label_key(name) or not is_gpu(name):
            continue
        amount = quantity.whole(value)
        if amount is None or amount >= _MOST:
            raise _NotUsedError(f"{name} has a value that is no whole number")
        found[name] += amount
    return +found


def is_gpu(resource: str) -> bool:
    """Whether an extended resource is a GPU, or a part of one, of any vendor."""
    return resource.startswith(vendors.GPU_RESOURCES) or bool(_OTHER_GPUS.match(resource))


def _time(value: object) -> int | None:
    """Return the seconds since 1970 of a time as Kubernetes writes it; None if it is none."""
    if not isinstance(value, str) or not _TIME.match(value):
        return None
    try:
        since = datetime.fromisoformat(value) - datetime(1970, 1, 1, tzinfo=UTC)
    except ValueError:
        return None
    return since.days * 86400 + since.seconds


def _get(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
