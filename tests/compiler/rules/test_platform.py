"""Rules on the platform and its versions: code, place and sentence."""

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.facts.catalog import image_registry
from gpushare.intent.types import Platform
from tests.compiler.rules.intents import check, codes, found, one, pool, written
from tests.support.paths import ROOT

A100 = "a100-sxm4-40gb"
MIG = pool("training", card=A100, nodes="{names: [n1]}", sharing="{mode: mig, layout: {1g.5gb: 7}}")
SINGLE = pool("single", card=A100, nodes="{names: [n2]}", sharing="{mode: mig, layout: {1g.5gb: 7}, strategy: single}")
MPS = pool("serving", card="l40s", nodes="{names: [n3]}", sharing="{mode: mps, replicas: 8}")


@pytest.mark.parametrize("stack", ["device-plugin", "existing"])
@pytest.mark.parametrize(("field", "value"), [("driver", "{}"), ("partitioner", "mig-manager")])
def test_operator_only_settings_are_refused_on_other_stacks(stack: str, field: str, value: str) -> None:
    assert one("GS701", platform=f"{{stack: {stack}, {field}: {value}}}")[0] == f"/spec/platform/{field}"
    assert codes(platform=f"{{stack: gpu-operator, {field}: {value}}}") == []


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.29", ["GS702"]), ("1.3", ["GS702"]), ("1.30", []), ("1.37", []), ("1.38", ["GS703"])],
)
def test_unsupported_kubernetes_versions_are_reported(version: str, expected: list[str]) -> None:
    findings = check(written(pool(), kubernetes=f'"{version}"'))
    assert [finding.code for finding in findings] == expected
    assert all(finding.path == ("spec", "kubernetes") for finding in findings)


@pytest.mark.parametrize(
    ("stack", "version", "expected"),
    [
        ("gpu-operator", "v26.7.0", []),
        ("gpu-operator", "v26.3.3", []),
        ("gpu-operator", "v99.0.0-rc.1", ["GS705"]),
        ("gpu-operator", "26.7.0", ["GS704"]),
        ("gpu-operator", "newest", ["GS704"]),
        ("device-plugin", "0.20.0", []),
        ("device-plugin", "v0.20.0", ["GS704"]),
        ("device-plugin", "0.19.3", []),
        ("existing", "v26.7.0", ["GS706"]),
    ],
)
def test_versions_of_the_chart(stack: str, version: str, expected: list[str]) -> None:
    findings = check(written(pool(), platform=f"{{stack: {stack}, version: {version}, namespaces: [gpu-operator]}}"))
    assert [finding.code for finding in findings] == expected
    assert all(finding.path == ("spec", "platform", "version") for finding in findings)


def test_values_without_a_chart_are_refused() -> None:
    assert one("GS706", platform="{stack: existing, values: {a: 1}}")[0] == "/spec/platform/values"
    assert one("GS706", platform="{stack: existing, charts: 'oci://reg.example.org/charts'}")[0] == "/spec/platform/charts"


ATTRIBUTED = pool("video", card=A100, nodes="{names: [n1]}", sharing="{mode: mig, layout: {1g.5gb+me: 1}}")
PACKED = pool(sharing="{mode: time-slicing, replicas: 4, placement: pack}")


@pytest.mark.parametrize(
    "platform",
    [
        "{version: v26.3.3}",
        "{stack: device-plugin, version: 0.19.3}",
        "{values: {devicePlugin: {version: v0.19.0}}}",
        "{stack: device-plugin, values: {image: {tag: v0.19.0}}}",
    ],
)
def test_older_plugin_lacks_attributes_and_packing(platform: str) -> None:
    assert one("GS707", ATTRIBUTED, platform=platform)[0] == "/spec/pools/video/sharing"
    assert one("GS707", PACKED, platform=platform)[0] == "/spec/pools/notebooks/sharing/placement"
    assert not found(written(pool(), platform=platform), "GS707")


