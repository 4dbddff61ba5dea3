"""A bundle that gpushare wrote, back to its intent: from nodes/pools.yaml, and what its other files add.

Which files say more: a pool's profile (chart/files/profiles) its placement, a policy (chart/files/policies) stack and
partitioner, namespace.yaml the namespace, images.txt the versions of the charts. No file
says: goals (their layouts do), the reserve, `require`, `accept`, default pools, and upstream values that differ from the
generated ones.
"""

import re
from typing import Any

from gpushare import backends, modes, vendors
from gpushare.bundle import reader
from gpushare.catalog import amd_charts, cards, upstream
from gpushare.catalog.device_memory import reserve_bytes
from gpushare.core.diagnostics import Path
from gpushare.core.units import MIB
from gpushare.core.wording import shorten
from gpushare.importing import bundle_dra, bundle_gitops, bundle_monitoring, platform
from gpushare.importing.draft import Draft
from gpushare.importing.facts import GPU, SHARED, Facts, ImportedQuota, Settings
from gpushare.importing.helm_values import OPERATOR, PLUGIN
from gpushare.importing.parts import Notes, Part
from gpushare.intent.types import Amd, AmdStack
from gpushare.modes.partition import PartitionTraits
from gpushare.vendors.amd import AMD

IMAGES = b"# Every image of this bundle."
"""How a bundle's images.txt begins."""
_CHART = re.compile(
    r"^# (?:The|AMD's|The DRA driver's) chart: helm pull (?:oci://\S+/)?(\S+)(?: --repo \S+)? --version (\S+)\Z"
)
_MAX_LINE = 1000
_DRIVER = ("repository", "image", "version")


def is_pools(part: Part) -> bool:
    """Whether a document is a bundle's nodes/pools.yaml."""
    return part.at("kind").value == "Pools" and part.at("apiVersion").text.startswith("gpushare.dev/")


def is_chart(part: Part) -> bool:
    """Whether a document is a bundle's chart/values.yaml."""
    return all(part.has(key) for key in ("cluster", "stack", "partitioner", "pools", "admission")) and not part.has("kind")


def charts(text: str) -> dict[str, str]:
    """Return the versions of the charts, by name, that a bundle's images.txt names."""
    lines = (_CHART.match(line) for line in text.splitlines() if len(line) <= _MAX_LINE)
    return {found[1]: found[2] for found in lines if found}


def add(facts: Facts, draft: Draft, notes: Notes) -> None:
    """Add the pools of the bundle, and its cluster-wide settings."""
    _leave_out_broken(facts, notes)
    for document in facts.bundle:
        for name, pool in document.at("pools").items():
            if not draft.has_room(pool, notes):
                break
            _pool(name, pool, facts, draft, notes)
        _prices(document, draft)
        for name, pool in document.at("vmPools").items():
            _vm_pool(name, pool, draft)
    own = facts.namespaces - {chart.at("pluginNamespace").text for chart in facts.bundle_charts}
    if len(own) == 1:
        draft.put(("namespace",), min(own), None, "from the bundle's namespace.yaml")
    _amd(facts, draft)
    for policy in [one for one in facts.policies if not one.at("spec", "vendor").text][:1]:
        for field in ("stack", "partitioner"):
            if policy.at("spec", field).text:
                word = policy.at("spec", field)
                draft.put(("platform", field), word.text, word, "from the bundle's policies")
    for policy in facts.policies[:1]:
        if policy.at("spec", "adoption").text:
            word = policy.at("spec", "adoption")
            draft.put(("adoption",), word.text, word, "from the bundle's policies")
    for chart in facts.bundle_charts[:1]:
        _chart(chart, draft)
    bundle_dra.add(facts, draft)
    bundle_gitops.add(facts, draft)
    bundle_monitoring.add(facts, draft)
    for one in facts.settings:
        _settings(one, draft)
    _nvidia_version(facts, draft)


def _nvidia_version(facts: Facts, draft: Draft) -> None:
    stack = draft.spec.get("platform", {}).get("stack", OPERATOR)
    if stack in (OPERATOR, PLUGIN):
        chart = upstream.chart(stack)
        _version(("platform",), chart.name, chart.version, facts, draft)


