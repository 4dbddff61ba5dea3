"""What is known of each cloud: its labels, its machine types with their GPUs, and how its node groups get taints and labels.

`CLOUDS` is the only place that names a cloud: what reads it knows none. Sources: the clouds' pages on labels. How many GPUs a
machine type has: EC2 and Azure: kubernetes/autoscaler at 55c37cd (cloudprovider/aws/ec2_instance_types.go, generated from EC2's
offers, and cloudprovider/azure/azure_instance_types.go, generated from Azure's list of sizes); ND GB200 v6: Azure's page of
the series. Google Cloud: its page on accelerator-optimized machine types (A2, A3, A4, A4X, G2, G4). What Cluster Autoscaler is
told, and `GPULabel`: each provider and its README under
https://github.com/kubernetes/autoscaler/tree/master/cluster-autoscaler/cloudprovider; AKS: https://github.com/kubernetes/autoscaler/pull/7203.
DRA: GKE's pages on it and on sharing GPUs; EKS's page on NVIDIA's DRA driver and device plugin.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache

from gpushare_node.contract.struct import NOTHING, Struct

MACHINE_LABEL = "node.kubernetes.io/instance-type"
"""The label with a node's machine type, on every cloud."""

_OF_KUBERNETES = frozenset({"kubernetes.io", "node.kubernetes.io", "topology.kubernetes.io", "beta.kubernetes.io"})
"""The prefixes of labels that kubelet and the cloud's controller set."""


class Machines(Struct):
    """A family of machine types: `types` begins the names of those with the card, an id of the catalogue; "": another device.

    `gpus`: regular expressions of whole names, each with the number of GPUs, 0 if it is the expression's first group. A type
    that is not listed has no number. `unconfirmed`: what only others than the cloud write; a capacity wins over it.
    """

    card: str = ""
    types: str = ""
    gpus: tuple[tuple[str, int], ...] = ()
    unconfirmed: tuple[tuple[str, int], ...] = ()


class Sharing(Struct):
    """The labels of a cloud that shares GPUs itself: how, between how many clients, and the size of MIG partitions."""

    strategy: str
    clients: tuple[str, ...]
    partition: str


class GroupTags(Struct):
    """Cluster Autoscaler reads what a node will have from tags of its group. `slash`: what their names have instead of `/`."""

    heading: str
    slash: str = "/"


class GroupAnnotations(Struct):
    """Cluster Autoscaler reads what a node will have from annotations with this prefix, which can name one resource."""

    heading: str
    prefix: str


class DraLimit(Struct):
    """What a cloud does not support with DRA, on nodes with a label that begins with `label`, or has `value`.

    `only_divided`: whole GPUs are supported.
    """

    label: str
    why: str
    value: str | None = None
    only_divided: bool = False


class Cloud(Struct):
    """A cloud, or what sets labels as a cloud does. An empty field: it has no such thing.

    Labels: `domain` of those that it sets on its nodes, `other_labels` the beginnings of others; `writers` the domains, with
    all below them, that belong to its programs. `pool_label` is on every node of a node pool, `former_pool_label` was.
    `gpu_label` names or marks nodes with GPUs: its value, without `nvidia-` and `tesla-`, may be in `accelerators`, with the
    ids of the cards that it may be. `counted_labels` begin those that must mean something to `import`.

    By `autoscaler_label`, or `former_gpu_label`, Cluster Autoscaler knows nodes with GPUs (`GPULabel` of its provider); with
    `labels_every_gpu_node` the cloud sets it itself, else the administrator does. `group`: how it learns what a node of an
    empty group will have; `has_groups` False: it manages none.

    `has_driver`: its images have NVIDIA's driver, or it installs the driver itself.

    `dra_limits`: what it does not support with DRA. Where `dra_label` is true Cluster Autoscaler knows that the GPUs of a node
    are in slices, and does not wait for `allocatable`.

    `startup_taint` says how new nodes of a group get a taint, and may name {pool}, {POOL} and {taint}.
    """

    name: str
    domain: str
    other_labels: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    pool_label: str = ""
    former_pool_label: str = ""
    gpu_label: str = ""
    accelerators: Mapping[str, tuple[str, ...]] = NOTHING
    count_label: str = ""
    memory_label: str = ""
    counted_labels: tuple[str, ...] = ()
    sharing: Sharing | None = None
    machines: tuple[Machines, ...] = ()
    startup_taint: str = ""
    autoscaler_label: str = ""
    former_gpu_label: str = ""
    has_groups: bool = True
    labels_every_gpu_node: bool = False
    has_driver: bool = False
    group: GroupTags | GroupAnnotations | None = None
    dra_limits: tuple[DraLimit, ...] = ()
    dra_label: str = ""

    def is_pool_label(self, key: str) -> bool:
        """Whether a pool that selects by this label means a node pool: where there is no such label, any of the domain's."""
        return key == self.pool_label if self.pool_label else self.is_own_label(key)

    def is_own_label(self, key: str) -> bool:
        """Whether the label is of the cloud's domain."""
        return key.startswith(f"{self.domain}/")


