"""The format of a policy: what its text becomes, where and how it is refused, and that it is read as it was written."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core import emit
from gpushare_node.contract.policy import (
    Action,
    Adoption,
    Backend,
    DesiredGpu,
    DesiredInstance,
    DesiredPartition,
    DraShares,
    Enforcement,
    ExpectedCard,
    Mechanism,
    Mode,
    ModeSwitch,
    OnBusy,
    Partitioner,
    Policy,
    PolicyError,
    PoolDra,
    RepartitioningTaint,
    Rollout,
    Share,
    Stack,
    Vendor,
    document,
    read,
)
from gpushare_node.contract.struct import replace
from gpushare_node.contract.vendors import VENDORS
from gpushare_node.contract.windows import DAYS, Window
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"


def example() -> Any:
    return yaml.safe_load((EXAMPLES / "04-a100-training-mig/bundle/chart/files/policies/balanced.yaml").read_text())


def at(path: tuple[str | int, ...], value: object) -> str:
    """The document's text with one value changed."""
    whole = inner = example()
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return yaml.safe_dump(whole)


def refused(text: str) -> PolicyError:
    with pytest.raises(PolicyError) as raised:
        read(text)
    return raised.value


def test_a_policy_becomes_values_with_one_entry_for_each_gpu() -> None:
    policy = read(yaml.safe_dump(example()))
    assert (policy.pool, policy.cluster, policy.mode) == ("balanced", "training", Mode.MIG)
    assert (policy.card.id, policy.card.memory_mib) == ("a100-sxm4-80gb", 81920)
    assert [gpu.index for gpu in policy.gpus] == list(range(8))
    assert policy.gpus[7].instances[0] == DesiredInstance(profile="2g.20gb", profile_id=14, start=0, size=2)
    assert dict(policy.resources)["nvidia.com/mig-1g.10gb"] == 16
    assert policy.enforcement.action is Action(example()["spec"]["enforcement"]["action"])
    assert policy.rollout.on_busy is OnBusy(example()["spec"]["rollout"]["onBusy"])
    assert hash(policy) == hash(read(yaml.safe_dump(example())))


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
    whole = example()
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
    text = yaml.safe_dump(example()).replace("namespaces: []", "namespaces: &a [*a]")
    error = refused(text)
    assert (error.path, error.message) == ("spec.namespaces[0]", "must be text, not a list of 1 items")


def test_fields_of_a_later_release_are_ignored_and_named() -> None:
    whole = example()
    whole["spec"]["fabric"] = {"partition": 1}
    whole["spec"]["gpus"][0]["colour"] = "red"
    whole["spec"]["rollout"]["odd key"] = 1
    policy = read(yaml.safe_dump(whole))
    assert policy == read(yaml.safe_dump(example()))
    assert set(policy.ignored) == {"spec.fabric", "spec.gpus[0].colour", "spec.rollout['odd key']"}
    assert read(yaml.safe_dump(example())).ignored == ()


def test_policy_of_the_previous_release_is_read_without_newer_fields() -> None:
    whole = example()
    del whole["spec"]["enforcement"]["noticeSeconds"]
    assert read(yaml.safe_dump(whole)).enforcement.notice_seconds is None


def test_a_policy_that_names_no_backend_and_no_vendor_means_nvidias_device_plugin() -> None:
    plain = read(yaml.safe_dump(example()))
    assert (plain.backend, plain.vendor) == (Backend.DEVICE_PLUGIN, Vendor.NVIDIA)
    whole = example()
    whole["spec"] |= {"backend": "device-plugin", "vendor": "nvidia"}
    assert read(yaml.safe_dump(whole)) == plain


def test_a_policy_of_dra_counts_devices_by_class_and_has_no_profile() -> None:
    whole = example()
    spec = whole["spec"]
    spec |= {"backend": "dra", "dra": {"driver": "gpu.nvidia.com", "shares": "memory", "onDemand": False}, "profile": None}
    spec["resources"] = {"gpushare-balanced-1g-10gb": 16}
    spec["shares"] = [{**spec["shares"][0], "resource": "gpushare-balanced-1g-10gb", "profile": "1g.10gb"}]
    policy = read(yaml.safe_dump(whole))
    assert (policy.backend, policy.profile) == (Backend.DRA, "")
    assert policy.dra == PoolDra(driver="gpu.nvidia.com", shares=DraShares.MEMORY, on_demand=False)
    assert policy.resources == (("gpushare-balanced-1g-10gb", 16),)
    spec["dra"] = None
    assert refused(yaml.safe_dump(whole)).path == "spec.dra"


def test_a_policy_of_instances_on_demand_has_none_and_says_who_switches_mig() -> None:
    whole = example()
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
    assert not read(yaml.safe_dump(example())).is_on_demand


