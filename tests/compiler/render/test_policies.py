"""NodePolicies, the sides of a comparison and the Offer: the same plan in three forms."""

from pathlib import Path
from typing import Any

import pytest

from gpushare.compare import sides
from gpushare.report import show
from gpushare_node.contract import policy as contract
from tests.compiler.render.compiled import POOLS, compiled, document, files, intent, side
from tests.support.paths import ROOT


def policy(pool: str, **wanted: str) -> Any:
    return document(files(**wanted), f"chart/files/policies/{pool}.yaml")


@pytest.mark.parametrize("pool", sorted(POOLS))
@pytest.mark.parametrize("partitioner", ["gpushare", "mig-manager"])
def test_every_policy_is_one_for_the_node_runtime(pool: str, partitioner: str) -> None:
    written = policy(pool, platform=f"{{partitioner: {partitioner}}}")
    assert contract.document(contract.of_document(written)) == written


def test_mig_policy_has_placements_and_expected_resources() -> None:
    spec = policy("dense")["spec"]
    assert [(group["indexes"], group["mig"], len(group["instances"])) for group in spec["gpus"]] == [
        ([0, 1, 2], True, 5),
        ([3], False, 0),
    ]
    starts = [instance["start"] for instance in spec["gpus"][0]["instances"]]
    assert starts == sorted(starts)
    assert {instance["profileId"] for instance in spec["gpus"][0]["instances"]} == {14, 19}
    assert spec["resources"] == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb.shared": 18, "nvidia.com/mig-2g.10gb": 6}
    shares = {share["resource"]: share for share in spec["shares"]}
    assert shares["nvidia.com/mig-1g.5gb.shared"]["capMiB"] == (4864 - 256) // 2
    assert shares["nvidia.com/mig-2g.10gb"]["capMiB"] is None
    assert spec["migConfig"] is None


def test_a_tolerance_in_percent_is_written_in_mib_of_the_cap() -> None:
    share = policy("notebooks")["spec"]["shares"][0]
    assert share["toleranceMiB"] == -(-share["capMiB"] * 5 // 100)


def test_mig_manager_gets_a_config_for_every_pool_that_can_have_mig_and_all_disabled_always() -> None:
    bundle = files(platform="{partitioner: mig-manager}")
    config = document(bundle, "chart/files/mig-parted/config.yaml")
    assert config["version"] == "v1"
    names = {pool: document(bundle, f"chart/files/policies/{pool}.yaml")["spec"]["migConfig"] for pool in POOLS}
    assert names == {"hpc": "all-disabled", "notebooks": None, "serving": None, "dense": names["dense"]}
    assert set(config["mig-configs"]) == {"all-disabled", names["dense"]}
    covered = [index for entry in config["mig-configs"][names["dense"]] for index in entry["devices"]]
    assert sorted(covered) == [0, 1, 2, 3]
    assert document(bundle, "chart/values.yaml")["migParted"] == {"enabled": True}
    assert (
        "all-disabled"
        in document(files("notebooks", platform="{partitioner: mig-manager}"), "chart/files/mig-parted/config.yaml")[
            "mig-configs"
        ]
    )


def test_a_bundles_files_say_of_its_pools_what_the_plan_does() -> None:
    plan, bundle = compiled(intent(more="  quotas: {atlas: {hpc: 8}}\n"))
    assert side(bundle) == sides.of_plan(plan)
    assert side(bundle).quotas == {("atlas", "nvidia.com/gpu"): 8}
    serving = side(bundle).pools["serving"]
    assert serving.labels == {
        "gpushare.dev/pool": ["serving"],
        "gpushare.dev/profile": [serving.profile],
        "nvidia.com/device-plugin.config": [f"{serving.profile}-a", f"{serving.profile}-b"],
    }
    assert (serving.names, serving.count) == (frozenset({"n1", "n2"}), 2)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*/intent.yaml")), ids=lambda path: path.parent.name)
def test_the_files_of_an_examples_bundle_say_what_its_plan_does(path: Path) -> None:
    plan, bundle = compiled(path.read_bytes())
    assert side(bundle) == sides.of_plan(plan)


def test_offer_has_public_field_names_and_one_device_per_instance() -> None:
    plan, _ = compiled(intent("dense"))
    document = show.offer(plan)
    assert (document["apiVersion"], document["kind"]) == ("gpushare.dev/v1", "Offer")
    dense = document["pools"]["dense"]
    money = ["pricePerGpuHour", "costPerHour", "costPerShareHour"]
    assert list(dense) == ["card", "mode", "nodes", "gpusPerNode", "profile", "resources", "devices", *money]
    assert len(dense["devices"]) == 3 * 5 + 1
    assert dense["devices"][-1] == {
        "gpu": 3,
        "resource": "nvidia.com/gpu",
        "profile": None,
        "start": 0,
        "size": 8,
        "memoryMiB": plan.pools[0].card.memory_mib,
        "replicas": 1,
        "capMiB": None,
    }


def test_pool_values_state_the_privileges_of_its_pods() -> None:
    values = document(files(), "chart/values.yaml")["pools"]
    rights = {name: (pool["migCapable"], pool["mig"], pool["mps"], pool["evict"]) for name, pool in values.items()}
    assert rights == {
        "dense": (True, True, False, True),
        "hpc": (True, False, False, True),
        "notebooks": (False, False, False, True),
        "serving": (False, False, True, True),
    }
    assert values["notebooks"]["tolerations"] == [{"key": "school", "operator": "Exists"}]
