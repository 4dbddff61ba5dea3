"""Helm releases inside the objects of GitOps tools: the chart's values, its version, and the namespace of the release.

Facts: helm.toolkit.fluxcd.io/v2 (`values`, `valuesFrom`), argoproj.io/v1alpha1 (`valuesObject` wins over `values`; `parameters`
over both), helm.cattle.io/v1 (`valuesContent`; HelmChartConfig has the name of the HelmChart that it changes), kustomize's
`helmCharts` (`valuesInline`), Fleet's `fleet.yaml`.
"""

from collections.abc import Callable, Iterator

from gpushare.cluster.importing.documents import described
from gpushare.cluster.importing.helm_values import OPERATOR, PLUGIN
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import shorten
from gpushare.facts.catalog import upstream
from gpushare_node.contract.struct import Struct

CHARTS = {"gpu-operator": OPERATOR, "nvidia-device-plugin": PLUGIN, upstream.FILES[upstream.DRA]: upstream.DRA}
Embedded = Callable[[Part], Part | None]
"""Reads the document in a text value."""
_INHERITED = ("ClusterPolicy", "NVIDIADriver", "GPUCluster")


class Values(Struct):
    """The values of one of NVIDIA's charts, and which. `part` has no value where the chart's own values are used."""

    stack: str
    part: Part
    version: Part | None = None
    namespace: str = ""


def read(part: Part, embedded: Embedded, notes: Notes) -> tuple[Values, ...]:
    """Return the values of NVIDIA's charts in this object: none for any other object, and for other charts."""
    reader = _READERS.get((part.at("apiVersion").text.partition("/")[0], part.at("kind").text))
    return tuple(reader(part, embedded, notes)) if reader is not None else ()


def read_bare(part: Part) -> tuple[Values, ...]:
    """Return the values in a document without a kind: of an umbrella chart, below the chart's name, or Fleet's fleet.yaml."""
    helm = part.at("helm")
    if which := CHARTS.get(_last(helm.at("chart").text)):
        return (
            Values(
                stack=which,
                part=helm.at("values"),
                version=helm.at("version"),
                namespace=part.at("defaultNamespace").text or part.at("namespace").text,
            ),
        )
    return tuple(
        Values(stack=which, part=part.at(name)) for name, which in CHARTS.items() if isinstance(part.at(name).value, dict)
    )


def refused(part: Part, notes: Notes) -> bool:
    """Report an object that is not read, but that installs one of NVIDIA's charts or belongs to its operator."""
    if part.at("apiVersion").text.startswith("nvidia.com/") and part.at("kind").text in _INHERITED:
        fields = "; ".join(f"{'.'.join(map(str, one.path))}: {shorten(one.value)}" for one in part.at("spec").unread())
        notes.warn(
            "GS874",
            part.at("spec"),
            f"{described(part)} is not read: {fields}",
            "with `platform.stack: existing` it stays as it is; an intent's driver is platform.driver",
            on_key=True,
        )
        return True
    named = next((one for one in _texts(part) if _last(one.text) in CHARTS), None)
    if named is None:
        return False
    what = described(part) or "this document"
    notes.error(
        "GS874",
        named,
        f"{what} names {shorten(_last(named.text))} and is not in a form that is read",
        "give what `helm get values RELEASE -n NAMESPACE -o yaml` prints instead",
    )
    return True


def _texts(part: Part) -> Iterator[Part]:
    """Yield the texts that may name a chart."""
    for one in part.fresh().unread():
        if one.path and one.path[-1] in ("chart", "name", "path", "chartName") and one.path[:1] != ("metadata",):
            yield one


def _flux(part: Part, _: Embedded, notes: Notes) -> Iterator[Values]:
    spec = part.at("spec")
    chart = spec.at("chart", "spec")
    named = chart.at("chart").text or spec.at("chartRef", "name").text
    if which := CHARTS.get(_last(named)):
        _warn(spec.at("valuesFrom"), notes)
        _warn(spec.at("postRenderers"), notes)
        place = spec.at("targetNamespace").text or part.at("metadata", "namespace").text
        yield Values(stack=which, part=spec.at("values"), version=chart.at("version"), namespace=place)


