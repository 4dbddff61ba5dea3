"""The options of the commands that ask a Prometheus, and what they make: one server."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import click

from gpushare.cli import options, streams
from gpushare.study.measured.prometheus import Prometheus

_MAX_SECONDS = 3600

LOGIN = "http://USER:PASSWORD@HOST logs in, as does a token in $PROMETHEUS_TOKEN."


def connection() -> options.Decorator[Any]:
    """--cluster, --header, --cacert and --timeout."""
    decorators: list[Callable[[Any], Any]] = [
        click.option("--cluster", default="", metavar="NAME", help="The label `cluster`, if Prometheus has several clusters."),
        click.option(
            "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Send this header, as curl does; repeatable."
        ),
        click.option(
            "--cacert", default="", metavar="FILE", help="CA certificates of Prometheus. Default: those of the system."
        ),
        click.option(
            "--timeout",
            type=options.number(_MAX_SECONDS),
            default=120,
            metavar="SECONDS",
            help="How long to wait for each answer. Default: 120.",
        ),
    ]
    return lambda command: reduce(lambda made, decorate: decorate(made), reversed(decorators), command)


@contextmanager
def asking(url: str, headers: tuple[str, ...], cacert: str, timeout: int) -> Iterator[Prometheus]:
    """Yield the server. The progress shown meanwhile is cleared."""
    token = os.environ.get("PROMETHEUS_TOKEN", "")
    try:
        yield Prometheus(url, _headers(headers), token=token, ca_file=cacert, timeout_seconds=timeout)
    finally:
        streams.progress("")


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for header in given:
        name, colon, value = header.partition(":")
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise click.UsageError("--header is not of the form 'NAME: VALUE'")
        headers[name] = value.strip()
    return headers
