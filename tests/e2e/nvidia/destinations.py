"""Where each value of a chart ends up: Helm renders the chart with marks for values, and the objects tell where the marks are.

A mark is a number written as text: printed without quotes it comes back as a number, so that also tells how it is printed.
"""

import copy
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.nvidia import charts
from tests.support import helm

_FIRST = 9_000_000
_TYPED = re.compile(r'typeIs "(string|bool)" \.Values\.([A-Za-z0-9_.]+)')
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "gpu-operator": {
        "gpuCluster.deployCR": False,
        "operator.logging.develMode": False,
        "platform.openshift": False,
        "nfd.enabled": False,
        "extraObjects": [],
    },
    "nvidia-device-plugin": {"config.map": {}},
    "dra-driver-nvidia-gpu": {
        "controller.containers.computeDomain.env": [],
        "imagePullSecrets": [],
        "resourceApiVersion": "resource.k8s.io/v1",
        "resources.computeDomains.imex.isolation": "domain",
        "resources.computeDomains.imex.mode": "driverManaged",
        "webhook.serviceAccount.annotations": {},
        "webhook.tls.mode": "secret",
    },
}
"""What must neither be a mark nor simply on for everything to be rendered."""
_SWITCH = "driver.nvidiaDriverCRD.enabled"
"""Off, the ClusterPolicy has the driver's values; on, a resource of its own has them."""

Values = dict[str, Any]
Where = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Destination:
    """One place of a value in a rendered object. `plain`: printed without quotes. `whole`: it is all that stands there."""

    kind: str
    path: Where
    plain: bool
    whole: bool


def destinations(name: str, chart: Path, leaves: Mapping[str, Any]) -> dict[str, list[Destination]]:
    """By value path; `leaves` are the paths with their defaults, None where there is none."""
    marks = {path: str(_FIRST + number) for number, path in enumerate(sorted(leaves))}
    typed = {path: word for text in charts.templates(chart) for word, path in _TYPED.findall(text)}
    found: dict[str, list[Destination]] = {}
    paths = {mark: path for path, mark in marks.items()}
    for switch in (False, True):
        values: Values = {}
        for path, default in leaves.items():
            is_bool = isinstance(default, bool) or typed.get(path) == "bool"
            _set(values, path, _SETTINGS[name].get(path, True if is_bool else _marked(default, marks[path])))
        if _SWITCH in leaves:
            _set(values, _SWITCH, switch)
        for document in _rendered(chart, values):
            for where, scalar in _scalars(document):
                for mark in re.findall(r"9\d{6}", str(scalar)):
                    path = paths[mark]
                    found.setdefault(path, []).append(_destination(document["kind"], where, scalar, leaves[path], mark))
    return found


def _destination(kind: str, where: Where, scalar: object, default: object, mark: str) -> Destination:
    """The place of what stands where the default does: of a list or mapping, one step above the mark."""
    nested = isinstance(default, list | dict)
    whole = str(scalar) == mark and (not nested or isinstance(where[-1], int) or where[-1] == "mark")
    return Destination(kind=kind, path=where[:-1] if nested else where, plain=not isinstance(scalar, str), whole=whole)


def _marked(default: object, mark: str) -> Any:
    """The mark in a form that the templates take where the default stands."""
    return [mark] if isinstance(default, list) else {"mark": mark} if isinstance(default, dict) else mark


def _rendered(chart: Path, values: Values) -> Iterator[dict[str, Any]]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        command: list[str | Path] = [
            helm.helm(4),
            "template",
            "release",
            chart,
            "--namespace",
            "gpu-system",
            "--values",
            file.name,
        ]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    yield from (document for document in yaml.safe_load_all(text) if document)


def _scalars(value: Any, where: Where = ()) -> Iterator[tuple[Where, Any]]:
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _scalars(below, (*where, key))
    else:
        yield where, value


def _set(values: Values, path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        values = values.setdefault(key, {})
    values[last] = copy.deepcopy(value)
