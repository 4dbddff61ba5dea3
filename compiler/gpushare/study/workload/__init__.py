"""The bytes of a file to a workload: a CSV, pods of a cluster as JSON or YAML, or the parameters of a generator.

Owns what a file is recognised by, its encoding and its largest size. Any bytes give a Workload or a WorkloadError.
"""

import re
from collections.abc import Iterator
from itertools import chain

from gpushare.reading import source
from gpushare.study.workload import cluster_pods, csv_pods, generator
from gpushare.study.workload.cluster_pods import Entry
from gpushare.study.workload.requests import Workload, WorkloadError

__all__ = ["MAX_BYTES", "Workload", "WorkloadError", "load"]

MAX_BYTES = 64 << 20
"""The largest file. `kubectl get pods -o json` prints about 10 KB for a pod."""
_YAML = re.compile(
    r"\s*(?:#.*\n\s*|---[ \t]*\n\s*|%YAML.*\n\s*)*(?:-[ \t]+)?[\"']?(?:apiVersion|kind|items|metadata|spec|status)[\"']?[ \t]*:"
)
_WIDE = (b"\xff\xfe", b"\xfe\xff")
FORMS = "a workload is a CSV, what `kubectl get pods -A -o json` prints, or YAML with kind: Workload"


def load(data: bytes, name: str) -> Workload:
    """Return the workload in the bytes of a file. Raises WorkloadError if nothing of it can be used."""
    if len(data) > MAX_BYTES:
        hint = "simulate a part of it: one namespace, one day"
        raise WorkloadError(f"{name} has more than {MAX_BYTES >> 20} MiB, which is the limit", hint)
    if data.startswith(_WIDE):
        raise WorkloadError(f"{name} is UTF-16, not UTF-8", "save the file as UTF-8 text")
    text = data.decode("utf-8-sig", "surrogateescape")
    found = re.search(r"\S", text)
    if found is None:
        raise WorkloadError(f"{name} is empty", FORMS)
    first = found[0]
    if first not in "{[" and not _YAML.match(text):
        return csv_pods.read(text, name)
    if wrong := re.search("[\x00\ud800-\udfff]", text):
        line = text.count("\n", 0, wrong.start()) + 1
        what = "a NUL byte" if wrong[0] == "\x00" else "a byte that is not UTF-8"
        raise WorkloadError(f"{name}:{line}: {what}", "save the file as UTF-8 text")
    entries: Iterator[Entry] = (cluster_pods.of_json if first in "{[" else cluster_pods.of_yaml)(text, name)
    start = next(entries, None)
    if start is None:
        raise WorkloadError(f"{name} has no objects", FORMS)
    value = start[1]
    if isinstance(value, dict) and value.get("kind") == "Workload":
        if next(entries, None) is not None:
            raise WorkloadError(f"{name} has more than one object", "a Workload is alone in its file")
        return generator.load(source.read(data, name))
    return cluster_pods.read(chain([start], entries), name)
