"""The objects for Flux: their fields, their order, and what the bundle's README says of them."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpushare.core import resources
from gpushare.core.units import parse_duration
from gpushare.render.gitops import flux
from tests.compiler.render.compiled import CLAIMED, ON_DRA, POOLS, document, files
from tests.compiler.render.compiled import compiled as compile_text
from tests.support.paths import ROOT

DEFINITIONS = Path(__file__).parent / "flux.v1.yaml"
SETTINGS = "url: 'https://git.example.org/gpu.git', path: ./clusters/a/bundle/"
OBSERVE = "  adoption: observe\n"
NAME = "test-cluster-gpus"


def compiled(*pools: str, more: str = "", platform: str = "{}", spec: str = "", **changed: str) -> dict[str, str]:
    """A bundle with objects for Flux."""
    return files(*pools, platform=platform, more=f"  gitops: {{flux: {{{SETTINGS}{more}}}}}\n{spec}", **changed)


def of_flux(bundle: dict[str, str]) -> dict[str, str]:
    """Its files for Flux."""
    return {path: text for path, text in bundle.items() if path.startswith("flux/")}


def releases(bundle: dict[str, str]) -> dict[str, Any]:
    """The specs of its HelmReleases by the release's name."""
    found = [yaml.safe_load(text) for text in of_flux(bundle).values()]
    return {item["spec"]["releaseName"]: item["spec"] for item in found if item["kind"] == "HelmRelease"}


def test_nothing_is_generated_without_the_setting() -> None:
    bundle = files("hpc")
    assert not of_flux(bundle)
    assert "Flux" not in bundle["README.md"]


def test_the_defaults_are_those_of_the_intents_schema() -> None:
    definitions = json.loads(resources.schema("intent.v1").read_text())["definitions"]
    fields = definitions["gitops"]["properties"]["flux"]["properties"]
    stated = {name: field["default"] for name, field in fields.items() if "default" in field}
    bundle = compiled("hpc", more="".join(f", {name}: '{value}'" for name, value in stated.items()))
    assert of_flux(bundle) == of_flux(compiled("hpc"))
    assert stated.keys() == fields.keys() - {"url", "path", "secret", "name"}


@pytest.mark.parametrize("pools", [(), ("hpc",)])
@pytest.mark.parametrize("platform", ["{}", "{stack: device-plugin}", "{stack: existing}"])
@pytest.mark.parametrize("spec", ["", OBSERVE])
def test_objects_are_valid_under_fluxs_definitions(pools: tuple[str, ...], platform: str, spec: str) -> None:
    definitions = yaml.safe_load(DEFINITIONS.read_text())
    bundle = compiled(*pools, more=", secret: s, interval: +90s", platform=platform, spec=spec)
    checked = 0
    for text in of_flux(bundle).values():
        item = yaml.safe_load(text)
        if "toolkit.fluxcd.io" in item["apiVersion"]:
            schema = definitions["kinds"][item["kind"]] | {"definitions": definitions["definitions"]}
            jsonschema.validate(item, schema)
            checked += 1
    assert checked == (5 if platform != "{stack: existing}" and not spec else 3)


@pytest.mark.parametrize(
    ("written", "wanted"), [("10m", "10m"), ("1h30m", "1h30m"), ("+90s", "90s"), (".5h", "1800s"), ("10000000us", "10s")]
)
def test_an_interval_is_written_as_flux_reads_it(written: str, wanted: str) -> None:
    bundle = compiled("hpc", more=f", interval: '{written}'")
    intervals = [document(bundle, path)["spec"]["interval"] for path in ("flux/source.yaml", "flux/sync.yaml")]
    assert [*intervals, releases(bundle)["gpushare"]["interval"]] == [wanted] * 3


def test_every_path_is_in_the_bundles_folder() -> None:
    bundle = compiled("hpc")
    assert document(bundle, "flux/sync.yaml")["spec"]["path"] == "./clusters/a/bundle/flux/apps"
    assert releases(bundle)["gpushare"]["chart"]["spec"]["chart"] == "./clusters/a/bundle/chart"
    root = files("hpc", more="  gitops: {flux: {url: 'https://git.example.org/gpu.git', path: .}}\n")
    assert document(root, "flux/sync.yaml")["spec"]["path"] == "./flux/apps"
    assert releases(root)["gpushare"]["chart"]["spec"]["chart"] == "./chart"


