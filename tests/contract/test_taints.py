"""The keys of our taints are those of the chart, and fit the autoscalers."""

import json

from gpushare.bundle import admission
from gpushare.facts.nodes import taints
from gpushare.intent.types import Autoscaler
from gpushare.vendors.amd import MANAGER_TAINT
from gpushare_node.contract.names import OUR_TAINTS

PAIRS = [taints.of(None), taints.of(Autoscaler.CLUSTER_AUTOSCALER)]


def test_every_autoscaler_has_keys_of_ours() -> None:
    assert all(taints.of(one) in PAIRS for one in Autoscaler)


def test_admission_policy_lets_the_runtime_write_only_these_taints() -> None:
    values = {"namespace": "gpu-system", "pools": {}, "admission": {"platformNamespaces": [], "enforce": "deny"}}
    amd = {"vendors": {"amd": {"namespace": "kube-amd-gpu"}}}
    for more, of_vendors in (({}, []), (amd, [MANAGER_TAINT])):
        variables = admission.document(values | more)["policies"]["gpushare-fence"]["variables"]
        (ours,) = [json.loads(one["expression"]) for one in variables if one["name"] == "ourTaints"]
        assert ours == dict.fromkeys(OUR_TAINTS, "NoSchedule") | dict.fromkeys(of_vendors, "NoExecute")


def test_the_prefixes_are_those_that_cluster_autoscaler_knows() -> None:
    pair = taints.of(Autoscaler.CLUSTER_AUTOSCALER)
    assert pair.not_ready.startswith("startup-taint.cluster-autoscaler.kubernetes.io/")
    assert pair.repartitioning.startswith("status-taint.cluster-autoscaler.kubernetes.io/")
    assert all(len(key.partition("/")[2]) <= 63 and len(key.partition("/")[0]) <= 253 for key in OUR_TAINTS)