def test_obsolete_tenancy_in_a_policy_is_ignored_and_reported() -> None:
    whole = example()
    whole["spec"]["tenancy"] = {"scope": "cluster", "admission": "deny", "platformNamespaces": [], "tenantNamespaces": ["a"]}
    policy = read(yaml.safe_dump(whole))
    assert policy == read(yaml.safe_dump(example()))
    assert policy.ignored == ("spec.tenancy",)


def test_unknown_values_of_known_fields_are_refused() -> None:
    for path, value in ((("spec", "mode"), "vgpu"), (("apiVersion",), "gpushare.dev/v2")):
        refused(at(path, value))


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
TEXTS = st.text("aZ0:#-'\"\n\té €", min_size=1, max_size=6)
SIZES = st.none() | st.integers(1, 2**40)
WINDOWS = st.builds(
    Window,
    days=st.lists(st.sampled_from(DAYS), min_size=1).map(tuple),
    start=st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59)),
    duration_seconds=st.integers(1, 7 * 24 * 3600),
    timezone=st.sampled_from(["UTC", "Europe/Zurich", "America/Indiana/Knox"]),
)
ROLLOUTS = st.builds(
    Rollout,
    max_unavailable=st.integers(1, 99) | st.from_regex("[1-9][0-9]?%", fullmatch=True),
    on_busy=st.sampled_from(OnBusy),
    drain_timeout_seconds=st.integers(0, 10**6),
    is_paused=st.booleans(),
    windows=st.lists(WINDOWS, max_size=3).map(tuple),
)
INSTANCES = st.builds(
    DesiredInstance, profile=TEXTS, profile_id=st.none() | st.integers(0, 99), start=st.integers(0, 7), size=st.integers(1, 8)
)
PARTITIONS = st.builds(
    DesiredPartition,
    compute=st.sampled_from(["SPX", "CPX"]),
    memory=st.sampled_from(["NPS1", "NPS4"]),
    devices=st.integers(1, 8),
    memory_mib=SIZES,
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Policies that the format has a text for; few different GPUs, so that some are equal."""
    vendor, backend = draw(st.sampled_from(Vendor)), draw(st.sampled_from(Backend))
    dra = None
    if backend is Backend.DRA:
        dra = draw(st.builds(PoolDra, driver=NAMES, shares=st.none() | st.sampled_from(DraShares), on_demand=st.booleans()))
    is_on_demand = dra is not None and dra.on_demand
    kinds = st.builds(
        DesiredGpu,
        index=st.just(0),
        instances=st.just(()) if is_on_demand else st.lists(INSTANCES, max_size=3).map(tuple),
        partition=st.none() | PARTITIONS,
        on_demand=st.sampled_from(ModeSwitch) if is_on_demand else st.none(),
    )
    kinds = st.sampled_from(draw(st.lists(kinds, min_size=1, max_size=3)))
    gpus = (replace(draw(kinds), index=index) for index in range(draw(st.integers(1, 16))))
    resource = st.builds("{}{}".format, st.just("gpushare-" if dra else VENDORS[vendor].prefix), NAMES)
    has_profile = vendor is Vendor.NVIDIA and dra is None
    shares = st.builds(
        Share,
        resource=resource,
        profile=st.none() | TEXTS,
        replicas=st.integers(1, 1024),
        memory_mib=SIZES,
        cap_mib=SIZES,
        tolerance_mib=st.integers(0, 2**40),
    )
    return draw(
        st.builds(
            Policy,
            pool=NAMES,
            cluster=NAMES,
            card=st.builds(
                ExpectedCard,
                id=TEXTS,
                name=TEXTS,
                pci_device_ids=st.lists(st.from_regex("0x[0-9A-F]{8}", fullmatch=True)).map(tuple),
                memory_mib=SIZES,
            ),
            mode=st.sampled_from(Mode),
            stack=st.sampled_from(Stack),
            partitioner=st.sampled_from(Partitioner),
            profile=st.sampled_from(["mig-01234567"] if has_profile else ["", "mig-01234567"]),
            mig_config=st.none() | NAMES,
            gpus=st.just(tuple(gpus)),
            resources=st.dictionaries(resource, st.integers(1, 2**40), min_size=1).map(lambda found: tuple(found.items())),
            shares=st.lists(shares, min_size=1, max_size=3).map(tuple),
            enforcement=st.builds(
                Enforcement,
                action=st.sampled_from(Action),
                grace_seconds=st.integers(0, 10**6),
                mechanism=st.sampled_from(Mechanism),
                notice_seconds=st.none() | st.integers(0, 10**6),
            ),
            rollout=ROLLOUTS,
            namespaces=st.lists(NAMES).map(tuple),
            repartitioning_taint=st.sampled_from(RepartitioningTaint),
            adoption=st.sampled_from(Adoption),
            backend=st.just(backend),
            vendor=st.just(vendor),
            manager_config=st.none() | st.just("cpx-nps4-8-0123abcd"),
            dra=st.just(dra),
        )
    )


@given(policies())
def test_a_policy_is_read_as_it_was_written(policy: Policy) -> None:
    assert read(emit.yaml_text(document(policy))) == policy
