"""Faults of GPUs that are not ours to undo: a reset XID, or a recovery action that the driver asks for.

No flip of the plugin's label, no repair and no new pod brings such a GPU back. An XID is remembered in the node's folder until
the node has booted, the runtime was taken off the node for a reset, or a person says that the GPU was reset.
"""

from collections.abc import Iterable
from contextlib import suppress

from gpushare_node.adapters.host.state_dir import StateDir, StateDirError
from gpushare_node.adapters.kube.cluster import Cluster, ClusterError
from gpushare_node.contract import xids
from gpushare_node.contract.names import AWAY, RUNTIME_LABEL
from gpushare_node.contract.struct import Struct
from gpushare_node.vendors.driver import GpuInfo

_HOW = (
    "the runtime does not bring it back. NVSentinel, the operator or a person acts: the label gpushare.dev/runtime=away takes "
    "the runtime off the node for a reset"
)


class GpuFaults(Struct):
    """Those of one node, in one boot. StateDirError if the folder cannot be written."""

    folder: StateDir
    boot_id: str

    def record(self, uuid: str, xid: int) -> None:
        """Remember the XID, if only a reset ends what it says."""
        if xids.needs_reset(xid):
            known = self._known()
            if known.get(uuid) != xid:
                self.folder.keep_faults(self.boot_id, {**known, uuid: xid})

    def forget(self) -> None:
        """The GPUs are reset, or will be before the runtime has them open again."""
        self.folder.keep_faults(self.boot_id, {})

    def let_go(self, cluster: Cluster) -> None:
        """Forget them at the end of a program that is sent off the node: the GPUs are reset before another has them open."""
        with suppress(ClusterError, StateDirError):
            if self._known() and cluster.node().labels.get(RUNTIME_LABEL) == AWAY:
                self.forget()

    def find(self, surveys: Iterable[GpuInfo]) -> str:
        """Return which GPUs have a fault, and who acts; empty if none has."""
        known = self._known()
        found = []
        for survey in surveys:
            texts = [xids.describe(known[survey.uuid])] if survey.uuid in known else []
            texts += [f"the driver asks for: {survey.recovery}"] if survey.recovery else []
            found += [f"GPU {survey.index} ({survey.uuid}): {', '.join(texts)}"] if texts else []
        return f"{'; '.join(found)}; {_HOW}" if found else ""

    def _known(self) -> dict[str, int]:
        boot_id, known = self.folder.faults()
        return known if boot_id == self.boot_id else {}
