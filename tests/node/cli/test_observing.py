"""`apply` and `enforce` under `adoption: observe`, as processes: they write condition and annotation alone."""

import json
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.adapters.host.tenancy import NAME
from tests.compiler.render import compiled
from tests.node.cli import cli_environment as shell
from tests.node.cli.cli_environment import POOL, CliEnvironment, Done
from tests.node.enforce.enforcement import tenancy_text
from tests.support.fake_api.server import ApiServer
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, wait_for

NODE = "node-1"
WOULD = "gpushare.dev/would"
WRITING = re.compile(r"nvml(?!EventSet)\w*(Set[A-Z]|Create|Destroy|Reset|Clear)")
"""NVML's calls that change a GPU, by their names; the runtime's own list is of those that do not."""

CHECKPOINT = """import pathlib, sys
from gpushare_node.cli import main
from gpushare_node.backends import device_plugin
device_plugin.read_checkpoint.__defaults__ = (pathlib.Path(sys.argv[1]),)
sys.exit(main(sys.argv[2:]))"""


class Observed:
    """A node with tenants, a foreign device plugin and labels, and a runtime whose policy observes."""

    def __init__(self, cli_environment: CliEnvironment, api: ApiServer) -> None:
        self.cli_environment, self.api, self.gpus = cli_environment, api, cli_environment.fake_nvml
        files = compiled.files("dense", dense=POOL, more="  adoption: observe\n")
        self.cli_environment.policy.write_text(files["chart/files/policies/dense.yaml"])
        (cli_environment.folder / NAME).write_text(tenancy_text())
        self.checkpoint = cli_environment.folder / "checkpoint"
        self.hold("user", self.gpus.uuid(0))
        taints = [{"key": key, "effect": "NoSchedule"} for key in ("gpushare.dev/not-ready", "team")]
        labels = {"p": "x", "nvidia.com/mig.config": "all-disabled", "nvidia.com/gpu.deploy.dcgm": "true"}
        api.add_node(NODE, labels=labels, annotations={"other": "1"}, taints=taints, allocatable={"nvidia.com/gpu": 2})
        api.add_pod("tenant", namespace="team", node=NODE, uid="user")
        api.add_pod("runtime", namespace="gpushare", node=NODE, uid="9")
        api.add_daemonset("gpushare-dense")
        self.before = self.node()
        self.layout = self.gpus.show()

    def hold(self, pod: str, device: str) -> None:
        """Kubelet gives a pod a device."""
        entry = {"PodUID": pod, "ContainerName": "main", "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"-1": [device]}}
        data = {"PodDeviceEntries": [entry], "RegisteredDevices": {"nvidia.com/gpu": [device]}}
        self.checkpoint.write_text(json.dumps({"Data": data}))

    def node(self) -> Any:
        """The node without what the runtime may write, and without what follows from any write."""
        node = json.loads(json.dumps(self.api.node(NODE)))
        node["metadata"]["annotations"].pop(WOULD, None)
        node["status"]["conditions"] = [one for one in node["status"]["conditions"] if one["type"] != "GPUShareReady"]
        return {**node, "metadata": {key: node["metadata"][key] for key in ("labels", "annotations", "uid")}}

    @property
    def environment(self) -> dict[str, str]:
        return (
            self.cli_environment.environment
            | self.api.kubeconfig(self.cli_environment.folder / "kubeconfig")
            | {"NODE_NAME": NODE, "POD_NAME": "runtime", "POD_NAMESPACE": "gpushare", "POD_UID": "9"}
        )

    def command(self, *more: str) -> list[str]:
        files = ["--policy", str(self.cli_environment.policy), "--state-dir", str(self.cli_environment.folder / "state")]
        return [str(self.checkpoint), more[0], *files, *more[1:]]

    def apply(self) -> Done:
        return shell.run(CHECKPOINT, self.command("apply", "--hold", "--format", "json"), self.environment)

    def condition(self) -> tuple[str, str, str]:
        found = self.api.condition(NODE) or {"status": "", "reason": "", "message": ""}
        return found["status"], found["reason"], found["message"]

    def would(self) -> Any:
        return json.loads(self.api.node(NODE)["metadata"]["annotations"].get(WOULD, "null"))

    def assert_untouched(self) -> None:
        """The proof: no call that changes a GPU, no request that changes anything but condition and annotation."""
        assert [call for call in self.gpus.calls() if WRITING.match(call)] == []
        assert set(self.api.writes()) <= {("PATCH", f"/api/v1/nodes/{NODE}/status")}
        for (method, _), body in zip(self.api.requests, self.api.bodies, strict=True):
            if method != "GET":
                assert set(body) == {"metadata", "status"}
                assert set(body["metadata"]) == {"annotations"}
                assert set(body["metadata"]["annotations"]) == {WOULD}
                assert set(body["status"]) == {"conditions"}
                assert [one["type"] for one in body["status"]["conditions"]] == ["GPUShareReady"]
        assert self.node() == self.before
        assert not (self.cli_environment.folder / "state" / "policy.yaml").exists()


@pytest.fixture
def observed(cli_environment: CliEnvironment, api: ApiServer) -> Observed:
    made = Observed(cli_environment, api)
    api.forget_requests()
    made.gpus.forget_calls()
    return made


def test_apply_in_observe_mode_reports_what_enforce_would_do_and_exits(observed: Observed) -> None:
    done = observed.apply()
    assert done.returncode == 0, done.stderr
    observed.assert_untouched()
    assert observed.gpus.show() == observed.layout
    status, reason, message = observed.condition()
    assert (status, reason) == ("False", "Observing")
    assert message.startswith("Nothing is changed on this node; enforce would change GPU 0, set 3 labels, ")
    assert "In use by pod team/tenant" in message
    would = observed.would()
    assert would["gpus"]["0"][0] == "switch MIG on"
    assert len([step for step in would["gpus"]["0"] if "g." in step]) == 5
    assert would["pods"] == ["team/tenant"]
    assert (would["taints"], would["removedTaints"]) == (["gpushare.dev/repartitioning"], ["gpushare.dev/not-ready"])
    assert would["labels"]["gpushare.dev/pool"] == "dense"
    assert would["resources"] == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 4, "nvidia.com/mig-3g.20gb": 1}
    assert json.loads(done.stdout)["would"] == would


