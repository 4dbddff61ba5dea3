"""Values of NVIDIA's charts inside HelmRelease, Application and HelmChart: read like the values themselves, with positions."""

import textwrap

import pytest

from gpushare.cluster.importing import Imported
from tests.compiler.cluster.importing.imports import codes, config_map, errors, imported, node, sharing

VALUES = "mig: {strategy: mixed}\ndevicePlugin:\n  config: {name: plugin-configs, default: %s}\n"
FLUX = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: gpu-operator, namespace: gpu-operator}
spec:
  chart: {spec: {chart: CHART, sourceRef: {kind: HelmRepository, name: nvidia}}}
  values:
VALUES
"""
ARGO = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: gpu, namespace: argocd}
spec:
  sources:
  - {repoURL: 'https://example.org/charts', chart: other, targetRevision: '1', helm: {valuesObject: {mig: {strategy: single}}}}
  - repoURL: https://example.org/nvidia
    chart: CHART
    targetRevision: v25.10.1
    helm:
      KEY
VALUES
"""
K3S = """\
apiVersion: helm.cattle.io/v1
kind: HelmChart
metadata: {name: gpu-operator, namespace: kube-system}
spec:
  chart: CHART
  valuesContent: |
VALUES
"""


def written(form: str, default: str = "shared", chart: str = "nvidia/gpu-operator") -> str:
    """One object with values in this form."""
    template, key = {"flux": (FLUX, ""), "object": (ARGO, "valuesObject:"), "text": (ARGO, "values: |"), "k3s": (K3S, "")}[form]
    text = textwrap.indent(VALUES % default, " " * (8 if template is ARGO else 4)).rstrip()
    return template.replace("CHART", chart).replace("KEY", key).replace("VALUES", text)


def pools(*documents: str) -> Imported:
    return imported(node(), config_map(sharing()), *documents)


@pytest.mark.parametrize("form", ["flux", "object", "text", "k3s"])
def test_values_are_read_from_every_gitops_object(form: str) -> None:
    found, plain = pools(written(form)), pools(VALUES % "shared")
    assert codes(found) == codes(plain) == []
    assert found.draft.spec["pools"] == plain.draft.spec["pools"]
    assert found.draft.spec["platform"]["stack"] == "existing"
    (pool,) = found.draft.pools.values()
    assert pool["sharing"] == {"mode": "time-slicing", "replicas": 4}


@pytest.mark.parametrize("form", ["flux", "object", "text", "k3s"])
def test_a_finding_is_at_the_line_of_the_value(form: str) -> None:
    document = written(form, "lost")
    found = pools(document)
    (finding,) = errors(found)
    assert finding.code == "GS857"
    assert finding.span is not None
    text = "---\n".join([node(), config_map(sharing()), document]).splitlines()
    assert "default: lost" in text[finding.span.line - 1]


@pytest.mark.parametrize("form", ["flux", "object", "text", "k3s"])
def test_values_of_another_chart_are_left_alone(form: str) -> None:
    assert codes(imported(written(form, chart="nvidia/network-operator"))) == ["GS865", "GS867"]


@pytest.mark.parametrize(
    "field",
    [
        "valuesFrom: [{kind: ConfigMap, name: operator}]",
        "values: {}\n  valuesFrom: [{kind: Secret, name: operator}]",
    ],
)
def test_values_in_other_objects_are_reported_as_missing(field: str) -> None:
    document = FLUX.replace("CHART", "gpu-operator").partition("  values:")[0] + f"  {field}\n"
    assert codes(pools(document)) == ["GS858", "GS869"]


def test_parameters_and_files_of_an_application_are_named_as_missing() -> None:
    lines = "parameters: [{name: mig.strategy, value: mixed}]\n      valueFiles: [operator.yaml]"
    document = ARGO.replace("CHART", "gpu-operator").replace("KEY", lines).replace("VALUES", "")
    assert codes(pools(document)).count("GS869") == 2


@pytest.mark.parametrize("text", ["[]", "3", "'a: ['", "{a: {b: [}", "&a [*a]"])
def test_invalid_values_texts_raise_nothing(text: str) -> None:
    document = K3S.replace("CHART", "gpu-operator").replace("|\nVALUES", text)
    pools(document)


def test_node_labels_take_precedence_over_missing_configs() -> None:
    labels = (
        'nvidia.com/gpu.product: Tesla-T4-SHARED, nvidia.com/gpu.count: "1", nvidia.com/gpu.replicas: "%s", '
        "nvidia.com/gpu.sharing-strategy: time-slicing"
    )
    found = imported(node(labels % 4), config_map(sharing()), written("flux", '""'))
    (pool,) = found.draft.pools.values()
    assert pool["sharing"]["replicas"] == 4
    assert "GS870" in codes(found)
    told = labels + ", nvidia.com/device-plugin.config: shared"
    assert codes(imported(node(told % 8), config_map(sharing()))) == ["GS870"], "the config wins, and the user is told"
    assert codes(imported(node(told % 4), config_map(sharing()))) == []
