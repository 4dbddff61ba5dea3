"""Rules on versions: of Kubernetes, of the upstream chart and of the driver (GS702 to GS705, GS707, GS718 and GS719).

Which drivers serve a card follows from its compute capability: the branches from the first to the last, and the open kernel
modules. A card of one's own has them as well. Sources: NVIDIA's announcement that R580 is the last branch for Maxwell, Pascal
and Volta, and its note that the open kernel modules need Turing's GSP (published knowledge, not looked up); the MIG User Guide
for Blackwell, whose first branches (R570, and R580 for 10.3) it states with the first drivers that have MIG.
"""

import re
from collections.abc import Iterator, Mapping

from gpushare.core.diagnostics import Path, Severity
from gpushare.core.wording import join_words
from gpushare.facts.catalog import upstream
from gpushare.facts.catalog.cards import Card, MigProfile
from gpushare.facts.catalog.upstream import UpstreamChart, VendorChart
from gpushare.intent.types import NvidiaStack, Platform, Pool, SharePlacement
from gpushare.offering import modes
from gpushare.rules.mig import mig_pools
from gpushare.rules.rule import Problem, RuleContext, a_card, pool_path, rule
from gpushare_node.contract.struct import Struct, replace

HERE = ("spec", "platform")

OLDEST_KUBERNETES = (1, 30)
"""Validating admission policies are stable from here on, and no older one is tried."""

NEWEST_KUBERNETES = (1, 37)

CONFIGURED_PLUGIN, MPS_PLUGIN, EXACT_PLUGIN = (0, 12, 2), (0, 15, 0), (0, 20, 0)
"""The device plugin releases that first choose a config by a node's label and do without one elsewhere, that know MPS, and that
tell `1g.10gb` from `1g.10gb+me` and know an allocation policy."""
_NUMBER = r"\d{1,9}\.\d{1,9}\.\d{1,9}(-[0-9A-Za-z.-]+)?\Z"
VERSIONS = {NvidiaStack.GPU_OPERATOR: "v" + _NUMBER, NvidiaStack.DEVICE_PLUGIN: _NUMBER}
"""The forms of a version, by stack."""

TURING = (7, 5)
"""The compute capability from which the open kernel modules serve a card, and after R580 every driver."""

LAST_BEFORE_TURING = 580
WRITTEN_BEFORE_TURING = "580.126.20"
"""The last driver of that branch that a release of gpu-operator installs: what to write for older cards."""

_FIRST = (((12, 0), 570), ((10, 3), 580), ((10, 0), 570))
"""Compute capability → the first branch of cards from it on, the newest first."""


class DriverRange(Struct):
    """The branches that serve a card, such as 570 for R570. None: no bound is known."""

    first: int | None
    last: int | None


@rule("GS702")
def check_old_kubernetes(context: RuleContext) -> Iterator[Problem]:
    """A Kubernetes version that lacks what the bundle uses."""
    version = context.intent.kubernetes
    if version and version < OLDEST_KUBERNETES:
        yield Problem(
            message=f"Kubernetes {_dotted(version)} is too old: bundles need 1.30 or newer",
            hints=('write kubernetes: "1.30" or newer, the oldest API server that the bundle must install on',),
            path=("spec", "kubernetes"),
        )


@rule("GS703", Severity.WARNING)
def check_new_kubernetes(context: RuleContext) -> Iterator[Problem]:
    """A Kubernetes version that this gpushare was not tested with."""
    version = context.intent.kubernetes
    if version and version > NEWEST_KUBERNETES:
        known = _dotted(NEWEST_KUBERNETES)
        yield Problem(
            message=f"this version of gpushare supports Kubernetes up to {known}, not {_dotted(version)}",
            hints=(f'the bundle needs nothing newer than {known}: write kubernetes: "{known}" or older',),
            path=("spec", "kubernetes"),
        )


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


@rule("GS719")
def check_kubernetes_form(context: RuleContext) -> Iterator[Problem]:
    """A text that is not a minor version of Kubernetes."""
    if context.intent.kubernetes is None:
        given = context.document.get("spec", {}).get("kubernetes", "")
        yield Problem(
            message=f"invalid Kubernetes version {given!r}",
            hints=('write the oldest API server\'s major and minor number in quotes, such as kubernetes: "1.33"',),
            path=("spec", "kubernetes"),
        )


@rule("GS704")
def check_version_form(context: RuleContext) -> Iterator[Problem]:
    """A text that is not a version of the stack's chart."""
    platform = context.intent.platform
    form = VERSIONS.get(platform.stack)
    if platform.version is not None and form and not re.match(form, platform.version):
        chart = upstream.chart(platform.stack.value)
        yield Problem(
            message=f"invalid version {platform.version!r} of {chart.name}",
            hints=(f"write it as the chart does: {chart.version}",),
            path=(*HERE, "version"),
        )