@pytest.mark.parametrize(
    ("platform", "place"),
    [
        ("{version: v23.9.0}", "/spec/pools/serving/sharing/mode"),
        ("{version: v23.9.1}", "/spec/pools/serving/sharing/mode"),
        ("{version: v1.11.1}", "/spec/pools/serving/sharing/mode"),
        ("{stack: device-plugin, version: 0.14.0}", "/spec/pools/serving/sharing/mode"),
        ("{values: {devicePlugin: {version: v0.14.5}}}", "/spec/pools/serving/sharing/mode"),
        ("{values: {devicePlugin: {version: v0.11.0}}}", "/spec/platform/values/devicePlugin/version"),
    ],
)
def test_old_plugin_without_mps_is_refused(platform: str, place: str) -> None:
    assert one("GS707", MPS, platform=platform)[0] == place


@pytest.mark.parametrize("version", ["v26.3.1", "v26.3.4", "v26.6.0", "v25.10.0-rc.1", "v26.7.0-rc.2", "v2.0.0"])
def test_unknown_release_counts_as_the_previous_one(version: str) -> None:
    assert one("GS707", PACKED, platform=f"{{version: {version}}}")[0] == "/spec/pools/notebooks/sharing/placement"


@pytest.mark.parametrize("version", ["v26.7.1", "v26.10.0", "v27.1.0-rc.1", "v100.0.0"])
def test_release_after_the_newest_known_has_its_features(version: str) -> None:
    assert not found(written(PACKED, ATTRIBUTED, platform=f"{{version: {version}}}"), "GS707")


def test_newest_plugin_supports_attributes_and_packing() -> None:
    assert codes(ATTRIBUTED) == []
    assert codes(PACKED) == []


@pytest.mark.parametrize(
    ("platform", "place"),
    [
        ('{driver: {repository: "https://registry.example.org"}}', "driver/repository"),
        ("{driver: {image: my/driver}}", "driver/image"),
        ('{driver: {version: "595 91"}}', "driver/version"),
        ("{imagePullSecrets: [good, Bad_Secret]}", "imagePullSecrets/1"),
    ],
)
def test_invalid_pull_settings_are_reported(platform: str, place: str) -> None:
    assert one("GS712", platform=platform)[0] == f"/spec/platform/{place}"


def test_valid_pull_settings_have_no_findings() -> None:
    driver = '{repository: "registry.example.org:5000/nvidia", image: driver, version: "595.91.07"}'
    assert codes(platform=f"{{driver: {driver}, imagePullSecrets: [mirror]}}") == []


DIGEST = f"sha256:{'0f' * 32}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("repository", '"https://registry.example.org/a"'),
        ("repository", "registry.example.org/a:1.0"),
        ("repository", "registry.example.org/Upper"),
        ("repository", "name:5000"),
        ("repository", '"registry.example.org/a\\nb"'),
        ("repository", f"registry.example.org/{'a' * 80}"),
        ("repository", '""'),
        ("tag", '"1.0 "'),
        ("tag", '"1.0\\n"'),
        ("tag", f"{DIGEST}"),
        ("tag", "a" * 129),
        ("digest", "sha256:0f"),
        ("digest", DIGEST.upper()),
        ("digest", f"sha512:{'0f' * 32}"),
        ("digest", f'"{DIGEST}\\n"'),
    ],
)
def test_invalid_image_field_is_reported(field: str, value: str) -> None:
    assert one("GS712", platform=f"{{image: {{{field}: {value}}}}}")[0] == f"/spec/platform/image/{field}"


@pytest.mark.parametrize(
    "image",
    [
        "repository: registry.example.org:5000/a/b_c__d, tag: v1.0_x",
        f"repository: a/b, digest: {DIGEST}",
        f"repository: localhost/{'a' * 89}",
    ],
)
def test_valid_custom_image_has_no_findings(image: str) -> None:
    platform = f"{{image: {{{image}}}}}"
    assert codes(platform=platform) == []
    assert not found(written(pool(), platform=platform), "GS725")


@pytest.mark.parametrize("image", ["{}", "{tag: 1.0}", "{name: a}", "a/b", "{repository: null}"])
def test_an_image_has_at_least_one_field_and_its_fields_are_texts(image: str) -> None:
    assert codes(platform=f"{{image: {image}}}") != []


@pytest.mark.parametrize(
    "platform",
    [
        "{}",
        "{stack: existing}",
        "{image: {tag: mine}}",
        f"{{image: {{digest: {DIGEST}}}}}",
        "{image: {repository: ghcr.io/gpushare/node-runtime}}",
    ],
)
def test_the_default_image_is_not_published(platform: str) -> None:
    path, on_key, message = one("GS725", platform=platform)
    assert (path, on_key) == ("/spec/platform/image", False)
    assert "ghcr.io/gpushare/node-runtime" in message


