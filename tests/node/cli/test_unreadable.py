"""A policy that the command cannot read, as that of a later release: what it holds meanwhile, and how it ends."""

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from gpushare_node.adapters.host.state_dir import StateDir
from tests.node.cli import cli_environment as shell
from tests.node.cli.cli_environment import CliEnvironment
from tests.support.fake_api.server import ApiServer
from tests.support.forked import Process
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, wait_for

PROGRAM = """import sys
from gpushare_node.cli import main, refusal
refusal._LOOK_SECONDS = 0.2
sys.exit(main(sys.argv[1:]))"""
"""The command, which looks at its policy more often than a node need."""


def in_the_next_form(policy: str) -> str:
    return policy.replace("gpushare.dev/v1", "gpushare.dev/v2")


@contextmanager
def started(arguments: list[str], environment: dict[str, str]) -> Iterator[Process]:
    """A program that is gone when the test is."""
    with shell.start(PROGRAM, arguments, environment) as running:
        try:
            yield running
        finally:
            running.kill()


def start(cli_environment: CliEnvironment, api: ApiServer, command: str, *more: str) -> AbstractContextManager[Process]:
    """With a policy in force, and one of the next form given."""
    good = cli_environment.policy.read_text()
    StateDir(cli_environment.folder / "state").keep_policy(good)
    cli_environment.policy.write_text(in_the_next_form(good))
    files = ["--policy", str(cli_environment.policy), "--state-dir", str(cli_environment.folder / "state")]
    return started([command, *files, *more], in_a_pod(cli_environment, api))


def said(api: ApiServer) -> tuple[str, str]:
    condition = api.condition("node-1") or {"reason": "", "message": ""}
    return condition["reason"], condition["message"]


def in_a_pod(cli_environment: CliEnvironment, api: ApiServer) -> dict[str, str]:
    api.add_node("node-1", labels={"gpushare.dev/pool": "dense"})
    api.add_pod("runtime", namespace="gpushare", node="node-1", uid="9")
    api.add_daemonset("gpushare-dense")
    return (
        cli_environment.environment
        | api.kubeconfig(cli_environment.folder / "kubeconfig")
        | {"NODE_NAME": "node-1", "POD_NAME": "runtime", "POD_NAMESPACE": "gpushare", "POD_UID": "9"}
    )


@pytest.mark.failure_case(102)
def test_enforce_keeps_the_stored_policy_until_the_new_one_is_readable(cli_environment: CliEnvironment, api: ApiServer) -> None:
    good = cli_environment.policy.read_text()
    with start(cli_environment, api, "enforce", "--port", str(free_port())) as running:
        wait_for(lambda: said(api)[0] == "PolicyInvalid")
        assert "v1, not 'gpushare.dev/v2'" in said(api)[1]
        assert running.poll() is None
        cli_environment.policy.write_text(good)
        _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 70
    assert [text in errors for text in ("the previous policy stays in force", "the container restarts with it")] == [True, True]


@pytest.mark.failure_case(102)
def test_enforce_honours_a_release_request_with_an_unreadable_policy(cli_environment: CliEnvironment, api: ApiServer) -> None:
    with start(cli_environment, api, "enforce", "--port", str(free_port())):
        wait_for(lambda: said(api)[0] == "PolicyInvalid")
        api.patch("nodes", "node-1", {"metadata": {"annotations": {"gpushare.dev/release": api.asking()}}}, manager="job")
        wait_for(lambda: all(pod["metadata"]["name"] != "runtime" for pod in api.all("pods", namespace="gpushare")))


@pytest.mark.failure_case(102)
def test_apply_keeps_the_stored_policy_until_the_new_one_is_readable(cli_environment: CliEnvironment, api: ApiServer) -> None:
    good = cli_environment.policy.read_text()
    with start(cli_environment, api, "apply", "--hold") as running:
        wait_for(lambda: said(api)[0] == "PolicyInvalid")
        assert running.poll() is None
        cli_environment.policy.write_text(good)
        wait_for(lambda: said(api)[0] not in {"PolicyInvalid", ""})
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=PATIENCE)


@pytest.mark.failure_case(102)
def test_apply_releases_a_node_though_its_policy_cannot_be_read(cli_environment: CliEnvironment, api: ApiServer) -> None:
    request = api.asking()
    with start(cli_environment, api, "apply", "--hold"):
        api.patch("nodes", "node-1", {"metadata": {"annotations": {"gpushare.dev/release": request}}}, manager="job")
        wait_for(lambda: "gpushare.dev/released" in api.node("node-1")["metadata"]["annotations"])
        wait_for(lambda: StateDir(cli_environment.folder / "state").policy() is None)
