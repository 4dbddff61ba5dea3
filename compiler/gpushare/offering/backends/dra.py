"""NVIDIA's DRA driver: a DeviceClass for each kind of a pool's devices, which pods ask for by claims or by names in `limits`.

The driver knows no pools: a class selects devices by their product and profile, and pods of a pool by their node. Names of
classes are stable and never reused: until Kubernetes 1.38 the deletion of a class takes the name for `limits` from another that
has it too. Classes carry no config but a pool's interval, since claims with different ones never share a device.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.bundle.artifact import content_hash
from gpushare.facts.catalog.cards import Card, DeviceProfile
from gpushare.intent.types import Pool, Requests
from gpushare.offering.backends.device_plugin import DevicePlugin
from gpushare.offering.backends.requests import OUR_CLASSES, QUOTA, QUOTA_OF_CLASS, limited
from gpushare.offering.modes import of
from gpushare.vendors.nvidia import NVIDIA
from gpushare_node.contract.names import BACKEND_LABEL, IMPLICIT

DRIVER = NVIDIA.dra_driver
"""The name of the driver in slices and claims, and the domain of its attributes."""

CONFIG_API = f"resource.{NVIDIA.domain}/v1beta1"
"""The version of the driver's configs in classes and claims."""
REQUEST = "gpu"
"""The name of the request in a claim of ours, and of the claim in a pod of ours."""


def is_of_gpus(device_class: str) -> bool:
    """Whether a class has the name of one of ours, or of NVIDIA's own."""
    return device_class.startswith(OUR_CLASSES) or device_class.endswith(NVIDIA.domain)


class DraDriver:
    """The back end of one pool."""

    needs_runtime_class = False
    handover_seconds = 10

    def __init__(self, pool: Pool, card: Card) -> None:
        self._pool, self._card, self._mode = pool, card, of(pool)

    def names(self, profile: DeviceProfile | None, *, is_shared: bool) -> tuple[str, str]:  # noqa: ARG002 - one class for both
        """Return the class of a device, twice: nothing renames it."""
        name = f"gpushare-{self._pool.name}" + (f"-{profile.resource_suffix.replace('.', '-')}" if profile else "")
        return name, name

    def profile(self, replicated: Mapping[str, int]) -> tuple[str, dict[str, Any]]:
        """Return the key of what nodes offer, `<mode>-<8 hex>`, and what it stands for: the driver has no config of ours."""
        config = {"driver": DRIVER, "replicas": dict(sorted(replicated.items()))}
        return f"{self._mode.mode.value}-{content_hash(config)}", config

    def labels(self, key: str) -> dict[str, list[str]]:  # noqa: ARG002 - the driver follows no profile
        """Return the label by which a node gets the driver."""
        return {BACKEND_LABEL: ["dra"]}

    def quota_key(self, resource: str) -> str:
        """Return what a ResourceQuota calls the devices of a class."""
        return f"{resource}{QUOTA_OF_CLASS}"

    def quota_keys(self, resource: str) -> tuple[str, ...]:
        """Return every key that limits them. Only that of a name in `limits` refuses a pod when it is made."""
        name = self.extended_name(resource)
        return self.quota_key(resource), *([f"{QUOTA}{name}"] if name else [])

    def requesting(self, container: Mapping[str, Any], resource: str) -> dict[str, Any]:
        """Return the part of a pod's spec with the container, which gets one share of the class."""
        if self._pool.requests is Requests.LIMITS:
            return limited(container, self.limits(resource)[0])
        claim = {"name": REQUEST, "resourceClaimTemplateName": self.template(resource)}
        return {
            "resourceClaims": [claim],
            "containers": [{**container, "resources": {"claims": [{"name": REQUEST}]}}],
        }

    def limits(self, resource: str) -> tuple[str, ...]:
        """Return the names of the class in `limits`, the one that a pool gives it first."""
        name = self.extended_name(resource)
        return *([name] if name else []), f"{IMPLICIT}{resource}"

    def extended_name(self, resource: str) -> str:
        """Return the name that the class has in `limits` as with the device plugin; empty without one."""
        if self._pool.requests is Requests.CLAIMS:
            return ""
        profile, is_shared = self._kinds[resource]
        return DevicePlugin(self._pool).names(profile, is_shared=is_shared)[1]

    def template(self, resource: str) -> str:
        """Return the name of the ResourceClaimTemplate with which a pod gets one share of the class."""
        profile, is_shared = self._kinds[resource]
        if profile is None:
            return self.template_name("share" if is_shared else REQUEST)
        return self.template_name(profile.name.replace("+", "-") + ("-share" if is_shared else ""))

    def template_name(self, shape: str) -> str:
        """Return the name of a template of the pool."""
        return f"gpushare-{self._pool.name}.{shape}"

    @property
    def _kinds(self) -> Mapping[str, tuple[DeviceProfile | None, bool]]:
        return dict(self._every_kind())

    def _every_kind(self) -> Iterator[tuple[str, tuple[DeviceProfile | None, bool]]]:
        for profile in (None, *self._card.profiles.values()):
            is_shared = self._mode.replicas_of(profile) > 1
            yield self.names(profile, is_shared=is_shared)[1], (profile, is_shared)
