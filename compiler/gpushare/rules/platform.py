"""Rules on the platform below the pools: GS701, GS706, GS712 to GS714, GS716, GS717, GS725, GS726 and GS750."""

import re
from collections.abc import Iterator

from gpushare.core.diagnostics import Path, Severity
from gpushare.core.units import is_dns_subdomain
from gpushare.facts.catalog import image_registry
from gpushare.facts.catalog.cards import MigProfile
from gpushare.facts.catalog.image_registry import EXAMPLE_IMAGE, NODE_IMAGE, has_host, mirrored
from gpushare.intent.types import MigStrategy, NvidiaStack
from gpushare.offering import backends, modes
from gpushare.rules.rule import Problem, RuleContext, of_pool, pool_path, rule
from gpushare.vendors import VENDORS
from gpushare.vendors.nvidia import NVIDIA
from gpushare_node.contract.policy import Partitioner

HERE = ("spec", "platform")

LAST_KNOWN_TO_MIG_PARTED = 16
"""The last GPU instance profile (NVML's number) that go-nvlib 0.12 knows, and with it mig-parted 0.15."""

_TAG_OR_DIGEST = f"({image_registry.DIGEST}|{image_registry.TAG})"


@rule("GS701")
def check_stack(context: RuleContext) -> Iterator[Problem]:
    """Settings that only gpu-operator supports."""
    platform = context.intent.platform
    if platform.stack is NvidiaStack.GPU_OPERATOR:
        return
    if platform.driver is not None:
        yield _needs_operator("only gpu-operator installs drivers", "driver", "leave driver out")
    if platform.partitioner is Partitioner.MIG_MANAGER:
        yield _needs_operator("mig-manager is a part of gpu-operator", "partitioner", "write partitioner: gpushare")


def _needs_operator(message: str, field: str, otherwise: str) -> Problem:
    return Problem(message=message, hints=(f"write stack: gpu-operator, or {otherwise}",), path=(*HERE, field))


@rule("GS706")
def check_existing(context: RuleContext) -> Iterator[Problem]:
    """Settings of a chart that the bundle does not install."""
    platform = context.intent.platform
    if platform.installs_chart:
        return
    settings = {"version": platform.version is not None, "values": bool(platform.values), "charts": platform.charts is not None}
    what, instead = "stack existing installs no chart", ", or write stack: gpu-operator or stack: device-plugin"
    if platform.stack is NvidiaStack.NONE:
        settings |= {"namespace": platform.namespace is not None}
        what, instead = "nothing of NVIDIA's is installed", ": AMD's stack does not read it"
    for field, given in settings.items():
        if given:
            message = f"{what}, so {field} has no effect"
            yield Problem(message=message, hints=(f"leave {field} out{instead}",), path=(*HERE, field))


@rule("GS712")
def check_image_names(context: RuleContext) -> Iterator[Problem]:
    """Images and pull secrets in a form with which no image can be pulled."""
    platform = context.intent.platform
    driver, image, where = platform.driver, platform.image, (*HERE, "image")
    written = 'write a tag in quotes, such as "0.1.0"; a digest goes into digest'
    checked: list[tuple[str | None, str, str, str, Path]] = [
        (
            image.repository,
            image_registry.OWN_IMAGE,
            "repository",
            "write it without https://, tag and digest",
            (*where, "repository"),
        ),
        (image.tag, image_registry.TAG, "tag", written, (*where, "tag")),
        (image.digest, image_registry.DIGEST, "digest", "write sha256: and 64 hexadecimal digits", (*where, "digest")),
    ]
    if driver is not None:
        where = (*HERE, "driver")
        checked += [
            (
                driver.repository,
                image_registry.REPOSITORY,
                "repository",
                "write it without https:// and image",
                (*where, "repository"),
            ),
            (
                driver.image,
                image_registry.IMAGE,
                "image name",
                "write lower-case letters and digits, such as driver",
                (*where, "image"),
            ),
            (
                driver.version,
                _TAG_OR_DIGEST,
                "driver version",
                'write a tag or a digest, such as "595.91.07"',
                (*where, "version"),
            ),
        ]
    for value, form, what, hint, path in checked:
        if value is not None and not re.match(form, value):
            yield Problem(message=f"invalid {what} {value!r}", hints=(hint,), path=path)
    for number, secret in enumerate(platform.image_pull_secrets):
        if not is_dns_subdomain(secret):
            hint = "write the name of a Secret in the bundle's namespace"
            path = (*HERE, "imagePullSecrets", number)
            yield Problem(message=f"invalid Secret name {secret!r}", hints=(hint,), path=path)


@rule("GS725", Severity.WARNING)
def check_published(context: RuleContext) -> Iterator[Problem]:
    """An image that is not published."""
    platform = context.intent.platform
    if not image_registry.is_unpublished(platform):
        return
    with_docker, with_podman = image_registry.build_commands(platform)
    yield Problem(
        message=f"the node runtime's image is not published as {NODE_IMAGE}: no node can pull it",
        hints=(
            f"build and push it in a clone of gpushare's repository: {with_docker}",
            f"or with podman: {with_podman}",
            f"then write platform: {{image: {{repository: {EXAMPLE_IMAGE}}}}}, here and above with your registry",
            "or write platform.registry, if that registry has the images of NVIDIA's charts too",
        ),
        path=(*HERE, "image"),
    )


