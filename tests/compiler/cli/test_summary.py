"""What `compile` says to do next: prepare the nodes, then begin with Helm or with the tool that syncs the bundle."""

from pathlib import Path

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.bundle.writer import ChangeKind, FileChange
from gpushare.cli import compile as compile_command
from gpushare.cli.inputs import LoadedIntent
from gpushare.reading import source

IMAGE = "image: {repository: registry.example.net/agent}"
READY = f"{{{IMAGE}, driver: {{}}}}"


def after(platform: str = READY, *, label: str = "example.org/pool", more: str = "") -> list[str]:
    """The lines that follow a first compile into `bundle`."""
    data = (
        "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: lab}\n"
        f"spec:\n  platform: {platform}\n{more}  pools:\n"
        f"    a: {{card: t4, nodes: {{matchLabels: {{{label}: a}}}}, gpusPerNode: 2, sharing: {{mode: exclusive}}}}\n"
    ).encode()
    compilation = pipeline.compile_intent(data, "intent.yaml", lock.EMPTY)
    assert compilation.plan is not None, compilation.findings
    read = LoadedIntent(previous_lock=lock.EMPTY, text=source.read(data, "intent.yaml"), compilation=compilation)
    changes = [FileChange(path=artifact.path, kind=ChangeKind.MISSING) for artifact in compilation.artifacts]
    return compile_command.written(read, changes, Path("bundle")).splitlines()[1:]


HELM = [
    "next: bundle/README.md says what to install in which order; our chart is",
    "  kubectl apply -f bundle/namespace.yaml",
    "  helm upgrade --install gpushare bundle/chart --namespace gpu-system --timeout 5m",
]


def test_a_plain_bundle_is_installed_by_helm() -> None:
    assert after() == HELM


def test_argo_cd_begins_with_its_root() -> None:
    argocd = "argocd: {repoURL: 'https://git.example.org/gpu.git', path: clusters/lab/bundle"
    said = "next: commit bundle as clusters/lab/bundle of https://git.example.org/gpu.git; "
    assert after(more=f"  gitops: {{{argocd}}}}}\n") == [
        f"{said}bundle/README.md says the rest. Once, for Argo CD:",
        "  kubectl apply -f bundle/argocd/root.yaml",
    ]
    of_a_project = after(more=f"  gitops: {{{argocd}, project: gpus}}}}\n")
    assert of_a_project[-1] == "  kubectl apply -f bundle/argocd/project.yaml -f bundle/argocd/root.yaml"


def test_flux_begins_with_source_and_sync() -> None:
    assert after(more="  gitops: {flux: {url: 'https://git.example.org/gpu.git', path: bundle}}\n") == [
        "next: commit bundle as bundle of https://git.example.org/gpu.git; bundle/README.md says the rest. Once, for Flux:",
        "  kubectl apply -f bundle/flux/source.yaml -f bundle/flux/sync.yaml",
    ]


@pytest.mark.parametrize(
    ("platform", "label", "said"),
    [
        (f"{{{IMAGE}}}", "example.org/pool", True),
        (f"{{{IMAGE}}}", "kubernetes.azure.com/agentpool", True),
        (f"{{{IMAGE}}}", "cloud.google.com/gke-nodepool", False),
        (f"{{{IMAGE}}}", "k8s.scaleway.com/pool-name", False),
        (f"{{{IMAGE}, values: {{hostPaths: {{driverInstallDir: /opt/nvidia}}}}}}", "example.org/pool", False),
        (f"{{{IMAGE}, stack: device-plugin}}", "example.org/pool", False),
        (f"{{{IMAGE}, stack: existing}}", "example.org/pool", False),
    ],
)
def test_nodes_need_a_driver_unless_operator_or_cloud_brings_it(platform: str, label: str, said: bool) -> None:
    driver = [line for line in after(platform, label=label) if "driver" in line]
    assert [line.partition(";")[0] for line in driver] == ["first: nodes need NVIDIA's driver"] * said


def test_a_bundle_that_only_observes_installs_no_operator_and_needs_no_driver() -> None:
    assert after(f"{{{IMAGE}}}", more="  adoption: observe\n") == [
        *HELM[:-1],
        HELM[-1].replace("--timeout", "--wait --timeout"),
    ]


@pytest.mark.parametrize("platform", ["{driver: {}}", "{driver: {}, image: {repository: registry.example.org/a}}"])
def test_image_without_a_place_of_its_own_is_to_be_pushed_first(platform: str) -> None:
    assert after(platform) == ["first: push the node runtime's image and set platform.image, as bundle/README.md says", *HELM]