_ACCELERATORS: Mapping[str, tuple[str, ...]] = {
    "t4": ("t4",),
    "l4": ("l4",),
    "l40s": ("l40s",),
    "a10g": ("a10g",),
    "a10": ("a10",),
    "p100": ("p100-pcie-16gb",),
    "v100": ("v100-sxm2-16gb", "v100-sxm2-32gb"),
    "a100": ("a100-sxm4-40gb", "a100-sxm4-80gb"),
    "a100-80gb": ("a100-sxm4-80gb",),
    "h100": ("h100-sxm5-80gb",),
    "h100-80gb": ("h100-sxm5-80gb",),
    "h100-mega-80gb": ("h100-sxm5-80gb",),
    "h200": ("h200-sxm5-141gb",),
    "h200-141gb": ("h200-sxm5-141gb",),
    "b200": ("b200-180gb",),
    "gb200": ("gb200-186gb",),
    "rtx-pro-6000": ("rtx-pro-6000-server",),
}

_G_SIZES = ((r"(?:2?x|4x|8x|16x)large", 1), (r"(?:12|24)xlarge", 4), (r"48xlarge", 8))


def _ec2(family: str, card: str, *sizes: tuple[str, int], unconfirmed: tuple[tuple[str, int], ...] = ()) -> Machines:
    """Return an EC2 family by the sizes that follow its name."""
    types = rf"{family}\."
    return Machines(
        card=card,
        types=types,
        gpus=tuple((rf"{types}(?:{size})", gpus) for size, gpus in sizes),
        unconfirmed=tuple((rf"{types}(?:{size})", gpus) for size, gpus in unconfirmed),
    )