def test_the_hints_on_an_unpublished_image_have_the_commands_that_push_it() -> None:
    findings = pipeline.check(written(pool(), platform="{image: {tag: mine}}").encode(), "intent.yaml").findings
    with_docker, with_podman, *_ = next(finding.hints for finding in findings if finding.code == "GS725")
    pushed = "registry.example.org/gpushare/node-runtime:mine"
    assert with_docker.endswith(f"docker buildx build --push --platform linux/amd64 -t {pushed} node-runtime")
    assert with_podman.endswith(f"&& podman push {pushed}")


@pytest.mark.parametrize("page", ["README.md", "compiler/gpushare/findings/GS725.md"])
def test_pages_have_the_commands_that_push_the_image(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    assert set(image_registry.build_commands(Platform())) <= {line.strip() for line in lines}


def test_image_in_a_custom_registry_is_assumed_to_exist() -> None:
    assert not found(written(pool(), platform="{registry: registry.example.org}"), "GS725")


def test_that_the_image_is_not_published_can_be_accepted() -> None:
    assert found(written(pool(), accept="{GS725: our mirror answers for ghcr.io}"), "GS801") == []


def test_the_runtime_class_of_an_existing_plugin() -> None:
    text = written(pool(), platform="{stack: existing, runtimeClass: nvidia-cdi, namespaces: [gpu-operator]}")
    assert check(text) == []
    files = {one.path: one.text for one in pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY).artifacts}
    assert yaml.safe_load(files["chart/values.yaml"])["runtimeClassName"] == "nvidia-cdi"
    assert "runtime class `nvidia-cdi`" in files["existing/README.md"]


@pytest.mark.parametrize(
    ("platform", "on_key", "says"),
    [
        ("{stack: existing, runtimeClass: Nvidia}", False, "invalid RuntimeClass name 'Nvidia'"),
        ("{stack: existing, runtimeClass: ''}", False, "invalid RuntimeClass name ''"),
        ("{runtimeClass: nvidia}", True, "with stack gpu-operator the values"),
        ("{stack: device-plugin, runtimeClass: nvidia}", True, "with stack device-plugin the values"),
    ],
)
def test_invalid_runtime_class_is_reported(platform: str, on_key: bool, says: str) -> None:
    path, is_on_key, message = one("GS750", platform=platform)
    assert (path, is_on_key) == ("/spec/platform/runtimeClass", on_key)
    assert says in message


def test_image_tag_with_a_digest_is_refused() -> None:
    platform = f'{{image: {{repository: a/b, tag: "1.0", digest: {DIGEST}}}}}'
    assert one("GS726", platform=platform)[0] == "/spec/platform/image/tag"


@pytest.mark.parametrize(
    ("repository", "refused"),
    [
        ("ghcr.io/me/a", True),
        ("mirror.example.org/me/a", True),
        ("mirror.example.org:5000/me/a", False),
        ("me/a", False),
        ("localhost/me/a", True),
    ],
)
def test_image_with_its_own_registry_conflicts_with_the_mirror(repository: str, refused: bool) -> None:
    platform = f"{{registry: mirror.example.org:5000, image: {{repository: {repository}}}}}"
    places = [path for path, _, _ in found(written(pool(), platform=platform), "GS726")]
    assert places == (["/spec/platform/image/repository"] if refused else [])


@pytest.mark.parametrize(
    ("pools", "later"),
    [((MIG, MPS), "serving"), ((MPS, MIG), "training"), ((MIG, SINGLE), "single"), ((pool(), MIG, MPS), "serving")],
)
def test_pools_that_need_different_strategies_are_reported_at_the_later(pools: tuple[str, ...], later: str) -> None:
    path, _, message = one("GS713", *pools)
    assert path == f"/spec/pools/{later}/sharing"
    assert "left empty" in message


@pytest.mark.parametrize("pools", [(MIG, pool()), (SINGLE, MPS), (MPS, pool())])
def test_pools_with_one_strategy_have_no_findings(pools: tuple[str, ...]) -> None:
    assert not found(written(*pools), "GS713")


