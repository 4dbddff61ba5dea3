"""The objects for Argo CD: their fields, their order, and what the bundle's README says of them."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from gpushare.core import resources
from gpushare.render import argocd
from tests.compiler.render.compiled import document, files

DEFINITIONS = Path(__file__).parent / "argocd.v1alpha1.yaml"
SETTINGS = "repoURL: 'https://git.example.org/gpu.git', path: ./clusters/a/bundle/"


def compiled(*pools: str, more: str = "", platform: str = "{}", spec: str = "") -> dict[str, str]:
    """A bundle with objects for Argo CD."""
    return files(*pools, platform=platform, more=f"  gitops: {{argocd: {{{SETTINGS}{more}}}}}\n{spec}")


def apps(bundle: dict[str, str]) -> dict[str, argocd.Object]:
    """Its Applications but the root, by name."""
    found = [yaml.safe_load(text) for path, text in bundle.items() if path.startswith("argocd/apps/")]
    return {app["metadata"]["name"].removeprefix("test-cluster-gpus-"): app for app in found}


def test_nothing_is_generated_without_the_setting() -> None:
    bundle = files("hpc")
    assert not [path for path in bundle if path.startswith("argocd/")]
    assert "Argo CD" not in bundle["README.md"]


def test_the_defaults_are_those_of_the_intents_schema() -> None:
    definitions = json.loads(resources.schema("intent.v1").read_text())["definitions"]
    fields = definitions["gitops"]["properties"]["argocd"]["properties"]
    stated = {name: field["default"] for name, field in fields.items() if "default" in field}
    bundle = compiled("hpc", more="".join(f", {name}: '{value}'" for name, value in stated.items()))
    assert {path: text for path, text in bundle.items() if path.startswith("argocd/")} == {
        path: text for path, text in compiled("hpc").items() if path.startswith("argocd/")
    }
    assert stated.keys() == fields.keys() - {"repoURL", "path", "name"}


def test_the_parts_are_synced_in_waves_and_deleted_in_the_reverse_order() -> None:
    wave = "argocd.argoproj.io/sync-wave"
    waves = {name: int(app["metadata"]["annotations"][wave]) for name, app in apps(compiled()).items()}
    assert waves == {"namespace": 0, "rights": 0, "gpu-operator": 1, "gpushare": 2}


def test_every_source_is_in_the_bundles_folder() -> None:
    found = apps(compiled())
    assert found["gpushare"]["spec"]["source"]["path"] == "clusters/a/bundle/chart"
    assert found["namespace"]["spec"]["source"] | {"repoURL": ""} == {
        "repoURL": "",
        "targetRevision": "HEAD",
        "path": "clusters/a/bundle",
        "directory": {"include": "namespace.yaml"},
    }
    chart, values = found["gpu-operator"]["spec"]["sources"]
    assert chart["helm"]["valueFiles"] == [f"${values['ref']}/clusters/a/bundle/gpu-operator/values.yaml"]
    assert (chart["chart"], chart["targetRevision"]) == ("gpu-operator", "v26.7.0")
    root = document(compiled(), "argocd/root.yaml")
    assert root["spec"]["source"]["path"] == "clusters/a/bundle/argocd/apps"


def test_a_bundle_at_the_root_of_the_repository() -> None:
    bundle = files("hpc", more="  gitops: {argocd: {repoURL: 'https://git.example.org/gpu.git', path: .}}\n")
    found = apps(bundle)
    assert found["gpushare"]["spec"]["source"]["path"] == "chart"
    assert found["namespace"]["spec"]["source"]["path"] == "."


def test_the_namespace_is_never_deleted() -> None:
    """Other objects may be in it."""
    namespace = apps(compiled())["namespace"]
    assert "finalizers" not in namespace["metadata"]
    assert namespace["spec"]["syncPolicy"]["automated"]["prune"] is False


def test_nvidia_chart_is_not_pruned_when_switching_to_observe() -> None:
    annotations = {name: app["metadata"]["annotations"] for name, app in apps(compiled()).items()}
    kept = {name for name, each in annotations.items() if each.get("argocd.argoproj.io/sync-options") == "Prune=false"}
    assert kept == {"gpu-operator"}


def test_deleting_our_application_releases_the_nodes() -> None:
    app = apps(compiled())["gpushare"]
    assert app["spec"]["source"]["helm"] == {"releaseName": "gpushare", "valuesObject": {"uninstall": {"hook": "argocd"}}}
    assert argocd.FINALIZER in app["metadata"]["finalizers"]
    assert [one for one in app["metadata"]["finalizers"] if one.startswith("post-delete-finalizer.argocd.argoproj.io")]


@pytest.mark.parametrize(("spec", "may"), [("", {"nodes": ["get", "list", "patch", "watch"]}), ("  adoption: observe\n", {})])
def test_the_hooks_rights_are_not_the_charts_to_delete(spec: str, may: dict[str, list[str]]) -> None:
    bundle = compiled("hpc", spec=spec)
    role = document(bundle, "argocd/rights/clusterrole.yaml")
    binding = document(bundle, "argocd/rights/clusterrolebinding.yaml")
    verbs = {resource: rule["verbs"] for rule in role["rules"] for resource in rule["resources"]}
    assert verbs["nodes"] == may.get("nodes", ["get", "list"])
    assert "create" not in verbs["nodes"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "gpushare-uninstall"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "gpushare-uninstall", "namespace": "gpu-system"}]
    assert apps(bundle)["rights"]["spec"]["source"]["path"] == "clusters/a/bundle/argocd/rights"


@pytest.mark.parametrize(
    ("pools", "wanted"), [(("hpc",), "ServerSideApply=true"), (("dense", "serving"), "ServerSideApply=false")]
)
def test_server_side_apply_unless_the_operators_chart_renders_a_null(pools: tuple[str, ...], wanted: str) -> None:
    found = apps(compiled(*pools))
    assert found["gpu-operator"]["spec"]["syncPolicy"]["syncOptions"] == ["FailOnSharedResource=true", wanted]
    assert found["gpushare"]["spec"]["syncPolicy"]["syncOptions"] == ["FailOnSharedResource=true", "ServerSideApply=true"]
    compared = {
        name
        for name, one in found.items()
        if one["metadata"]["annotations"].get("argocd.argoproj.io/compare-options") == "ServerSideDiff=true"
    }
    assert compared == found.keys() - ({"gpu-operator"} if wanted.endswith("false") else set())


@pytest.mark.parametrize(
    ("platform", "spec", "upstream"),
    [
        ("{}", "", {"gpu-operator"}),
        ("{stack: device-plugin}", "", {"nvidia-device-plugin"}),
        ("{stack: existing}", "", set()),
        ("{}", "  adoption: observe\n", set()),
    ],
)
def test_nvidia_chart_is_present_only_if_the_bundle_installs_it(platform: str, spec: str, upstream: set[str]) -> None:
    bundle = compiled("hpc", platform=platform, spec=spec)
    assert apps(bundle).keys() == {"namespace", "rights", "gpushare"} | upstream
    checks = {"apps_DaemonSet"} if not spec else set()
    checks |= {"nvidia.com_ClusterPolicy"} if upstream == {"gpu-operator"} else set()
    assert ("argocd/argocd-cm.yaml" in bundle) == bool(checks)
    if checks:
        data = document(bundle, "argocd/argocd-cm.yaml")["data"]
        assert data.keys() == {f"resource.customizations.health.{kind}" for kind in checks}
    assert "kubectl apply -f argocd/root.yaml" in bundle["README.md"]


def test_a_version_of_the_operator_is_that_of_the_intent() -> None:
    (chart, _) = apps(compiled("hpc", platform="{version: v26.3.3}"))["gpu-operator"]["spec"]["sources"]
    assert chart["targetRevision"] == "v26.3.3"


def test_dedicated_project_has_least_privilege() -> None:
    bundle = compiled(
        "hpc", more=", project: gpus, namespace: gitops, server: 'https://a.example.org'", spec="  quotas: {atlas: {hpc: 3}}\n"
    )
    project = document(bundle, "argocd/project.yaml")
    assert project["metadata"] == {"name": "gpus", "namespace": "gitops"}
    spec = project["spec"]
    assert spec["destinations"] == [{"server": "https://a.example.org", "namespace": name} for name in ("atlas", "gpu-system")]
    assert len(spec["sourceRepos"]) == 2
    assert not {"Node", "*"} & {kind["kind"] for kind in spec["clusterResourceWhitelist"]}
    for app in apps(bundle).values():
        assert app["metadata"]["namespace"] == "gitops"
        assert app["spec"]["project"] == "gpus"
        assert app["spec"]["destination"]["server"] == "https://a.example.org"
    assert document(bundle, "argocd/root.yaml")["spec"]["destination"]["server"] == "https://kubernetes.default.svc"
    assert "argocd/project.yaml" not in compiled("hpc")


def test_nvidias_chart_may_have_a_namespace_of_its_own() -> None:
    """Which is made before the chart, and in which our Application may put the plugin's configs."""
    bundle = compiled("hpc", more=", project: gpus", platform="{namespace: nvidia}")
    found = apps(bundle)
    where = {name: app["spec"]["destination"]["namespace"] for name, app in found.items()}
    assert where == dict.fromkeys(found, "gpu-system") | {"gpu-operator": "nvidia"}
    assert found["namespace"]["spec"]["source"]["directory"] == {"include": "{namespace.yaml,platform-namespace.yaml}"}
    destinations = document(bundle, "argocd/project.yaml")["spec"]["destinations"]
    assert [one["namespace"] for one in destinations] == ["gpu-system", "nvidia"]


def test_the_readme_says_what_deletion_does() -> None:
    enforcing, observing = compiled("hpc")["README.md"], compiled("hpc", spec="  adoption: observe\n")["README.md"]
    assert "makes every GPU whole" in enforcing
    assert "removes condition and annotation" in observing
    for text in (enforcing, observing):
        assert "kubectl --namespace argocd delete application test-cluster-gpus\n" in text


@pytest.mark.parametrize("pools", [(), ("hpc",)])
def test_objects_are_valid_under_argo_cds_definitions(pools: tuple[str, ...]) -> None:
    """Against the fields of the CustomResourceDefinitions that these objects use; the cluster tests use the whole ones."""
    definitions = yaml.safe_load(DEFINITIONS.read_text())
    bundle = compiled(*pools, more=", project: gpus")
    items = [yaml.safe_load(text) for path, text in bundle.items() if path.startswith("argocd/")]
    checked = [item for item in items if item["kind"] in definitions]
    assert len(checked) == 6
    for item in checked:
        jsonschema.validate(item, definitions[item["kind"]])
