"""AMD's stack."""

from enum import StrEnum

from gpushare.intent.stacks.vendor_stack import VendorStack


class AmdStack(StrEnum):
    """Which chart of AMD's serves the shares."""

    GPU_OPERATOR = "amd-gpu-operator"
    DEVICE_PLUGIN = "amd-device-plugin"
    EXISTING = "existing"


class Amd(VendorStack):
    """AMD's stack, with its defaults."""

    vendor = "amd"
    words = AmdStack

    stack: StrEnum = AmdStack.GPU_OPERATOR
    namespace: str = "kube-amd-gpu"

    @property
    def has_operator(self) -> bool:
        """Whether it is AMD's operator."""
        return self.stack is AmdStack.GPU_OPERATOR

    @property
    def longest_pool_name(self) -> int | None:
        """AMD's operator names the Service of its exporter `gpushare-<pool>-metrics-exporter`, of at most 63 characters.

        Where that is refused, it starts no config manager (gpu-operator v1.5.1, handleMetricsExporter).
        """
        return 37 if self.has_operator else None
