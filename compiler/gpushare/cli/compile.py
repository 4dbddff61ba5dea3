"""`gpushare compile`: the bundle, or whether it is current. `gpushare check`: the findings of one intent."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from gpushare import pipeline
from gpushare.bundle import writer
from gpushare.bundle.writer import ChangeKind, FileChange
from gpushare.cli import inputs, options, report, streams
from gpushare.cli.exits import ExitCode
from gpushare.cli.inputs import LoadedIntent
from gpushare.core import emit
from gpushare.core.diagnostics import in_order
from gpushare.core.wording import layout_text, pluralize, visible
from gpushare.facts.catalog import image_registry
from gpushare.facts.nodes import clouds
from gpushare.intent import gitops
from gpushare.intent.types import NvidiaStack, Operator
from gpushare.reading import source
from gpushare.report import finding_formats
from gpushare.resolved.plan import Plan, PoolPlan


@click.command(cls=options.Command)
@options.intent_argument()
@options.overlays()
@options.findings_format()
@options.strict()
def check_command(intent: str, overlays: tuple[str, ...], style: str | None, strict: bool) -> ExitCode:
    """Report what is wrong with INTENT, where, and what to write instead.

    Findings go to stdout, all of a stage at once. `-` reads stdin. Warnings that
    spec.accept names are counted, and --strict ignores them.
    `gpushare explain CODE` explains a finding.

    For example:
      gpushare check intent.yaml
      gpushare check base.yaml --overlay prod.yaml
      gpushare check --format sarif intent.yaml > findings.sarif

    Exit codes:
      0  no errors (with --strict: no warnings either)
      1  errors were found
      2  INTENT could not be read
    """
    over: list[pipeline.Overlay] = []
    if overlays:
        over = inputs.read_overlays(intent, overlays)
    compilation = pipeline.check(*streams.read(intent, source.MAX_BYTES), over)
    form, text = report.chosen(style), compilation.source.texts
    report.report(compilation.findings, text, form, as_product=True, accepted=compilation.accepted)
    return report.verdict(compilation.findings, strict=strict)


LISTED = 20
"""How many stale files are listed by name."""


@click.command(cls=options.Command)
@click.argument("intent", type=options.INTENT, required=False)
@options.overlays()
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="The bundle. Default: `bundle` beside INTENT; ./bundle for `-`.",
)
@click.option("--check", is_flag=True, help="Write nothing; exit 3 and list the files when DIR is not current.")
@click.option("--fleet", type=options.INTENT, metavar="FILE", help="Compile every cluster that FILE lists, instead of INTENT.")
@options.findings_format()
@options.strict()
def command(  # noqa: PLR0913 - one for each argument of the command line
    *,
    intent: str | None,
    overlays: tuple[str, ...],
    output: str | None,
    check: bool,
    fleet: str | None,
    style: str | None,
    strict: bool,
) -> ExitCode:
    """Validate INTENT and write its bundle.

    The bundle is chart, values, ConfigMaps, policies, and a README for the
    people who use the GPUs.

    The same INTENT and the same lock file in DIR always give the same files; a
    second run changes nothing. Files that an earlier run wrote and this one
    does not are removed; other files are never touched. Findings go to
    stderr; with --format json or sarif they go to stdout.

    For example:
      gpushare compile intent.yaml
      gpushare compile base.yaml --overlay prod.yaml -o prod/bundle
      gpushare compile --check intent.yaml      is the committed bundle current?
      gpushare compile --fleet clusters.yaml    every cluster in one run

    --fleet compiles one cluster after another. If one fails, the others are
    still compiled; the exit code is the worst of all, in the order 0, 3, 1, 2,
    70.

    Exit codes:
      0  done
      1  INTENT has errors (with --strict: or warnings); nothing is written
      2  INTENT could not be read, or DIR could not be written
      3  --check: DIR is not current
    """
    if fleet is not None:
        if intent is not None or overlays or output is not None:
            raise click.UsageError("--fleet excludes INTENT, --overlay and --output: its file has them")
        return _compile_fleet(fleet, check=check, style=style, strict=strict)
    if intent is None:
        raise click.UsageError("name INTENT, or a file of clusters with --fleet")
    if output == "":  # an unset variable of a script, not the working directory
        raise click.UsageError("--output: DIR is empty text")
    directory = Path(output) if output else inputs.bundle_of(intent)
    read = inputs.judged(inputs.compiled(intent, directory, overlays=overlays), directory)
    form = report.chosen(style)
    for_programs = form in {report.FindingFormat.JSON, report.FindingFormat.SARIF}
    files = [artifact.path for artifact in read.artifacts]
    report.report(read.findings, read.text.texts, form, as_product=for_programs, accepted=read.accepted, files=files)
    code = report.verdict(read.findings, strict=strict)
    if code is not ExitCode.DONE:
        return code
    code, text = _bundle(read, directory, write=not check)
    (streams.warn if for_programs else streams.write)(text)
    return code


def _bundle(read: LoadedIntent, directory: Path, *, write: bool) -> tuple[ExitCode, str]:
    """Write the bundle of an intent without errors, or compare it with the folder; return the exit code, and what to say."""
    if write:
        with streams.Progress(f"writing {pluralize(len(read.artifacts), 'file')}"):
            changes = writer.write(read.artifacts, directory, read.previous_lock)
        return ExitCode.DONE, written(read, changes, directory)
    changes = writer.changes(read.artifacts, directory)
    return ExitCode.CHANGES if changes else ExitCode.DONE, checked(changes, directory)


def _compile_fleet(file: str, *, check: bool, style: str | None, strict: bool) -> ExitCode:
    """Compile every cluster that the file lists, write what became of each, and return the worst exit code."""
    from gpushare.cli import fleet  # noqa: PLC0415 - most compiles are of one cluster, read by a person

    form = report.chosen(style)

    def make(cluster: fleet.FleetCluster) -> fleet.Done:
        directory = Path(cluster.output)
        read = inputs.judged(inputs.compiled(cluster.intent, directory, overlays=cluster.overlays), directory)
        result = in_order(list(read.findings)), read.accepted, [artifact.path for artifact in read.artifacts]
        if form in (report.FindingFormat.TEXT, report.FindingFormat.GITHUB):
            report.report(read.findings, read.text.texts, form, as_product=False, accepted=read.accepted)
        code = report.verdict(read.findings, strict=strict)
        if code is not ExitCode.DONE:
            return fleet.Done(cluster=cluster, code=code, outcome="findings", text=report.counted(*result[:2]), result=result)
        code, text = _bundle(read, directory, write=not check)
        if form is report.FindingFormat.JSON:
            streams.warn(text)
        outcome = "stale" if code is ExitCode.CHANGES else "current" if check else "compiled"
        return fleet.Done(cluster=cluster, code=code, outcome=outcome, text=text, result=result)

    done = fleet.run(file, form, make)
    if form is report.FindingFormat.JSON:
        whole = fleet.document("FleetResult", "findings", done, lambda one: finding_formats.document(*one), fleet.worst(done))
        streams.product(emit.json_text(whole))
    elif form is report.FindingFormat.SARIF:
        failed = [one for one in done if one.result is None]
        streams.warn("".join(one.message for one in failed))
        judged = {one.cluster.name: one.result[:2] for one in done if one.result}
        streams.product(finding_formats.sarif_of_fleet(judged, [f"{one.cluster.name}: {one.text}" for one in failed]))
    else:
        streams.warn("".join(one.message for one in done))
        streams.write(fleet.lines(done))
    return fleet.worst(done)


def written(read: LoadedIntent, changes: Sequence[FileChange], directory: Path) -> str:
    """Return what was written, what goals were resolved to, and what to do next; one line if nothing changed."""
    goals = "".join(
        f"goal of pool {pool.name}: layout {layout_text(pool.layout_of_goal)}, kept until the intent changes\n"
        for pool in read.plan.pools
        if pool.layout_of_goal is not None
    )
    if not changes:
        return f"{visible(str(directory))}: compiled, no changes\n" + goals
    kinds = Counter(change.kind for change in changes)
    fresh = kinds[ChangeKind.MISSING] + kinds[ChangeKind.DIFFERENT]
    same, removed = len(read.artifacts) - fresh, kinds[ChangeKind.STALE]
    shown = f"{visible(str(directory))}: {pluralize(fresh, 'file')} written, {same} unchanged, {removed} removed\n"
    kept = [change.path for change in changes if change.kind is ChangeKind.EDITED]
    shown += "".join(f"kept, since it was edited after gpushare wrote it: {visible(path)}\n" for path in kept)
    steps = (*_preparation(read.plan, directory), *_next_steps(read, directory))
    return shown + goals + "".join(f"{step}\n" for step in steps)


def checked(changes: Sequence[FileChange], directory: Path) -> str:
    """Return which files are not current."""
    if not changes:
        return f"{visible(str(directory))} is current\n"
    lines = [f"  {change.kind.value:<9} {visible(change.path)}" for change in changes[:LISTED]]
    if len(changes) > LISTED:
        lines.append(f"  and {len(changes) - LISTED} more")
    return "\n".join([f"{visible(str(directory))} is stale, `gpushare compile` updates it:", *lines]) + "\n"


def _preparation(plan: Plan, directory: Path) -> Iterator[str]:
    """Yield what the nodes lack unless a person provides it, as far as the intent shows."""
    platform = plan.intent.platform
    if image_registry.is_unpublished(platform) or image_registry.is_example(platform):
        readme = f"{visible(str(directory))}/README.md"
        yield f"first: push the node runtime's image and set platform.image, as {readme} says"
    if gitops.installs_upstream(plan.intent) and platform.stack is NvidiaStack.GPU_OPERATOR and not _has_driver(plan):
        yield "first: nodes need NVIDIA's driver; `driver: {}` in platform makes the operator install it"


def _has_driver(plan: Plan) -> bool:
    """Return whether the operator installs the driver, or the intent shows that every pool's nodes have one."""
    platform = plan.intent.platform
    is_located = "driverInstallDir" in platform.values.get("hostPaths", {})
    return platform.driver is not None or is_located or all(clouds.have_driver(_keys(pool)) for pool in plan.pools)