def test_a_changed_bundle_is_a_new_release_though_the_charts_version_is_the_same() -> None:
    assert releases(compiled("hpc"))["gpushare"]["chart"]["spec"]["reconcileStrategy"] == "Revision"


def test_a_private_repository_has_a_secret() -> None:
    assert "secretRef" not in document(compiled("hpc"), "flux/source.yaml")["spec"]
    bundle = compiled("hpc", more=", secret: gpu-repository, branch: next, namespace: sync")
    source = document(bundle, "flux/source.yaml")
    assert source["spec"]["secretRef"] == {"name": "gpu-repository"}
    assert source["spec"]["ref"] == {"branch": "next"}
    assert "Secret `gpu-repository` of namespace `sync`" in bundle["README.md"]
    namespaces = {yaml.safe_load(text).get("metadata", {}).get("namespace") for text in of_flux(bundle).values()}
    assert namespaces == {"sync", None}


@pytest.mark.parametrize(
    ("platform", "spec", "upstream"),
    [
        ("{}", "", {"gpu-operator"}),
        ("{stack: device-plugin}", "", {"nvidia-device-plugin"}),
        ("{stack: existing}", "", set()),
        ("{}", OBSERVE, set()),
        ("{stack: device-plugin}", OBSERVE, set()),
    ],
)
def test_nvidia_chart_is_present_only_if_the_bundle_installs_it(platform: str, spec: str, upstream: set[str]) -> None:
    bundle = compiled("hpc", platform=platform, spec=spec)
    found = releases(bundle)
    assert found.keys() == {"gpushare"} | upstream
    assert found["gpushare"].get("dependsOn", []) == [{"name": f"{NAME}-{name}"} for name in upstream]
    assert ("flux/apps/values.yaml" in bundle) == ("flux/apps/repository.yaml" in bundle) == bool(upstream)
    listed = document(bundle, "flux/apps/kustomization.yaml")["resources"]
    assert sorted(f"flux/apps/{name}" for name in (*listed, "kustomization.yaml")) == sorted(
        path for path in bundle if path.startswith("flux/apps/")
    )
    assert "kubectl apply -f flux/source.yaml -f flux/sync.yaml" in bundle["README.md"]


@pytest.mark.parametrize(("platform", "file"), [("{}", "gpu-operator"), ("{stack: device-plugin}", "device-plugin")])
def test_nvidias_chart_gets_the_values_of_the_bundle(platform: str, file: str) -> None:
    bundle = compiled("hpc", platform=platform)
    values = document(bundle, "flux/apps/values.yaml")
    assert values["data"] == {"values.yaml": bundle[f"{file}/values.yaml"]}
    [nvidia] = [spec for name, spec in releases(bundle).items() if name != "gpushare"]
    assert nvidia["valuesFrom"] == [{"kind": "ConfigMap", "name": values["metadata"]["name"], "valuesKey": "values.yaml"}]
    repository = document(bundle, "flux/apps/repository.yaml")
    assert nvidia["chart"]["spec"]["sourceRef"] == {"kind": "HelmRepository", "name": repository["metadata"]["name"]}
    assert repository["spec"]["url"] in bundle["README.md"]


DRIVER = "dra-driver-nvidia-gpu"
DRIVEN = "{stack: device-plugin, dra: {version: 0.5.1}}"


