"""The objects of a few charts as Helm is to render them: in `objects/`, which `make golden` writes.

Without the labels that all have, the policies on pods, what the fence has from its file, and the data of ConfigMaps: these have
tests of their own.
"""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpushare import __version__
from gpushare.core import emit
from tests.chart.bundles import NAMESPACE, Bundle, bundle, pool
from tests.chart.reading import Object, documents
from tests.support import helm

FOLDER = Path(__file__).parent / "objects"
_OF_FILES = {"data", "validations", "mutations", "variables", "auditAnnotations"}
_LABELS = {
    "app.kubernetes.io/name": "gpushare",
    "app.kubernetes.io/instance": "gpushare",
    "app.kubernetes.io/version": __version__,
    "app.kubernetes.io/managed-by": "Helm",
    "app.kubernetes.io/part-of": "gpushare",
    "helm.sh/chart": f"gpushare-{__version__}",
    "gpushare.dev/cluster": "physics-batch",
}
_WIDTH = 120
_RULE = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "PrometheusRule",
    "metadata": {"name": "gpushare", "labels": {"release": "1e3"}},
    "spec": {},
}

ENFORCED = bundle(
    "enforced",
    {"both": pool("mig", mps=True, evict=True, namespaces=["atlas"])},
    imagePullSecrets=[{"name": "mirror"}],
    quotas={"atlas": {"requests.nvidia.com/gpu": 2000}},
)
ENFORCED.files["files/monitoring/alerts.yaml"] = emit.yaml_text(_RULE)
OBSERVED = bundle("observed", {"split": pool("mig")}, policies={"split": "spec: {adoption: observe}\n"}, adoption="observe")
FOR_ARGOCD = [
    Bundle(
        name=f"{one.name}-argocd",
        values=one.values | {"uninstall": one.values["uninstall"] | {"hook": "argocd"}},
        files=one.files,
    )
    for one in (ENFORCED, OBSERVED)
]
BUNDLES = (ENFORCED, OBSERVED, *FOR_ARGOCD)


def shown(chart: Bundle, items: Iterable[Object]) -> list[Object]:
    """What the file of a chart has; of a chart for Argo CD only what it has instead of Helm's hook."""
    found = [one for one in items if chart not in FOR_ARGOCD or one["metadata"]["name"] == "gpushare-uninstall"]
    return [_short(one) for one in found if not one["kind"].endswith("AdmissionPolicy") or "fence" in one["metadata"]["name"]]


def _short(item: Object) -> Object:
    labels = item["metadata"]["labels"]
    assert _LABELS.items() <= labels.items(), item["metadata"]
    own = {key: text for key, text in labels.items() if key not in _LABELS}
    parts = {**item, "metadata": {**item["metadata"], "labels": own}}
    if "spec" in parts:
        parts["spec"] = {key: value for key, value in parts["spec"].items() if key not in _OF_FILES}
    return {key: value for key, value in parts.items() if key not in _OF_FILES}


def _text(value: Any, left: int = 0) -> str:
    """JSON whose parts are on one line where they fit."""
    flat = json.dumps(value)
    if len(flat) + left <= _WIDTH or not isinstance(value, dict | list):
        return flat
    keys = [f"{json.dumps(key)}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    parts = value.values() if isinstance(value, dict) else value
    lines = [" " * (left + 2) + key + _text(part, left + 2) for key, part in zip(keys, parts, strict=True)]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return "\n".join((begin, ",\n".join(lines), " " * left + end))


def write() -> None:
    """Write the files again."""
    for chart in BUNDLES:
        with TemporaryDirectory() as folder:
            written = chart.write(Path(folder) / "chart")
            command = [str(helm.helm()), "template", "gpushare", str(written), "--namespace", NAMESPACE]
            environment = {"HOME": folder, "KUBECONFIG": "/dev/null"}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        (FOLDER / f"{chart.name}.json").write_text(_text(shown(chart, documents(done.stdout))) + "\n")
