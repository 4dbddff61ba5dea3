"""The bundle of a pool whose MIG instances NVIDIA's DRA driver makes for claims."""

from functools import cache

import pytest

from gpushare.render.stacks import dra
from gpushare.report import show, text
from gpushare.report.show import offer
from gpushare.report.terminal import Style
from gpushare.resolved import costs
from tests.compiler.render.compiled import compiled, document, files, intent, side

PLATFORM = "{stack: device-plugin, backend: dra, dra: {}}"
NEW = "  kubernetes: '1.36'\n"
QUOTA = "  quotas: {course: {lab: {1g.5gb: 3, 3g.20gb: 1}}}\n"
T4 = "{card: t4, nodes: {matchLabels: {p: t4}}, gpusPerNode: 2, sharing: {mode: time-slicing, replicas: 4}}"


def pool(card: str = "a100-sxm4-40gb", profiles: str = "1g.5gb, 3g.20gb", more: str = "") -> str:
    sharing = f"{{mode: mig, layout: on-demand{f', profiles: [{profiles}]' if profiles else ''}}}"
    return f"{{card: {card}, nodes: {{matchLabels: {{p: lab}}, expected: 2}}, gpusPerNode: 2, sharing: {sharing}{more}}}"


@cache
def bundle(lab: str, more: str = NEW, *others: str) -> dict[str, str]:
    return files("lab", *others, platform=PLATFORM, more=more, lab=lab, t4=T4)


def spec(texts: dict[str, str]) -> dict[str, object]:
    found: dict[str, object] = document(texts, "chart/files/policies/lab.yaml")["spec"]
    return found


def test_a_node_is_told_the_places_of_each_class_and_no_layout() -> None:
    told = spec(bundle(pool()))
    assert told["dra"] == {"driver": "gpu.nvidia.com", "shares": None, "onDemand": True}
    assert told["resources"] == {"gpushare-lab-1g-5gb": 14, "gpushare-lab-3g-20gb": 4}
    assert told["gpus"] == [{"indexes": [0, 1], "mig": True, "instances": []}]


def test_without_profiles_all_plain_ones_are_offered() -> None:
    offered = document(bundle(pool(profiles="")), "chart/files/dra/lab.yaml")["templates"]
    plain = ("7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.10gb", "1g.5gb")
    assert list(offered) == [f"gpushare-lab.{name}" for name in plain]


def test_from_hopper_on_the_driver_switches_mig_mode() -> None:
    assert spec(bundle(pool("h100-sxm5-80gb", "1g.10gb")))["gpus"] == [{"indexes": [0, 1], "mig": False, "instances": []}]


def test_other_pools_of_the_driver_get_no_instances() -> None:
    told = document(bundle(pool(), NEW, "t4"), "chart/files/policies/t4.yaml")["spec"]
    assert told["dra"]["onDemand"] is False


@pytest.mark.parametrize(
    ("others", "gates"), [((), {"DynamicMIG": True}), (("t4",), {"ConsumableShares": True, "DynamicMIG": True})]
)
def test_the_driver_has_the_gate_and_no_other_than_it_needs(others: tuple[str, ...], gates: dict[str, bool]) -> None:
    assert document(bundle(pool(), NEW, *others), dra.VALUES)["featureGates"] == gates


def test_a_class_selects_instances_of_the_profile_and_has_the_plugins_name_in_limits() -> None:
    classes = document(bundle(pool(more=", requests: both")), "chart/files/dra/lab.yaml")["classes"]
    assert {name: one["extendedResourceName"] for name, one in classes.items()} == {
        "gpushare-lab-3g-20gb": "nvidia.com/mig-3g.20gb",
        "gpushare-lab-1g-5gb": "nvidia.com/mig-1g.5gb",
    }
    assert ".type == 'mig' && " in classes["gpushare-lab-1g-5gb"]["selectors"][0]["cel"]["expression"]


def test_quotas_and_documents_say_what_a_fixed_layout_would_and_that_places_exclude_each_other() -> None:
    plan, texts = compiled(intent("lab", platform=PLATFORM, more=NEW + QUOTA, lab=pool()))
    offered = offer(plan)["pools"]["lab"]
    assert offered["onDemand"] is True
    assert len(offered["devices"]) == len(side(texts).pools["lab"].devices) == 18
    suffix = ".deviceclass.resource.k8s.io/devices"
    quota = document(texts, "chart/values.yaml")["quotas"]["course"]
    assert quota == {f"gpushare-lab-1g-5gb{suffix}": 3, f"gpushare-lab-3g-20gb{suffix}": 1}


def test_what_a_gpu_can_have_at_once_is_shown_in_place_of_a_map() -> None:
    plan, _ = compiled(intent("lab", platform=PLATFORM, more=NEW, lab=pool()))
    shown = " ".join(text.render(show.report(plan, []), Style()).split())
    assert "GPU 0-1 an instance for each claim; all of a GPU: {3g.20gb: 2}, {3g.20gb: 1, 1g.5gb: 4} and {1g.5gb: 7}" in shown


def test_an_instance_is_the_part_of_a_gpu_that_its_memory_slices_are() -> None:
    plan, _ = compiled(intent("lab", platform=PLATFORM, more=NEW, lab=pool()))
    assert costs.parts_of_resources(plan.pools[0]) == {"gpushare-lab-3g-20gb": 1 / 2, "gpushare-lab-1g-5gb": 1 / 8}
