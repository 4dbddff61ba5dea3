"""Reading what the user names: the intent's bytes, the lock of its bundle, its pools. `sides` reads sides of a comparison."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from gpushare import pipeline
from gpushare.bundle import lock, writer
from gpushare.bundle.artifact import Artifact
from gpushare.bundle.lock import Lock
from gpushare.cli import options, report, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode, FindingsError
from gpushare.core.diagnostics import Accepted, Finding
from gpushare.core.wording import join_first, nearest, visible
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card
from gpushare.intent import gitops
from gpushare.offering import backends
from gpushare.pipeline import Compilation
from gpushare.reading import source
from gpushare.reading.source import Source
from gpushare.resolved.plan import Plan
from gpushare.rules.gitops import renamed
from gpushare_node.contract.struct import NOTHING, Struct, replace


class LoadedIntent(Struct):
    """What was read: findings with the text that they refer to, and the compilation if the lock could be read.

    `cards` are those that a bundle's intent defines itself.
    `texts` are the files of a bundle that findings refer to: with one of them the bundle cannot be read.
    """

    previous_lock: Lock
    text: Source
    findings: tuple[Finding, ...] = ()
    accepted: tuple[Accepted, ...] = ()
    compilation: Compilation | None = None
    cards: Mapping[str, Card] = NOTHING
    texts: Mapping[str, Source] = NOTHING

    @property
    def plan(self) -> Plan:
        """The plan of an intent without errors. Raises RuntimeError for one with errors: a bug of the caller."""
        if self.compilation is None or self.compilation.plan is None:
            raise RuntimeError("an intent with errors has no plan")
        return self.compilation.plan

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The bundle's files; empty for an intent with errors."""
        return self.compilation.artifacts if self.compilation else ()


def only(plan: Plan, names: tuple[str, ...]) -> Plan:
    """Return the plan with the named pools alone, and the quotas on their resources. Raises CouldNotRunError."""
    refuse_unknown(names, [pool.name for pool in plan.intent.pools], "the intent has no pool")
    kept = tuple(pool for pool in plan.pools if pool.name in names)
    offered = {resource.name for pool in kept for resource in pool.resources}
    hard = ((one, tuple(entry for entry in one.hard if backends.quota_resource(entry[0]) in offered)) for one in plan.quotas)
    machines = tuple(pool for pool in plan.vm_pools if pool.name in names)
    quotas = tuple(replace(one, hard=entries) for one, entries in hard if entries)
    return replace(plan, pools=kept, vm_pools=machines, quotas=quotas)


def refuse_unknown(names: Iterable[str], have: Sequence[str], problem: str, listed: str = "the pools are") -> None:
    """Raise CouldNotRunError for the first name that there is not; `problem` is its beginning, `listed` that of the hint."""
    unknown = next((name for name in names if name not in have), None)
    if unknown is not None:
        close = nearest(unknown, have)
        hint = f"did you mean {join_first(close)}?" if close else f"{listed} {join_first(have)}"
        raise CouldNotRunError(f"{problem} {unknown!r}", hint)


def bundle_of(intent: str) -> Path:
    """Return the default folder of an intent's bundle: beside the intent; for stdin in the working directory."""
    return Path("bundle") if intent == "-" else Path(intent).parent / "bundle"


def refuse_other_folders(directory: Path, parts: Iterable[str]) -> None:
    """Raise CouldNotRunError for a folder that is no bundle, because it lacks one of these parts."""
    for part in parts:
        if not (directory / part).exists():
            beside = bundle_of(str(directory / lock.INTENT))
            hint = f"name {beside}" if beside.is_dir() else "name an intent file or what `gpushare compile` wrote"
            raise CouldNotRunError(f"{directory} is not a bundle: it has no {part}", hint)


def read_overlays(intent: str, overlays: tuple[str, ...]) -> list[pipeline.Overlay]:
    """Return the bytes and names of the overlays of an intent. Raises CouldNotRunError."""
    if [intent, *overlays].count("-") > 1:
        raise CouldNotRunError("standard input can be only one of INTENT and its overlays", "write the other into a file")
    absent = "an overlay has the fields of the intent that differ on this cluster, such as metadata: {name: north}"
    return [streams.read(name, source.MAX_BYTES, absent) for name in overlays]


