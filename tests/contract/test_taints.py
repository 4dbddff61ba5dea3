"""The keys of our taints are those of the chart, and fit the autoscalers."""

import yaml

from gpushare.facts.nodes import taints
from gpushare.facts.vendors.amd import MANAGER_TAINT
from gpushare.intent.types import Autoscaler
from tests.support.paths import ROOT

CHART = ROOT / "charts" / "gpushare"
PAIRS = [taints.of(None), taints.of(Autoscaler.CLUSTER_AUTOSCALER)]


def test_every_autoscaler_has_keys_of_ours() -> None:
    assert all(taints.of(one) in PAIRS for one in Autoscaler)


def test_admission_policy_lets_the_runtime_write_only_these_taints() -> None:
    fence = yaml.safe_load((CHART / "admission/fence.yaml").read_text())
    (ours,) = [one["expression"] for one in fence["variables"] if one["name"] == "ourTaints"]
    always, _, of_amd = ours.partition(" + ")
    assert yaml.safe_load(always) == list(taints.OUR_TAINTS)
    assert of_amd == f"(variables.amd != '' ? ['{MANAGER_TAINT}'] : [])"


def test_the_prefixes_are_those_that_cluster_autoscaler_knows() -> None:
    pair = taints.of(Autoscaler.CLUSTER_AUTOSCALER)
    assert pair.not_ready.startswith("startup-taint.cluster-autoscaler.kubernetes.io/")
    assert pair.repartitioning.startswith("status-taint.cluster-autoscaler.kubernetes.io/")
    assert all(len(key.partition("/")[2]) <= 63 and len(key.partition("/")[0]) <= 253 for key in taints.OUR_TAINTS)