@rule("GS705", Severity.WARNING)
def check_version_known(context: RuleContext) -> Iterator[Problem]:
    """A release whose chart was not read, so that its values are judged by another's."""
    yield from _of_others(context)
    platform = context.intent.platform
    form = VERSIONS.get(platform.stack)
    if platform.version is None or not form or not re.match(form, platform.version):
        return
    chart = judging_chart(platform)
    if platform.version in chart.uncharted:
        why = chart.uncharted[platform.version]
    elif platform.version not in chart.known_versions:
        newer = upstream.version_order(platform.version) > upstream.version_order(chart.known_versions[-1])
        why = f"since {platform.version} is {'newer than this gpushare knows' if newer else 'not known here'}"
    elif chart.is_before_all(platform.version):
        why = f"the oldest whose chart was read; {platform.version} may know others"
    else:
        return
    yield Problem(
        message=f"values are checked against {chart.name} {chart.described}, {why}",
        hints=(f"known are {join_words(chart.known_versions)}",),
        path=(*HERE, "version"),
    )


def is_release(chart: VendorChart, version: str) -> bool:
    """Whether the text has the form of a release of another vendor's chart."""
    return bool(re.match(("v" if chart.version.startswith("v") else "") + _NUMBER, version))


def _of_others(context: RuleContext) -> Iterator[Problem]:
    """Report any release of another vendor's chart but the newest, the only one that was read."""
    for vendor, one in context.intent.platform.others.items():
        if one.version is None or not one.installs_chart:
            continue
        chart, given = upstream.vendor_chart(one.stack.value), one.version
        if is_release(chart, given) and given != chart.version:
            yield Problem(
                message=f"values are checked against {chart.name} {chart.version}, whose images the bundle has, not {given}",
                hints=(f"leave version out, or compare `helm show values {chart.name} --version {given}`",),
                path=context.stack_path(vendor, "version"),
            )


@rule("GS707")
def check_plugin(context: RuleContext) -> Iterator[Problem]:
    """Pools that need a newer device plugin than the chart's version installs."""
    version, written = _plugin_version(context)
    found = re.match(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})", version)
    numbers = tuple(int(part) for part in found.groups()) if found else EXACT_PLUGIN
    if numbers < CONFIGURED_PLUGIN:
        message = f"device plugin {version} does not choose its config by a node's label, so no pool would be shared"
        yield _old_plugin(message, "leave the version out", written)
        return
    for pool in context.intent.pools:
        if pool.backend.has_claims:
            continue
        for lacks, hint, path in _lacking(context, pool, numbers):
            yield _old_plugin(f"device plugin {version} {lacks}", hint, path)


def _lacking(context: RuleContext, pool: Pool, plugin: tuple[int, ...]) -> Iterator[tuple[str, str, Path]]:
    """Yield (what the plugin cannot do, what to write instead, path) for one pool."""
    if modes.of(pool).has_daemon and plugin < MPS_PLUGIN:
        yield "has no MPS", "leave platform.version out, or write mode: time-slicing", pool_path(pool, "sharing", "mode")
    attributed = [profile.name for profile in _profiles(context, pool) if profile.has_attributes]
    if attributed and plugin < EXACT_PLUGIN:
        lacks = f"cannot distinguish {attributed[0]} from other profiles of its size"
        yield lacks, "leave platform.version out, or use profiles without attributes", pool_path(pool, "sharing")
    if pool.sharing.placement is SharePlacement.PACK and plugin < EXACT_PLUGIN:
        where = pool_path(pool, "sharing", "placement")
        yield "ignores placement: pack", "leave platform.version out, or write placement: spread", where


def _profiles(context: RuleContext, pool: Pool) -> Iterator[MigProfile]:
    for kind in context.kinds(pool) or ():
        if isinstance(kind.profile, MigProfile):
            yield kind.profile


def _old_plugin(message: str, hint: str, path: Path) -> Problem:
    return Problem(message=message, hints=(hint,), path=path)


def _plugin_version(context: RuleContext) -> tuple[str, Path]:
    """Return the device plugin's version and its origin: the values, else the chart's release. Empty if it is not known."""
    platform = context.intent.platform
    here: Path = (*HERE, "version")
    if not platform.installs_chart:
        return "", here
    chart = upstream.chart(platform.stack.value)
    section, key = ("devicePlugin", "version") if platform.stack is NvidiaStack.GPU_OPERATOR else ("image", "tag")
    values = platform.values.get(section)
    own = values.get(key) if isinstance(values, Mapping) else None
    if isinstance(own, str) and own:
        return own, (*HERE, "values", section, key)
    release = platform.version or chart.version
    return chart.plugin_version(release) if re.match(VERSIONS[platform.stack], release) else "", here


@rule("GS718")
def check_driver(context: RuleContext) -> Iterator[Problem]:
    """A driver that does not serve a pool's card, that cannot partition it, or kernel modules that do not serve it."""
    driver = context.intent.platform.driver
    if driver is None:
        return
    yield from _check_modules(context)
    text, path = operator_driver(context), (*HERE, "driver", *(("version",) if driver.version else ()))
    version = _numbers(text)
    unserved = {pool.name for pool, card in context.pools_with_card() if _is_outside(version, branches(card))}
    if not version:
        return
    for pool, card in context.pools_with_card():
        if pool.name in unserved:
            yield _unserved(text, pool, card, path)
    yield from (replace(one, path=path) for one in _check_mig(context, text, version) if one.path[-1] not in unserved)


