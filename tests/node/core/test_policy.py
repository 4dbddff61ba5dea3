"""Reading a policy: what it becomes, and where and how it is refused."""

from typing import Any

import pytest
import yaml

from gpushare_node.core.policy import (
    Action,
    Backend,
    DesiredInstance,
    Dra,
    DraShares,
    Mode,
    ModeSwitch,
    OnBusy,
    PolicyError,
    Vendor,
    read,
)
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"


def document() -> Any:
    return yaml.safe_load((EXAMPLES / "04-a100-training-mig/bundle/chart/files/policies/balanced.yaml").read_text())


def at(path: tuple[str | int, ...], value: object) -> str:
    """The document's text with one value changed."""
    whole = inner = document()
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return yaml.safe_dump(whole)


def refused(text: str) -> PolicyError:
    with pytest.raises(PolicyError) as raised:
        read(text)
    return raised.value


def test_a_policy_becomes_values_with_one_entry_for_each_gpu() -> None:
    policy = read(yaml.safe_dump(document()))
    assert (policy.pool, policy.cluster, policy.mode) == ("balanced", "training", Mode.MIG)
    assert (policy.card.id, policy.card.memory_mib) == ("a100-sxm4-80gb", 81920)
    assert [gpu.index for gpu in policy.gpus] == list(range(8))
    assert policy.gpus[7].instances[0] == DesiredInstance(profile="2g.20gb", profile_id=14, start=0, size=2)
    assert dict(policy.resources)["nvidia.com/mig-1g.10gb"] == 16
    assert policy.enforcement.action is Action(document()["spec"]["enforcement"]["action"])
    assert policy.rollout.on_busy is OnBusy(document()["spec"]["rollout"]["onBusy"])
    assert hash(policy) == hash(read(yaml.safe_dump(document())))


REFUSED = [
    ((), "- a list", ".", "must be a mapping"),
    (("spec", "mode"), "vgpu", "spec.mode", "must be one of exclusive, time-slicing, mps, mig, partition, not 'vgpu'"),
    (("spec", "gpusPerNode"), 17, "spec.gpusPerNode", "must be at most 16, not 17"),
    (("spec", "gpusPerNode"), True, "spec.gpusPerNode", "must be a whole number, not true"),
    (("spec", "gpusPerNode"), 7, "spec.gpus[0].indexes[7]", "must be below gpusPerNode, which is 7, not 7"),
    (("spec", "gpus", 0, "indexes"), [0, 1, 1], "spec.gpus[0].indexes[2]", "must be listed exactly once in all groups"),
    (("spec", "gpus", 0, "indexes"), [0, 1, 2, 3, 4, 7], "spec.gpus", "must have an entry for GPU 5, 6"),
    (("spec", "gpus", 0, "mig"), False, "spec.gpus[0].mig", "must be true exactly where instances are listed, not false"),
    (("spec", "gpus", 0, "instances"), [], "spec.gpus[0].mig", "must be true exactly where instances are listed, not true"),
    (("spec", "gpus", 0, "instances", 1, "start"), -1, "spec.gpus[0].instances[1].start", "must be 0 or more, not -1"),
    (("spec", "gpus", 0, "instances", 1, "size"), {}, "spec.gpus[0].instances[1].size", "must be a whole number, not a"),
    (("spec", "resources", "nvidia.com/gpu"), 0, "spec.resources['nvidia.com/gpu']", "must be 1 or more, not 0"),
    (("spec", "resources", 7), 1, "spec.resources[7]", "must have text for its key"),
    (("spec", "card", "pciDeviceIds"), ["20B010DE"], "spec.card.pciDeviceIds[0]", "must match 0x[0-9A-F]{8}"),
    (("spec", "rollout", "maxUnavailable"), "0%", "spec.rollout.maxUnavailable", "must match [1-9][0-9]*%"),
    (("spec", "namespaces"), ["a", None], "spec.namespaces[1]", "must be text, not null"),
    (("metadata", "name"), "training\n", "metadata.name", "must match"),
    (("spec", "card", "id"), "x" * 9, None, ""),
    (("spec", "card", "id"), "", "spec.card.id", "must not be empty, not ''"),
    (("spec", "migConfig"), "x" * 64, "spec.migConfig", "must have at most 63 characters"),
    (("spec", "profile"), "x" * 999, "spec.profile", "…'"),
    (("spec", "backend"), "dra", "spec.dra", "must be a mapping"),
    (("spec", "dra"), {"driver": "gpu.nvidia.com", "shares": None}, "spec.dra", "must be null without the back end dra"),
    (("spec", "backend"), "x", "spec.backend", "must be one of device-plugin, dra, not 'x'"),
    (("spec", "vendor"), "intel", "spec.vendor", "must be one of nvidia, amd, not 'intel'"),
    (("apiVersion",), "gpushare.dev/v2", "apiVersion", "must be one of gpushare.dev/v1, not 'gpushare.dev/v2'"),
]


@pytest.mark.parametrize(("path", "value", "where", "message"), REFUSED, ids=[f"{row[0]}={row[1]!s:.9}" for row in REFUSED])
def test_policy_error_names_the_path_and_what_is_expected(path, value, where, message) -> None:
    text = at(path, value) if path else yaml.safe_dump(value)
    if where is None:
        assert read(text).card.id == value
        return
    error = refused(text)
    assert error.path == where
    assert message in error.message
    assert str(error) == f"{error.path}: {error.message}"
    assert len(str(error)) < 250


