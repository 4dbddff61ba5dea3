"""`gpushare status`: what is wanted, offered, used and free, and what could not be seen."""

import json
from typing import Any

import pytest

from gpushare.cluster.live.objects import Condition, Pod, RuntimeMetrics, Usage
from gpushare.cluster.live.status import Holder, NodeStatus, PoolStatus, ShareUsage, Status, holders_of_node
from gpushare.reading import schema
from gpushare.report import html, status
from gpushare_node.contract.names import OUR_TAINTS
from gpushare_node.contract.struct import replace
from tests.compiler.cluster.live.clusters import RELEASE, SHARED, LiveCluster
from tests.compiler.cluster.live.conftest import Ask
from tests.compiler.report.page import HOSTILE, Page


def test_pools_and_their_shares_are_counted(live: LiveCluster, ask: Ask) -> None:
    done = ask("status")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["notebooks", "time-slicing", "1/2", SHARED, "8", "4", "1", "3"] in rows
    assert ["training", "mig", "1/1", "nvidia.com/mig-1g.5gb", "3", "3", "0", "3"] in rows
    assert "t4-2: GPU 0: pod team/old uses it" in done.stdout.replace("\x1b", "")
    assert "`gpushare explain t4-2` says what to do." in done.stdout
    assert "cpu-1" not in done.stdout


def test_document_is_valid_under_its_schema(live: LiveCluster, ask: Ask) -> None:
    done = ask("status", "--format", "json", "--kills")
    document = json.loads(done.stdout)
    assert schema.accepts(schema.load("status.v1"), document)
    assert document["pools"]["notebooks"]["shares"][SHARED] == {"wanted": 8, "offered": 4, "used": 1, "free": 3}
    busy = next(node for node in document["pools"]["notebooks"]["nodes"] if node["name"] == "t4-2")
    assert (busy["reason"], busy["since"], busy["ready"]) == ("GPUBusy", "2026-11-23T07:00:00Z", False)


def test_pods_that_hold_shares_are_named_with_the_cap_of_their_pool(live: LiveCluster, ask: Ask) -> None:
    live.api.add_pod("big", namespace="team", node="t4-1", limits={SHARED: 2})
    said = ask("status").stdout
    rows = [line.split() for line in said.splitlines()]
    assert ["notebooks", "team/big", "t4-1", "gpu.shared:", "2", "-", "7448Mi"] in rows
    assert ["notebooks", "team/lab-0", "t4-1", "gpu.shared:", "1", "-", "3724Mi"] in rows
    assert ["training", "physics/train-0", "a100-1", "mig-2g.10gb:", "1", "-", "-"] in rows
    assert "--kills reads it from the runtimes' metrics" in said
    document = json.loads(ask("status", "t4-1", "--format", "json").stdout)
    pods = document["pools"]["notebooks"]["nodes"][0]["pods"]
    assert [(one["namespace"], one["name"], one["shares"]) for one in pods] == [
        ("team", "big", {SHARED: 2}),
        ("team", "lab-0", {SHARED: 1}),
    ]
    assert [(one["memoryUsedBytes"], one["memoryCapBytes"]) for one in pods] == [(None, 7448 << 20), (None, 3724 << 20)]


def test_text_is_cut_to_the_largest_holders_and_wide_has_all(live: LiveCluster, ask: Ask) -> None:
    for number in range(30):
        live.api.add_pod(f"p-{number:02}", namespace="many", node="t4-1", limits={SHARED: 2 if number == 29 else 1})
    said = ask("status").stdout
    held = [line.split()[1] for line in said.split("HELD BY")[1].splitlines() if line.startswith("notebooks")]
    assert (len(held), held[0]) == (10, "many/p-29")
    assert "and 21 more; -o wide lists all" in said
    assert sum("many/p-" in line for line in ask("status", "-o", "wide").stdout.splitlines()) == 30


