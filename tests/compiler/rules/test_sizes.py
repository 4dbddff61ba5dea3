"""Sizes of bundles against the limits of Kubernetes and Helm."""

import base64
import gzip
import json
import random
from typing import Any

import pytest

from gpushare.bundle.artifact import Artifact
from gpushare.core.diagnostics import Severity
from gpushare.rules.sizes import check_sizes


def noise(size: int, seed: int = 1) -> str:
    """Text that does not compress to less than three quarters."""
    return base64.b64encode(random.Random(seed).randbytes(size * 3 // 4 + 3)).decode()[:size]


def check(**files: str) -> list[tuple[str, Severity]]:
    artifacts = [Artifact(path=path, text=text) for path, text in files.items()]
    return [(finding.code, finding.severity) for finding in check_sizes(artifacts, values)]


def values(namespaces: int = 0) -> dict[str, Any]:
    """The chart's values, with as many namespaces of 63 bytes."""
    tenants = [f"{number:063}" for number in range(namespaces)]
    admission = {
        "scope": "tenants",
        "enforce": "deny",
        "tenants": tenants,
        "platformNamespaces": [],
        "ambiguous": [],
        "localhostProfiles": [],
        "mutate": True,
    }
    return {"admission": admission, "namespace": "gpu-system", "pools": {}, "runtimeClassName": ""}


def test_a_small_bundle_has_no_findings() -> None:
    small = {"chart/values.yaml": "a: 1\n", "chart/files/policies/a.yaml": "b: 1\n"}
    assert check(**small, **{"README.md": noise(3_000_000)}) == []


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (520_000, []),
        (530_000, [("GS720", Severity.WARNING)]),
        (940_000, [("GS720", Severity.WARNING)]),
        (950_000, [("GS720", Severity.ERROR)]),
    ],
)
def test_a_config_map_warns_from_half_and_fails_from_nine_tenths(size: int, expected: list[tuple[str, Severity]]) -> None:
    findings = check(**{"chart/files/mig-parted/config.yaml": "x" * size})
    assert [finding for finding in findings if finding[0] == "GS720"] == expected


@pytest.mark.parametrize(("namespaces", "expected"), [(7_000, None), (8_000, Severity.WARNING), (15_000, Severity.ERROR)])
def test_namespaces_are_measured_as_the_config_map_that_names_them(namespaces: int, expected: Severity | None) -> None:
    given = values(namespaces)
    findings = check_sizes([Artifact(path="chart/values.yaml", text=json.dumps(given))], lambda: given)
    about = [one.severity for one in findings if one.code == "GS720" and "gpushare-tenancy" in one.message]
    assert about == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("namespaces", "enforce", "expected"),
    [(10_000, "deny", None), (13_000, "deny", Severity.WARNING), (22_000, "warn", Severity.ERROR), (22_000, "none", None)],
)
def test_the_policies_that_name_namespaces_are_measured_as_etcd_has_them(
    namespaces: int, enforce: str, expected: Severity | None
) -> None:
    given = values(namespaces)
    given["admission"]["enforce"] = enforce
    given["pools"] = {
        "a": {"resources": ["nvidia.com/gpu"], "sharedResources": [], "namespaces": [], "default": False, "evict": False}
    }
    findings = check_sizes([Artifact(path="chart/values.yaml", text=json.dumps(given))], lambda: given)
    told = {one.message.split(" takes ")[0]: one.severity for one in findings if one.code == "GS724"}
    names = ("gpushare-devices", "gpushare-devices-elsewhere")
    assert told == {f"ValidatingAdmissionPolicy {name}": expected for name in names if expected}
    assert enforce == "none" or any(one.code == "GS722" for one in findings)


@pytest.mark.parametrize(("pools", "expected"), [(1_900, []), (2_100, [Severity.ERROR, Severity.ERROR])])
def test_a_namespace_of_more_pools_than_an_expression_holds_is_an_error(pools: int, expected: list[Severity]) -> None:
    given = values()
    each = {"resources": ["nvidia.com/gpu"], "sharedResources": [], "namespaces": ["a"], "default": False, "evict": False}
    given["pools"] = {f"{number:048}": each for number in range(pools)}
    findings = check_sizes([Artifact(path="chart/values.yaml", text=json.dumps(given))], lambda: given)
    told = [one for one in findings if one.code == "GS724"]
    assert [one.severity for one in told] == expected
    assert [one.message.split(" has ")[0] for one in told] == [
        f"an expression of {kind}AdmissionPolicy {name}"
        for kind, name in (("Validating", "gpushare-pods"), ("Mutating", "gpushare-default-pool"))
        if expected
    ]


def test_profiles_count_twice_because_each_has_two_keys() -> None:
    profiles = {f"chart/files/profiles/mps-{n}.yaml": "x" * 100_000 for n in range(3)}
    assert ("GS720", Severity.WARNING) in check(**profiles)


def test_large_object_warns_about_client_side_apply() -> None:
    assert ("GS722", Severity.WARNING) in check(**{"chart/files/policies/a.yaml": "x" * 240_000})
    assert ("GS722", Severity.WARNING) not in check(**{"chart/files/policies/a.yaml": "x" * 230_000})


def release(files: dict[str, str], manifest: str, values: object) -> int:
    """A release as Helm stores it: JSON with every chart file in base64, gzip, base64."""
    chart = {"files": [{"name": name, "data": base64.b64encode(text.encode()).decode()} for name, text in files.items()]}
    document = {"chart": {**chart, "values": values}, "config": {}, "manifest": manifest}
    return len(base64.b64encode(gzip.compress(json.dumps(document).encode(), 9)))


@pytest.mark.parametrize(("size", "expected"), [(100_000, None), (400_000, Severity.WARNING), (600_000, Severity.WARNING)])
def test_a_release_is_measured_as_helm_stores_it(size: int, expected: Severity | None) -> None:
    files = {f"chart/files/policies/p{n}.yaml": noise(size // 10, n) for n in range(10)}
    severity = dict(check(**files)).get("GS721")
    assert severity is expected
    share = release(files, "\n".join(files.values()), {}) / (1 << 20)
    assert (share >= 0.5) == (expected is not None)
