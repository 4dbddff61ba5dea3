"""Vendor: the names that a vendor of GPUs gives to resources, labels and charts, for every package that needs one."""

from collections.abc import Mapping

from gpushare_node.contract.struct import Struct


class Vendor(Struct):
    """Names under which a vendor's programs offer GPUs and are installed.

    `name` is the word with which the names of its cards begin.

    Of resources: `whole_gpu`, and `partitions`, with any of which those of parts of a GPU begin; `exported` is the regular
    expression of all in kube-state-metrics. Labels of a node, None where the vendor has no such label: `plugin_label` names
    the configuration of the device plugin, `layout_label` that of the vendor's own partitioner, `sharing_label` how the plugin
    shares; one that begins with `deploy_labels` says whether a program of the operator runs there.

    Of nodes for virtual machines: `workload_label` says what a node runs, `vgpu_label` names the config of its vGPUs.

    By `layout_taint` its own partitioner evicts pods while it works; `dra_driver` is the name of its DRA driver. Both are
    empty without one.

    `change_seconds` must be left of a rollout's window in addition to the drain's time: the node runtime's bound for a change.

    `charts` are by stack of an intent. `cluster_kinds` are the operator's own in the vendor's API group, which is `domain`.
    `catalogue` is the folder of cards under `profiles/`; `tool` shows a node's GPUs, `shown_by` those of a container.

    `has_shares`: the plugin offers a device to several containers, whose caps the node runtime enforces; elsewhere the driver
    bounds a device. `is_made_whole`: a node that is released gets whole GPUs again; elsewhere they stay as they are, and what
    its own partitioner does not divide a person does.
    """

    name: str
    domain: str
    whole_gpu: str
    partitions: tuple[str, ...]
    exported: str
    plugin_label: str | None
    layout_label: str
    sharing_label: str | None
    deploy_labels: str | None
    charts: Mapping[str, str]
    cluster_kinds: tuple[str, ...]
    catalogue: str
    tool: str
    shown_by: tuple[str, ...]
    has_shares: bool
    is_made_whole: bool
    change_seconds: int
    workload_label: str = ""
    vgpu_label: str = ""
    layout_taint: str = ""
    dra_driver: str = ""

    @property
    def prefix(self) -> str:
        """With which the names of its resources and labels begin, those of others than GPUs too."""
        return f"{self.domain}/"

    @property
    def gpu_resources(self) -> tuple[str, ...]:
        """With which the names of resources begin that are GPUs or parts of them."""
        return self.whole_gpu, *self.partitions