def test_a_pod_of_another_node_of_the_same_name_or_without_a_report_has_no_known_memory() -> None:
    pods = [Pod(namespace="team", name=name, phase="Running", node="n", requests={SHARED: 2}) for name in ("a", "b", "c")]
    container = Usage(node="n", namespace="team", pod="a", container="x", gpu="0", used=1 << 30, cap=2 << 30)
    usages = (container, replace(container, container="y", used=0), replace(container, pod="b", used=None, cap=None))
    found = holders_of_node(pods, RuntimeMetrics(node="n", usages=usages), {SHARED: 1024})
    assert [(one.used, one.cap) for one in found] == [(1 << 30, 4 << 30), (None, None), (None, 2 << 30)]


def test_one_pool_or_one_node_is_shown(live: LiveCluster, ask: Ask) -> None:
    assert "training" not in ask("status", "notebooks").stdout
    shown = ask("status", "t4-1", "-o", "wide").stdout
    assert "t4-1" in shown
    assert "t4-2" not in shown
    missing = ask("status", "nowhere")
    assert missing.returncode == 2
    assert "no pool and no node with GPUs named" in missing.stderr
    assert "notebooks" in missing.stderr


def test_a_node_that_is_cordoned_or_tainted_has_nothing_free(live: LiveCluster, ask: Ask) -> None:
    live.api.edit("nodes", "t4-1", lambda node: node["spec"].update(unschedulable=True))
    document = json.loads(ask("status", "--format", "json").stdout)
    assert document["pools"]["notebooks"]["shares"][SHARED]["free"] == 0


@pytest.mark.parametrize("key", OUR_TAINTS)
def test_node_with_any_of_our_taints_has_nothing_free(key: str, live: LiveCluster, ask: Ask) -> None:
    for name in ("t4-1", "t4-2"):
        live.api.edit("nodes", name, lambda node: node["spec"].update(taints=[{"key": key, "effect": "NoSchedule"}]))
    document = json.loads(ask("status", "--format", "json").stdout)
    assert document["pools"]["notebooks"]["shares"][SHARED] == {"wanted": 8, "offered": 4, "used": 1, "free": 0}
    assert ("repartitioning" if "repartitioning" in key else "not-ready") in ask("status").stdout


def test_forbidden_counts_are_unknown_not_zero(live: LiveCluster, ask: Ask) -> None:
    live.api.allows = lambda _, path: "/pods" not in path
    done = ask("status")
    assert done.returncode == 0
    assert "could not read pods: 403" in done.stderr
    assert "`gpushare rbac`" in done.stderr
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("notebooks"))
    assert row[-2:] == ["?", "?"]
    assert "HELD BY" not in done.stdout
    document = json.loads(ask("status", "--format", "json").stdout)
    assert {node["pods"] for pool in document["pools"].values() for node in pool["nodes"]} == {None}


def test_free_shares_are_unknown_if_only_one_namespace_is_read(live: LiveCluster, ask: Ask) -> None:
    live.api.add_pod("other", namespace="physics", node="t4-1", limits={SHARED: 3})
    done = ask("status", "-n", "team")
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("notebooks"))
    assert row[-2:] == ["1", "?"]
    assert "could not read pods of other namespaces: -n team" in done.stderr
    shares = json.loads(ask("status", "-n", "team", "--format", "json").stdout)["pools"]["notebooks"]["shares"][SHARED]
    assert shares == {"wanted": 8, "offered": 4, "used": 1, "free": None}


def test_unreadable_name_is_not_reported_as_missing(live: LiveCluster, ask: Ask) -> None:
    live.api.allows = lambda _, path: "/nodes" not in path
    done = ask("status", "t4-1")
    assert done.returncode == 2
    assert "could not read nodes: 403" in done.stderr
    assert "in the part of the cluster that could be read" in done.stderr


def test_a_pod_that_waits_is_listed_with_the_schedulers_reason(live: LiveCluster, ask: Ask) -> None:
    live.api.add_pod("waits", namespace="team", limits={SHARED: 1}, phase="Pending")
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes are available"}
    live.api.edit("pods", "waits", lambda pod: pod["status"].update(conditions=[told]), namespace="team")
    assert "Unschedulable: 0/4 nodes are available" in ask("status").stdout


