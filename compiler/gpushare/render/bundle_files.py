"""Every file of a bundle: the outputs of the renderers, which are independent of each other. It decides nothing itself."""

from collections.abc import Iterator
from typing import Any

from gpushare.bundle import admission, lock
from gpushare.bundle.artifact import Artifact, digest
from gpushare.bundle.lock import GoalPin, Lock
from gpushare.core import emit
from gpushare.intent import gitops as gitops_facts
from gpushare.intent.types import NvidiaStack
from gpushare.offering.partitioners.mig_parted import ALL_DISABLED
from gpushare.render import chart, existing, gitops, images, nodes, observing, readme, values, vgpu
from gpushare.render.gitops.tool import Inputs
from gpushare.render.monitoring import artifacts as monitoring
from gpushare.render.stacks import STACKS, dra
from gpushare.render.steps import leaving
from gpushare.resolved import policy
from gpushare.resolved.plan import Plan
from gpushare.vendors import OTHERS
from gpushare_node.contract.policy import Partitioner
from gpushare_node.contract.struct import replace

_HEADER = "Written by gpushare from the cluster's intent; edits are lost."


def render(plan: Plan, previous: Lock) -> tuple[Artifact, ...]:
    """Return every file of the bundle, the lock last. `previous` is the lock of the bundle that this one will replace."""
    new_lock = next_lock(plan, previous)
    files = tuple(_files(plan, new_lock))
    listed = replace(new_lock, files={file.path: digest(file.text) for file in files})
    return (*files, Artifact(path=lock.FILE, text=lock.text(listed)))


def next_lock(plan: Plan, previous: Lock) -> Lock:
    """Return the lock of this plan's bundle, without its files."""
    configs = [pool.mig_config for pool in plan.pools if pool.mig_config]
    goals = {
        pool.name: GoalPin(question=pool.goal_inputs_digest, layout=pool.layout_of_goal)
        for pool in plan.pools
        if pool.layout_of_goal
    }
    return lock.advance(
        previous,
        intent=plan.digest,
        goals=goals,
        configs={
            "profiles": {pool.profile.key: pool.profile.config for pool in plan.pools if pool.has_profile},
            "mig_configs": {config.name: [dict(entry) for entry in config.entries] for config in configs},
            "vgpu_configs": {pool.config.name: list(map(dict, pool.config.entries)) for pool in plan.vm_pools},
            "manager_configs": {one.name: one.profile for pool in plan.pools if (one := pool.manager_config)},
        },
        vendors=plan.other_vendors,
        stacks={
            vendor: {"namespace": one.namespace, "stack": one.stack.value}
            for vendor in plan.other_vendors
            for one in [plan.intent.platform.of_vendor(vendor)]
        },
        dra=dra.remembered(plan),
    )


def chart_values(plan: Plan, artifacts: tuple[Artifact, ...], previous: Lock) -> dict[str, Any]:
    """Return the values of `chart/values.yaml`. `artifacts` are the plan's, with every pool's policy; `previous` as above."""
    texts = {file.path: file.text for file in artifacts}
    policies = {pool.name: texts[f"chart/files/policies/{pool.name}.yaml"] for pool in plan.pools}
    return _chart_values(plan, next_lock(plan, previous), policies)


def _chart_values(plan: Plan, new_lock: Lock, policies: dict[str, str]) -> dict[str, Any]:
    namespaces = {
        vendor: new_lock.stacks.get(vendor, {}).get("namespace", OTHERS[vendor].namespace) for vendor in new_lock.vendors
    }
    left = dra.former_classes(plan, new_lock.dra)
    steps = leaving.next_steps(plan, gitops.of(plan))
    return chart.values(plan, policies, steps, namespaces, _lookups(plan), left=left, has_claims=new_lock.has_dra)


def _lookups(plan: Plan) -> dict[str, dict[str, str]]:
    return {pool.name: dra.lookups(plan, pool) for pool in plan.dra_pools}