def test_a_second_run_writes_nothing(observed: Observed) -> None:
    observed.apply()
    observed.api.forget_requests()
    assert observed.apply().returncode == 0
    assert observed.api.writes() == []


def test_node_that_matches_the_policy_reports_no_gpu_changes(observed: Observed) -> None:
    observed.gpus.set_mode(0, current=True)
    for profile, start in ((9, 4), (19, 0), (19, 1), (19, 2), (19, 3)):
        observed.gpus.add_instance(0, profile, start)
    observed.apply()
    assert "gpus" not in observed.would()
    observed.assert_untouched()


def unreadable_checkpoint(node: Observed) -> None:
    node.checkpoint.write_text("{")


def foreign_layout_in_use(node: Observed) -> None:
    node.gpus.set_mode(0, current=True)
    node.gpus.put(0, 4_000_001, 100, gi=node.gpus.add_instance(0, 9, 4))


def former_change_unfinished(node: Observed) -> None:
    """An enforcing runtime was killed in the middle of a change, and the node has its marks."""
    node.api.edit(
        "nodes",
        NODE,
        lambda one: one["metadata"]["labels"].update(
            {
                "gpushare.dev/pool": "dense",
                "nvidia.com/device-plugin.config": "mig-00000000-a",
                "nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change",
            }
        ),
    )
    node.api.edit(
        "nodes", NODE, lambda one: one["spec"].update(taints=[{"key": "gpushare.dev/repartitioning", "effect": "NoSchedule"}])
    )
    node.before = node.node()


def all_gpus_lost(node: Observed) -> None:
    node.gpus.lose(0)
    node.gpus.lose(1)


def release_requested(node: Observed) -> None:
    asked = {"gpushare.dev/release": "gone-job", "gpushare.dev/retry": "now"}
    node.api.edit("nodes", NODE, lambda one: one["metadata"]["annotations"].update(asked))
    node.before = node.node()