CLOUDS = (
    Cloud(
        name="GKE",
        domain="cloud.google.com",
        writers=("google.com",),
        pool_label="cloud.google.com/gke-nodepool",
        gpu_label="cloud.google.com/gke-accelerator",
        # The larger cards have names of their own here.
        accelerators={**_ACCELERATORS, "a100": ("a100-sxm4-40gb",), "v100": ("v100-sxm2-16gb",)},
        count_label="cloud.google.com/gke-accelerator-count",
        counted_labels=("cloud.google.com/gke-gpu", "cloud.google.com/gke-max-shared", "cloud.google.com/gke-accelerator"),
        sharing=Sharing(
            strategy="cloud.google.com/gke-gpu-sharing-strategy",
            clients=("cloud.google.com/gke-max-shared-clients-per-gpu", "cloud.google.com/gke-gpu-max-shared-clients"),
            partition="cloud.google.com/gke-gpu-partition-size",
        ),
        machines=(
            Machines(
                card="l4",
                types=r"g2-",
                gpus=(
                    (r"g2-standard-(?:4|8|12|16|32)", 1),
                    (r"g2-standard-24", 2),
                    (r"g2-standard-48", 4),
                    (r"g2-standard-96", 8),
                ),
            ),
            Machines(
                card="rtx-pro-6000-server",
                types=r"g4-standard-",
                gpus=((r"g4-standard-48", 1), (r"g4-standard-96", 2), (r"g4-standard-192", 4), (r"g4-standard-384", 8)),
            ),
            Machines(card="a100-sxm4-40gb", types=r"a2-highgpu-|a2-megagpu-"),
            Machines(card="a100-sxm4-80gb", types=r"a2-ultragpu-"),
            Machines(card="h100-sxm5-80gb", types=r"a3-(?:high|mega|edge)gpu-"),
            Machines(card="h200-sxm5-141gb", types=r"a3-ultragpu-"),
            Machines(card="b200-180gb", types=r"a4-highgpu-"),
            Machines(card="gb200-186gb", types=r"a4x-highgpu-"),
            Machines(gpus=((r"a[234]x?-(?:high|mega|ultra|edge|max)gpu-(\d{1,2})g(?:-(?:nolssd|metal|lowmem))?", 0),)),
        ),
        startup_taint=(
            "GKE; the flag replaces all taints of the node pool, so name the others too. To remove the taint, name the others\n"
            "alone, or none: `--node-taints ''`.\n\n"
            "    gcloud container node-pools update {pool} --cluster CLUSTER --node-taints {taint}=true:NoSchedule\n"
        ),
        autoscaler_label="cloud.google.com/gke-accelerator",
        labels_every_gpu_node=True,
        has_driver=True,
        dra_limits=(
            DraLimit(
                label="cloud.google.com/",
                why="GKE documents neither time-sharing nor MIG with DRA",
                only_divided=True,
            ),
        ),
        dra_label="cloud.google.com/gke-gpu-dra-driver",
    ),
    Cloud(
        name="EKS",
        domain="eks.amazonaws.com",
        other_labels=("k8s.amazonaws.com/",),
        writers=("amazonaws.com", "aws", "eksctl.io"),
        pool_label="eks.amazonaws.com/nodegroup",
        gpu_label="k8s.amazonaws.com/accelerator",
        accelerators=_ACCELERATORS,
        machines=(
            _ec2("g4dn", "t4", (r"(?:2?x|4x|8x|16x)large", 1), (r"12xlarge", 4), (r"metal", 8)),
            _ec2("g5", "a10g", *_G_SIZES),
            _ec2("g6", "l4", *_G_SIZES),
            _ec2("gr6", "l4", (r"[48]xlarge", 1)),
            _ec2("g6e", "l40s", *_G_SIZES),
            _ec2("g7e", "rtx-pro-6000-server", (r"[248]xlarge", 1), (r"12xlarge", 2), (r"24xlarge", 4), (r"48xlarge", 8)),
            _ec2("p3", "v100-sxm2-16gb", (r"2xlarge", 1), (r"8xlarge", 4), (r"16xlarge", 8)),
            _ec2("p3dn", "v100-sxm2-32gb", (r"24xlarge", 8)),
            _ec2("p4d", "a100-sxm4-40gb", (r"24xlarge", 8)),
            _ec2("p4de", "a100-sxm4-80gb", (r"24xlarge", 8)),
            _ec2("p5", "h100-sxm5-80gb", (r"4xlarge", 1), (r"48xlarge", 8)),
            _ec2("p5e", "h200-sxm5-141gb", unconfirmed=((r"48xlarge", 8),)),
            _ec2("p5en", "h200-sxm5-141gb", (r"48xlarge", 8)),
            _ec2("p6-b200", "b200-180gb", (r"48xlarge", 8)),
            _ec2("p6-b300", "b300-269gb", unconfirmed=((r"48xlarge", 8),)),
            _ec2("p6e-gb200", "gb200-186gb", unconfirmed=((r"36xlarge", 4),)),
        ),
        startup_taint=(
            "EKS; the command taints running nodes as well. The node runtime removes the taint when its pod starts: restart\n"
            "the pods of verified nodes afterwards, `kubectl --namespace NAMESPACE rollout restart daemonset/gpushare-POOL`.\n"
            "\n    aws eks update-nodegroup-config --cluster-name CLUSTER --nodegroup-name {pool} \\\n"
            "      --taints 'addOrUpdateTaints=[{{key={taint},value=true,effect=NO_SCHEDULE}}]'\n"
            "\nThe command that removes it:\n"
            "\n    aws eks update-nodegroup-config --cluster-name CLUSTER --nodegroup-name {pool} \\\n"
            "      --taints 'removeTaints=[{{key={taint},value=true,effect=NO_SCHEDULE}}]'\n"
        ),
        autoscaler_label="k8s.amazonaws.com/accelerator",
        has_driver=True,
        group=GroupTags(
            heading="Tags of the AWS Auto Scaling group, to which EKS does not pass on the tags of its node group:"
        ),
        dra_limits=(DraLimit(label="eks.amazonaws.com/compute-type", value="auto", why="EKS Auto Mode has no DRA driver"),),
    ),
    Cloud(  # No cloud, but it labels nodes as one; karpenter.k8s.aws are the labels of its provider for AWS.
        name="Karpenter",
        domain="karpenter.sh",
        other_labels=("karpenter.k8s.aws/",),
        writers=("karpenter.sh",),
        pool_label="karpenter.sh/nodepool",
        gpu_label="karpenter.k8s.aws/instance-gpu-name",
        accelerators=_ACCELERATORS,
        count_label="karpenter.k8s.aws/instance-gpu-count",
        memory_label="karpenter.k8s.aws/instance-gpu-memory",
        has_groups=False,
    ),
    Cloud(
        name="AKS",
        domain="kubernetes.azure.com",
        other_labels=("agentpool",),
        writers=("azure.com",),
        pool_label="kubernetes.azure.com/agentpool",
        former_pool_label="agentpool",
        gpu_label="kubernetes.azure.com/accelerator",
        machines=(
            Machines(
                card="t4",
                types=r"Standard_NC\d+as_T4_v3",
                gpus=((r"Standard_NC(?:4|8|16)as_T4_v3", 1), (r"Standard_NC64as_T4_v3", 4)),
            ),
            Machines(
                card="a10",
                types=r"Standard_NC\d+ads_A10_v4|Standard_NV(?:36adm?s|72ads)_A10_v5",
                gpus=(
                    (r"Standard_NC(?:8|16)ads_A10_v4", 1),
                    (r"Standard_NC32ads_A10_v4", 2),
                    (r"Standard_NV36adm?s_A10_v5", 1),
                    (r"Standard_NV72ads_A10_v5", 2),
                ),
            ),
            Machines(gpus=((r"Standard_NV(?:6|12|18)adm?s_A10_v5", 1),)),  # A part of an A10, which is another device.
            Machines(
                card="a100-pcie-80gb",
                types=r"Standard_NC\d+ads_A100_v4",
                gpus=((r"Standard_NC24ads_A100_v4", 1), (r"Standard_NC48ads_A100_v4", 2), (r"Standard_NC96ads_A100_v4", 4)),
            ),
            Machines(
                card="v100-pcie-16gb",
                types=r"Standard_NC\d+s_v3",
                gpus=((r"Standard_NC6s_v3", 1), (r"Standard_NC12s_v3", 2), (r"Standard_NC24r?s_v3", 4)),
            ),
            Machines(
                card="h100-nvl-94gb",
                types=r"Standard_NC\d+adi?s_H100_v5",
                gpus=((r"Standard_NC40ads_H100_v5", 1), (r"Standard_NC80adis_H100_v5", 2)),
            ),
            Machines(card="v100-sxm2-32gb", types=r"Standard_ND40rs_v2", gpus=((r"Standard_ND40rs_v2", 8),)),
            Machines(card="a100-sxm4-40gb", types=r"Standard_ND96asr_v4", gpus=((r"Standard_ND96asr_v4", 8),)),
            Machines(card="a100-sxm4-80gb", types=r"Standard_ND96amsr_A100_v4", gpus=((r"Standard_ND96amsr_A100_v4", 8),)),
            Machines(card="h100-sxm5-80gb", types=r"Standard_ND96isr_H100_v5", gpus=((r"Standard_ND96isr_H100_v5", 8),)),
            Machines(card="h200-sxm5-141gb", types=r"Standard_ND96isr_H200_v5", gpus=((r"Standard_ND96isr_H200_v5", 8),)),
            Machines(
                card="gb200-186gb", types=r"Standard_ND128isr_NDR_GB200_v6", gpus=((r"Standard_ND128isr_NDR_GB200_v6", 4),)
            ),
        ),
        startup_taint=(
            "AKS; an initialization taint, since AKS puts an ordinary one back:\n\n"
            "    az aks nodepool update --resource-group GROUP --cluster-name CLUSTER --name {pool} \\\n"
            "      --node-init-taints {taint}=true:NoSchedule\n"
            "\nThe flag replaces all initialization taints. To remove the taint, name the others alone, or none:\n"
            "`--node-init-taints ''`.\n"
        ),
        autoscaler_label="kubernetes.azure.com/accelerator",
        former_gpu_label="accelerator",
        labels_every_gpu_node=True,
        group=GroupTags(
            # Its provider reads `_` as `/`, and `~2` as `_`.
            heading="Tags of the Azure scale set; untested with the autoscaler that AKS itself runs:",
            slash="_",
        ),
    ),
    Cloud(
        name="Kapsule",
        domain="k8s.scaleway.com",
        writers=("scaleway.com",),
        pool_label="k8s.scaleway.com/pool-name",
        has_driver=True,
        startup_taint=(
            "Scaleway Kapsule; a tag of the pool, which sets the taint without a prefix:\n\n"
            "    scw k8s pool update {POOL}_ID tags.0=taint=noprefix={taint}=true:NoSchedule\n\n"
            "To remove the taint, remove the tag from the pool. Kapsule may tag running nodes again: see that a verified\n"
            "node keeps no taint.\n"
        ),
    ),
    Cloud(
        name="Cluster API",
        domain="node.cluster.x-k8s.io",
        startup_taint=(
            "Cluster API with kubeadm, in the KubeadmConfigTemplate of the MachineDeployment:\n\n"
            "    spec:\n      template:\n        spec:\n          joinConfiguration:\n            nodeRegistration:\n"
            '              taints: [{{key: {taint}, value: "true", effect: NoSchedule}}]\n'
            "\nTo remove the taint, make the MachineDeployment refer to a template without it.\n"
        ),
        autoscaler_label="cluster-api/accelerator",
        group=GroupAnnotations(
            heading="Annotations of the MachineDeployment of Cluster API, beside those for cpu and memory",
            prefix="capacity.cluster-autoscaler.kubernetes.io/",
        ),
    ),
)

