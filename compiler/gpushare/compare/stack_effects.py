"""Who is affected by other values of NVIDIA's charts, by other images, and by another namespace of the stack. Pure."""

import re
from collections.abc import Iterator

from gpushare.compare import bundles
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, Files, parsed

_OPERATOR = "gpu-operator/values.yaml"
_UPSTREAM = (_OPERATOR, "device-plugin/values.yaml")
_OF_DRIVER = ("driver", "daemonsets")
"""The sections of the values that the driver's DaemonSet is rendered from."""
_CHART = re.compile(r"^# The chart: .* --version (\S+)$", re.MULTILINE)


def of_upstream(old: Files, new: Files, changed: tuple[FileDiff, ...]) -> Iterator[Effect]:
    """Yield the effects of other values and images of NVIDIA's components. A chart added or removed is `REINSTALLED` alone."""
    if {path for path in _UPSTREAM if path in old} != {path for path in _UPSTREAM if path in new}:
        return
    runs = _runs_driver(old), _runs_driver(new)
    if runs == (True, False):
        yield Effect(kind=EffectKind.DRIVERLESS, pool=None, subject="driver.enabled", before=True, after=False)
    versions = [_version(side) for side in (old, new)]
    if all(runs) and None not in versions and versions[0] != versions[1]:  # each release has another driver by default
        yield Effect(kind=EffectKind.DRIVER, pool=None, subject="version", before=versions[0], after=versions[1])
    for change in changed:
        if change.path in _UPSTREAM:
            for one in change.settings:
                kind = EffectKind.DRIVER if runs[1] and one.path[0] in _OF_DRIVER else EffectKind.UPSTREAM
                if runs == (True, False) and one.path == ("driver", "enabled"):
                    continue
                yield Effect(kind=kind, pool=None, subject=".".join(one.path), before=one.before, after=one.after)
        elif change.path == bundles.IMAGES:
            yield from of_images(EffectKind.UPSTREAM, *(bundles.images(side).nvidia for side in (old, new)))


def of_images(kind: EffectKind, before: frozenset[str], after: frozenset[str]) -> Iterator[Effect]:
    """Yield the effect of other images of one chart's programs."""
    if before != after:
        yield Effect(kind=kind, pool=None, subject="images", before=sorted(before - after), after=sorted(after - before))


def _runs_driver(files: Files) -> bool:
    """Whether gpu-operator runs the driver, which is the default of its chart."""
    found = parsed(_OPERATOR, files[_OPERATOR]) if _OPERATOR in files else None
    return isinstance(found, dict) and (found.get("driver") or {}).get("enabled") is not False


def _version(files: Files) -> str | None:
    """Return the version of the operator's chart; None if the bundle does not say it."""
    found = _CHART.search(files.get(bundles.IMAGES, ""))
    return found[1] if found else None


def of_namespace(old: Files, new: Files) -> Iterator[Effect]:
    """Yield the effect of another namespace, which means another release: Helm cannot move one."""
    ours, theirs = zip(*map(_namespaces, (old, new)), strict=True)
    for subject, (before, after) in (("namespace", ours), ("namespace of the device plugin", theirs)):
        if before and after and before != after:
            yield Effect(kind=EffectKind.REINSTALLED, pool=None, subject=subject, before=before, after=after)


def _namespaces(files: Files) -> tuple[str, str]:
    """Return the namespace of our chart, and that of NVIDIA's device plugin; empty where no file says it."""
    path, values = "namespace.yaml", bundles.values(files)
    own = (parsed(path, files.get(path, "")) or {}).get("metadata", {}).get("name", "")
    return own, values.get("pluginNamespace") or own if bundles.nvidia_stack(values) is not None else ""
