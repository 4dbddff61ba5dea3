"""`gpushare krm`: the compiler as a KRM function of kustomize and kpt."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpushare.cli import options
from gpushare.cli.exits import CouldNotRunError, ExitCode

if TYPE_CHECKING:
    from gpushare.cli.inputs import LoadedIntent
    from gpushare.cli.resource_list import Object, Read
    from gpushare.cli.yaml_nodes import YamlObject
    from gpushare.core.diagnostics import Finding

_MAX_BYTES = 16 << 20
_KIND, _GROUP = "ClusterIntent", "gpushare.dev"


@click.command(cls=options.Command, short_help="Run as a KRM function of kustomize.")
@click.option("--bundle", type=click.Path(), default="bundle", metavar="DIR",
              help="The bundle whose lock file is read, if there is one. Default: bundle.")
@options.strict()
def command(*, bundle: str, strict: bool) -> ExitCode:
    """Read a ResourceList from stdin, and write one to stdout.

    As a generator its configuration is the intent: the objects that `compile
    --manifests` prints are added, and take the place of those that gpushare made
    before. With another configuration it is a validator, which checks every
    intent among the items. Without any intent it fails. Findings are in the
    list's `results`, and on stderr.

    The intent as a generator of kustomize, whose option --enable-exec it needs:

      metadata:
        name: physics
        annotations:
          config.kubernetes.io/function: |
            exec: {path: gpushare, args: [krm]}

    For example:
      kustomize build --enable-alpha-plugins --enable-exec .

    Exit codes:
      0  done
      1  an intent has errors (with --strict: or warnings), or an object of
         another tool has the name of one of gpushare's; nothing is added
      2  stdin is not a ResourceList, or has no intent
    """
    from gpushare.cli import inputs, report, resource_list, streams  # noqa: PLC0415 - `--help` does not need it

    data, _ = streams.read("-", _MAX_BYTES)
    try:
        received = resource_list.read(data)
    except ValueError as problem:
        raise CouldNotRunError(f"stdin: {problem}", "kustomize and kpt run this command as a function") from problem
    generates, intents = _intents(received)
    found: list[tuple[Finding, Object]] = []
    made: tuple[Object, ...] = ()
    for intent in intents:
        read = inputs.compiled_text(intent.text.encode(), resource_list.file_of(intent.fields), Path(bundle))
        found += [(finding, intent.fields) for finding in read.findings]
        if generates:
            made, more = _generate(received, intent, read, Path(bundle))
            found += more
    code = report.verdict([finding for finding, _ in found], strict=strict)
    streams.warn("".join(resource_list.line(*one) for one in found))
    streams.product(resource_list.write(received, made if code is ExitCode.DONE else (), found))
    return code


def _intents(received: "Read") -> "tuple[bool, list[YamlObject]]":
    """Return whether the list's configuration is an intent, and the intents to compile. Raises CouldNotRunError for none."""
    config = received.config
    if config is not None and config.fields.get("kind") == _KIND:
        return True, [config]
    intents = [item for item in received.items if _is_intent(item.fields)]
    if not intents:
        hint = "make the intent the function's configuration, or one of the resources that it validates"
        raise CouldNotRunError("the ResourceList has no ClusterIntent", hint)
    return False, intents


def _generate(
    received: "Read", intent: "YamlObject", read: "LoadedIntent", bundle: Path
) -> "tuple[tuple[Object, ...], list[tuple[Finding, Object]]]":
    """Return the objects of an intent, none if it has errors, and what is to be said of them."""
    from gpushare import render  # noqa: PLC0415 - a validator renders nothing
    from gpushare.bundle import lock, writer  # noqa: PLC0415 - as above
    from gpushare.cli import report, resource_list  # noqa: PLC0415 - `--help` does not need it

    if report.verdict(read.findings, strict=False) is not ExitCode.DONE:
        return (), []
    made = render.objects(read.plan, read.memory)
    # A bundle that has lost its lock is a finding already.
    missing = [lock.missing(str(bundle / lock.FILE))] if read.memory == lock.EMPTY and not writer.is_lost(bundle) else []
    return made, [*((finding, intent.fields) for finding in missing), *resource_list.clashes(received, made)]


def _is_intent(item: "Object") -> bool:
    """Return whether a resource is an intent, of whatever version: one that this version does not know has an error."""
    return item.get("kind") == _KIND and str(item.get("apiVersion", "")).partition("/")[0] == _GROUP
