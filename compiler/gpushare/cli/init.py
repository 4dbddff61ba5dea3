"""`gpushare init`: a commented starter intent that compiles as it is."""

import sys
from functools import cache
from pathlib import Path

import click
import jinja2

from gpushare import vendors
from gpushare.cli import catalogue, options, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.core import resources, units
from gpushare.core.wording import layout_text
from gpushare.facts import mig
from gpushare.facts.catalog import image_registry
from gpushare.facts.catalog.cards import Card
from gpushare.intent import types
from gpushare.intent.types import MostInstances, RuntimeImage
from gpushare.offering import modes
from gpushare.offering.modes import partition

SCHEMA_FILE = "intent.v1.json"
_ID = b'"$id": "https://gpushare.dev/schemas/intent.v1.json"'


@click.command(cls=options.Command)
@click.option("--name", default="my-cluster", help="The cluster's name, a DNS label. Default: my-cluster.")
@click.option(
    "--mode", type=click.Choice(types.MODES), default="time-slicing", help="How the GPUs are shared. Default: time-slicing."
)
@click.option(
    "--card",
    "card_id",
    metavar="ID",
    shell_complete=catalogue.complete,
    help="The pool's card, see `gpushare cards`. Default: a usual one for the mode.",
)
@click.option(
    "--image",
    metavar="REFERENCE",
    help="REPOSITORY[:TAG|@DIGEST] of the node runtime's image. Default: asked for on a terminal, else an example.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Default: stdout.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def command(  # noqa: PLR0913 - one for each option
    *, name: str, mode: str, card_id: str | None, image: str | None, output: Path | None, force: bool
) -> ExitCode:
    """Write a commented starter intent.

    It has one pool, explains every usual field and compiles as it is. With -o
    the intent's JSON Schema is written beside it, as intent.v1.json: editors
    complete and check the intent by it.

    For example:
      gpushare init -o intent.yaml
      gpushare init -o intent.yaml --image registry.example.org/gpushare/node-runtime
      gpushare init --name physics --mode mig --card h100-sxm5-80gb > intent.yaml

    Exit codes:
      0  done
      2  FILE or another intent.v1.json exists, FILE cannot be written, CARD
         cannot do MODE, or REFERENCE is no reference of an image
    """
    if not units.is_dns_label(name):
        raise CouldNotRunError(f"invalid cluster name {name!r}", "a DNS label: a-z, 0-9 and -, at most 63 characters")
    chosen = _card(card_id or modes.named(mode).starter_card, mode)
    text = _text(name, mode, chosen, _asked_image() if image is None else _image(image), beside=output is not None)
    if output is None:
        streams.product(text)
    else:
        _write(output, text, overwrite=force)
    return ExitCode.DONE


def _write(output: Path, text: str, *, overwrite: bool) -> None:
    """Write the intent, and beside it the schema that its first line names; a file of others with that name stays."""
    path, schema = output.parent / SCHEMA_FILE, resources.schema("intent.v1").read_text(encoding="utf-8")
    if path.name == output.name:
        raise CouldNotRunError(f"{output} is the name of the schema beside the intent", "name the intent intent.yaml")
    is_ours = not path.exists() or _ID in path.read_bytes()
    if not is_ours and not overwrite:
        raise CouldNotRunError(f"{path} exists, and is not gpushare's schema", "--force overwrites it")
    streams.create(output, text, overwrite=overwrite)
    streams.create(path, schema, overwrite=True)
    streams.write(f"{output} written, and {path} for editors; next: gpushare check {output}\n")


def _card(card_id: str, mode: str) -> Card:
    """Return the card, if it supports the mode."""
    card = catalogue.chosen(card_id)
    traits = modes.named(mode)
    if card.vendor not in traits.vendors:
        others = [one.mode.value for one in modes.MODES if card.vendor in one.vendors and one.missing(card) is None]
        raise CouldNotRunError(f"{card.name} has no {mode}", f"take --mode {' or '.join(others)}")
    missing = traits.missing(card)
    if missing:
        raise CouldNotRunError(f"{card.name} has no {missing[0]}", f"take --mode {missing[1]}")
    return card


def _asked_image() -> RuntimeImage:
    """Return the image that a person at a terminal names; the example's, unless there is one who answers."""
    if any(stream is None or not stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return _image(image_registry.EXAMPLE_IMAGE)
    question = "Where will you push the node runtime's image?"
    answer: RuntimeImage = click.prompt(question, default=image_registry.EXAMPLE_IMAGE, value_proc=_answered, err=True)
    return answer


def _answered(text: str) -> RuntimeImage:
    """Return the image of an answer. BadParameter asks again."""
    try:
        return _image(text)
    except CouldNotRunError as problem:
        raise click.BadParameter(f"{problem}: {problem.hint}") from problem


def _image(text: str) -> RuntimeImage:
    image = image_registry.parsed(text)
    if image is None:
        hint = f"REPOSITORY, REPOSITORY:TAG or REPOSITORY@DIGEST, such as {image_registry.EXAMPLE_IMAGE}"
        raise CouldNotRunError(f"invalid image {text!r}", hint)
    return image


def _text(name: str, mode: str, card: Card, image: RuntimeImage, *, beside: bool) -> str:
    """Return the starter intent. The template gets only checked words, so nothing needs quoting."""
    pool = modes.named(mode).pool_name
    facts = {
        "beside": beside,
        "name": name,
        "mode": mode,
        "card": card,
        "vendor": vendors.of(card),
        "others": [
            other for other in types.MODES[1:] if card.vendor in (one := modes.named(other)).vendors and not one.serves_vms
        ],
        "image": _mapping(image),
        "pool": pool,
        "layout": _layout(card),
        "vgpu": _vgpu(card),
        "partition": partition.proposed(card) or next(iter(card.partition_modes), None),
    }
    return _template().render(facts)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(  # noqa: S701 - YAML, not HTML
        loader=jinja2.FileSystemLoader(resources.templates()), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template("intent.yaml.j2")


def _mapping(image: RuntimeImage) -> str:
    """Return the image as written in an intent. A tag, or a digest, may look like another type."""
    quoted = {"tag": image.tag, "digest": image.digest}
    parts = [f"repository: {image.repository}", *(f'{key}: "{value}"' for key, value in quoted.items() if value)]
    return f"{{{', '.join(parts)}}}"


def _vgpu(card: Card) -> str:
    """Return the last type of which two fit on a GPU, or the last one; empty for a card without vGPUs."""
    offered = card.vgpu.types if card.vgpu else ()
    halves = [one.name for one in offered if one.max_count == 2] or [one.name for one in offered]
    return halves[-1] if halves else ""


def _layout(card: Card) -> str:
    """Return the layout with the most instances, as written in an intent; empty for a card without MIG."""
    layout = None if card.mig is None else mig.resolve_goal(card.mig, MostInstances(), lambda profile: profile.memory_mib)
    return layout_text(layout) if layout else ""