_MACHINES = tuple(machines for cloud in CLOUDS for machines in cloud.machines)


def is_set_by_a_program(key: str) -> bool:
    """Whether Kubernetes, a cloud or a program of one sets this label of a node; else a person must."""
    prefix = key.partition("/")[0]
    writers = tuple(f".{writer}" for cloud in CLOUDS for writer in (cloud.domain, *cloud.writers))
    return (
        f".{prefix}".endswith(writers)
        or key.startswith(tuple(label for cloud in CLOUDS for label in cloud.other_labels))
        or (prefix in _OF_KUBERNETES and "/" in key)
    )


def have_driver(keys: Iterable[str]) -> bool:
    """Return whether nodes with these labels have NVIDIA's driver from their cloud."""
    keys = tuple(keys)
    return any(cloud.has_driver and cloud.is_own_label(key) for cloud in CLOUDS for key in keys)


@cache
def card_of_machine(machine: str) -> str | None:
    """Return the id of the card that a machine type has; None if it is not known."""
    return next((one.card for one in _MACHINES if one.card and re.compile(one.types).match(machine)), None)


@cache
def gpus_of_machine(machine: str) -> int | None:
    """Return the number of GPUs of a machine type; None if it is not known for sure."""
    return _number(machine, (entry for one in _MACHINES for entry in one.gpus))


@cache
def unconfirmed_gpus_of_machine(machine: str) -> int | None:
    """Return the number that no source of the cloud's confirms, where `gpus_of_machine` has none."""
    return _number(machine, (entry for one in _MACHINES for entry in one.unconfirmed))


def _number(machine: str, entries: Iterable[tuple[str, int]]) -> int | None:
    for text, gpus in entries:
        if found := re.compile(rf"(?:{text})\Z").match(machine):
            return gpus or int(found[1]) or None
    return None