def test_completed_pods_hold_nothing(live: LiveCluster, ask: Ask) -> None:
    live.api.add_pod("done", namespace="team", node="t4-1", limits={SHARED: 1}, phase="Succeeded")
    assert json.loads(ask("status", "--format", "json").stdout)["pools"]["notebooks"]["shares"][SHARED]["used"] == 1


def test_kills_come_from_events_and_the_runtimes_counters(live: LiveCluster, ask: Ask) -> None:
    live.api.add_event(
        "Pod",
        "lab-0",
        "GPUProcessKilled",
        "used 4000 of 3724 MiB",
        namespace="team",
        lastTimestamp="2026-11-23T07:10:00Z",
        count=2,
    )
    live.api.add_pod(
        "gpushare-notebooks-x",
        namespace=RELEASE,
        node="t4-1",
        labels={"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "node"},
    )
    live.api.proxied[f"/api/v1/namespaces/{RELEASE}/pods/gpushare-notebooks-x:9408/proxy/metrics"] = (
        b"# TYPE gpushare_kills_total counter\n"
        b'gpushare_kills_total{signal="SIGKILL",outcome="ended"} 3\n'
        b'gpushare_container_gpu_memory_used_bytes{namespace="team",pod="lab-0",container="a\\"b",gpu="0"} 4194304000\n'
        b'gpushare_container_gpu_memory_cap_bytes{namespace="team",pod="lab-0",container="a\\"b",gpu="0"} 3904897024\n'
        b'gpushare_container_over_cap{namespace="team",pod="lab-0",container="a\\"b",gpu="0"} 1\n'
    )
    done = ask("status", "--kills")
    assert "used 4000 of 3724 MiB" in done.stdout
    assert ["t4-1", "3", "0", "0", "no"] in [line.split() for line in done.stdout.splitlines()]
    assert "team/lab-0" in done.stdout.split("OVER ITS CAP NOW")[1]
    assert "4000Mi" in done.stdout
    assert ["notebooks", "team/lab-0", "t4-1", "gpu.shared:", "1", "4000Mi", "3724Mi"] in [
        line.split() for line in done.stdout.splitlines()
    ]
    assert "- for pods that no runtime reported" in done.stdout


def test_unresponsive_runtime_is_reported_as_unread(live: LiveCluster, ask: Ask) -> None:
    live.api.add_pod(
        "gpushare-notebooks-x",
        namespace=RELEASE,
        node="t4-1",
        labels={"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "node"},
    )
    assert "could not read metrics: 1 runtime did not answer: 404" in ask("status", "--kills").stderr


def test_installation_in_another_namespace_is_reported_as_unread(live: LiveCluster, ask: Ask) -> None:
    done = ask("status", "--release-namespace", "elsewhere")
    assert "could not read gpushare: namespace elsewhere has no pool" in done.stderr
    assert "notebooks" in done.stdout  # from the nodes' labels


def test_terminal_escapes_of_the_cluster_do_not_reach_the_terminal(live: LiveCluster, ask: Ask) -> None:
    live.add_node("t4-3", "notebooks", reason="Odd\x1b[2J", message="\x1b]0;title\x07 \u202e\nline")
    done = ask("status", "-o", "wide")
    assert "\\x1b]0;title\\x07" in done.stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout + done.stderr)
    live.api.garble("/pods?", json.dumps({"kind": "\x1b[31m", "items": 7}).encode())
    assert "\x1b" not in ask("status").stderr


def test_page_and_tables_agree(live: LiveCluster, ask: Ask) -> None:
    """Word by word; `-o wide` has every node, too."""
    live.api.add_pod("waiting", namespace="team", limits={SHARED: 1})
    done = ask("status", "--html", "--kills")
    assert (done.returncode, done.stderr) == (0, "")
    seen = Page(done.stdout)
    said = ask("status", "-o", "wide", "--kills").stdout
    headers = {
        "POOL",
        "MODE",
        "READY",
        "RESOURCE",
        "WANTED",
        "OFFERED",
        "USED",
        "FREE",
        "NODE",
        "STATE",
        "REASON",
        "SINCE",
        "MESSAGE",
        "HELD",
        "BY",
        "SHARES",
        "MEMORY",
        "CAP",
    }
    assert [word for word in said.split() if word not in seen.text and word not in headers] == []
    assert "gpushare explain t4-2  says what to do." in seen.text
    assert len(seen.ids) == len(set(seen.ids))
    assert done.stdout.count("<meter ") == 3


def test_page_has_modes_memory_and_the_time(live: LiveCluster, ask: Ask) -> None:
    html = ask("status", "--html", SOURCE_DATE_EPOCH="0").stdout
    assert "As the cluster was at 1970-01-01 00:00:00 UTC." in html
    assert '<span class="tag mode m-time-slicing">time-slicing</span> <span class="muted">t4</span>' in html
    assert "Memory of 2 nodes: GPU memory 30 GiB, Offered 30 GiB, Caps 29.09 GiB, Stranded 0 GiB" in html
    assert "<dt>Stranded</dt><dd>6.5 GiB</dd>" in html
    assert "Memory of 1 node: GPU memory 15 GiB" in ask("status", "t4-1", "--html").stdout


def test_page_lists_what_could_not_be_read(live: LiveCluster, ask: Ask) -> None:
    live.api.allows = lambda _, path: "/pods" not in path
    done = ask("status", "--html")
    assert "could not read pods: 403" in done.stderr
    assert "pods: 403" in Page(done.stdout).text
    assert "<meter " not in done.stdout, "nobody knows how many are in use"


def test_cluster_texts_are_escaped_on_the_page(live: LiveCluster, ask: Ask) -> None:
    def write(node: dict[str, Any]) -> None:
        for one in node["status"]["conditions"]:
            one["message"] = one["reason"] = HOSTILE

    live.api.edit("nodes", "t4-2", write)
    html = ask("status", "--html").stdout
    assert html.count("<script") == 1
    assert "<img" not in html
    assert "\u202e" not in html
    assert "alert(1)" in html, "it is there, as text"


def test_watch_supports_only_text_output(live: LiveCluster, ask: Ask) -> None:
    assert ask("status", "--watch", "--html").returncode == 2


def node_status(number: int, *, is_ready: bool) -> NodeStatus:
    status, reason = ("True", "Ready") if is_ready else ("False", "GPUBusy")
    condition = Condition(status=status, reason=reason, message="m" * 200, since="2026-11-23T07:00:00Z")
    shares = (ShareUsage(resource=SHARED, wanted=4, offered=4, used=1, free=3),)
    held = tuple(Holder(namespace="team", pod=f"p-{number}-{one}", node="n", shares={SHARED: 1}) for one in range(2))
    return NodeStatus(
        name=f"node-{number:05}",
        pool="p",
        is_up=True,
        is_cordoned=False,
        condition=condition,
        taints=(),
        shares=shares,
        holders=held,
    )


def test_page_of_a_large_cluster_is_small_and_counts_unready_nodes() -> None:
    nodes = tuple(node_status(number, is_ready=number % 2 == 0) for number in range(5000))
    pending = tuple(Pod(namespace="team", name=f"p{number}", phase="Pending", requests={SHARED: 1}) for number in range(5000))
    pool = PoolStatus(name="p", card="t4", mode="time-slicing", nodes=nodes, shares=nodes[0].shares)
    whole = Status(pools=(pool,), others=(), kills=(), pending=pending, unseen=())
    shown = html.page(status.report(whole, is_wide=False, with_kills=True), "now")
    assert len(shown.encode()) < 2_000_000
    text = " ".join(Page(shown).text.split())
    assert "and 3000 nodes more; 500 of them do not match the plan" in text
    assert "and 4950 more" in text
    assert "and 8000 more; --format json lists all" in text
    assert "no Event about a cap" in text