def test_the_drivers_chart_is_installed_before_ours_and_kept() -> None:
    """Flux ignores `dependsOn` when it deletes, and nodes leave the driver one after the other when a pool goes back."""
    bundle = compiled("hpc", "notebooks", platform=DRIVEN, spec=ON_DRA, notebooks=CLAIMED)
    found = releases(bundle)
    assert found["gpushare"]["dependsOn"] == [{"name": f"{NAME}-{name}"} for name in ("nvidia-device-plugin", DRIVER)]
    driver, where = found[DRIVER], document(bundle, "dra-namespace.yaml")["metadata"]["name"]
    assert (driver["targetNamespace"], driver["storageNamespace"]) == (where, where)
    assert (driver["chart"]["spec"]["chart"], driver["chart"]["spec"]["version"]) == (DRIVER, "0.5.1")
    values = document(bundle, "flux/apps/dra-values.yaml")
    assert values["data"] == {"values.yaml": bundle[f"{DRIVER}/values.yaml"]}
    assert driver["valuesFrom"][0]["name"] == values["metadata"]["name"]
    repository = document(bundle, "flux/apps/dra-repository.yaml")
    assert repository["spec"] | {"interval": ""} == {
        "interval": "",
        "type": "oci",
        "url": "oci://registry.k8s.io/dra-driver-nvidia/charts",
    }
    assert driver["chart"]["spec"]["sourceRef"]["name"] == repository["metadata"]["name"]
    kept = {item for item in document(bundle, "flux/apps/kustomization.yaml")["resources"] if "dra-" in item}
    assert kept == {f"{name}.yaml" for name in ("dra-namespace", "dra-repository", "dra-values", DRIVER)}
    for item in kept:
        annotations = document(bundle, f"flux/apps/{item}")["metadata"]["annotations"]
        assert annotations == {"kustomize.toolkit.fluxcd.io/prune": "disabled"}
    command = f"delete helmrelease,helmrepository,configmap {NAME}-{DRIVER}\n"
    assert bundle["README.md"].index("get nodes --selector gpushare.dev/pool") < bundle["README.md"].index(command)


def test_objects_of_the_driver_are_valid_under_fluxs_definitions() -> None:
    definitions = yaml.safe_load(DEFINITIONS.read_text())
    bundle = compiled("notebooks", platform=DRIVEN, spec=ON_DRA, notebooks=CLAIMED)
    for path, kind in ((f"flux/apps/{DRIVER}.yaml", "HelmRelease"), ("flux/apps/dra-repository.yaml", "HelmRepository")):
        jsonschema.validate(document(bundle, path), definitions["kinds"][kind] | {"definitions": definitions["definitions"]})


def test_a_version_of_the_operator_is_that_of_the_intent() -> None:
    versions = [
        releases(compiled("hpc", platform=platform))["gpu-operator"]["chart"]["spec"]["version"]
        for platform in ("{}", "{version: v26.3.3}")
    ]
    assert versions == ["v26.7.0", "v26.3.3"]


@pytest.mark.parametrize(("pools", "wanted"), [(("hpc",), (None, None)), (("dense", "serving"), (False, "disabled"))])
def test_server_side_apply_unless_the_operators_chart_renders_a_null(pools: tuple[str, ...], wanted: object) -> None:
    found = releases(compiled(*pools))
    actions = [found["gpu-operator"][action].get("serverSideApply") for action in ("install", "upgrade")]
    assert tuple(actions) == wanted
    assert "serverSideApply" not in found["gpushare"]["install"]


def test_no_failed_action_uninstalls_anything() -> None:
    """An uninstall releases the nodes, and takes the drivers along."""
    for spec in releases(compiled()).values():
        for action in ("install", "upgrade"):
            assert spec[action]["strategy"]["name"] == "RetryOnFailure"
            assert "remediation" not in spec[action]
        assert "uninstall" not in spec


def test_flux_timeouts_exceed_the_hooks() -> None:
    bundle = compiled("hpc")
    spec = document(bundle, "flux/sync.yaml")["spec"]
    uninstall = document(bundle, "chart/values.yaml")["uninstall"]
    texts = (uninstall["timeout"], releases(bundle)["gpushare"]["timeout"], spec["timeout"])
    hook, release, sync = (parse_duration(text) or 0 for text in texts)
    # Of the Job's own limit, in the chart, 210 seconds are beside its timeout.
    assert 0 < hook + 210 < release < sync
    assert (spec["prune"], spec["wait"], spec["deletionPolicy"]) == (True, True, "WaitForTermination")


def test_flux_does_not_prune_what_node_release_needs() -> None:
    """It ignores `dependsOn` when it deletes: the driver would go at the same time as our release."""
    kept = {
        path
        for path, text in of_flux(compiled("hpc")).items()
        if yaml.safe_load(text).get("metadata", {}).get("annotations") == {"kustomize.toolkit.fluxcd.io/prune": "disabled"}
    }
    assert kept == {f"flux/apps/{name}.yaml" for name in ("namespace", "gpu-operator", "repository", "values")}


