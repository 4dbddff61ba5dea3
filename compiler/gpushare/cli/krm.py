"""`gpushare krm`: the compiler as a KRM function of kustomize and kpt."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpushare.cli import options
from gpushare.cli.exits import CouldNotRunError, ExitCode

if TYPE_CHECKING:
    from gpushare.cli.resource_list import Object
    from gpushare.core.diagnostics import Finding

_MAX_BYTES = 16 << 20
_INTENT = ("gpushare.dev/v1", "ClusterIntent")


@click.command(cls=options.Command, short_help="Run as a KRM function of kustomize.")
@click.option("--bundle", type=click.Path(), default="bundle", metavar="DIR",
              help="The bundle whose lock file is read, if there is one. Default: bundle.")
@options.strict()
def command(*, bundle: str, strict: bool) -> ExitCode:
    """Read a ResourceList from stdin, and write one to stdout.

    As a generator its configuration is the intent: the objects that `compile
    --manifests` prints are added. With another configuration it is a
    validator, which checks every intent among the items. Without any intent it
    fails. Findings are in the list's `results`, and on stderr.

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
      1  an intent has errors (with --strict: or warnings)
      2  stdin is not a ResourceList, or has no intent
    """
    from gpushare import render  # noqa: PLC0415 - `--help` does not need it
    from gpushare.cli import inputs, report, resource_list, streams  # noqa: PLC0415 - as above

    data, _ = streams.read("-", _MAX_BYTES)
    try:
        received = resource_list.read(data)
    except ValueError as problem:
        raise CouldNotRunError(f"stdin: {problem}", "kustomize and kpt run this command as a function") from problem
    generates = _is_intent(received.config)
    candidates = [received.config] if generates else received.items
    intents = [item for item in candidates if item is not None and _is_intent(item)]
    if not intents:
        hint = "make the intent the function's configuration, or one of the resources that it validates"
        raise CouldNotRunError("the ResourceList has no ClusterIntent", hint)
    found: list[tuple[Finding, Object]] = []
    made: tuple[Object, ...] = ()
    for intent in intents:
        text, file = resource_list.text_of(intent).encode(), resource_list.file_of(intent)
        read = inputs.compiled_text(text, file, Path(bundle))
        found += [(finding, intent) for finding in read.findings]
        if generates and report.verdict(read.findings, strict=strict) is ExitCode.DONE:
            made = render.objects(read.plan, read.memory)
    streams.tell("".join(resource_list.line(*one) for one in found))
    streams.product(resource_list.write(received, made, found))
    return report.verdict([finding for finding, _ in found], strict=strict)


def _is_intent(item: Any) -> bool:
    return isinstance(item, dict) and (item.get("apiVersion"), item.get("kind")) == _INTENT
