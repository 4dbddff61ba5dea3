"""`gpushare usage`: what namespaces held and used of the pools in a month, from Prometheus, with what it costs.

Also the options of the commands that ask a Prometheus, and what they make: one server.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import click

from gpushare.cli import inputs, option_files, options, streams
from gpushare.cli.exits import ExitCode
from gpushare.report import usage as report
from gpushare.study.measured import usage_report
from gpushare.study.measured.prometheus import Prometheus

_HOUR = 3600
_MAX_HOURS = 366 * 24
_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])\Z")
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


@click.command(cls=options.Command)
@options.intent_argument()
@options.overlays()
@click.option(
    "--prometheus",
    "url",
    metavar="URL",
    envvar="PROMETHEUS_URL",
    required=True,
    help=f"Its address; default: $PROMETHEUS_URL. {LOGIN}",
)
@click.option("--month", metavar="YYYY-MM", help="The month, in UTC.")
@click.option(
    "--from", "begin", metavar="TIME", help="In place of --month: 2026-10-01, or 2026-10-01T06:00Z; whole hours, UTC."
)
@click.option("--to", "end", metavar="TIME", help="The end of --from, not included.")
@options.prices()
@options.product_format("text", "json", "csv")
@connection()
def command(  # noqa: PLR0913, PLR0917 - one for each option
    intent: str,
    overlays: tuple[str, ...],
    url: str,
    month: str | None,
    begin: str | None,
    end: str | None,
    prices: str | None,
    style: str,
    cluster: str,
    headers: tuple[str, ...],
    cacert: str,
    timeout: int,
) -> ExitCode:
    """Report what each namespace held and used of the pools of INTENT.

    SHARE-HOURS are shares that running pods requested, used or not; GPU-HOURS
    are the same in GPUs: all shares of a GPU together are one, MIG instances
    count in proportion to their memory. GIB-HOURS are memory that containers used.
    Prometheus needs the metrics of the runtimes and of kube-state-metrics, as
    docs/monitoring.md says; docs/showback.md has the queries.

    Hours in which Prometheus has no samples are listed, and not counted.
    A `-` is an unknown number. GPU-HOURS and COST follow INTENT as it is now.

    Prices are those of spec.prices in INTENT, or of FILE, with a line for each
    pool or card; that of the pool counts:
      t4: 0.35 EUR/h
      training: 2.10 EUR/h

    For example:
      gpushare usage intent.yaml --prometheus http://localhost:9090 --month 2026-10
      gpushare usage intent.yaml --month 2026-10 --prices prices.yaml --format csv
      gpushare usage intent.yaml --from 2026-10-05 --to 2026-10-12

    Exit codes:
      0  done; stderr says what is not counted, with --format json or csv
      1  INTENT has errors
      2  INTENT or FILE could not be read, Prometheus did not answer all queries,
         or has no samples of the period
    """
    period = _period(month, begin, end)
    read = inputs.valid(intent, overlays)
    priced = option_files.prices_of_pools(read.plan, prices)
    pools = [usage_report.facts(pool, priced.get(pool.name)) for pool in read.plan.pools]
    with asking(url, headers, cacert, timeout) as prometheus:
        found = usage_report.build(prometheus, pools, period, cluster=cluster, tell=streams.progress)
    streams.report(report.report(found, read.plan.intent.name), style)
    if style != "text":
        streams.warn("".join(f"gpushare: {note}\n" for note in report.notes(found)))
    return ExitCode.DONE


def _period(month: str | None, begin: str | None, end: str | None) -> tuple[int, int]:
    """Return the first second of the period and the first after it. Raises UsageError."""
    if month is not None:
        found = _MONTH.match(month)
        if begin or end or not found:
            raise click.UsageError("--month and --from exclude each other" if begin or end else "--month is not YYYY-MM")
        year, number = int(found[1]), int(found[2])
        first, last = (year, number), (year + number // 12, number % 12 + 1)
        if not 1970 <= year < 9999:
            raise click.UsageError(f"--month: there is no year {year} in Prometheus")
        start, stop = (int(datetime(*one, 1, tzinfo=UTC).timestamp()) for one in (first, last))
    elif begin is None or end is None:
        raise click.UsageError("name the period: --month YYYY-MM, or --from and --to")
    else:
        start, stop = _moment(begin, "--from"), _moment(end, "--to")
    stop = min(stop, int(time.time()) // _HOUR * _HOUR)
    if stop <= start:
        raise click.UsageError("the period is empty: it ends before it begins, or it has not begun")
    if stop - start > _MAX_HOURS * _HOUR:
        raise click.UsageError("the period is longer than a year")
    return start, stop


def _moment(text: str, option: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as problem:
        raise click.UsageError(f"{option} is not a time such as 2026-10-01 or 2026-10-01T06:00Z") from problem
    seconds = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    if seconds < 0:
        raise click.UsageError(f"{option} is before 1970: Prometheus has no such times")
    if seconds % _HOUR:
        raise click.UsageError(f"{option} is not a whole hour in UTC")
    return int(seconds)