def test_the_namespace_is_that_of_the_bundle() -> None:
    bundle = compiled("hpc", spec="  namespace: shares\n")
    ours, plain = document(bundle, "flux/apps/namespace.yaml"), document(bundle, "namespace.yaml")
    assert ours["metadata"].pop("annotations")
    assert ours == plain
    assert {spec["targetNamespace"] for spec in releases(bundle).values()} == {"shares"}


def test_nvidias_chart_may_have_a_namespace_of_its_own() -> None:
    bundle = compiled("hpc", platform="{namespace: nvidia}")
    found = releases(bundle)
    assert {name: (spec["targetNamespace"], spec["storageNamespace"]) for name, spec in found.items()} == {
        "gpushare": ("gpu-system", "gpu-system"),
        "gpu-operator": ("nvidia", "nvidia"),
    }
    made = document(bundle, "flux/apps/platform-namespace.yaml")["metadata"]
    assert (made["name"], made["annotations"]) == ("nvidia", {"kustomize.toolkit.fluxcd.io/prune": "disabled"})
    assert "platform-namespace.yaml" in document(bundle, "flux/apps/kustomization.yaml")["resources"]


def test_helm_waits_for_our_chart_but_not_for_the_device_plugin() -> None:
    found = releases(compiled("hpc", platform="{stack: device-plugin}"))
    for action in ("install", "upgrade"):
        assert found["nvidia-device-plugin"][action]["disableWait"] is True
        assert found["nvidia-device-plugin"][action]["crds"] == "CreateReplace"
        assert "disableWait" not in found["gpushare"][action]
    assert found["gpushare"]["driftDetection"] == {"mode": "enabled"}
    assert found["nvidia-device-plugin"]["driftDetection"] == {"mode": "warn"}


def test_helm_tests_are_enabled_only_on_enforced_pools_without_an_autoscaler() -> None:
    """Full pools fail them, which is no reason to upgrade again; an autoscaler would add nodes for them."""
    spec = releases(compiled("hpc"))["gpushare"]["test"]
    assert (spec["enable"], spec["ignoreFailures"]) == (True, True)
    assert "test" not in releases(compiled("hpc", spec=OBSERVE))["gpushare"]
    scaled = POOLS["notebooks"].replace("nodes: {", "nodes: {autoscaler: cluster-autoscaler, ")
    assert "test" not in releases(compiled("notebooks", notebooks=scaled))["gpushare"]


def test_the_readme_says_what_deletion_does() -> None:
    enforcing, observing = compiled("hpc")["README.md"], compiled("hpc", spec=OBSERVE)["README.md"]
    assert "Deleting it makes every GPU whole" in enforcing
    assert "Deleting it removes condition and annotation" in observing
    for text in (enforcing, observing):
        assert f"kubectl --namespace flux-system delete kustomization {NAME}\n" in text
    after = f"delete helmrelease,helmrepository,configmap {NAME}-gpu-operator"
    assert enforcing.index("get nodes --selector gpushare.dev/pool") < enforcing.index(after)
    assert after not in observing
    assert flux.SYNCS not in enforcing


def test_the_page_on_gitops_names_files_and_objects_that_are_there() -> None:
    page = (ROOT / "docs" / "gitops.md").read_text()
    [intent] = re.findall(r"```yaml\n# intent.yaml\n(.*?)```", page, re.DOTALL)
    section = page.partition("\n## Flux\n")[2].partition("\n## kustomize\n")[0]
    [settings] = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    text = re.sub(r"    argocd: .*\n", settings, intent)
    bundle = compile_text(text.encode())[1]
    items = [yaml.safe_load(text) for text in of_flux(bundle).values()]
    there = {f"{item['kind'].lower()}/{item['metadata']['name']}" for item in items if "metadata" in item}
    there.add("configmap/gpushare-profiles")  # of our chart, which stays
    commands = re.findall(r"^\$ (kubectl .*)", section, re.MULTILINE)
    files = {path for line in commands for path in re.findall(r"clusters/physics/bundle/(\S+)", line)}
    named = {name for line in commands for name in re.findall(r"wait (\S+)", line)}
    for kinds, name in (found for line in commands for found in re.findall(r"delete (\S+) (\S+)", line)):
        named |= {f"{kind}/{name}" for kind in kinds.split(",")}
    assert files == {"flux/source.yaml", "flux/sync.yaml"}
    assert files <= bundle.keys()
    assert len(named) == 6
    assert named <= there
