"""The objects for Argo CD: their fields, their order, and what the bundle's README says of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpushare.bundle import lock
from gpushare.bundle.lock import Lock
from gpushare.core import resources
from gpushare.render.gitops import argocd
from tests.compiler.render.compiled import CLAIMED, ON_DRA, document, files, intent
from tests.compiler.render.compiled import compiled as compile_text

DEFINITIONS = Path(__file__).parent / "argocd.v1alpha1.yaml"
SETTINGS = "repoURL: 'https://git.example.org/gpu.git', path: ./clusters/a/bundle/"


def compiled(*pools: str, more: str = "", platform: str = "{}", spec: str = "") -> dict[str, str]:
    """A bundle with objects for Argo CD."""
    return files(*pools, platform=platform, more=f"  gitops: {{argocd: {{{SETTINGS}{more}}}}}\n{spec}")


def apps(bundle: dict[str, str]) -> dict[str, Any]:
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


DRIVER = "dra-driver-nvidia-gpu"


def driven(*, via: str = "chart", charts: str = "", spec: str = "") -> dict[str, str]:
    """A bundle with a pool of NVIDIA's DRA driver, and a project of its own."""
    mirror = f", charts: {charts}" if charts else ""
    platform = f"{{stack: device-plugin, dra: {{via: {via}, version: 0.5.1}}{mirror}}}"
    wanted = {"platform": platform, "more": f"  gitops: {{argocd: {{{SETTINGS}, project: gpus}}}}\n{ON_DRA}{spec}"}
    return files("hpc", "notebooks", notebooks=CLAIMED, **wanted)


def test_the_drivers_chart_is_there_before_ours_and_after_it() -> None:
    """Argo CD deletes in the reverse order of the waves: nodes leave the driver while it serves what is left."""
    bundle = driven()
    found = apps(bundle)
    driver = found[DRIVER]
    waves = {name: int(app["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"]) for name, app in found.items()}
    assert waves[DRIVER] == waves["nvidia-device-plugin"] < waves["gpushare"]
    assert argocd.FINALIZER in driver["metadata"]["finalizers"]
    assert driver["spec"]["destination"]["namespace"] == document(bundle, "dra-namespace.yaml")["metadata"]["name"]
    assert "dra-namespace.yaml" in found["namespace"]["spec"]["source"]["directory"]["include"]


def test_the_drivers_application_has_the_bundles_values_itself() -> None:
    """It stays when the bundle has no pool of DRA any more, and the file of the values has gone."""
    bundle = driven()
    driver = apps(bundle)[DRIVER]
    source = driver["spec"]["source"]
    assert source["helm"] == {"releaseName": DRIVER, "valuesObject": document(bundle, f"{DRIVER}/values.yaml")}
    assert (source["repoURL"], source["chart"]) == ("registry.k8s.io/dra-driver-nvidia/charts", DRIVER)
    assert source["targetRevision"] == "0.5.1"
    assert driver["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] == "Prune=false"


def test_the_drivers_chart_comes_from_the_mirror() -> None:
    bundle = driven(charts="oci://mirror.example.org/charts")
    assert apps(bundle)[DRIVER]["spec"]["source"]["repoURL"] == "mirror.example.org/charts"
    assert document(bundle, "argocd/project.yaml")["spec"]["sourceRepos"][1:] == ["mirror.example.org/charts"]


@pytest.mark.parametrize(("via", "spec"), [("existing", ""), ("chart", "  adoption: observe\n")])
def test_a_driver_of_someone_elses_has_no_application(via: str, spec: str) -> None:
    assert DRIVER not in apps(driven(via=via, spec=spec))


@pytest.mark.parametrize("goes_back", [False, True])
def test_the_project_may_install_and_remove_the_driver(goes_back: bool) -> None:
    """After the pools have gone back, too: what a project does not permit, Argo CD does not delete."""
    bundle = driven()
    if goes_back:
        settings = f"  gitops: {{argocd: {{{SETTINGS}, project: gpus}}}}\n"
        text = intent("hpc", "notebooks", platform="{stack: device-plugin}", more=settings)
        previous = lock.read(bundle[lock.FILE].encode())
        assert isinstance(previous, Lock)
        bundle = compile_text(text, previous)[1]
        assert DRIVER not in apps(bundle)
        assert f"kubectl --namespace argocd delete application test-cluster-gpus-{DRIVER}\n" in bundle["README.md"]
    spec = document(bundle, "argocd/project.yaml")["spec"]
    assert "registry.k8s.io/dra-driver-nvidia/charts" in spec["sourceRepos"]
    assert DRIVER in {one["namespace"] for one in spec["destinations"]}
    assert {"DeviceClass", "CustomResourceDefinition"} <= {one["kind"] for one in spec["clusterResourceWhitelist"]}
    rights = document(bundle, "argocd/rights/clusterrole.yaml")["rules"]
    assert [rule["verbs"] for rule in rights if "resourceslices" in rule["resources"]] == [["get", "list"]]


@pytest.mark.parametrize(("bundle", "number"), [(compiled, 6), (driven, 7)])
def test_objects_are_valid_under_argo_cds_definitions(bundle: Callable[..., dict[str, str]], number: int) -> None:
    """Against the fields of the CustomResourceDefinitions that these objects use; the cluster tests use the whole ones."""
    definitions = yaml.safe_load(DEFINITIONS.read_text())
    texts = bundle(**({"more": ", project: gpus"} if bundle is compiled else {}))
    items = [yaml.safe_load(text) for path, text in texts.items() if path.startswith("argocd/")]
    checked = [item for item in items if item["kind"] in definitions]
    assert len(checked) == number
    for item in checked:
        jsonschema.validate(item, definitions[item["kind"]])