def compiled(intent: str, directory: Path, otherwise: Lock = lock.EMPTY, overlays: tuple[str, ...] = ()) -> LoadedIntent:
    """Return the intent compiled with the lock of the bundle in `directory`, or with `otherwise` if there is none yet.

    Raises HintedError if the intent, an overlay or the lock cannot be read at all.
    """
    over = read_overlays(intent, overlays)
    data, file = streams.read(intent, source.MAX_BYTES)
    previous_lock = writer.read_lock(directory)
    if isinstance(previous_lock, Finding):
        return broken(previous_lock)
    previous_lock = otherwise if previous_lock == lock.EMPTY else previous_lock
    with streams.Progress(f"compiling {visible(file)}"):
        compilation = pipeline.compile_intent(data, file, previous_lock, over)
    lost = (lock.lost(str(directory / lock.FILE)),) if writer.is_lost(directory) else ()
    return LoadedIntent(
        previous_lock=previous_lock,
        findings=(*lost, *compilation.findings),
        accepted=compilation.accepted,
        text=compilation.source,
        compilation=compilation,
    )


def valid(intent: str, overlays: tuple[str, ...], *, strict: bool = False) -> LoadedIntent:
    """Return the intent compiled with the lock of the bundle beside it. Raises FindingsError for one with errors."""
    read = compiled(intent, bundle_of(intent), overlays=overlays)
    refuse_errors(read, strict=strict)
    return read


def judged(read: LoadedIntent, directory: Path) -> LoadedIntent:
    """Return an intent without errors with what is wrong with its bundle in the place of the one in `directory`."""
    intent = read.compilation.intent if read.compilation is not None and read.compilation.plan is not None else None
    if intent is None or not intent.gitops:
        return read
    found = renamed(intent, read_files(directory, [tool.root for tool in gitops.TOOLS.values()]))
    return replace(read, findings=(*read.findings, *map(read.text.locate, found)))


def broken(finding: Finding) -> LoadedIntent:
    """Return what is known where the lock cannot be read: the finding that says why, and its text."""
    return LoadedIntent(
        previous_lock=lock.EMPTY, findings=(finding,), text=source.read(*streams.read(finding.file, lock.MAX_BYTES))
    )


def refuse_errors(*read: LoadedIntent, strict: bool = False) -> None:
    """Report the findings of each, with its file. Raises FindingsError for errors, as of a bundle that cannot be read."""
    for one in read:
        report.report(one.findings, one.texts or one.text.texts, report.chosen(None), as_product=False)
    codes = [ExitCode.COULD_NOT_RUN if one.texts else report.verdict(one.findings, strict=strict) for one in read]
    code = max(codes)
    if code is not ExitCode.DONE:
        raise FindingsError(code, report.counted(read[codes.index(code)].findings))


def read_files(directory: Path, paths: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of the bundle's files that exist. Raises CouldNotRunError for one that cannot be read."""
    found = {}
    for path in paths:
        try:
            found[path] = (directory / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise CouldNotRunError(f"{directory / path} cannot be read: {error.strerror}", "make it readable") from error
    return found


def catalog_of(*read: LoadedIntent) -> cards.Catalog:
    """Return the catalogue with the intents' own cards."""
    plans = [each.compilation.plan for each in read if each.compilation is not None]
    made = [plan for plan in plans if plan is not None]
    own = {name: card for each in read for name, card in each.cards.items()}
    own |= {pool.card.id: pool.card for plan in made for pool in plan.pools}
    return cards.Catalog(own=own | {pool.card.id: pool.card for plan in made for pool in plan.vm_pools})


def only_pools() -> options.Decorator[Any]:
    """--pool, repeatable: the pools that are shown."""
    return click.option(
        "--pool", "pools", multiple=True, metavar="NAME", shell_complete=_complete_pool, help="Only this pool; repeatable."
    )


def _complete_pool(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the pools of the last intent so far that begin with the incomplete word; none before an intent is given."""
    # While --pool lacks its value click assigns no argument, and leaves them all in `args`.
    intent = context.params.get("intent") or next(iter((*(context.params.get("sides") or ()), *context.args)[::-1]), None)
    if not intent or intent == "-":
        return []
    try:
        document = source.read(*streams.read(intent, source.MAX_BYTES)).data
    except CouldNotRunError:
        return []
    spec = document.get("spec") if isinstance(document, dict) else None
    pools = spec.get("pools") if isinstance(spec, dict) else None
    return [CompletionItem(name) for name in (pools if isinstance(pools, dict) else ()) if name.startswith(incomplete)]