def _keys(pool: PoolPlan) -> Iterator[str]:
    nodes = pool.pool.nodes
    yield from (key for key, _ in nodes.match_labels)
    yield from (
        expression.key for expression in nodes.match_expressions if expression.operator in (Operator.IN, Operator.EXISTS)
    )


def _next_steps(read: LoadedIntent, directory: Path) -> Iterator[str]:
    """Yield what begins the installation: of each tool that syncs the bundle, else of Helm."""
    intent, where = read.plan.intent, visible(str(directory))
    written = {artifact.path for artifact in read.artifacts}
    for key in intent.gitops:
        tool, settings = gitops.TOOLS[key], gitops.settings(intent, key)
        files = [file for file in tool.applied if file in written and file not in tool.merged]
        path, repository = visible(settings["path"]), visible(settings[tool.repository])
        yield f"next: commit {where} as {path} of {repository}; {where}/README.md says the rest. Once, for {tool.title}:"
        yield "  kubectl apply" + "".join(f" -f {_argument(directory / file)}" for file in files)
    if not intent.gitops:
        yield f"next: {where}/README.md says what to install in which order; our chart is"
        yield "  kubectl apply" + "".join(f" -f {_argument(directory / file)}" for file in gitops.namespaces(intent))
        wait = " --wait" if intent.observes else ""
        chart = _argument(directory / "chart")
        yield f"  helm upgrade --install gpushare {chart} --namespace {intent.namespace}{wait} --timeout 5m"


def _argument(path: Path) -> str:
    """Return the path as a shell and a program read it: no option, although the path may begin with a hyphen."""
    text = str(path)
    return visible(shlex.quote(f"./{text}" if text.startswith("-") else text))
