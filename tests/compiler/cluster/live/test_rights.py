"""`gpushare rbac`: the commands see everything under exactly these rights, and say what half of them hides."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import RELEASE, LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.compiler.cluster.live.rights import allowed_by

COMMANDS: list[list[str]] = [
    ["status"],
    ["status", "--kills"],
    ["explain", "t4-2"],
    ["explain", "team/lab-0"],
    ["drift", "BUNDLE"],
    ["plan", "--live", "BUNDLE"],
]


def printed(*arguments: str) -> list[dict[str, Any]]:
    done = gpushare("rbac", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


def run(ask: Ask, live: LiveCluster, tmp_path: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    bundle = live.write(tmp_path)
    return ask(*(str(bundle) if word == "BUNDLE" else word for word in command))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_printed_permissions_are_sufficient(live: LiveCluster, ask: Ask, tmp_path: Path, command: list[str]) -> None:
    live.add_release()
    live.api.add_pod(
        "gpushare-notebooks-x",
        namespace=RELEASE,
        node="t4-1",
        labels={"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "node"},
    )
    live.api.proxied[f"/api/v1/namespaces/{RELEASE}/pods/gpushare-notebooks-x:9408/proxy/metrics"] = b""
    live.api.allows = allowed_by(printed("--metrics", "--helm-values"))
    done = run(ask, live, tmp_path, command)
    assert done.returncode in {0, 3}, done.stderr
    assert "could not read" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("kept", ["ClusterRole", "Role"])
def test_missing_permissions_are_reported(live: LiveCluster, ask: Ask, tmp_path: Path, command: list[str], kept: str) -> None:
    live.api.allows = allowed_by([one for one in printed() if one["kind"] == kept])
    done = run(ask, live, tmp_path, command)
    assert done.returncode in {0, 2, 3}, done.stderr
    assert "Traceback" not in done.stderr
    assert "403" in done.stderr
    assert "gpushare rbac" in done.stderr


def test_status_without_permissions_reports_nothing_seen(live: LiveCluster, ask: Ask) -> None:
    live.api.allows = lambda *_: False
    done = ask("status")
    assert done.stdout == "no pools were seen\n"
    assert done.stderr.count("could not read") == 7, done.stderr
    assert done.returncode == 2
    assert "nothing was seen" in done.stderr


def test_secrets_and_pod_proxy_permissions_are_opt_in() -> None:
    def resources(*arguments: str) -> set[str]:
        rules = [rule for one in printed(*arguments) for rule in one.get("rules", ())]
        return {name for rule in rules for name in rule.get("resources", rule.get("nonResourceURLs"))}

    assert not {"secrets", "pods/proxy"} & resources()
    assert resources("--metrics") - resources() == {"pods/proxy", "/metrics"}
    assert resources("--helm-values") - resources() == {"secrets"}


def test_rbac_rules_are_read_only_and_limit_secrets_to_one_namespace() -> None:
    for one in printed("--metrics", "--helm-values"):
        for rule in one.get("rules", ()):
            assert set(rule["verbs"]) <= {"get", "list"}
            assert one["kind"] == "Role" or not {"secrets", "pods/proxy"} & set(rule.get("resources", ()))


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        ((), {"kind": "ServiceAccount", "name": "gpushare-viewer", "namespace": RELEASE}),
        (
            ("--service-account", "drift", "--release-namespace", "gpus"),
            {"kind": "ServiceAccount", "name": "drift", "namespace": "gpus"},
        ),
        (("--user", "ann"), {"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}),
        (("--group", "ops: yes"), {"kind": "Group", "name": "ops: yes", "apiGroup": "rbac.authorization.k8s.io"}),
    ],
)
def test_rbac_subject_is_the_given_one(arguments: tuple[str, ...], subject: dict[str, str]) -> None:
    objects = printed(*arguments)
    assert [one["subjects"] for one in objects if "subjects" in one] == [[subject], [subject]]
    assert (subject["kind"] == "ServiceAccount") == any(one["kind"] == "ServiceAccount" for one in objects)


@pytest.mark.parametrize(
    "wrong",
    [
        ("--user", "a", "--group", "b"),
        ("--release-namespace", "a/b"),
        ("--service-account", "A b"),
    ],
)
def test_invalid_rbac_subject_is_refused(wrong: tuple[str, ...]) -> None:
    assert gpushare("rbac", *wrong).returncode == 2
