"""The chart renders the same objects under Helm 3 and Helm 4, and the specs whose sizes the compiler knows."""

import json

import pytest

from tests.chart import expected
from tests.chart.bundles import BUNDLES, FIFTY, HOSTLESS, MIRRORED, MODES, NAMESPACE, ODD, ODD_NAMES, Bundle, bundle, pool
from tests.chart.reading import by_identity, containers_of, documents, documents_1_2, known_before, measured, parts, pod_of
from tests.support import go_yaml, helm, scale

every_bundle = pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
every_major = pytest.mark.parametrize("major", helm.MAJORS)


@every_bundle
def test_both_majors_render_equal_objects(bundle: Bundle, rendered) -> None:
    assert by_identity(rendered(bundle, 3)) == by_identity(rendered(bundle, 4))


@pytest.mark.parametrize("bundle", expected.BUNDLES, ids=lambda bundle: bundle.name)
def test_the_objects_are_the_expected_ones(bundle: Bundle, rendered) -> None:
    wanted = json.loads((expected.FOLDER / f"{bundle.name}.json").read_text())
    found = by_identity(expected.shown(bundle, rendered(bundle, 4)))
    assert found == by_identity(wanted), "run `make golden` if this is meant"


@every_bundle
def test_rendered_sizes_of_policies_and_tenancy_match_the_estimate(bundle: Bundle, rendered) -> None:
    assert measured(rendered(bundle, 4)) == known_before(bundle.values, NAMESPACE)


@pytest.mark.parametrize(
    "bundle",
    scale.part([each for each in BUNDLES if each is not FIFTY], 6),
    ids=lambda bundle: bundle.name,
)
@every_major
def test_rendered_yaml_reads_the_same_in_yaml_1_1_1_2_and_go(bundle: Bundle, major: int, render, tmp_path) -> None:
    text = render(bundle, major)
    first, second = documents(text), documents_1_2(text)
    assert first == second
    named = {str(number): part for number, part in enumerate(parts(text)[1:])}
    assert list(go_yaml.read(named, tmp_path, major).values()) == first


@every_major
def test_unusual_label_values_stay_strings_in_the_affinity(major: int, rendered) -> None:
    odd = {f"example.org/{number}" for number in range(len(ODD))}
    for item in rendered(ODD_NAMES, major):
        if item["kind"] == "DaemonSet" and item["metadata"]["name"] != "gpushare-release":
            affinity = pod_of(item)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            for term in affinity["nodeSelectorTerms"]:
                assert [part["values"][0] for part in term["matchExpressions"] if part["key"] in odd] == list(ODD)


@every_major
def test_files_reach_their_config_maps_unchanged(major: int, rendered) -> None:
    found = by_identity(rendered(MODES, major))
    for name in MODES.values["pools"]:
        policy = found["ConfigMap", "gpu-system", f"gpushare-{name}-policy-{MODES.values['pools'][name]['policy']}"]
        assert policy["immutable"] is True
        assert policy["data"] == {"policy.yaml": MODES.files[f"files/policies/{name}.yaml"]}


@pytest.mark.parametrize(
    "text",
    [
        "a: 1",
        "\n\na: 1\n",
        "  a: 1\n  b: 2\n",
        "a: |\n  x\n\n   \n  y \n",
        "# {{ .Release.Name }}\na: '\t'\n",
        'a: "\\u2028é"\n',
        "\ta\n",
    ],
)
@every_major
def test_a_file_of_any_shape_reaches_its_config_map_unchanged(text: str, major: int, run_helm, tmp_path) -> None:
    shaped = bundle("shaped", {"only": pool("exclusive")}, policies={"only": text})
    only = ("--show-only", "templates/config/policies.yaml")
    out = run_helm(major, "template", "gpushare", shaped.write(tmp_path / "chart"), *only)
    assert documents(out.stdout)[0]["data"] == {"policy.yaml": text}


@every_major
def test_every_profile_has_two_names_with_the_same_content(major: int, rendered) -> None:
    data = by_identity(rendered(MODES, major))["ConfigMap", "gpu-system", "gpushare-profiles"]["data"]
    keys = {path.removeprefix("files/profiles/").removesuffix(".yaml") for path in MODES.files if "/profiles/" in path}
    assert set(data) == {f"{key}-{side}" for key in keys for side in "ab"}
    assert all(data[f"{key}-a"] == data[f"{key}-b"] == MODES.files[f"files/profiles/{key}.yaml"] for key in keys)


@pytest.mark.parametrize(
    ("bundle", "image"),
    [
        (MIRRORED, "registry.example.org:5000/mirror/gpushare/node-runtime@sha256:" + "0123456789abcdef" * 4),
        (HOSTLESS, "registry.example.org/gpushare/node-runtime:1e3"),
        (MODES, "ghcr.io/gpushare/node-runtime:0.1.0"),
    ],
    ids=["digest", "no-host", "tag"],
)
def test_the_image_is_taken_from_the_registry_by_digest_or_tag(bundle: Bundle, image: str, rendered) -> None:
    pods = [pod_of(item) for item in rendered(bundle, 4) if item["kind"] == "DaemonSet"]
    assert {container["image"] for pod in pods for container in containers_of(pod).values()} == {image}


@every_major
def test_a_pool_without_its_policy_file_is_refused_by_name(major: int, run_helm, tmp_path) -> None:
    torn = bundle("torn", {"only": pool("exclusive")})
    del torn.files["files/policies/only.yaml"]
    result = run_helm(major, "template", "gpushare", torn.write(tmp_path / "chart"), check=False)
    assert result.returncode != 0
    assert "files/policies/only.yaml is missing" in result.stderr


@every_major
def test_a_chart_without_pools_releases_no_node(major: int, run_helm, tmp_path) -> None:
    empty = bundle("empty", {})
    rendered = documents(run_helm(major, "template", "gpushare", empty.write(tmp_path / "chart"), "-n", "gpu-system").stdout)
    assert "DaemonSet" not in {item["kind"] for item in rendered}