def _files(plan: Plan, new_lock: Lock) -> Iterator[Artifact]:
    documents = policy.policies(plan)
    policies = {pool: emit.yaml_text(document) for pool, document in documents.items()}
    chart_values = _chart_values(plan, new_lock, policies)
    upstream_values = values.upstream_values(plan, has_dra=new_lock.has_dra)
    observes = plan.intent.observes
    synced_by = gitops.every(plan)
    removal = (line for stack in STACKS for line in stack.removal(plan, new_lock))
    more = (*(line for tool in synced_by for line in tool.section()), *removal, *monitoring.section(plan))
    # Until nodes enforce, no program may read our profiles, and no node may start with a taint that nothing removes.
    snippets = None if observes else nodes.cloud_notes(plan)
    text = (
        observing.readme(plan, more)
        if observes
        else readme.readme(plan, more, gitops.of(plan), tuple(vgpu.pools(plan)), has_cloud=snippets is not None)
    )
    yield Artifact(path="README.md", text=text)
    namespaces = {file: _namespace(name) for file, name in gitops_facts.namespaces(plan.intent).items()}
    for path, item in namespaces.items():
        yield _yaml(path, item)
    yield from chart.static_files(
        has_monitoring=any(monitoring.objects(plan)),
        has_vgpus=vgpu.config(plan, new_lock) is not None,
        has_vendors=bool(new_lock.vendors),
        has_dra=new_lock.has_dra,
    )
    yield _yaml("chart/values.yaml", chart_values)
    yield _yaml(admission.FILE, admission.document(chart_values))
    if plan.pools:
        yield Artifact(path=admission.TENANCY, text=f"{emit.canonical_json(admission.tenancy(chart_values))}\n")
    for pool, document in documents.items():
        yield Artifact(path=f"chart/files/policies/{pool}.yaml", text=policies[pool], document=document)
    yield from _generated(plan, new_lock)
    if not observes:
        yield from _stack(plan, new_lock, upstream_values)
    yield _yaml(lock.INTENT, dict(plan.document))
    if snippets:
        yield Artifact(path="nodes/cloud.md", text=snippets)
    if not observes:
        yield from _autoscaling(plan)
    for path, document in monitoring.plain(plan):
        yield _yaml(path, document)
    board = monitoring.dashboard_text(plan)
    if board:
        yield Artifact(path="monitoring/dashboard.json", text=board)
    listed = monitoring.counters_text(plan)
    if listed:
        yield Artifact(path="monitoring/dcgm-metrics.csv", text=listed)
    if synced_by:
        inputs = Inputs(
            namespaces=namespaces,
            upstream_values=upstream_values,
            driver_values=dra.upstream_values(plan, new_lock.dra.get("tolerations", ())),
            has_claims=new_lock.has_dra,
            fence=admission.releasing_fence(chart_values),
            text=_text,
        )
        for path, item in (one for tool in synced_by for one in tool.objects(inputs)):
            yield _yaml(path, item)
    listed_images = images.images(plan, upstream_values, chart_values)
    others = "".join(f"{line}\n" for stack in reversed(STACKS) for line in stack.images(plan))
    yield Artifact(path="images.txt", text=listed_images + others)


def _autoscaling(plan: Plan) -> Iterator[Artifact]:
    notes = nodes.notes(plan)
    if notes:
        yield Artifact(path="nodes/autoscaling.md", text=notes)
    for pool, overlay in nodes.overlays(plan).items():
        yield _yaml(f"nodes/karpenter/{pool}.yaml", overlay)


def _generated(plan: Plan, new_lock: Lock) -> Iterator[Artifact]:
    """Yield the files that the chart's templates read, beside the policies."""
    for key, text in _profiles(new_lock).items():
        yield Artifact(path=f"chart/files/profiles/{key}.yaml", text=text)
    if plan.intent.platform.partitioner is Partitioner.MIG_MANAGER:
        yield Artifact(path="chart/files/mig-parted/config.yaml", text=_mig_configs(new_lock))
    vgpu_configs = vgpu.config(plan, new_lock)
    if vgpu_configs:
        yield Artifact(path=vgpu.FILE, text=vgpu_configs)
    for stack in STACKS:
        for path, content in stack.chart_files(plan, new_lock):
            yield Artifact(path=path, text=content if isinstance(content, str) else _text(content))
    for path, document in monitoring.objects(plan):
        yield _yaml(path, document)


def _profiles(new_lock: Lock) -> dict[str, str]:
    """Return the device plugin's configs in use, and former ones that nodes may still have, as text, by key."""
    return {key: emit.yaml_text(config) for key, config in new_lock.profiles.every().items()}


def _mig_configs(new_lock: Lock) -> str:
    """Return the MIG configs for mig-manager.

    One config that mig-parted cannot parse makes the whole file unusable, and a node whose label names a missing config fails.
    So former configs are kept, and the file always has `all-disabled`, which the operator sets on every node without a label.
    """
    configs = {ALL_DISABLED.name: list(ALL_DISABLED.entries)} | new_lock.mig_configs.every()
    return emit.yaml_text({"version": "v1", "mig-configs": dict(sorted(configs.items()))})


def _namespace(name: str) -> dict[str, Any]:
    """Return a namespace of our chart or, if it has another, of an upstream chart: beside the charts and never in them.

    A chart that owns its namespace fails on an existing one and deletes it on uninstall. GPU pods need host paths, so Pod
    Security must be `privileged` there.
    """
    levels = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("audit", "enforce", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": levels}}


def _stack(plan: Plan, new_lock: Lock, upstream_values: dict[str, Any]) -> Iterator[Artifact]:
    match plan.intent.platform.stack:
        case NvidiaStack.GPU_OPERATOR | NvidiaStack.DEVICE_PLUGIN as stack:
            yield _yaml(f"{stack.value}/values.yaml", upstream_values)
            yield _yaml(f"{stack.value}/restore-values.yaml", values.restoring_values(plan))
        case NvidiaStack.EXISTING:
            if plan.intent.copies_config_map:
                yield Artifact(path="existing/configmap.yaml", text=existing.config_map(_profiles(new_lock)))
            yield Artifact(path="existing/README.md", text=existing.steps(plan))
        case NvidiaStack.NONE:
            pass
    for programs in STACKS:
        for path, document in programs.values(plan, new_lock):
            yield _yaml(path, document)


def _yaml(path: str, document: dict[str, Any]) -> Artifact:
    return Artifact(path=path, text=_text(document), document=document)


def _text(document: dict[str, Any]) -> str:
    return emit.yaml_text(document, _HEADER)