FAULTS: dict[str, Callable[[Observed], object]] = {
    "none": lambda node: None,
    "a lost GPU": lambda node: node.gpus.lose(0),
    "no GPU answers": all_gpus_lost,
    "no driver": lambda node: node.gpus.unload(),
    "another library": lambda node: node.gpus.unload(18),
    "no permission": lambda node: node.gpus.fail("nvmlDeviceGetCount_v2", 4),
    "an unreadable list": lambda node: node.gpus.fail("nvmlDeviceGetMigMode", 999, gpu=1),
    "a pending mode": lambda node: node.gpus.set_mode(0, current=False, pending=True),
    "what MPS left": lambda node: node.gpus.set_compute_mode(1, 3),
    "a foreign layout in use": foreign_layout_in_use,
    "driver limits": lambda node: node.gpus.offer_limits(),
    "an unreadable checkpoint": unreadable_checkpoint,
    "no checkpoint": lambda node: node.checkpoint.unlink(),
    "a node that was being changed": former_change_unfinished,
    "a release that was requested": release_requested,
    "the condition is refused": lambda node: node.api.fail("/status", 403),
    "pods are refused": lambda node: node.api.fail("/api/v1/pods", 403),
    "the node is refused": lambda node: node.api.fail("GET /api/v1/nodes", 500),
    "the answer is lost": lambda node: node.api.lose("PATCH"),
}


@pytest.fixture(params=FAULTS)
def faulty(request: pytest.FixtureRequest, observed: Observed) -> Observed:
    """The node with one of the faults."""
    FAULTS[request.param](observed)
    observed.layout = observed.gpus.show()
    observed.api.forget_requests()
    return observed


@pytest.mark.failure_case(119)
def test_apply_in_observe_mode_succeeds_and_changes_nothing_on_any_fault(faulty: Observed) -> None:
    done = faulty.apply()
    assert done.returncode == 0, done.stderr
    faulty.assert_untouched()
    assert faulty.gpus.show() == faulty.layout


@pytest.mark.failure_case(119)
def test_enforce_in_observe_mode_changes_nothing_on_any_fault(faulty: Observed) -> None:
    with running(faulty) as page:
        wait_for(lambda: cycles(page()) >= 3)
    faulty.assert_untouched()
    assert faulty.gpus.show() == faulty.layout


@pytest.mark.failure_case(119)
def test_without_an_api_server_apply_exits_and_enforce_continues(observed: Observed) -> None:
    observed.api.down()
    done = observed.apply()
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (0, "Observing")
    with running(observed) as page:
        wait_for(lambda: cycles(page()) >= 3)
    observed.api.up()
    observed.assert_untouched()


def test_condition_reports_why_the_gpus_cannot_be_read(observed: Observed) -> None:
    observed.gpus.unload()
    assert observed.apply().returncode == 0
    assert observed.condition()[:2] == ("False", "WaitingForDriver")
    assert observed.would() == {"pool": "dense", "unknown": "The GPUs' driver does not answer yet."}
    observed.gpus.reload()
    assert observed.apply().returncode == 0
    assert observed.condition()[:2] == ("False", "Observing")


def test_enforce_updates_the_observing_condition(observed: Observed) -> None:
    with running(observed) as page:
        wait_for(lambda: observed.condition()[1] == "Observing")
        assert "In use by pod team/tenant" in observed.condition()[2]
        assert 'gpushare_node_condition{reason="Observing"} 1' in page()
    observed.assert_untouched()


def test_stored_policy_of_a_previous_bundle_is_not_enforced(observed: Observed) -> None:
    """Also where the folder of the host is mounted, as by hand: the policy that is given decides."""
    StateDir(observed.cli_environment.folder / "state").keep_policy("kept")
    assert observed.apply().returncode == 0
    assert StateDir(observed.cli_environment.folder / "state").policy() == "kept"
    assert [call for call in observed.gpus.calls() if WRITING.match(call)] == []


class running:  # noqa: N801 - used as a function
    """`enforce` as a process for the time of the block; the value returns its metrics, empty while it has none."""

    def __init__(self, node: Observed) -> None:
        self._port = free_port()
        argv = node.command("enforce", "--interval", "100ms", "--port", str(self._port))
        self._process = shell.start(CHECKPOINT, argv, node.environment)

    def __enter__(self) -> Callable[[], str]:
        return self._page

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        errors = self._process.communicate(timeout=PATIENCE)[1]
        assert self._process.returncode == 0, errors
        assert "Traceback" not in errors, errors.partition("Traceback")[2]

    def _page(self) -> str:
        assert self._process.poll() is None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=PATIENCE) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""


def cycles(page: str) -> int:
    found = re.search(r"^gpushare_cycle_seconds_count (\d+)$", page, re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.fixture(autouse=True)
def _healed(cli_environment: CliEnvironment) -> Iterator[None]:
    yield
    cli_environment.fake_nvml.heal()
