"""kube-state-metrics itself, built once into the tests' cache. `python -m tests.e2e.cluster.kube_state_metrics` builds it."""

from pathlib import Path

from tests.support.go_module import GoModule

RESOURCES = ("daemonsets", "nodes", "pods", "resourcequotas")
"""The kinds of objects whose metrics our rules use."""


def program() -> Path:
    """The program. Builds it if it is missing. CalledProcessError if that fails."""
    return _BUILT.folder / "kube-state-metrics"


def command(kubeconfig: Path, address: str, telemetry: str) -> tuple[str | Path, ...]:
    """The command that serves the metrics of a cluster at this address, and its own at the other."""
    host, _, port = address.rpartition(":")
    own_host, _, own_port = telemetry.rpartition(":")
    return (
        program(),
        "--kubeconfig",
        kubeconfig,
        "--host",
        host,
        "--port",
        port,
        "--telemetry-host",
        own_host,
        "--telemetry-port",
        own_port,
        "--resources",
        ",".join(RESOURCES),
    )


_BUILT = GoModule(
    name="kube-state-metrics",
    here=Path(__file__).parent,
    fill=lambda module, folder: module.build(folder / "kube-state-metrics", "k8s.io/kube-state-metrics/v2"),
)