@rule("GS726")
def check_image_conflicts(context: RuleContext) -> Iterator[Problem]:
    """Two fields of which only one can decide what image is pulled."""
    platform, image = context.intent.platform, context.intent.platform.image
    if image.tag is not None and image.digest is not None:
        yield Problem(
            message="the image has a tag and a digest: the digest alone decides what is pulled",
            hints=("keep the digest, and remove tag; or keep the tag, and remove digest",),
            path=(*HERE, "image", "tag"),
        )
    repository = image.repository or ""
    moved = mirrored(repository, platform.registry)
    if has_host(repository) and moved != repository:
        host, _, path = repository.partition("/")
        yield Problem(
            message=f"registry replaces the host {host}: the nodes would pull {moved}",
            hints=(f"write repository: {path}, if that is intended; else remove registry",),
            path=(*HERE, "image", "repository"),
        )


@rule("GS750")
def check_runtime_class(context: RuleContext) -> Iterator[Problem]:
    """A RuntimeClass that no cluster can have, or beside an upstream chart that names its own."""
    platform = context.intent.platform
    name, path = platform.own_runtime_class, (*HERE, "runtimeClass")
    if name is None:
        return
    if not is_dns_subdomain(name):
        yield Problem(
            message=f"invalid RuntimeClass name {name!r}",
            hints=("`kubectl get runtimeclasses` prints the names; NVIDIA's is usually nvidia",),
            path=path,
        )
    if platform.stack is NvidiaStack.NONE:
        message, hint = "no pool has NVIDIA's cards, so runtimeClass has no effect", "leave runtimeClass out"
        yield Problem(message=message, hints=(hint,), path=path, on_key=True)
    elif platform.installs_chart:
        is_operator = platform.stack is NvidiaStack.GPU_OPERATOR
        values = f"{{operator: {{runtimeClass: {name}}}}}" if is_operator else f"{{runtimeClassName: {name}}}"
        yield Problem(
            message=f"with stack {platform.stack.value} the values of NVIDIA's chart name the runtime class",
            hints=(f"write values: {values}", "remove runtimeClass, which is for stack: existing"),
            path=path,
            on_key=True,
        )


@rule("GS713", Severity.WARNING)
def check_one_strategy(context: RuleContext) -> Iterator[Problem]:
    """Pools that need different MIG strategies from one operator."""
    pools = context.intent.pools
    one = backends.operator_mig_strategy(pools)
    if context.intent.platform.stack is not NvidiaStack.GPU_OPERATOR or one is not None:
        return
    with_plugin = (pool for pool in pools if not pool.backend.has_claims)
    wishes = [(pool.name, strategy) for pool in with_plugin if (strategy := modes.of(pool).mig_strategy)]
    mixed = next(wish for wish in wishes if wish[1] == MigStrategy.MIXED)
    other = next(wish for wish in wishes if wish[1] != MigStrategy.MIXED)
    first, later = sorted((mixed, other), key=wishes.index)
    yield Problem(
        message=f"pool {first[0]} needs MIG strategy {first[1]} and {later[0]} {later[1]}, so the operator's is left empty",
        hints=(
            "install gpu-operator with client-side apply: Helm 4 --server-side=false, Argo CD ServerSideApply=false",
            "server-side apply refuses the null that the operator's chart then writes",
        ),
        path=("spec", "pools", later[0], "sharing"),
    )


@rule("GS714")
def check_mig_manager(context: RuleContext) -> Iterator[Problem]:
    """A layout that mig-manager cannot make."""
    if context.intent.platform.partitioner is not Partitioner.MIG_MANAGER:
        return
    for pool in context.intent.pools:
        for kind in context.kinds(pool) or ():
            if isinstance(kind.profile, MigProfile) and kind.profile.nvml_enum > LAST_KNOWN_TO_MIG_PARTED:
                yield Problem(
                    message=f"mig-manager does not know profile {kind.profile.name}",
                    hints=("write partitioner: gpushare, or use another profile",),
                    path=pool_path(pool, "sharing"),
                )


@rule("GS716", Severity.WARNING)
def check_foreign_partitioner(context: RuleContext) -> Iterator[Problem]:
    """MIG on a stack for which it is unknown whether it partitions GPUs too."""
    if context.intent.platform.stack is not NvidiaStack.EXISTING:
        return
    for pool in context.intent.pools:
        if modes.of(pool).is_partitioned:
            message = f"the operator that is already installed may run mig-manager, which would undo the layout of {pool.name}"
            hint = f"set its migManager.enabled: false, or label these nodes {NVIDIA.deploy_labels}mig-manager=false"
            yield of_pool(pool, message, hint, "sharing", "mode")


@rule("GS717")
def check_namespace(context: RuleContext) -> Iterator[Problem]:
    """A namespace that the stack's chart rejects."""
    intent = context.intent
    if intent.platform.stack is NvidiaStack.DEVICE_PLUGIN and intent.plugin_namespace == "default":
        yield Problem(
            message="the chart nvidia-device-plugin does not install into the namespace default",
            hints=("write another namespace, such as gpu-system",),
            path=("spec", "namespace") if intent.platform.namespace is None else (*HERE, "namespace"),
        )
    for vendor, one in intent.platform.others.items():
        if one.has_operator and one.namespace == intent.namespace:
            whose, at = VENDORS[vendor].name, context.stack_path(vendor, "namespace")
            yield Problem(
                message=f"{whose}'s operator and gpushare would have objects of the same names in namespace {one.namespace}",
                hints=(f"write another namespace for one of them, such as {VENDORS[vendor].namespace} for {whose}'s",),
                path=at if context.writes(at) else ("spec", "namespace"),
            )
