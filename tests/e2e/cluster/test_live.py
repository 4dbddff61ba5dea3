"""The commands on a running cluster under exactly the printed rights, on a real API server."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.e2e.cluster.bundles import NAMESPACE, namespace
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.control_plane import OPERATOR, write_kubeconfig
from tests.e2e.cluster.machine import API_SERVICE, PATIENCE
from tests.support.paths import ROOT

Ask = Callable[..., CompletedProcess[str]]


@pytest.fixture
def ask(api: Cluster, tmp_path: Path) -> Ask:
    """Run gpushare as the operator, who has no rights but those that a test gives."""
    write_kubeconfig(tmp_path / "kubeconfig", f"https://{API_SERVICE}", OPERATOR)
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}

    def run(*arguments: str | Path) -> CompletedProcess[str]:
        command = api.network.command(sys.executable, "-m", "gpushare", *arguments)
        return subprocess.run(
            list(map(str, command)), env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    return run


def test_printed_rbac_rules_are_sufficient_and_necessary(api: Cluster, ask: Ask) -> None:
    bundle = ROOT / "examples/01-heterogeneous/bundle"
    denied = ask("status")
    assert "403" in denied.stderr
    namespace(api, NAMESPACE)
    rights = ask("rbac", "--group", "operators", "--helm-values").stdout
    api.kubectl("apply", "--filename", "-", stdin=rights)
    try:
        for command in (("status",), ("plan", "--live", bundle), ("drift", bundle), ("explain", "default/none")):
            done = ask(*command)
            assert "403" not in done.stderr, command
            assert "Traceback" not in done.stderr
        assert ask("drift", bundle).returncode == 3
        assert ask("status").returncode == 0
    finally:
        api.kubectl("delete", "--filename", "-", stdin=rights)