def _argo_cd(part: Part, embedded: Embedded, notes: Notes) -> Iterator[Values]:
    yield from _sources(part.at("spec"), embedded, notes)


def _application_set(part: Part, embedded: Embedded, notes: Notes) -> Iterator[Values]:
    yield from _sources(part.at("spec", "template", "spec"), embedded, notes)


def _sources(spec: Part, embedded: Embedded, notes: Notes) -> Iterator[Values]:
    for source in (spec.at("source"), *spec.at("sources").entries()):
        which = CHARTS.get(_last(source.at("chart").text) or _last(source.at("path").text))
        if which is None:
            _ = source.whole  # of another chart, or none
        else:
            helm = source.at("helm")
            for field in ("parameters", "fileParameters", "valueFiles"):
                _warn(helm.at(field), notes)
            values = helm.at("valuesObject")
            if values.value is None and helm.at("values").text:
                values = embedded(helm.at("values")) or values
            yield Values(
                stack=which,
                part=values,
                version=source.at("targetRevision"),
                namespace=helm.at("namespace").text or spec.at("destination", "namespace").text,
            )


def _k3s(part: Part, embedded: Embedded, notes: Notes) -> Iterator[Values]:
    spec = part.at("spec")
    if which := CHARTS.get(_last(spec.at("chart").text)):
        _warn(spec.at("set"), notes)
        place = spec.at("targetNamespace").text or part.at("metadata", "namespace").text
        yield Values(stack=which, part=_content(spec, embedded), version=spec.at("version"), namespace=place)


def _k3s_config(part: Part, embedded: Embedded, _: Notes) -> Iterator[Values]:
    if which := CHARTS.get(part.at("metadata", "name").text):
        yield Values(stack=which, part=_content(part.at("spec"), embedded))


def _content(spec: Part, embedded: Embedded) -> Part:
    content = spec.at("valuesContent")
    return (embedded(content) if content.text else None) or content


def _kustomize(part: Part, _: Embedded, notes: Notes) -> Iterator[Values]:
    for chart in part.at("helmCharts").entries():
        if which := CHARTS.get(_last(chart.at("name").text)):
            _warn(chart.at("valuesFile"), notes)
            _warn(chart.at("additionalValuesFiles"), notes)
            yield Values(
                stack=which,
                part=chart.at("valuesInline"),
                version=chart.at("version"),
                namespace=chart.at("namespace").text or part.at("namespace").text,
            )


def _live(part: Part, _: Embedded, __: Notes) -> Iterator[Values]:
    if which := CHARTS.get(part.at("chart").text):
        yield Values(
            stack=which, part=part.at("values"), version=part.at("version"), namespace=part.at("metadata", "namespace").text
        )


_READERS = {
    ("helm.toolkit.fluxcd.io", "HelmRelease"): _flux,
    ("argoproj.io", "Application"): _argo_cd,
    ("argoproj.io", "ApplicationSet"): _application_set,
    ("helm.cattle.io", "HelmChart"): _k3s,
    ("helm.cattle.io", "HelmChartConfig"): _k3s_config,
    ("kustomize.config.k8s.io", "Kustomization"): _kustomize,
    ("gpushare.dev", "HelmRelease"): _live,
}


def _last(chart: str) -> str:
    """Return a chart's name without its repository and a folder's without those above it."""
    return chart.rstrip("/").rpartition("/")[2]


def _warn(elsewhere: Part, notes: Notes) -> None:
    if elsewhere.value:
        unread = "; ".join(
            f"{'.'.join(map(str, one.path[len(elsewhere.path) - 1 :]))}: {shorten(one.value)}" for one in elsewhere.unread()
        )
        notes.warn(
            "GS869",
            elsewhere,
            f"the values in {elsewhere.path[-1]} are not read: {unread}",
            "give what `helm get values RELEASE -o yaml` prints instead of this object",
            on_key=True,
        )
