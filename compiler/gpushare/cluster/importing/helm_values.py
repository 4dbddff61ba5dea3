"""Values of NVIDIA's two charts, the ClusterPolicy, and Helm releases inside the objects of GitOps tools.

Facts: charts nvidia-device-plugin 0.20.0 and gpu-operator v26.7.0. The operator's `mig.strategy` is `single` unless it is set,
and takes precedence over every config; it has no fallback but whole GPUs. The plugin's chart falls back to the config
`default`, then to the only one.

helm.toolkit.fluxcd.io/v2 (`values`, `valuesFrom`), argoproj.io/v1alpha1 (`valuesObject` wins over `values`; `parameters` over
both), helm.cattle.io/v1 (`valuesContent`; HelmChartConfig has the name of the HelmChart that it changes), kustomize's
`helmCharts` (`valuesInline`), Fleet's `fleet.yaml`.
"""

from collections.abc import Callable, Iterator

from gpushare.cluster.importing.documents import described
from gpushare.cluster.importing.facts import ChartSettings
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import join_words, shorten
from gpushare.facts.catalog import upstream
from gpushare_node.contract.struct import Struct

OPERATOR, PLUGIN = "gpu-operator", "device-plugin"
_OPERATOR_KEYS = ("devicePlugin", "migManager", "mig", "toolkit", "dcgmExporter", "daemonsets")
_PLUGIN_KEYS = ("config", "migStrategy", "gfd", "compatWithCPUManager", "deviceListStrategy", "deviceIDStrategy", "mps")
RELEASE_NAMESPACE = "meta.helm.sh/release-namespace"
"""Helm writes it on what it installs, the ClusterPolicy among them, which has no namespace of its own."""
_STRATEGIES = ("none", "single", "mixed")


def stack_of(part: Part) -> str:
    """Return which chart's values a document without `kind` is, empty if neither's."""
    if part.has("kind") or part.has("version"):
        return ""
    if sum(part.has(key) for key in _OPERATOR_KEYS) > (1 if part.has("config") else 0):
        return OPERATOR
    known = part.at("config").has("map") or part.at("config").has("name") or part.at("config").has("default")
    return PLUGIN if known or any(part.has(key) for key in _PLUGIN_KEYS[1:]) else ""


def settings(part: Part, which: str, origin: str, notes: Notes) -> tuple[ChartSettings, Part, Part]:
    """Return the settings, and the parts with configs of the plugin and of mig-parted, by name.

    What of the values decides nothing here is the business of `platform`, which shows all of them.
    """
    config = part.at("devicePlugin", "config") if which == OPERATOR else part.at("config")
    strategy = part.at("mig", "strategy") if which == OPERATOR else part.at("migStrategy")
    data = config.at("data") if which == OPERATOR else config.at("map")
    word = _strategy(strategy, notes)
    if which == OPERATOR and word is None and not part.at("mig").has("strategy"):
        word = "single"
    fallbacks = tuple(entry.text for entry in config.at("fallbackStrategies").entries()) or ("named", "single")
    settings = ChartSettings(
        stack=which,
        origin=origin,
        part=part,
        mig_strategy=word or None,
        says_strategy=bool(strategy.value),
        default=config.at("default") if config.at("default").text else None,
        config_group=config.at("name").text,
        mig_group=part.at("migManager", "config", "name").text,
        vgpu_group=part.at("vgpuDeviceManager", "config", "name").text,
        fallbacks=fallbacks if which == PLUGIN else (),
    )
    return settings, data, part.at("migManager", "config", "data")


def _strategy(part: Part, notes: Notes) -> str | None:
    if part.value in (None, ""):
        return None
    if part.value not in _STRATEGIES:
        notes.error("GS850", part, f"there is no MIG strategy {shorten(part.value)}", f"write {join_words(_STRATEGIES, 'or')}")
        return None
    return str(part.value)


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


def values_in(part: Part, embedded: Embedded, notes: Notes) -> tuple[Values, ...]:
    """Return the values of NVIDIA's charts in this object: none for any other object, and for other charts."""
    reader = _READERS.get((part.at("apiVersion").text.partition("/")[0], part.at("kind").text))
    return tuple(reader(part, embedded, notes)) if reader is not None else ()


def values_in_bare(part: Part) -> tuple[Values, ...]:
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
