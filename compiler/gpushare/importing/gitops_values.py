"""Helm values inside the objects of GitOps tools: Flux' HelmRelease, Argo CD's Application, the HelmChart of k3s and RKE2.

Facts: helm.toolkit.fluxcd.io/v2 (`values`, `valuesFrom`), argoproj.io/v1alpha1 (`valuesObject` wins over `values`; `parameters`
over both), helm.cattle.io/v1 (`valuesContent`).
"""

from collections.abc import Callable, Iterator

from gpushare.core.record import Record
from gpushare.importing.helm_values import OPERATOR, PLUGIN
from gpushare.importing.parts import Notes, Part

_CHARTS = {"gpu-operator": OPERATOR, "nvidia-device-plugin": PLUGIN}
Embedded = Callable[[Part], Part | None]
"""Reads the document in a text value."""


class Values(Record):
    """The values of one of NVIDIA's charts, and which. `part` has no value where the chart's own values are used."""

    stack: str
    part: Part


def read(part: Part, embedded: Embedded, notes: Notes) -> tuple[Values, ...]:
    """Return the values of NVIDIA's charts in this object: none for any other object, and for other charts."""
    reader = _READERS.get((part.at("apiVersion").text.partition("/")[0], part.at("kind").text))
    return tuple(reader(part, embedded, notes)) if reader is not None else ()


def _flux(part: Part, _: Embedded, notes: Notes) -> Iterator[Values]:
    spec = part.at("spec")
    named = spec.at("chart", "spec", "chart").text or spec.at("chartRef", "name").text
    if which := _CHARTS.get(_last(named)):
        _warn(spec.at("valuesFrom"), notes)
        yield Values(stack=which, part=spec.at("values"))


def _argo_cd(part: Part, embedded: Embedded, notes: Notes) -> Iterator[Values]:
    spec = part.at("spec")
    for source in (spec.at("source"), *spec.at("sources").entries()):
        if which := _CHARTS.get(_last(source.at("chart").text)):
            helm = source.at("helm")
            _warn(helm.at("parameters"), notes)
            _warn(helm.at("valueFiles"), notes)
            values = helm.at("valuesObject")
            if values.value is None and helm.at("values").text:
                values = embedded(helm.at("values")) or values
            yield Values(stack=which, part=values)


def _k3s(part: Part, embedded: Embedded, notes: Notes) -> Iterator[Values]:
    spec = part.at("spec")
    if which := _CHARTS.get(_last(spec.at("chart").text)):
        _warn(spec.at("set"), notes)
        content = spec.at("valuesContent")
        yield Values(stack=which, part=(embedded(content) if content.text else None) or content)


_READERS = {
    ("helm.toolkit.fluxcd.io", "HelmRelease"): _flux,
    ("argoproj.io", "Application"): _argo_cd,
    ("helm.cattle.io", "HelmChart"): _k3s,
}


def _last(chart: str) -> str:
    """Return a chart's name without its repository."""
    return chart.rstrip("/").rpartition("/")[2]


def _warn(elsewhere: Part, notes: Notes) -> None:
    if elsewhere.value:
        notes.warn("GS869", elsewhere, f"the values in {elsewhere.path[-1]} are not read",
                   "give what `helm get values RELEASE -o yaml` prints instead of this object", on_key=True)