def _version(above: Path, name: str, newest: str, facts: Facts, draft: Draft) -> None:
    """Add the version of a chart, if it is not the one that an intent without a version has."""
    if facts.charts.get(name, newest) != newest:
        draft.put((*above, "version"), facts.charts[name], None, "from the bundle's images.txt")


def _amd(facts: Facts, draft: Draft) -> None:
    """Add AMD's stack: that of the platform itself where no pool has NVIDIA's cards."""
    known = cards.ids()
    is_amd = [card in known and vendors.of(cards.load(card)) is AMD for card in (pool["card"] for pool in draft.pools.values())]
    if not any(is_amd):
        return
    above = ("platform",) if all(is_amd) else ("platform", "amd")
    said = next((one.at("spec", "stack") for one in facts.policies if one.at("spec", "vendor").text), None)
    installed = next((stack for stack, name in AMD.charts.items() if name in facts.charts), "")
    origin = "what serves AMD's GPUs now stays: none of the files says the bundle's stack"
    if said is not None:
        origin = "from the bundle's policies"
    elif installed:
        origin = "from the bundle's images.txt"
    stack = said.text if said is not None else installed or AmdStack.EXISTING.value
    draft.put((*above, "stack"), stack, said, origin)
    if stack in AMD.charts:
        chart = amd_charts.chart(stack)
        _version(above, chart.name, chart.version, facts, draft)
    namespaces = {one.at("amd", "namespace").text for one in facts.bundle_charts} - {"", Amd().namespace}
    if len(namespaces) == 1:
        draft.put((*above, "namespace"), min(namespaces), None, "from the bundle's chart/values.yaml")


def _settings(one: Settings, draft: Draft) -> None:
    """Add what only the values of the operator say."""
    if one.version is not None and one.version.text:
        draft.put(("platform", "version"), one.version.text, one.version)
    platform.put_vgpu_manager(one, draft)
    if one.part.at("driver", "enabled").truth:
        fields = {key: value.text for key, value in one.part.at("driver").items() if key in _DRIVER and value.text}
        draft.put(("platform", "driver"), fields, one.part, f"from {one.origin}")


def _leave_out_broken(facts: Facts, notes: Notes) -> None:
    """Keep the documents that are as gpushare writes them, so that what follows relies on the schemas; report the others."""
    for field, name in (("bundle", "pools.v1"), ("policies", reader.POLICY), ("bundle_charts", reader.chart_values())):
        kept = []
        for document in getattr(facts, field):
            wrong = reader.violation(document.fresh().whole, name)
            if wrong is None:
                kept.append(document)
                continue
            notes.error(
                "GS794",
                document.at(*wrong.path),
                f"the document is not what gpushare writes: {wrong.message}",
                "import the bundle as gpushare wrote it",
                on_key=wrong.on_key,
            )
        setattr(facts, field, kept)


def _prices(document: Part, draft: Draft) -> None:
    """Add the prices of the pools and of cards."""
    listed = document.at("prices")
    if listed.value:
        draft.put(("prices",), listed.whole, listed, "from the bundle's nodes/pools.yaml")


def _chart(chart: Part, draft: Draft) -> None:
    """Add what only the chart's values say: the image, the admission, and secrets."""
    image, admission = chart.at("image"), chart.at("admission")
    fields = {key: image.at(key).text for key in ("repository", "tag", "digest") if image.at(key).text}
    if "digest" in fields:
        fields.pop("tag", None)
    if host := image.at("registry").text:
        fields["repository"] = f"{host}/{fields.get('repository', '')}"
    draft.put(("platform", "image"), fields, image, "from the bundle's chart/values.yaml")
    if secrets := [entry.text or entry.at("name").text for entry in chart.at("imagePullSecrets").entries()]:
        draft.put(("platform", "imagePullSecrets"), secrets, chart)
    found = {key: admission.at(key).whole for key in ("enforce", "scope", "localhostProfiles") if admission.at(key).value}
    if found:
        draft.put(("admission",), found, admission)
    plugin = chart.at("pluginNamespace")
    if plugin.text:
        draft.put(("platform", "namespace"), plugin.text, plugin)
    own = {"kube-system", str(draft.spec.get("namespace", "gpu-system")), plugin.text, chart.at("amd", "namespace").text}
    own |= bundle_dra.namespaces(chart)
    places = [one.text for one in admission.at("platformNamespaces").entries() if one.text not in own]
    if places:
        draft.put(("platform", "namespaces"), places, admission)


