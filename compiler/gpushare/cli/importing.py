"""`gpushare import`: an intent from what a cluster has. Named differently, because `import` is a word of Python."""

from collections.abc import Iterable
from pathlib import Path

import click

from gpushare import pipeline
from gpushare.bundle import lock, writer
from gpushare.cli import options, report, streams
from gpushare.cli.cluster import ClusterConnection, cluster_options, connected, warn_unread
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.cluster import importing
from gpushare.cluster.importing import InputFile, Wanted
from gpushare.cluster.importing.documents import MAX_BYTES
from gpushare.cluster.live import inventory
from gpushare.core import units
from gpushare.core.diagnostics import Finding
from gpushare.core.wording import visible

_FILE = click.Path(exists=False, allow_dash=True)


@click.command(cls=options.Command)
@click.argument("files", nargs=-1, type=_FILE)
@click.option("--live", is_flag=True, help="Also read the running cluster.")
@click.option(
    "--operator-namespace",
    "namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="With --live: where configs of the plugin are; repeatable. Default: the usual ones of NVIDIA's charts.",
)
@click.option("--helm-values", "values", is_flag=True, help="With --live: also the values of NVIDIA's Helm releases (Secrets).")
@click.option(
    "--stack",
    type=click.Choice(["existing", "gpu-operator", "device-plugin"]),
    default=None,
    help="What serves the GPUs: what is installed stays (existing, the default), or the bundle's chart replaces it.",
)
@click.option(
    "--backend",
    type=click.Choice(["dra"]),
    default=None,
    help="Propose the pools of the device plugin as pools of NVIDIA's DRA driver.",
)
@click.option("--observe", is_flag=True, help="Write adoption: observe; without --stack that is the default.")
@click.option("--name", default="", help="The cluster's name, a DNS label. Default: imported.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Default: stdout.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@options.findings_format()
@options.strict()
@cluster_options
def command(  # noqa: PLR0913 - one for each argument of the command line
    *,
    files: tuple[str, ...],
    live: bool,
    namespaces: tuple[str, ...],
    values: bool,
    stack: str | None,
    backend: str | None,
    observe: bool,
    name: str,
    output: Path | None,
    force: bool,
    style: str | None,
    strict: bool,
    cluster: ClusterConnection,
) -> ExitCode:
    """Write an intent from a cluster's configuration in FILES.

    FILES are YAML or JSON, with any number of objects each; `-` is stdin:
      ConfigMaps or files with configs of the device plugin or of mig-parted
      values of gpu-operator or nvidia-device-plugin, and the ClusterPolicy
      Nodes with their labels: kubectl get nodes -o yaml
      ResourceQuotas on nvidia.com/* and on DeviceClasses
      the folder of a bundle, or its intent.yaml

    With --live, Nodes, ResourceQuotas, the ClusterPolicy, DeviceClasses, and
    ConfigMaps that look like such configs are read from the running cluster
    too. Only GET requests are sent; what cannot be read is reported.

    Objects of DRA are not imported: each is reported, and so are nodes that
    NVIDIA's DRA driver serves.

    The intent goes to stdout, with comments that give the source of each
    value and every assumption. Findings go to stderr: what an intent cannot
    express, every input field that it has no place for, and what NVIDIA's
    programs ignore or refuse. What is installed stays and gpushare only
    observes, unless --stack says that the bundle's chart replaces it: then the
    release's values, version and namespace are written into the intent. Pools
    come from Nodes: without Nodes only configs that are named after a card
    become pools. If there are errors, the intent is still written, without the
    parts that they concern.

    For example:
      kubectl get nodes -o yaml > nodes.yaml
      gpushare import nodes.yaml configmap.yaml values.yaml -o intent.yaml
      kubectl get nodes,configmaps,resourcequotas -A -o json | gpushare import -
      gpushare import --live --operator-namespace gpu-operator -o intent.yaml
      gpushare import --stack gpu-operator nodes.yaml release.yaml -o intent.yaml

    --backend dra proposes the pools of the device plugin as pools of NVIDIA's
    DRA driver, and reports what cannot follow: docs/dra.md describes the move.

    Exit codes:
      0  done (with --strict: without warnings)
      1  something could not be imported
      2  a file could not be read, or FILE exists or cannot be written,
         or no cluster can be reached
    """
    if name and not units.is_dns_label(name):
        raise CouldNotRunError(f"invalid cluster name {name!r}", "a DNS label: a-z, 0-9 and -, at most 63 characters")
    if files.count("-") > 1:
        raise click.UsageError("standard input can be given once")
    if output is not None and output.exists() and not force:
        raise CouldNotRunError(f"{output} exists", "--force overwrites it")
    if not files and not live:
        raise click.UsageError("name FILES, or --live")
    if (namespaces or values) and not live:
        raise click.UsageError("--operator-namespace and --helm-values need --live")
    for namespace in namespaces:
        if not units.is_dns_label(namespace):
            raise click.UsageError(f"{visible(namespace)!r} is not the name of a namespace")
    objects = _of_cluster(cluster, namespaces, values=values) if live else []
    wanted = Wanted(stack=stack or "", backend=backend or "", observe=observe)
    return _run(files, objects, name, wanted, output, force=force, style=style, strict=strict)


def _of_cluster(cluster: ClusterConnection, namespaces: tuple[str, ...], *, values: bool) -> list["InputFile"]:
    with connected(cluster) as server:
        found = inventory.read(server, namespaces or inventory.NAMESPACES, values=values)
    warn_unread(found.unseen)
    return [InputFile(name=called, document=document) for called, document in found.objects]


def _edited(bundle: Path, intent: bytes, file: str) -> Iterable[Finding]:
    """Yield what the lock of a bundle says of the intent in it."""
    known = writer.read_lock(bundle)
    found = known if isinstance(known, Finding) else lock.edited(known, intent, file)
    return () if found is None else (found,)


def _run(  # noqa: PLR0913 - as above
    files: tuple[str, ...],
    objects: list["InputFile"],
    name: str,
    wanted: Wanted,
    output: Path | None,
    *,
    force: bool,
    style: str | None,
    strict: bool,
) -> ExitCode:
    inputs = objects
    edited: list[Finding] = []
    for file in dict.fromkeys(files):
        folder = Path(file) if file not in ("", "-") and Path(file).is_dir() else None
        absent = f"{file} is no bundle, or one without the intent that it was made from"
        data, called = streams.read(str(folder / lock.INTENT), MAX_BYTES, absent) if folder else streams.read(file, MAX_BYTES)
        inputs.append(importing.InputFile(name=called, data=data))
        edited += _edited(folder, data, called) if folder else ()
    found = importing.build(inputs, name, wanted)
    if found.text:
        compiled = pipeline.compile_intent(found.text.encode(), "", lock.EMPTY)
        found = found.checked(compiled.findings)
    findings = (*edited, *found.findings)
    report.report(findings, found.lines, report.chosen(style), as_product=False)
    if found.text and output is not None:
        streams.create(output, found.text, overwrite=force)
    elif found.text:
        streams.product(found.text)
    return report.verdict(findings, strict=strict)
