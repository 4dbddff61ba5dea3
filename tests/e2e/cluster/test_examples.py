"""Every example's chart, installed twice, by the majors of Helm in turn. No node is needed: none is in the examples' pools."""

import json
import os
import subprocess
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster.amd_node import define_device_configs
from tests.e2e.cluster.bundles import NAMESPACE, compiled, namespace
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.release import Release
from tests.support import helm
from tests.support.paths import ROOT

ANYWHERE = ("--set", "namespace=")
"""The chart refuses another namespace than its bundle's; one of the examples has another than the tests."""
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/intent.yaml"))


@pytest.mark.parametrize(
    ("major", "example"), list(zip(cycle(helm.MAJORS), EXAMPLES)), ids=lambda part: getattr(part, "name", None)
)
def test_example_installs_and_upgrade_is_idempotent(api: Cluster, major: int, example: Path, tmp_path: Path) -> None:
    text = (example / "intent.yaml").read_text()
    wanted = yaml.safe_load(text)["spec"].get("kubernetes", "1.30")
    if minor(api) < int(wanted.removeprefix("1.")):
        pytest.skip(f"this API server is older than Kubernetes {wanted}")
    bundle = compiled(text, tmp_path)
    namespace(api, NAMESPACE, **{"pod-security.kubernetes.io/enforce": "privileged"})
    values = yaml.safe_load((bundle / "chart" / "values.yaml").read_text())
    for name in (*values["quotas"], values.get("pluginNamespace", NAMESPACE)):
        namespace(api, name)
    is_watched = (bundle / "chart" / "files" / "monitoring" / "podmonitor.yaml").is_file()
    if is_watched:
        define_kinds_of_the_prometheus_operator(api)
    if (bundle / "chart" / "files" / "amd" / "device-configs").is_dir():
        define_device_configs(api)
    release = Release(api, major)
    release.install(bundle, *ANYWHERE)
    before = versions(api)
    release.install(bundle, *ANYWHERE)
    assert versions(api) == before
    assert not is_watched or is_kept_whole(api, bundle)
    release.remove()


def minor(cluster: Cluster) -> int:
    """The API server's minor version."""
    return int(cluster.read("/version")["minor"])


OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"


def define_kinds_of_the_prometheus_operator(api: Cluster) -> None:
    """Its own definitions of the kinds that our chart has, from its module: the operator itself is not there."""
    told = subprocess.run(
        ["go", "mod", "download", "-json", OPERATOR],
        cwd=tempfile.gettempdir(),
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "GOFLAGS": "-mod=mod"},
    )
    folder = Path(json.loads(told.stdout)["Dir"]) / "example/prometheus-operator-crd"
    for plural in ("podmonitors", "prometheusrules"):
        api.kubectl("apply", "--server-side", "--filename", str(folder / f"monitoring.coreos.com_{plural}.yaml"))
        api.await_kinds(f"{plural}.monitoring.coreos.com")


def is_kept_whole(api: Cluster, bundle: Path) -> bool:
    """Whether the API server has every field of our PodMonitor and PrometheusRule: it drops those that a kind does not know."""
    files = [bundle / "chart/files/monitoring" / name for name in ("podmonitor.yaml", "rules.yaml")]
    objects = [yaml.safe_load(file.read_text()) for file in files]
    assert {one["kind"] for one in objects} == {"PodMonitor", "PrometheusRule"}
    return all(has(api.get(one["kind"].lower(), "gpushare", "--namespace", NAMESPACE)["spec"], one["spec"]) for one in objects)


def has(whole: Any, part: Any) -> bool:
    """Whether everything of the part is there; defaults may be added."""
    match part:
        case dict():
            return all(key in whole and has(whole[key], value) for key, value in part.items())
        case list():
            return len(whole) == len(part) and all(map(has, whole, part))
        case _:
            return bool(whole == part)


def versions(cluster: Cluster) -> dict[str, str]:
    """What the release's objects are, as far as their owners write them: their status is the controllers'."""
    kinds = "daemonsets,configmaps,serviceaccounts,roles,rolebindings,resourcequotas"
    wide = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
    found = {}
    for where in (("--all-namespaces", kinds), (wide,)):
        for one in cluster.get(*where, "--selector", "app.kubernetes.io/name=gpushare")["items"]:
            name = f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}"
            parts = [one["metadata"].get("generation"), one["metadata"]["labels"], *map(one.get, ("spec", "data", "rules"))]
            found[name] = json.dumps(parts)
    return found
