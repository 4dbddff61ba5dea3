"""A node on which anything may happen, with both back ends: what their DaemonSets, kubelet and NVIDIA's DRA driver do there.

The device plugin and the driver each run where their labels permit it, start and end with delays, and read the GPUs when they
start. Kubelet removes a driver's slices half a minute after it has gone. A claim is prepared and unprepared by a driver that
runs, and by nothing else. `check` and `changing` hold what must never happen.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from gpushare_node.adapters.kube.slices import view_slices
from gpushare_node.backends.backend import Allocation, Checkpoint, Claim, NodeBackend
from gpushare_node.backends.device_plugin import DevicePlugin, read_checkpoint
from gpushare_node.backends.dra.offer import DraBackend
from gpushare_node.contract import policy as policies
from gpushare_node.contract.names import BACKEND_LABEL, REPARTITIONING_TAINT
from gpushare_node.contract.policy import Policy, PoolDra, Share
from gpushare_node.contract.struct import replace
from gpushare_node.reconcile.run_context import Dependencies
from tests.node.reconcile.chaos_node import ChaosNode
from tests.node.reconcile.loop_node import DEPLOY, NAME, PLUGIN_POD
from tests.support.fake_api.refusals import Refusal

DRIVER = "gpu.nvidia.com"
DRIVER_POD, SLICE = "dra-driver-x", "00000-gpu.nvidia.com-n1-x"
_START_SECONDS, _LEAVE_SECONDS, _WIPE_SECONDS = 2.0, 3.0, 30.0
_CLASS = "gpushare-training"


def by_claims(policy: Policy) -> Policy:
    """The same layout, offered by the DRA driver."""
    shares = tuple(replace(share, resource=_class(share)) for share in policy.shares)
    counts = {_class(share): sum(_profiles(gpu).count(share.profile) for gpu in policy.gpus) for share in policy.shares}
    return replace(
        policy,
        backend=policies.Backend.DRA,
        dra=PoolDra(driver=DRIVER, shares=None, on_demand=False),
        profile="",
        resources=tuple(counts.items()),
        shares=shares,
    )


def _class(share: Share) -> str:
    return _CLASS if share.profile is None else f"{_CLASS}-{share.profile.replace('.', '-').replace('+', '-')}"


def _profiles(gpu: policies.DesiredGpu) -> list[str | None]:
    return [instance.profile for instance in gpu.instances] or [None]


class DraNode(ChaosNode):
    """`prepared` and `bound` are devices by tenant: what the driver has prepared, and what the scheduler gave.

    `remembered` is what kubelet lists of claims that the driver knows no more, since a reboot. `may_be_served`: when the driver
    has gone, its socket cannot be asked.
    """

    def __init__(self, folder: Path, random: Random, *gpus: str) -> None:
        self.prepared: dict[str, str] = {}
        self.bound: dict[str, str] = {}
        self.remembered: dict[str, str] = {}
        self.seen_by_driver: list[tuple[str | None, str, str]] | None = None
        self.is_plugin_running = True
        self.is_driver_deaf = self.was_tampered = self.may_be_served = False
        self.is_label_written = False
        """Somebody has written the label since the program last looked at pods or slices."""
        self._due: dict[str, float] = {}
        super().__init__(folder, random, *gpus)
        self._add_plugin_pod()

    def deps(self, pool: str, *, cluster: bool = True) -> Dependencies:
        return replace(
            super().deps(pool, cluster=cluster),
            backend=self._backend(self.goal),
            backend_of=self._backend,
            is_served=lambda _: self.is_driver_running or self.may_be_served,
        )

    def _backend(self, policy: Policy | None) -> NodeBackend:
        if policy is None or policy.backend is policies.Backend.DEVICE_PLUGIN:
            return DevicePlugin(
                read_checkpoint=self._read_checkpoint,
                find_sockets=lambda: frozenset({("nvidia-gpu.sock", 1, self.starts)} if self.is_plugin_running else ()),
            )
        slices = self.server()
        return DraBackend(
            policy=policy, read_checkpoint=self._read_checkpoint, node=NAME, read_slices=lambda: slices.slices(DRIVER)
        )

    def _read_checkpoint(self) -> Checkpoint:
        claims = tuple(
            Allocation(pod_uid=f"uid-{name}", container="", resource=resource, ids=(device,), claim=_claim(name))
            for found, resource in ((self.prepared, _CLASS), (self.remembered, DRIVER))
            for name, device in found.items()
        )
        known = read_checkpoint(self.checkpoint)
        return replace(known, allocations=(*known.allocations, *claims), has_claims=True)

    # The DaemonSets, kubelet and the driver.

    def _tick(self, time: float = 0.0) -> None:
        self.live()
        self.on_tick(time)
        self.reap()
        if not self.api_is_up():
            return
        labels = self.labels()
        may_plug = labels.get(BACKEND_LABEL) not in ("none", "dra") and labels.get(DEPLOY) == "true"
        if self._is_due("plugin", time, may_plug, is_running=self.is_plugin_running):
            self._start_plugin() if may_plug else self._stop_plugin()
        elif self.is_plugin_running and not self.is_plugin_dead and not self.is_plugin_deaf:
            self._follow_label()
        may_drive = labels.get(BACKEND_LABEL) == "dra"
        if self._is_due("driver", time, may_drive, is_running=self.is_driver_running):
            self._start_driver() if may_drive else self._stop_driver(time)
        if self.seen_by_driver is None and time >= self._due.get("wipe", 0.0):
            with suppress(Refusal):
                self.api.remove("resourceslices", SLICE)
        if self.is_driver_running:
            self._prepare()

    def wait(self, seconds: int) -> None:
        """Let time pass, second by second."""
        for _ in range(seconds):
            self.clock.sleep(1.0)

    def _is_due(self, what: str, time: float, may_run: bool, *, is_running: bool) -> bool:
        """Whether it starts or ends now: some seconds after its labels say so."""
        if may_run is is_running or (what == "driver" and self.is_driver_deaf) or (what == "plugin" and self.is_plugin_dead):
            self._due.pop(what, None)
            return False
        return time >= self._due.setdefault(what, time + (_START_SECONDS if may_run else _LEAVE_SECONDS))

    @property
    def is_driver_running(self) -> bool:
        return self.seen_by_driver is not None

    def enumerate(self) -> None:
        if self.is_plugin_running:
            super().enumerate()

    def _follow_label(self) -> None:
        if self.labels().get("nvidia.com/device-plugin.config", "") != self._enumerated:
            self.enumerate()

    def _add_plugin_pod(self) -> None:
        self.program(PLUGIN_POD, "nvidia-device-plugin-daemonset")

    def _start_plugin(self) -> None:
        self._add_plugin_pod()
        self.is_plugin_running = True
        self.enumerate()

    def _stop_plugin(self) -> None:
        with suppress(Refusal):
            self.api.remove("pods", PLUGIN_POD, namespace="gpu-operator")
        self.is_plugin_running, self._enumerated, self.registered = False, None, {}
        self.publish()

    def _start_driver(self) -> None:
        self.seen_by_driver = self._look()
        labels = {"dra-driver-nvidia-gpu-component": "kubelet-plugin"}
        self.api.add_daemon_pod(DRIVER_POD, "dra-kubelet-plugin", namespace="dra", node=NAME, labels=labels)
        with suppress(Refusal):
            self.api.remove("resourceslices", SLICE)
        pool = {"name": NAME, "generation": 1, "resourceSliceCount": 1}
        devices = [_device(*one) for one in self.seen_by_driver]
        self.api.add("resourceslices", SLICE, {"spec": {"driver": DRIVER, "nodeName": NAME, "pool": pool, "devices": devices}})

    def _stop_driver(self, time: float) -> None:
        self.api.remove("pods", DRIVER_POD, namespace="dra")
        self.seen_by_driver, self._due["wipe"] = None, time + _WIPE_SECONDS

    def _look(self) -> list[tuple[str | None, str, str]]:
        """Profile, UUID and name of each device, as the driver finds them."""
        found = []
        for gpu in range(self.count):
            places = {
                self.fake_nvml.mig_uuid(gpu, gi): (number, start)
                for gi, number, start, *_, computes in self.fake_nvml.instances(gpu)
                if computes
            }
            for profile, uuid in self._devices(gpu):
                name = f"gpu-{gpu}"
                if profile is not None:
                    form = profile.replace(".", "").replace("+", "-")
                    name += "-mig-{}-{}-{}".format(form, *places[uuid])
                found.append((profile, uuid, name))
        return found

    def _prepare(self) -> None:
        """The driver prepares what was given to pods, and unprepares what no pod has any more."""
        assert self.seen_by_driver is not None
        pods = {name for plural, namespace, name in self.api.store._objects if (plural, namespace) == ("pods", "science")}
        devices = {name: uuid for _, uuid, name in self.seen_by_driver}
        for name, device in list(self.bound.items()):
            if name not in pods:
                del self.bound[name]
                self.prepared.pop(name, None)
                self.remembered.pop(name, None)
            elif name not in self.prepared and device in devices:
                self.remembered.pop(name, None)
                self.prepared[name] = devices[device]

    def arrive(self, *, is_at_work: bool) -> None:
        """A pod comes by the offer of either back end, if the node takes any; one with a claim may tolerate every taint."""
        slices = self.api.all("resourceslices")
        is_kept_away = bool(self.taints()) and self.random.random() < 0.5
        if not slices or self.registered or is_kept_away or self.is_down:
            super().arrive(is_at_work=is_at_work and not slices)
            return
        free = [device for device in slices[0]["spec"]["devices"] if device["name"] not in self.bound.values()]
        if free:
            self._births += 1
            name = f"tenant-{self._births}"
            self.api.add_pod(name, namespace="science", node=NAME, uid=f"uid-{name}")
            self.tenants[name] = -1, None, "", 0
            self.bound[name] = self.random.choice(free)["name"]
            if self.is_driver_running:
                self._prepare()

    def reap(self) -> None:
        pods = {name for plural, namespace, name in self.api.store._objects if (plural, namespace) == ("pods", "science")}
        for name in self.tenants.keys() & self.bound.keys() - pods:
            del self.tenants[name]
        super().reap()

    def boot(self) -> None:
        """Kubelet lists the claims that it had, and the driver knows none."""
        names = {uuid: name for _, uuid, name in self._look()}
        self.remembered |= {name: names[uuid] for name, uuid in self.prepared.items() if uuid in names}
        self.prepared.clear()
        keeps = {
            name: self.tenants.pop(name) for name in list(self.tenants) if name in self.bound and self.random.random() < 0.5
        }
        super().boot()
        self.tenants |= keeps
        if self.is_driver_running:
            self._stop_driver(self.clock.now())

    # What must never happen.

    def changing(self, call: str, uuid: str, *args: Any, **named: Any) -> None:
        super().changing(call, uuid, *args, **named)
        gpu = next(one for one in range(self.count) if self.fake_nvml.uuid(one) == uuid)
        devices = {one for _, one in self._devices(gpu)} | {uuid}
        held = {name for name, device in self.prepared.items() if device in devices}
        assert not held, f"{call} on GPU {gpu} under the claims of {held}"
        if not self.was_tampered:
            assert not self.is_driver_running, f"{call} under the driver"
            assert not self.api.all("resourceslices"), f"{call} while devices of before are given out"

    def asking(self, method: str, path: str) -> Any:
        if method == "GET" and path.endswith(("/pods", "/resourceslices")):
            self.is_label_written = False
        return super().asking(method, path)

    def restart_driver(self) -> None:
        """Somebody deletes its pod, and it reads the GPUs again."""
        if self.is_driver_running:
            self._stop_driver(self.clock.now())
            self._start_driver()

    def check(self, before: Mapping[str, Any]) -> None:
        had, has = before["metadata"]["labels"].get(BACKEND_LABEL), self.labels().get(BACKEND_LABEL)
        if has != had and not self.was_tampered:
            assert has != "dra" or not (self.is_plugin_running or self._offers_by_plugin()), "the driver joins the plugin"
            is_used = self.is_driver_running or self.api.all("resourceslices") or self.prepared
            assert has is not None or not is_used, "the plugin joins the driver"
        if has in ("dra", "none") and had is None and not self.was_tampered:
            assert REPARTITIONING_TAINT in self.taints(), "the plugin is sent away while pods are let in"
        tainted = {one["key"] for one in before["spec"].get("taints") or ()}
        assert has != "none" or REPARTITIONING_TAINT not in tainted - self.taints(), (
            "pods are let in to a node without an offer"
        )
        if self.condition() == "Ready" and _said(before) != "Ready" and not self.is_label_written:
            assert has == ("dra" if self.goal is not None and self.goal.dra else None), "Ready is said with the wrong label"
        super().check(before)

    def offers_what_stands(self) -> bool:
        label = self.labels().get(BACKEND_LABEL)
        if self.is_label_written:
            return True
        if label is None:
            return super().offers_what_stands()
        slices = view_slices(self.api.all("resourceslices"))
        known = {device.uuid for one in slices for device in one.devices}
        stands = {uuid for gpu in range(self.count) for _, uuid in self._devices(gpu)}
        return label == "dra" and known == stands and not self._offers_by_plugin()

    def _is_intact(self) -> bool:
        """A node on which somebody lets a back end offer what pods have of the other is taken out of service out of turn."""
        return super()._is_intact() and not self.was_tampered

    def _offers(self) -> bool:
        return self._offers_by_plugin() or self.labels().get(BACKEND_LABEL) == "dra"

    def _offers_by_plugin(self) -> bool:
        return super()._offers()


def _claim(name: str) -> Claim:
    return Claim(uid=f"uid-{name}", namespace="science", name=name)


def _said(node: Mapping[str, Any]) -> str | None:
    return next((one["reason"] for one in node["status"]["conditions"] if one["type"] == "GPUShareReady"), None)


def _device(profile: str | None, uuid: str, name: str) -> dict[str, Any]:
    attributes = {"type": "gpu" if profile is None else "mig", "uuid": uuid} | ({"profile": profile} if profile else {})
    return {"name": name, "attributes": {key: {"string": value} for key, value in attributes.items()}}
