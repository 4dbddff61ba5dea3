"""Charts as compile leaves them, from values and files made by hand: each shows the chart something else."""

import re
import shutil
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from gpushare.bundle import admission as admission_of_bundles
from gpushare.bundle.artifact import hexdigest
from gpushare.core import emit, resources

NAMESPACE = "gpu-system"

# Each is a legal label value that some reader of YAML takes for something else than text when it stands without quotes.
ODD = (
    "no",
    "on",
    "y",
    "Off",
    "true",
    "null",
    "1e3",
    "1E3",
    "0x1F",
    "0o17",
    "0b11",
    "010",
    "1_000",
    "1.5",
    "12.e3",
    "2001-01-01",
    "nan",
    "inf",
    "0",
    "00",
    "1e400",
    "685e230",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Bundle:
    """The generated parts of a chart."""

    name: str
    values: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """The static chart with these values and files, in a new folder."""
        shutil.copytree(resources.chart(), folder)
        (folder / "values.yaml").write_text(emit.yaml_text(self.values))
        given = self.values | {"namespace": self.values["namespace"] or NAMESPACE}
        written = {
            "files/admission.yaml": emit.yaml_text(admission_of_bundles.document(given)),
            "files/tenancy.json": emit.canonical_json(admission_of_bundles.tenancy(given)),
        }
        for path, text in (self.files | written).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return folder


def digest(text: str) -> str:
    """What the values of a pool say of its policy."""
    return hexdigest(text.encode())[:8]


def pool(mode: str, **changes: Any) -> dict[str, Any]:
    """The values of a pool whose card has MIG; `bundle` adds the digest of its policy."""
    resource = {"mig": "nvidia.com/mig-1g.5gb", "exclusive": "nvidia.com/gpu"}.get(mode, "nvidia.com/gpu.shared")
    term = {"matchExpressions": [{"key": "example.org/gpu", "operator": "In", "values": [mode]}]}
    return {
        "card": "a100-sxm4-40gb",
        "mode": mode,
        "migCapable": True,
        "mig": mode == "mig",
        "mps": mode == "mps",
        "evict": False,
        "tolerations": [],
        "terms": [term],
        "resources": [resource],
        "sharedResources": [resource] if mode in {"time-slicing", "mps"} else [],
        "namespaces": [],
        "default": False,
    } | changes


def admission(**changes: Any) -> dict[str, Any]:
    """The values of the policies on pods."""
    return {
        "enforce": "deny",
        "ambiguous": [],
        "tenants": [],
        "platformNamespaces": [],
        "scope": "tenants",
        "localhostProfiles": [],
        "mutate": False,
    } | changes


def bundle(
    name: str,
    pools: dict[str, Any],
    *,
    profiles: tuple[str, ...] = (),
    policies: dict[str, str] | None = None,
    **changes: Any,
) -> Bundle:
    """Default values with these pools, a policy for each unless `policies` has its text, and a config for each profile key."""
    texts = {pool: policy(pool) for pool in pools} | (policies or {})
    digested = {pool: fields | {"policy": digest(texts[pool])} for pool, fields in pools.items()}
    values: dict[str, Any] = {
        "cluster": "physics-batch",
        "namespace": "",
        "stack": "gpu-operator",
        "partitioner": "gpushare",
        "image": {
            "registry": "",
            "repository": "ghcr.io/gpushare/node-runtime",
            "tag": "0.1.0",
            "digest": "",
            "pullPolicy": "IfNotPresent",
        },
        "imagePullSecrets": [],
        "runtimeClassName": "nvidia",
        "kubeletRoot": "/var/lib/kubelet",
        "releaseAfter": "5m",
        "gpuClientLabel": False,
        "migParted": {"enabled": False},
        "admission": admission(),
        "pools": digested,
        "quotas": {},
        "uninstall": {"release": True, "timeout": "3m", "goOn": False},
        "networkPolicy": {"enabled": True, "from": []},
        "global": {},
    } | changes
    files = {f"files/policies/{pool}.yaml": text for pool, text in texts.items()}
    files |= {f"files/profiles/{key}.yaml": emit.yaml_text({"version": "v1", "sharing": {}}) for key in profiles}
    if values["migParted"]["enabled"]:
        configs = {"all-disabled": [{"devices": "all", "mig-enabled": False}]}
        files["files/mig-parted/config.yaml"] = emit.yaml_text({"version": "v1", "mig-configs": configs})
    return Bundle(name=name, values=values, files=files)


def policy(name: str) -> str:
    """Something like a policy, with text that a template engine or a careless reader would change."""
    spec = {"inert": '{{ fail "evaluated" }}', "odd": list(ODD), "resources": {"nvidia.com/gpu.shared": 8}, "lines": "a\nb\n"}
    return emit.yaml_text({"apiVersion": "gpushare.dev/v1", "kind": "NodePolicy", "metadata": {"name": name}, "spec": spec})


def policy_with_digest(name: str, form: str) -> str:
    """A policy whose digest matches: some of eight digits are numbers to a reader of YAML, if they stand without quotes."""
    text = policy(name)
    texts = (f"{text}# {number}\n" for number in range(100_000))
    return next(text for text in texts if re.fullmatch(form, digest(text)))


def _odd_expressions() -> list[dict[str, Any]]:
    return [{"key": f"example.org/{number}", "operator": "NotIn", "values": [text]} for number, text in enumerate(ODD)]


MODES = bundle(
    "modes",
    {
        "dense": pool("mig", evict=True, namespaces=["atlas", "cms"]),
        "hpc": pool("exclusive"),
        "notebooks": pool("time-slicing", card="t4", migCapable=False),
        "serving": pool(
            "mps",
            card="l40s",
            migCapable=False,
            tolerations=[
                {"key": "serving", "operator": "Exists"},
                {"key": "odd", "operator": "Equal", "value": "1e3", "effect": "NoExecute", "tolerationSeconds": 3000000},
                {"key": "inert", "operator": "Equal", "value": '{{ fail "evaluated" }}'},
            ],
        ),
        "training": pool(
            "time-slicing",
            terms=[
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-01"]}]},
                {
                    "matchExpressions": [{"key": "gpushare.dev/pool", "operator": "In", "values": ["training"]}],
                    "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["gpu-02"]}],
                },
            ],
        ),
    },
    profiles=("exclusive-00000001", "mig-1e345678", "mps-12345678", "time-slicing-0badcafe"),
    admission=admission(
        enforce="warn",
        ambiguous=["nvidia.com/gpu", "nvidia.com/gpu.shared"],
        tenants=["atlas", "cms", "lhcb"],
        platformNamespaces=["monitoring"],
        localhostProfiles=["1e3", "k8s/tenant"],
    ),
    quotas={
        "atlas": {"requests.nvidia.com/gpu.shared": 8, "requests.nvidia.com/mig-1g.5gb": 0},
        "cms": {"requests.nvidia.com/gpu": 12345678},
        "lhcb": {
            "requests.nvidia.com/gpu": 2000,
            "requests.nvidia.com/gpu.shared": 1500,
            "requests.nvidia.com/mig-1g.5gb": 9 * 10**15,
        },
    },
)
ONE = bundle("one", {"only": pool("time-slicing")}, profiles=("time-slicing-0badcafe",))
FIFTY = bundle("fifty", {f"pool-{number}": pool("mig") for number in range(50)}, profiles=("mig-0badcafe",))
FORMER = bundle("former", {"only": pool("mig")}, profiles=tuple(f"mig-{number:08x}" for number in range(20)))
_NAMES = ("1e3", "on", "null", "no", "0x1f", "007", "y", "true", "a" * 48, "2001-01-01")
ODD_NAMES = bundle(
    "odd-names",
    {name: pool("time-slicing", terms=[{"matchExpressions": _odd_expressions()}]) for name in _NAMES},
    policies={
        name: policy_with_digest(name, form)
        for name, form in zip(_NAMES, cycle((r"\d+e\d+", r"[1-9]\d+", r"0\d+", r"0\d*e\d+")), strict=False)
    },
    cluster="1e3",
)
MIRRORED = bundle(
    "mirrored",
    {"only": pool("mps", migCapable=False)},
    imagePullSecrets=[{"name": "mirror"}, {"name": "1e3"}],
    runtimeClassName="",
    image={
        "registry": "registry.example.org:5000/mirror/",
        "repository": "ghcr.io/gpushare/node-runtime",
        "tag": "0.1.0",
        "digest": "sha256:" + "0123456789abcdef" * 4,
        "pullPolicy": "Always",
    },
)
HOSTLESS = bundle(
    "hostless",
    {"only": pool("exclusive")},
    kubeletRoot="/data/kubelet",
    gpuClientLabel=True,
    image={"registry": "registry.example.org", "repository": "gpushare/node-runtime", "tag": "1e3"},
)
MIG_MANAGER = bundle(
    "mig-manager",
    {"only": pool("mig", default=True), "other": pool("exclusive", default=True, namespaces=["1e3"])},
    partitioner="mig-manager",
    migParted={"enabled": True},
    profiles=("mig-0badcafe",),
    pluginNamespace="1e3",
    admission=admission(enforce="audit", ambiguous=["nvidia.com/gpu"], mutate=True),
)
DEVICE_PLUGIN = bundle(
    "device-plugin",
    {"only": pool("mps")},
    stack="device-plugin",
    profiles=("mps-0badcafe",),
    admission=admission(scope="cluster"),
    kubeletRoot="/var/lib/k0s/kubelet",
    networkPolicy={
        "enabled": True,
        "from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}, {"podSelector": {"matchLabels": {"on": "1e3"}}}],
    },
)
EXISTING = bundle(
    "existing",
    {"only": pool("exclusive")},
    stack="existing",
    cluster="",
    uninstall={"release": False, "timeout": "1h", "goOn": True},
    networkPolicy={"enabled": False, "from": []},
    admission=admission(enforce="none", mutate=True),
)

BUNDLES = (MODES, ONE, FIFTY, FORMER, ODD_NAMES, MIRRORED, HOSTLESS, MIG_MANAGER, DEVICE_PLUGIN, EXISTING)
