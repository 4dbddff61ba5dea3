"""What AMD's device plugin offers on a sysfs, by its naming strategy: the resources with the ids of their devices.

It reads the same files in the same way as ROCm k8s-device-plugin v1.31.0.10 (internal/pkg/amdgpu/amdgpu.go).
"""

from pathlib import Path

GPUS = "module/amdgpu/drivers/pci:amdgpu"


class HeterogeneousError(Exception):
    """The plugin exits: partitions of different styles are not supported with the strategy `single`."""


def offers(root: Path, strategy: str) -> dict[str, list[str]]:
    """Return the ids by resource."""
    valid = set()
    for properties in (root / "class/kfd/kfd/topology/nodes").glob("*/properties"):
        numbers = dict(line.split() for line in properties.read_text().splitlines())
        if int(numbers.get("drm_render_minor", 0)) > 0:
            valid.add(int(numbers["drm_render_minor"]))
    found: dict[str, tuple[int, str]] = {}
    for gpu in sorted((root / GPUS).glob("[0-9a-f][0-9a-f][0-9a-f][0-9a-f]:*")):
        modes = [gpu / f"current_{kind}_partition" for kind in ("compute", "memory")]
        style = "_".join(mode.read_text().strip().lower() for mode in modes if mode.exists())
        found[gpu.name] = (_minor(gpu, "card"), style)
    for part in sorted((root / "devices/platform").glob("amdgpu_xcp_*")):
        if _minor(part, "renderD") not in valid:
            continue
        first = (_minor(part, "card") - 1) // 8 * 8 + 1
        found[part.name] = (first, next(style for card, style in found.values() if card == first))
    styles = {style for _, style in found.values()}
    if strategy == "single" and len(styles) > 1:
        raise HeterogeneousError
    named: dict[str, list[str]] = {}
    for name, (_, style) in found.items():
        resource = f"amd.com/{style}" if strategy == "mixed" and style else "amd.com/gpu"
        named.setdefault(resource, []).append(name)
    return named


def _minor(folder: Path, kind: str) -> int:
    return int(next((folder / "drm").glob(f"{kind}*")).name.removeprefix(kind))