def quotas(facts: Facts) -> list[ImportedQuota]:
    """Return the bundle's quotas as those of ResourceQuotas."""
    found = []
    for document in facts.bundle:
        for namespace, hard in document.at("quotas").items():
            for key, count in hard.items():
                if count.count is not None:
                    found.append(
                        ImportedQuota(
                            namespace=namespace,
                            resource=backends.quota_resource(key),
                            count=count.count,
                            origin="the bundle's nodes/pools.yaml",
                            part=count,
                        )
                    )
    return found


def _pool(name: str, pool: Part, facts: Facts, draft: Draft, notes: Notes) -> None:
    gpus, devices = pool.at("gpusPerNode").count or 0, list(pool.at("devices").entries())
    if pool.at("card").text not in cards.ids() or not 0 < gpus <= 64 or not devices:
        notes.error(
            "GS862",
            pool,
            f"pool {shorten(name)} is not one that `gpushare compile` writes for a card of the catalogue",
            "import the bundle as it was written; add cards of spec.cards to the intent by hand",
            on_key=True,
        )
        return
    profiles = {config.name: config for config in facts.configs}
    sharing = _sharing(pool, devices, gpus)
    config = profiles.get(pool.at("profile").text)
    if config and config.packed and "replicas" in sharing:
        sharing["placement"] = "pack"
    document: dict[str, Any] = {"card": pool.at("card").text, "nodes": _nodes(pool), "gpusPerNode": gpus, "sharing": sharing}
    document |= _optional(pool, devices) | bundle_dra.fields(pool)
    path = draft.add(name, document, pool)
    draft.note((*path, "card"), pool.at("card"), f"from the bundle's nodes/pools.yaml, pool {shorten(name)}")
    for device in devices:
        by_profile = modes.named(sharing["mode"]).is_partitioned and "strategy" not in sharing
        draft.offer(device.at("resource").text, path, (device.at("profile").text or GPU) if by_profile else None)


def _vm_pool(name: str, pool: Part, draft: Draft) -> None:
    sharing = {"mode": pool.at("mode").text, "profile": pool.at("profile").text}
    document: dict[str, Any] = {
        "card": pool.at("card").text,
        "nodes": _nodes(pool),
        "gpusPerNode": pool.at("gpusPerNode").count,
        "sharing": sharing | ({"kernel": pool.at("kernel").text} if pool.at("kernel").text else {}),
    }
    found = {key: pool.at(key).whole for key in ("priority", "tolerations") if pool.at(key).value}
    path = draft.add(name, document | found, pool)
    draft.note((*path, "card"), pool.at("card"), f"from the bundle's nodes/pools.yaml, pool {shorten(name)}")


def _nodes(pool: Part) -> dict[str, Any]:
    selector = pool.at("selector")
    found = {key: selector.at(key).whole for key in ("matchLabels", "matchExpressions", "names") if selector.at(key).value}
    if "names" not in found and pool.at("nodes").count is not None:
        found["expected"] = pool.at("nodes").count
    if pool.at("autoscaler").value:
        found["autoscaler"] = pool.at("autoscaler").value
    return found


def _sharing(pool: Part, devices: list[Part], gpus: int) -> dict[str, Any]:
    mode = pool.at("mode").text
    shared = {device.at("profile").value: device for device in devices if (device.at("replicas").count or 1) > 1}
    rename: dict[str, Any] = {}
    names = [bundle_dra.name_in_limits(pool, device.at("resource").text) for device in shared.values()]
    if any(named and not named.endswith(SHARED) for named in names):
        rename["rename"] = False
    if mode == PartitionTraits.mode:
        return _partitions(devices)
    if not modes.named(mode).is_partitioned:
        replicas = {"replicas": next(iter(shared.values())).at("replicas").count} | rename if shared else {}
        return {"mode": mode} | replicas | ({"interval": pool.at("interval").text} if pool.at("interval").text else {})
    found: dict[str, Any] = {"mode": mode}
    single = all(bundle_dra.name_in_limits(pool, device.at("resource").text) in (GPU, GPU + SHARED) for device in devices)
    found |= ({"strategy": "single"} if single else {}) | (bundle_dra.on_demand(pool) or _layouts(devices, gpus))
    if shared:
        found["replicas"] = {str(profile): device.at("replicas").count for profile, device in sorted(shared.items(), key=str)}
    return found | rename


