"""MIG instances on demand: which pools may have them, what cannot be beside them, and quotas that may find no place."""

import pytest

from tests.compiler.rules.intents import check, codes, found, one, pool, written

DRA = {"kubernetes": '"1.36"', "platform": "{dra: {}}"}
HERE = "/spec/pools/research"
PROFILES = "{mode: mig, layout: on-demand, profiles: [1g.5gb, 3g.20gb]}"


def research(sharing: str = "{mode: mig, layout: on-demand}", **fields: str) -> str:
    """One A100 in each of the pool's nodes, with instances on demand."""
    nodes = "{matchLabels: {node.example.org/flavour: gpu-a100}, expected: 1}"
    return pool("research", sharing=sharing, **{"card": "a100-pcie-40gb", "nodes": nodes, "backend": "dra"} | fields)


def test_a_pool_of_dra_may_have_them_with_or_without_profiles() -> None:
    assert codes(research(), **DRA) == codes(research(PROFILES), **DRA) == []


@pytest.mark.parametrize("requests", ["limits", "both"])
def test_pods_may_ask_for_an_instance_in_limits(requests: str) -> None:
    assert codes(research(requests=requests), **DRA) == ["GS773"]


@pytest.mark.parametrize(
    ("field", "subject"),
    [
        ("replicas: 2", "replicas"),
        ("strategy: mixed", "strategy"),
        ("rename: true", "rename"),
        ("placement: pack", "placement"),
    ],
)
def test_settings_of_fixed_instances_do_not_belong_to_them(field: str, subject: str) -> None:
    (finding,) = check(written(research(f"{{mode: mig, layout: on-demand, {field}}}"), **DRA))
    assert (finding.code, finding.message) == ("GS108", f"{subject} does not belong to layout on-demand")


@pytest.mark.parametrize(
    "sharing",
    [
        "{mode: mig, layout: {3g.20gb: 2}, profiles: [3g.20gb]}",
        "{mode: mig, goal: balanced, profiles: [3g.20gb]}",
        "{mode: mig, layout: on-demand, goal: balanced}",
        "{mode: mig, layouts: [{gpus: [0, 1, 2, 3], layout: on-demand}]}",
        "{mode: exclusive, layout: on-demand}",
        "{mode: mig, layout: on-demand, profiles: []}",
        "{mode: mig, layout: on-demand, profiles: [1g.5gb, 1g.5gb]}",
    ],
)
def test_other_combinations_are_refused(sharing: str) -> None:
    assert check(written(research(sharing), **DRA))


# GS777


@pytest.mark.parametrize("platform", ["{}", "{dra: {}}"])
def test_the_device_plugin_makes_none(platform: str) -> None:
    path, _, message = one("GS777", research(backend="device-plugin"), kubernetes='"1.36"', platform=platform)
    assert (path, "pool research" in message) == (f"{HERE}/sharing/layout", True)


CARD = """
    odd-40gb:
      name: NVIDIA Odd
      computeCapability: "9.0"
      memoryMiB: 40960
      mig:
        units: 2
        maxInstances: 2
        profiles:
        - name: 1g.20gb+me
          nvmlEnum: 7
          profileId: 20
          computeSlices: 1
          memoryMiB: 19968
          maxCount: 1
          placements: ["0:1", "1:1"]"""


@pytest.mark.parametrize(("profiles", "expected"), [("", ["GS777"]), (", profiles: [1g.20gb+me]", [])])
def test_a_card_whose_profiles_all_have_attributes_needs_their_names(profiles: str, expected: list[str]) -> None:
    text = written(research(f"{{mode: mig, layout: on-demand{profiles}}}", card="odd-40gb"), cards=CARD, **DRA)
    assert [one.code for one in check(text) if one.code.startswith("GS77")] == expected


def test_a_profile_that_the_card_lacks_is_named() -> None:
    path, on_key, message = one("GS403", research("{mode: mig, layout: on-demand, profiles: [1g.5gb, 9g.5gb]}"), **DRA)
    assert (path, on_key, "9g.5gb" in message) == (f"{HERE}/sharing/profiles/1", False, True)


def test_older_kubernetes_does_not_divide_devices() -> None:
    _, _, message = one("GS761", research(), **{**DRA, "kubernetes": '"1.35"'})
    assert message.startswith("instances on demand of pool research need Kubernetes 1.36")


def test_mig_manager_would_divide_the_same_gpus() -> None:
    assert "GS760" in codes(research(), **{**DRA, "platform": "{dra: {}, partitioner: mig-manager}"})


# GS778


@pytest.mark.parametrize("sharing", ["{mode: mig, layout: {3g.40gb: 2}}", "{mode: mig, goal: balanced}"])
def test_the_driver_would_remove_fixed_instances(sharing: str) -> None:
    beside = pool("fixed", card="h100-pcie-80gb", backend="dra", sharing=sharing)
    path, _, message = one("GS778", research(), beside, **DRA)
    assert (path, "removes the MIG instances of pool fixed" in message) == ("/spec/pools/fixed/sharing/mode", True)


@pytest.mark.parametrize("sharing", ["{mode: exclusive}", "{mode: time-slicing, replicas: 4}"])
@pytest.mark.parametrize(
    ("card", "is_refused"),
    [("h100-pcie-80gb", True), ("b200-180gb", True), ("a100-pcie-40gb", False), ("t4", False), ("l40s", False)],
)
def test_whole_gpus_may_be_beside_them_unless_they_switch_mig_mode(card: str, sharing: str, *, is_refused: bool) -> None:
    text = written(research(), pool("whole", card=card, backend="dra", sharing=sharing), **DRA)
    assert bool(found(text, "GS778")) is is_refused


def test_pools_of_the_device_plugin_and_others_on_demand_may_be_beside_them() -> None:
    nodes = "{matchLabels: {node.example.org/flavour: gpu-a30}}"
    beside = [
        pool("fixed", card="h100-pcie-80gb", sharing="{mode: mig, layout: {3g.40gb: 2}}"),
        pool("other", card="a30", nodes=nodes, backend="dra", sharing="{mode: mig, layout: on-demand}"),
    ]
    assert found(written(research(), *beside, **DRA), "GS778") == []


# GS779


def quota(counts: str, **fields: str) -> list[tuple[str, bool, str]]:
    return found(
        written(research(PROFILES, gpusPerNode="1", **fields), quotas=f"{{course: {{research: {counts}}}}}", **DRA), "GS779"
    )


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ("{1g.5gb: 3, 3g.20gb: 1}", None),
        ("{1g.5gb: 7}", None),
        ("{3g.20gb: 2}", None),
        ("{1g.5gb: 4, 3g.20gb: 1}", "if 3g.20gb then 1g.5gb come in this order, 1 claim of"),
        ("{1g.5gb: 5, 3g.20gb: 2}", "if 3g.20gb then 1g.5gb come in this order, 5 claims of"),
        ("{1g.5gb: 5, 3g.20gb: 1}", "if 3g.20gb then 1g.5gb come in this order, 2 claims of"),
    ],
)
def test_a_quota_finds_its_places_in_every_order_or_the_order_is_named(counts: str, expected: str | None) -> None:
    messages = [message for _, _, message in quota(counts)]
    assert [message.startswith(expected or "?") for message in messages] == ([] if expected is None else [True])


def test_more_than_all_places_is_another_finding_and_unknown_numbers_of_nodes_are_none() -> None:
    unknown = "{matchLabels: {node.example.org/flavour: gpu-a100}}"
    assert quota("{1g.5gb: 8, 3g.20gb: 1}") == quota("{1g.5gb: 5, 3g.20gb: 1}", nodes=unknown) == []