def _is_outside(version: tuple[int, ...], bounds: DriverRange) -> bool:
    return bool(version) and not (bounds.first or 0) <= version[0] <= (bounds.last or version[0])


def _unserved(text: str, pool: Pool, card: Card, path: Path) -> Problem:
    bounds = branches(card)
    if bounds.last is not None:
        why = f"R{bounds.last} is the last branch for it"
        hint = f'{why}: write driver: {{version: "{WRITTEN_BEFORE_TURING}"}}, or another driver of R{bounds.last}'
    else:
        hint = f"write a driver of R{bounds.first} or newer: that branch is the first for it"
    message = f"driver {text} does not serve {a_card(card)} of pool {pool.name}"
    if path[-1] != "version":
        whose = f"driver {text}, which this release of gpu-operator installs,"
        message = f"{whose} does not serve {a_card(card)} of pool {pool.name}"
    return Problem(message=message, hints=(hint,), path=path)


def _check_modules(context: RuleContext) -> Iterator[Problem]:
    """Yield the pools whose cards have no open kernel modules, if the values ask for these."""
    values = context.intent.platform.values.get("driver")
    values = values if isinstance(values, Mapping) else {}
    key = next((key for key, value in _OPEN_MODULES.items() if values.get(key) == value), None)
    if key is None:
        return
    for pool, card in context.pools_with_card():
        if not has_open_modules(card):
            other = "kernelModuleType: auto or proprietary" if key == "kernelModuleType" else f"{key}: false"
            yield Problem(
                message=f"the open kernel modules do not serve {a_card(card)} of pool {pool.name}: they need Turing or newer",
                hints=(f"write {other}",),
                path=(*HERE, "values", "driver", key),
            )


_OPEN_MODULES: Mapping[str, object] = {"kernelModuleType": "open", "useOpenKernelModules": True}


def _check_mig(context: RuleContext, text: str, version: tuple[int, ...]) -> Iterator[Problem]:
    """Yield findings whose path is that of their pool; the caller knows where the driver is written."""
    for pool, card, geometry in mig_pools(context):
        if _is_older(version, geometry.min_driver):
            message = f"driver {text} cannot partition {a_card(card)} of pool {pool.name}"
            hint = f"MIG on this card needs driver {geometry.min_driver} or newer"
            yield Problem(message=message, hints=(hint,), path=pool_path(pool))
            continue
        present = [{name for name, _ in layout} for layout in set(context.layouts(pool) or ())]
        for needed in geometry.layout_drivers:
            if _is_older(version, needed.min_driver) and any(names.issuperset(needed.profiles) for names in present):
                where = f"on {a_card(card)} of pool {pool.name}"
                yield Problem(
                    message=f"driver {text} cannot make {join_words(needed.profiles)} {where}",
                    hints=(f"that needs driver R{needed.min_driver} or newer",),
                    path=pool_path(pool),
                )


def _is_older(version: tuple[int, ...], needed: str | None) -> bool:
    """Whether a driver is certainly older. For a branch such as `570`, the name of a precompiled driver, it is unknown."""
    return version < _numbers(needed)[: len(version)]


def _numbers(version: str | None) -> tuple[int, ...]:
    """Return `595.91.07` as numbers; the empty tuple if the text is not a plain driver version, such as a digest."""
    found = re.match(r"\d{1,9}(\.\d{1,9})*", version or "")
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def judging_chart(platform: Platform) -> UpstreamChart:
    """Return the chart of the release that `platform.version` names, else the newest. Raises KeyError for stack existing."""
    chart = upstream.chart(platform.stack.value)
    is_version = platform.version is not None and re.match(VERSIONS[platform.stack], platform.version)
    return chart.at(platform.version) if is_version else chart


def operator_driver(context: RuleContext) -> str:
    """Return the version of the driver that the operator installs; empty if it installs none or the version is unknown."""
    platform = context.intent.platform
    if platform.driver is None or platform.stack is not NvidiaStack.GPU_OPERATOR:
        return ""
    if platform.driver.version:
        return platform.driver.version
    chart = judging_chart(platform)
    release = platform.version
    is_known = release is None or (release in chart.known_versions and not chart.is_before_all(release))
    fact = chart.path("driver.version") if is_known else None
    return str(fact.default) if fact else ""


def branches(card: Card) -> DriverRange:
    """Return NVIDIA's driver branches of a card. What no source tells has no bound; Thor (11.0) has drivers of its own."""
    capability = card.compute_capability
    if capability is None:
        return DriverRange(first=None, last=None)
    first = next((branch for start, branch in _FIRST if capability >= start and capability[0] == start[0]), None)
    return DriverRange(first=first, last=LAST_BEFORE_TURING if capability < TURING else None)


def has_open_modules(card: Card) -> bool:
    """Whether NVIDIA's open kernel modules serve the card."""
    return card.compute_capability is not None and card.compute_capability >= TURING