def _partitions(devices: list[Part]) -> dict[str, Any]:
    """Return the modes of AMD's partitions, which the devices are named after."""
    of_gpu = {device.at("gpu").count or 0: device.at("profile").text.upper().partition("_") for device in devices}
    memory, computes = next(iter(of_gpu.values()))[2], list(dict.fromkeys(one[0] for one in of_gpu.values()))
    groups = [{"gpus": [gpu for gpu, one in of_gpu.items() if one[0] == word], "compute": word} for word in computes]
    modes_of_gpus: dict[str, Any] = {"layouts": groups} if len(groups) > 1 else {"compute": computes[0]}
    single = all(device.at("resource").text == AMD.whole_gpu for device in devices)
    return {"mode": "partition", **modes_of_gpus, "memory": memory, **({"strategy": "single"} if single else {})}


def _layouts(devices: list[Part], gpus: int) -> dict[str, Any]:
    by_gpu: list[dict[str, int]] = [{} for _ in range(gpus)]
    for device in devices:
        index, profile = device.at("gpu").count, device.at("profile").text
        if profile and index is not None and 0 <= index < gpus:
            by_gpu[index][profile] = by_gpu[index].get(profile, 0) + 1
    groups: list[tuple[list[int], dict[str, int]]] = []
    for index, layout in enumerate(by_gpu):
        same = next((indexes for indexes, other in groups if other == layout), None)
        if same is None:
            groups.append(([index], layout))
        else:
            same.append(index)
    if len(groups) == 1:
        return {"layout": groups[0][1]}
    return {"layouts": [{"gpus": indexes, "layout": layout or "none"} for indexes, layout in groups]}


def _optional(pool: Part, devices: list[Part]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if pool.at("priority").count:
        found["priority"] = pool.at("priority").count
    memory = _memory(devices)
    if memory:
        found["memory"] = memory
    enforcement, rollout = pool.at("enforcement"), pool.at("rollout")
    tolerances = [size.count for size in enforcement.at("toleranceMiB").entries() if size.count]
    notice = enforcement.at("noticeSeconds").count
    found["enforcement"] = (
        {
            "action": enforcement.at("action").value,
            "grace": f"{enforcement.at('graceSeconds').count}s",
            "mechanism": enforcement.at("mechanism").value,
        }
        | ({"tolerance": f"{max(tolerances)}Mi"} if tolerances else {})
        | ({"notice": f"{notice}s"} if notice is not None else {})
    )
    found["rollout"] = {
        "maxUnavailable": rollout.at("maxUnavailable").value,
        "onBusy": rollout.at("onBusy").value,
        "drainTimeout": f"{rollout.at('drainTimeoutSeconds').count}s",
    }
    found["rollout"] |= {"paused": True} if rollout.at("paused").value else {}
    windows = [
        {
            "days": window.at("days").whole,
            "start": window.at("start").value,
            "duration": f"{window.at('durationSeconds').count}s",
            "timezone": window.at("timezone").value,
        }
        for window in rollout.at("windows").entries()
    ]
    found["rollout"] |= {"windows": windows} if windows else {}
    found |= {key: pool.at(key).whole for key in ("tolerations", "namespaces") if pool.at(key).value}
    return found


def _memory(devices: list[Part]) -> dict[str, Any]:
    """Return the caps of devices that are shared, and how far they exceed the usable memory, if they do."""
    caps: dict[str, Any] = {}
    most = 100
    for device in devices:
        replicas, cap, size = device.at("replicas").count or 1, device.at("capMiB").count, device.at("memoryMiB").count
        if replicas < 2:
            if cap is not None:
                caps[device.at("profile").text] = f"{cap}Mi"
            continue
        caps[device.at("profile").text] = "none" if cap is None else f"{cap}Mi"
        if cap is not None and size:
            usable = max(1, size - reserve_bytes(size, None) // MIB)
            most = max(most, -(-cap * replicas * 100 // usable))
    if not caps:
        return {}
    found: dict[str, Any] = {"cap": caps.get("", caps)}
    return found | ({"oversubscribe": f"{most}%"} if most > 100 else {})