def test_missing_field_is_reported_by_its_path() -> None:
    whole = document()
    del whole["spec"]["rollout"]["onBusy"]
    error = refused(yaml.safe_dump(whole))
    assert (error.path, error.message) == ("spec.rollout.onBusy", "is missing")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "a: b: c",
        "\t",
        "a: !!bool x",
        "a: !!int ''",
        "a: 2000-13-01",
        "!!python/object/apply:os.system [ls]",
        "a: &a [*a]",
        "a: !!timestamp x",
        "[" * 3000,
        "x: 1\n---\ny: 2",
        "\x00",
        "",
        "? [1]\n: 2",
        "<<: 3",
        "!!set {a}",
        "a: " + "9" * 5000,
        "a: 0001-01-01 00:00:00 +23:59",
        "a: !!binary é",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_text_that_is_not_a_policy_raises_only_a_policy_error(text: str) -> None:
    refused(text)


@pytest.mark.failure_case(116)
@pytest.mark.parametrize("opener", ["[", "{a: ", "- ", "? "])
def test_deeply_nested_text_is_refused_without_a_crash(opener: str) -> None:
    error = refused(opener * 99_999)
    assert error.message == "is not YAML: nested more than 100 deep"


def test_a_value_that_contains_itself_is_refused_like_any_other() -> None:
    text = yaml.safe_dump(document()).replace("namespaces: []", "namespaces: &a [*a]")
    error = refused(text)
    assert (error.path, error.message) == ("spec.namespaces[0]", "must be text, not a list of 1 items")


def test_fields_of_a_later_release_are_ignored_and_named() -> None:
    whole = document()
    whole["spec"]["fabric"] = {"partition": 1}
    whole["spec"]["gpus"][0]["colour"] = "red"
    whole["spec"]["rollout"]["odd key"] = 1
    policy = read(yaml.safe_dump(whole))
    assert policy == read(yaml.safe_dump(document()))
    assert set(policy.ignored) == {"spec.fabric", "spec.gpus[0].colour", "spec.rollout['odd key']"}
    assert read(yaml.safe_dump(document())).ignored == ()


def test_policy_of_the_previous_release_is_read_without_newer_fields() -> None:
    whole = document()
    del whole["spec"]["enforcement"]["noticeSeconds"]
    assert read(yaml.safe_dump(whole)).enforcement.notice_seconds is None


def test_a_policy_that_names_no_backend_and_no_vendor_means_nvidias_device_plugin() -> None:
    plain = read(yaml.safe_dump(document()))
    assert (plain.backend, plain.vendor) == (Backend.DEVICE_PLUGIN, Vendor.NVIDIA)
    whole = document()
    whole["spec"] |= {"backend": "device-plugin", "vendor": "nvidia"}
    assert read(yaml.safe_dump(whole)) == plain


def test_a_policy_of_dra_counts_devices_by_class_and_has_no_profile() -> None:
    whole = document()
    spec = whole["spec"]
    spec |= {"backend": "dra", "dra": {"driver": "gpu.nvidia.com", "shares": "memory", "onDemand": False}, "profile": None}
    spec["resources"] = {"gpushare-balanced-1g-10gb": 16}
    spec["shares"] = [{**spec["shares"][0], "resource": "gpushare-balanced-1g-10gb", "profile": "1g.10gb"}]
    policy = read(yaml.safe_dump(whole))
    assert (policy.backend, policy.profile) == (Backend.DRA, "")
    assert policy.dra == Dra(driver="gpu.nvidia.com", shares=DraShares.MEMORY, on_demand=False)
    assert policy.resources == (("gpushare-balanced-1g-10gb", 16),)
    spec["dra"] = None
    assert refused(yaml.safe_dump(whole)).path == "spec.dra"


def test_a_policy_of_instances_on_demand_has_none_and_says_who_switches_mig() -> None:
    whole = document()
    spec = whole["spec"]
    spec |= {"backend": "dra", "dra": {"driver": "gpu.nvidia.com", "shares": None, "onDemand": True}, "profile": None}
    spec["resources"] = {"gpushare-balanced-1g-10gb": 14}
    spec["shares"] = [{**spec["shares"][0], "resource": "gpushare-balanced-1g-10gb", "profile": "1g.10gb"}]
    assert refused(yaml.safe_dump(whole)).path.endswith(".instances")
    for mig, switch in ((True, ModeSwitch.RUNTIME), (False, ModeSwitch.DRIVER)):
        spec["gpus"] = [{"indexes": list(range(spec["gpusPerNode"])), "mig": mig, "instances": []}]
        policy = read(yaml.safe_dump(whole))
        assert policy.is_on_demand
        assert {(gpu.instances, gpu.on_demand) for gpu in policy.gpus} == {((), switch)}
    assert not read(yaml.safe_dump(document())).is_on_demand


def test_obsolete_tenancy_in_a_policy_is_ignored_and_reported() -> None:
    whole = document()
    whole["spec"]["tenancy"] = {"scope": "cluster", "admission": "deny", "platformNamespaces": [], "tenantNamespaces": ["a"]}
    policy = read(yaml.safe_dump(whole))
    assert policy == read(yaml.safe_dump(document()))
    assert policy.ignored == ("spec.tenancy",)


def test_unknown_values_of_known_fields_are_refused() -> None:
    for path, value in ((("spec", "mode"), "vgpu"), (("apiVersion",), "gpushare.dev/v2")):
        refused(at(path, value))
