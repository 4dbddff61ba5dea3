"""`gpushare drift`: every kind of difference is found, and an installed bundle has none."""

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpushare.reading import schema
from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import INTENT, RELEASE, SHARED, LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.compiler.cluster.live.rights import allowed_by
from tests.support.fake_api.server import ApiServer


@pytest.fixture
def settled(api: ApiServer) -> LiveCluster:
    """Everything as the bundle wants it."""
    cluster = LiveCluster(api)
    for node, pool in (("t4-1", "notebooks"), ("t4-2", "notebooks"), ("a100-1", "training")):
        cluster.add_node(node, pool)
    cluster.add_release()
    return cluster


def test_an_installed_bundle_has_no_drift(settled: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    # What kubelet keeps of a resource whose plugin has gone.
    settled.api.edit("nodes", "t4-1", lambda one: one["status"]["allocatable"].update({"nvidia.com/gpu": "0"}))
    done = ask("drift", settled.write(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "no difference\n", "")


CHANGES: list[tuple[str, Callable[[LiveCluster], object], str]] = [
    (
        "object",
        lambda live: live.api.remove("daemonsets", "gpushare-training", namespace=RELEASE),
        "DaemonSet gpushare-training",
    ),
    (
        "object",
        lambda live: live.api.edit(
            "configmaps",
            "gpushare-profiles",
            lambda one: one["data"].update(dict.fromkeys(one["data"], "x")),
            namespace=RELEASE,
        ),
        "another text",
    ),
    ("object", lambda live: live.api.remove("configmaps", "gpushare-tenancy", namespace=RELEASE), "gpushare-tenancy"),
    (
        "object",
        lambda live: live.api.edit(
            "configmaps", "gpushare-tenancy", lambda one: one["data"].update({"tenancy.json": "[]"}), namespace=RELEASE
        ),
        "another document",
    ),
    ("values", lambda live: live.add_release("v0", networkPolicy={"enabled": False}), "networkPolicy.enabled"),
    (
        "quota",
        lambda live: live.api.edit(
            "resourcequotas", "gpushare", lambda one: one["spec"]["hard"].update({f"requests.{SHARED}": "9"}), namespace="team"
        ),
        f"{SHARED}: 9",
    ),
    ("quota", lambda live: live.api.remove("resourcequotas", "gpushare", namespace="team"), "actual none"),
    (
        "node",
        lambda live: live.api.edit(
            "nodes", "t4-1", lambda one: one["metadata"]["labels"].update({"gpushare.dev/profile": "other"})
        ),
        "label gpushare.dev/profile",
    ),
    ("node", lambda live: live.api.remove("nodes", "a100-1"), "no such node"),
    ("node", lambda live: live.api.remove("nodes", "t4-1"), "1 nodes"),
    ("node", lambda live: live.say("t4-1", "GPUBusy", "in use"), "GPUBusy: in use"),
    ("hardware", lambda live: live.say("t4-1", "CardMismatch", "GPU 0 is a Tesla V100"), "GPU 0 is a Tesla V100"),
    (
        "allocatable",
        lambda live: live.api.edit("nodes", "t4-1", lambda one: one["status"]["allocatable"].update({SHARED: "3"})),
        f"{SHARED}: 3",
    ),
]


@pytest.mark.parametrize(("kind", "change", "told"), CHANGES, ids=[told for _, _, told in CHANGES])
def test_each_change_is_one_kind_of_difference(
    settled: LiveCluster, ask: Ask, tmp_path: Path, *, kind: str, change: Callable[[LiveCluster], object], told: str
) -> None:
    change(settled)
    done = ask("drift", settled.write(tmp_path))
    assert done.returncode == 3, done.stderr
    assert f"{kind}: " in done.stdout
    assert told in done.stdout


def test_drift_looks_for_profiles_in_the_plugins_namespace(api: ApiServer, ask: Ask, tmp_path: Path) -> None:
    """Under the printed rights. A copy in the release's namespace is no use to the plugin."""
    live = LiveCluster(api, INTENT.replace("  pools:", "  platform: {namespace: nvidia}\n  pools:"))
    api.allows = allowed_by(list(yaml.safe_load_all(gpushare("rbac", "--plugin-namespace", "nvidia").stdout)))
    bundle = live.write(tmp_path)
    assert "gpushare-profiles" not in ask("drift", bundle).stdout
    [one] = [one for one in api.all("configmaps", namespace="nvidia") if one["metadata"]["name"] == "gpushare-profiles"]
    api.remove("configmaps", "gpushare-profiles", namespace="nvidia")
    api.add("configmaps", "gpushare-profiles", one, namespace=RELEASE)
    done = ask("drift", bundle)
    assert "object: ConfigMap gpushare-profiles" in done.stdout
    assert "configmaps" not in done.stderr


def test_document_is_valid_under_its_schema(settled: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    settled.api.remove("nodes", "a100-1")
    done = ask("drift", settled.write(tmp_path), "--format", "json")
    document = json.loads(done.stdout)
    assert schema.accepts(schema.load("drift.v1"), document)
    assert document["differs"]


def test_unreadable_objects_are_not_compared(settled: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    settled.api.allows = lambda _, path: "/secrets" not in path and "/resourcequotas" not in path
    settled.api.remove("resourcequotas", "gpushare", namespace="team")
    done = ask("drift", settled.write(tmp_path))
    assert (done.returncode, done.stdout) == (0, "no difference was seen\n")
    assert "could not read resourcequotas" in done.stderr
    assert "could not read values of the Helm release" in done.stderr


def test_drift_fails_if_nothing_can_be_compared(settled: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    settled.api.allows = lambda *_: False
    assert ask("drift", settled.write(tmp_path)).returncode == 2


def _nested(depth: int) -> dict[str, object]:
    return {"a": _nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    "chart",
    [
        {"metadata": []},
        {"metadata": "gpushare"},
        {"metadata": {"name": ["gpushare"]}},
        {"metadata": {"name": "gpushare"}, "values": [1]},
        {"metadata": {"name": "gpushare"}, "values": _nested(700)},
    ],
)
def test_arbitrary_release_content_raises_nothing(
    settled: LiveCluster, ask: Ask, tmp_path: Path, chart: dict[str, object]
) -> None:
    release = json.dumps({"chart": chart, "config": chart.get("values")}).encode()
    packed = base64.b64encode(base64.b64encode(gzip.compress(release))).decode()
    settled.api.edit(
        "secrets", "sh.helm.release.v1.gpushare.v1", lambda one: one["data"].update(release=packed), namespace=RELEASE
    )
    done = ask("drift", settled.write(tmp_path))
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_decompression_bomb_in_a_release_is_not_unpacked(settled: LiveCluster, ask: Ask, tmp_path: Path) -> None:
    bomb = base64.b64encode(base64.b64encode(gzip.compress(bytes(80 << 20)))).decode()
    settled.api.edit(
        "secrets", "sh.helm.release.v1.gpushare.v1", lambda one: one["data"].update(release=bomb), namespace=RELEASE
    )
    done = ask("drift", settled.write(tmp_path))
    assert "larger than 64 MiB" in done.stderr


@pytest.mark.parametrize("text", ["", "eA==", "H4sIAAAA", "not base64"])
def test_release_not_in_helms_format_is_reported_as_unread(settled: LiveCluster, ask: Ask, tmp_path: Path, text: str) -> None:
    settled.api.edit(
        "secrets", "sh.helm.release.v1.gpushare.v1", lambda one: one["data"].update(release=text), namespace=RELEASE
    )
    done = ask("drift", settled.write(tmp_path))
    assert done.returncode == 0
    assert "not in Helm's form" in done.stderr
