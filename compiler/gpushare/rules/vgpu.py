"""Rules on pools for virtual machines: GS310 to GS317."""

from collections.abc import Iterator, Mapping

from gpushare.core.diagnostics import Severity
from gpushare.core.wording import join_first, join_words, nearest
from gpushare.facts.catalog.cards import Card, VgpuRefusal
from gpushare.intent.types import NvidiaStack, Pool
from gpushare.offering import modes
from gpushare.rules.rule import Problem, RuleContext, a_card, pool_path, rule

MEDIATED_BEFORE = (6, 0)
"""The kernel from which the driver has vendor-specific VFIO instead of mediated devices (NVIDIA gpu-operator issue 2594)."""

MANAGER = ("spec", "platform", "vgpuManager")
_INSTEAD = (
    "for containers share the GPUs by another mode",
    "for virtual machines, pass whole GPUs through (workload type vm-passthrough), which gpushare does not configure",
    "KubeVirt 1.9 takes virtual functions of vendor-specific VFIO as PCI host devices, without the operator",
)
_WHY: Mapping[VgpuRefusal, str] = {
    VgpuRefusal.HGX: "NVIDIA's operator has no vGPU on HGX boards, such as {card}",
    VgpuRefusal.BEFORE_TURING: "NVIDIA's operator has no vGPU before Turing, and {card} is older",
}
_OF_CONTAINERS = ("memory", "enforcement", "rollout", "namespaces", "default")
"""Fields of a pool that concern containers."""


def _pools(context: RuleContext) -> Iterator[tuple[Pool, Card]]:
    return ((pool, card) for pool, card in context.pools_with_mode() if modes.of(pool).serves_vms)


def _machines(context: RuleContext) -> list[Pool]:
    return [pool for pool in context.intent.pools if modes.of(pool).serves_vms]


@rule("GS310")
def check_card(context: RuleContext) -> Iterator[Problem]:
    """A card without vGPUs that NVIDIA's operator makes."""
    for pool, card in _pools(context):
        if card.vgpu is None:
            message = f"no source knows vGPUs of {a_card(card)}"
        elif card.vgpu.refused is not None and card.vgpu.refused in _WHY:
            message = _WHY[card.vgpu.refused].format(card=a_card(card))
        else:
            continue
        yield Problem(message=message, hints=_INSTEAD, path=pool_path(pool, "card"))


@rule("GS311")
def check_mediated(context: RuleContext) -> Iterator[Problem]:
    """A card or a kernel with which the driver has no mediated devices, the only ones that NVIDIA's manager creates."""
    for pool, card in _pools(context):
        kernel = modes.of(pool).kernel
        if card.vgpu is not None and card.vgpu.refused is VgpuRefusal.VENDOR_VFIO:
            what, path = a_card(card), pool_path(pool, "card")
        elif kernel is not None and kernel >= MEDIATED_BEFORE:
            what, path = f"kernel {kernel[0]}.{kernel[1]}", pool_path(pool, "sharing", "kernel")
        else:
            continue
        message = f"with {what} NVIDIA's driver has vendor-specific VFIO, which NVIDIA's vGPU device manager does not support"
        yield Problem(message=message, hints=(*_INSTEAD, _KERNELS), path=path)


_KERNELS = "the manager serves kernels before 6.0: those of Ubuntu 22.04 (5.15) and of OpenShift 4.18 to 4.22 (5.14)"


@rule("GS312", Severity.WARNING)
def check_kernel(context: RuleContext) -> Iterator[Problem]:
    """A pool that does not state the kernel of its nodes."""
    for pool, card in _pools(context):
        if modes.of(pool).kernel is None and card.vgpu is not None and card.vgpu.types:
            yield Problem(
                message=f"pool {pool.name} gets vGPUs only if the kernel of its nodes is older than 6.0",
                hints=('write what `uname -r` prints on them, such as kernel: "5.15"', _KERNELS),
                path=pool_path(pool, "sharing"),
            )


@rule("GS313")
def check_profile(context: RuleContext) -> Iterator[Problem]:
    """A type of vGPU that the card lacks."""
    for pool, card in _pools(context):
        if card.vgpu is None or not card.vgpu.types or modes.of(pool).vgpu_type(card) is not None:
            continue
        names, wanted = [one.name for one in card.vgpu.types], modes.of(pool).sharing.profile
        near = nearest(wanted, names)
        hint = f"nearest: {join_words(near, 'or')}" if near else f"its types are {join_first(names, 12)}"
        yield Problem(
            message=f"{a_card(card)} has no vGPU type {wanted}",
            hints=(hint, f"`gpushare cards {card.id}` lists all"),
            path=pool_path(pool, "sharing", "profile"),
        )


@rule("GS314")
def check_settings(context: RuleContext) -> Iterator[Problem]:
    """A setting of containers on a pool for virtual machines."""
    for pool in _machines(context):
        written = context.document.get("spec", {}).get("pools", {}).get(pool.name, {})
        for field in _OF_CONTAINERS:
            if field in written:
                yield Problem(
                    message=f"{field} concerns containers, and pool {pool.name} is for virtual machines",
                    hints=(f"leave {field} out",),
                    path=pool_path(pool, field),
                    on_key=True,
                )
        if pool.autoscaler is not None:
            yield Problem(
                message=f"autoscaler concerns nodes with the node runtime, and pool {pool.name} is for virtual machines",
                hints=("leave autoscaler out: a person labels each node",),
                path=pool_path(pool, "nodes", "autoscaler"),
                on_key=True,
            )


@rule("GS315")
def check_quotas(context: RuleContext) -> Iterator[Problem]:
    """A quota on a pool for virtual machines."""
    machines = {pool.name for pool in _machines(context)}
    for quota in context.intent.quotas:
        if quota.pool in machines:
            yield Problem(
                message=f"pool {quota.pool} is for virtual machines: quotas limit what containers request",
                hints=("leave it out, and limit virtual machines where they are created",),
                path=("spec", "quotas", quota.namespace, quota.pool),
                on_key=True,
            )


@rule("GS316")
def check_stack(context: RuleContext) -> Iterator[Problem]:
    """VGPUs without gpu-operator."""
    stack = context.intent.platform.stack
    if stack is NvidiaStack.GPU_OPERATOR:
        return
    stacks = join_words(context.intent.platform.stacks)
    for pool, _ in _pools(context):
        yield Problem(
            message=f"only gpu-operator makes vGPUs, and the stack is {stacks}",
            hints=(f"write stack: gpu-operator, or leave pool {pool.name} out",),
            path=pool_path(pool, "sharing", "mode"),
        )


@rule("GS317")
def check_manager(context: RuleContext) -> Iterator[Problem]:
    """VGPUs without the image of NVIDIA's vGPU manager, or that image without vGPUs."""
    machines, manager = [pool for pool, _ in _pools(context)], context.intent.platform.vgpu_manager
    if machines and manager is None:
        yield Problem(
            message="vGPUs need NVIDIA's vGPU manager, whose licence keeps its image private: only you know where it is",
            hints=(
                'write platform: {vgpuManager: {repository: registry.example.org/nvidia, version: "595.71.03"}}, with yours',
                "build the image from the -vgpu-kvm driver of NVIDIA's licensing portal, by NVIDIA's gpu-driver-container",
            ),
            path=pool_path(machines[0], "sharing", "mode"),
        )
    elif manager is not None and not _machines(context):
        message = "no pool has mode vgpu, so that no node needs the vGPU manager"
        yield Problem(message=message, hints=("leave vgpuManager out",), path=MANAGER, on_key=True)