def test_without_the_operator_every_profile_states_its_strategy() -> None:
    assert not found(written(MIG, MPS, platform="{stack: device-plugin}"), "GS713")


def test_profiles_unknown_to_mig_manager_are_refused() -> None:
    edge = pool("edge", card="thor-igpu", sharing="{mode: mig, layout: {3g.0gb+gfx: 1}}")
    assert one("GS714", edge, platform="{partitioner: mig-manager}")[0] == "/spec/pools/edge/sharing"
    assert not found(written(edge), "GS714")
    assert not found(written(MIG, platform="{partitioner: mig-manager}"), "GS714")


@pytest.mark.parametrize(
    "gitops",
    [
        "{argocd: {repoURL: 'https://git.example.org/gpu.git', path: a}}",
        "{flux: {url: 'https://git.example.org/gpu.git', path: a}}",
    ],
)
def test_gitops_settings_have_no_findings(gitops: str) -> None:
    assert codes(gitops=gitops) == []


def test_mig_with_an_existing_operator_warns() -> None:
    assert one("GS716", MIG, platform="{stack: existing}")[0] == "/spec/pools/training/sharing/mode"
    assert codes(platform="{stack: existing, namespaces: [gpu-operator]}") == []


def test_device_plugin_in_the_default_namespace_is_refused() -> None:
    assert one("GS717", namespace="default", platform="{stack: device-plugin}")[0] == "/spec/namespace"
    assert codes(namespace="default") == []
    assert codes(namespace="default", platform="{stack: device-plugin, namespace: nvidia}") == []
    assert one("GS717", platform="{stack: device-plugin, namespace: default}")[0] == "/spec/platform/namespace"


@pytest.mark.parametrize(
    ("version", "too_old"), [("440.33.01", True), ("450.80.01", True), ("450.80.02", False), ("595.91.07", False)]
)
def test_a_driver_must_know_how_to_partition_the_card(version: str, too_old: bool) -> None:
    places = [path for path, _, _ in found(written(MIG, platform=f'{{driver: {{version: "{version}"}}}}'), "GS718")]
    assert places == (["/spec/platform/driver/version"] if too_old else [])


@pytest.mark.parametrize(("version", "too_old"), [("570", False), ("570.133", False), ("570.86", True), ("565", True)])
def test_precompiled_driver_branch_counts_as_its_newest_release(version: str, too_old: bool) -> None:
    one = pool("training", card="b200-180gb", nodes="{names: [n1]}", sharing="{mode: mig, layout: {1g.23gb: 7}}")
    platform = f'{{driver: {{version: "{version}"}}, values: {{driver: {{usePrecompiled: true}}}}}}'
    assert ("GS718" in codes(one, platform=platform)) is too_old


def test_a_driver_is_not_too_old_for_cards_that_are_not_partitioned() -> None:
    assert codes(platform='{driver: {version: "440.33.01"}}') == []


@pytest.mark.parametrize(
    ("card", "layout", "version", "needed"),
    [
        (A100, "{1g.5gb+me: 1}", "460.106.00", "470"),
        (A100, "{1g.5gb+me: 1}", "470.57.02", None),
        (A100, "{4g.20gb: 1, 3g.20gb: 1}", "470.57.02", "510"),
        (A100, "{4g.20gb: 1}", "470.57.02", None),
        (A100, "{4g.20gb: 1, 3g.20gb: 1}", "510.39.01", None),
        (A100, "{1g.10gb: 4}", "515.105.01", "525"),
        (A100, "{1g.10gb: 4}", "525.60.13", None),
        ("a30", "{2g.12gb+me: 1}", "515.105.01", "525"),
        (A100, "{1g.10gb: 4}", "525", None),
        (A100, "{1g.10gb: 4}", "515", "525"),
    ],
)
def test_some_layouts_need_a_newer_driver_than_the_card(card: str, layout: str, version: str, needed: str | None) -> None:
    one = pool("training", card=card, nodes="{names: [n1]}", sharing=f"{{mode: mig, layout: {layout}}}")
    findings = [f for f in check(written(one, platform=f'{{driver: {{version: "{version}"}}}}')) if f.code == "GS718"]
    expected = [(f"that needs driver R{needed} or newer",)] if needed else []
    assert [finding.hints for finding in findings] == expected
    assert all("of pool training" in finding.message for finding in findings)
