"""`existing/`: what an already installed device plugin needs, if gpushare installs none."""

from collections.abc import Mapping

from gpushare.core import emit
from gpushare.render.steps import leaving
from gpushare.resolved.plan import Plan
from gpushare.vendors.nvidia import NVIDIA
from gpushare_node.contract.names import BACKEND_LABEL, OUR_TAINTS

_STEPS = """# The device plugin that is already there

This bundle installs no device plugin. Yours must read its configs from the ConfigMap `gpushare-profiles`, by the node label
`{label}` that gpushare's node runtime sets. NVIDIA's two charts can, by their config-manager; a plugin
from a plain manifest or from a cloud provider cannot. `placement: pack` and MIG profiles with attributes (such as `+me`) need
device plugin 0.20.0 or newer.

The bundle's README.md has the order of all steps. Those of its step "The device plugin":

1. {config_map}

2. Point the plugin at it, once, in the values of its chart:

   | chart | values |
   |---|---|
   | gpu-operator | `devicePlugin.config: {{name: gpushare-profiles, default: ""}}`, `mig.strategy: {strategy}`, \
`migManager.enabled: false` |
   | nvidia-device-plugin | `config: {{name: gpushare-profiles, fallbackStrategies: [empty]}}`, `gfd.enabled: true` |

   Set no `migStrategy` and no MIG_STRATEGY beside it: the environment wins over the profiles. gpu-operator installs an empty
   `mig.strategy` with client-side apply only (Helm 4: `--server-side=false`).

3. Let the plugin, GPU feature discovery and node feature discovery tolerate these taints, with which a node is verified:

{taints}

{runtime_class}
{away}
Check that the toolkit ignores NVIDIA_VISIBLE_DEVICES in unprivileged containers
(`accept-nvidia-visible-devices-envvar-when-unprivileged = false`). Otherwise an image that sets it sees every GPU. Then the
plugin must pass devices by CDI or by volume mounts (DEVICE_LIST_STRATEGY), since its default is that variable, and our own pods
need `accept-nvidia-visible-devices-as-volume-mounts = true`.

For metrics by pod, dcgm-exporter needs `hostPID: true`, KUBERNETES_VIRTUAL_GPUS=true, and in NVIDIA_RESOURCE_NAMES every
resource of the bundle's README.md that ends in `.shared`.
"""

_COPY = """Unless your plugin runs in `{namespace}`, where our chart puts the ConfigMap, write its namespace as
   `platform.namespace` into the intent, or apply a copy to it. Repeat that after every compile: it must hold a profile before
   a node asks for it.

       kubectl apply --server-side --namespace {plugin} -f existing/configmap.yaml"""
_PLACED = """Our chart puts the ConfigMap into `{namespace}`, where your plugin runs. If a copy is there
   already, hand it over to the release: add `--take-ownership` (Helm 3.17 and newer) to the first `helm upgrade`."""
_AWAY = f"""
Keep the plugin off the nodes of NVIDIA's DRA driver, or GPUs are given twice. In the chart nvidia-device-plugin, each term of
`affinity.nodeAffinity` needs `{{key: {BACKEND_LABEL}, operator: NotIn, values: [none, dra]}}`; gpu-operator heeds a label that
gpushare's node runtime sets.
"""
_CLASS = "Our pods have the runtime class `{name}`; so must your plugin's and the tenants'."
_NO_CLASS = "Our pods use the nodes' default runtime. For the class of your plugin's pods write `platform.runtimeClass`."


def config_map(profiles: Mapping[str, str]) -> str:
    """Return the ConfigMap of profiles (text by key) without a namespace, to be applied in the plugin's own."""
    data = {f"{key}-{side}": text for key, text in profiles.items() for side in "ab"}
    metadata = {"name": "gpushare-profiles"}
    return emit.yaml_text({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def steps(plan: Plan) -> str:
    """Return the README of the folder."""
    taints = "\n".join(f"   - `{key}`" for key in OUR_TAINTS)
    name = plan.intent.platform.runtime_class
    runtime_class = _CLASS.format(name=name) if name else _NO_CLASS
    first = _COPY if plan.intent.copies_config_map else _PLACED
    return _STEPS.format(
        label=NVIDIA.plugin_label,
        config_map=first.format(namespace=plan.intent.plugin_namespace, plugin=leaving.NAMESPACE),
        strategy=plan.operator_mig_strategy or '""',
        taints=taints,
        runtime_class=runtime_class,
        away=_AWAY if plan.dra_pools else "",
    )
