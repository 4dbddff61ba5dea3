"""`gpushare advise`: from measured use of GPU memory to a change of the intent, with its back-test."""

import contextlib
import os
import re
import tempfile
import time
from pathlib import Path

import click

from gpushare import pipeline
from gpushare.cli import inputs, option_files, options, streams
from gpushare.cli.exits import CouldNotRunError, ExitCode
from gpushare.cli.inputs import LoadedIntent
from gpushare.cli.usage import LOGIN, asking, connection
from gpushare.core.units import parse_duration
from gpushare.reading import source
from gpushare.report import advice as report
from gpushare.study.advice import advising, history, patch, prometheus_history
from gpushare.study.advice.advised import Advice
from gpushare.study.advice.candidates import Isolation
from gpushare.study.advice.history import History
from gpushare_node.contract.struct import replace

_MAX_CONTAINERS = 1_000_000
_DAY = 86400
_MAX_DAYS = 366
_DAYS = re.compile(r"([0-9]{1,3})d\Z")
_WINDOW = 14 * _DAY
_PERCENT = re.compile(r"([0-9]{1,2}(?:\.[0-9]{1,3})?)%?\Z")
_COLUMNS = "a URL begins with http:// or https://; the CSV is described in docs/advise.md"


def _duration(value: object) -> int:
    """Return the seconds of `14d` or of a Go duration."""
    days = _DAYS.match(str(value))
    seconds = int(days[1]) * _DAY if days else parse_duration(value)
    if not seconds or seconds > _MAX_DAYS * _DAY:
        raise click.BadParameter(f"{str(value)[:40]!r} is not a time such as 14d or 36h, of at most {_MAX_DAYS}d")
    return seconds


def _risk(value: object) -> float:
    """Return endings for each container and week."""
    found = _PERCENT.match(str(value))
    if not found:
        raise click.BadParameter(f"{str(value)[:40]!r} is not a percentage from 0 to 99.999, such as 1%")
    return float(found[1]) / 100


@click.command(cls=options.Command)
@options.intent_argument()
@options.overlays()
@click.option(
    "--usage",
    required=True,
    envvar="PROMETHEUS_URL",
    metavar="URL|FILE",
    help=f"A Prometheus, or a CSV (`-`: stdin); default: $PROMETHEUS_URL. {LOGIN}",
)
@click.option("--window", type=_duration, metavar="TIME", help="How far back to look. Default: 14d; of a CSV, all of it.")
@inputs.only_pools()
@options.prices()
@click.option(
    "--risk",
    type=_risk,
    default="0",
    metavar="PERCENT",
    help="The most containers of 100 that may be killed in a week. Default: 0, so that none is killed in the test.",
)
@click.option(
    "--isolation",
    type=click.Choice(["present", "memory", "none"]),
    default="present",
    help="The weakest isolation allowed: as now, by hardware, or none. Default: present.",
)
@click.option("--min-history", type=_duration, default="12h", metavar="TIME", help="The least history needed. Default: 12h.")
@click.option(
    "--min-containers",
    type=options.number(_MAX_CONTAINERS),
    default=10,
    metavar="N",
    help="Advise from so many containers of a pool on. Default: 10.",
)
@options.product_format("text", "json", "html")
@click.option("--write", "writes", is_flag=True, help="Patch INTENT; comments and everything else stay as they are.")
@connection()
def command(  # noqa: PLR0913, PLR0917 - one for each option
    intent: str,
    overlays: tuple[str, ...],
    usage: str,
    window: int | None,
    pools: tuple[str, ...],
    prices: str | None,
    risk: float,
    isolation: str,
    min_history: int,
    min_containers: int,
    style: str,
    writes: bool,
    cluster: str,
    headers: tuple[str, ...],
    cacert: str,
    timeout: int,
) -> ExitCode:
    """Advise what to change in the pools of INTENT, from the GPU memory that containers used.

    The first two thirds of the history are learned from. The change is tested on
    the last third: the node runtime's own code is given what containers used,
    and says which of them it would have ended under the new cap. They are named.

    The output has the change as a diff of INTENT; --write patches the file.
    Nothing is advised from too little history, too few containers, a history
    with gaps, or use that ran against the present caps. docs/advise.md has the
    rules, and the columns of a CSV.

    For example:
      gpushare advise intent.yaml --usage http://localhost:9090
      gpushare advise intent.yaml --usage use.csv --pool notebooks --write
      gpushare advise intent.yaml --usage use.csv --risk 1% --prices prices.yaml
      gpushare advise --html intent.yaml --usage use.csv > advice.html

    Exit codes:
      0  done, with or without advice
      1  INTENT has errors
      2  INTENT, the use or the prices could not be read, INTENT could not be
         patched, or the node runtime is not installed
    """
    if writes and "-" in (intent, *overlays):
        raise click.UsageError("--write needs the name of a file, not standard input")
    if usage == "-" and "-" in (intent, *overlays):
        raise click.UsageError("standard input can be only one of INTENT, its overlays and --usage")
    read = inputs.valid(intent, overlays)
    inputs.refuse_unknown(pools, [pool.name for pool in read.plan.pools], "the intent has no pool for containers")
    priced = option_files.prices_of_pools(read.plan, prices)
    if re.match(r"https?://", usage):
        with asking(usage, headers, cacert, timeout) as prometheus:
            now = int(time.time())
            period = now - (window or _WINDOW), now
            history = prometheus_history.read(prometheus, read.plan, period, cluster=cluster, tell=streams.progress)
    else:
        history = _from_file(usage, window)
    history = advising.of_pools(history, read.plan)
    settings = advising.Caution(
        risk=risk, isolation=Isolation(isolation), min_seconds=min_history, min_containers=min_containers
    )
    advice = advising.advise(read.plan, read.text.data, pipeline.findings_of, history, priced, settings, pools)
    patch = _Patch(intent, overlays, read, advice)
    if writes:
        patch.write()
    diff = None if patch.after is None else patch.diff
    found = report.Found(advice=advice, history=history, plan=read.plan, diff=diff, is_written=writes and bool(diff))
    streams.report(report.report(found), style)
    if patch.after is None:
        streams.warn(f"gpushare: {patch.problem}\n{streams.hint(patch.hint)}")
    return ExitCode.DONE


def _from_file(name: str, window: int | None) -> History:
    found = history.read_csv(*streams.read(name, history.MAX_BYTES, _COLUMNS))
    return found if window is None else replace(found, start=max(found.start, found.end - window))


class _Patch:
    """The changes of the intent's file. `after` None: it cannot be patched; `problem` says why, `hint` what to write."""

    def __init__(self, name: str, overlays: tuple[str, ...], read: LoadedIntent, advice: Advice) -> None:
        self._name = name
        changes = {one.pool: one.change.fields for one in advice.pools if one.change is not None}
        parts = getattr(read.text, "parts", ()) or (read.text,)
        self._file: str = parts[0].file
        self._before = _bytes(name, parts[0].text)
        self.problem = self.hint = ""
        try:
            self.after: bytes | None = patch.patched(self._before, self._file, changes, inputs.read_overlays(name, overlays))
            self.diff = patch.difference(self._before, self.after, self._file)
        except patch.UnpatchableError as problem:
            self.after, self.diff, self.problem, self.hint = None, "", str(problem), problem.hint

    def write(self) -> None:
        """Replace the file. Raises CouldNotRunError if it cannot be patched or written, or was changed meanwhile."""
        if self.after is None:
            raise CouldNotRunError(self.problem, self.hint)
        if self.after == self._before:
            return
        path = Path(self._name).resolve()
        temporary: str | None = None
        try:
            mode = path.stat().st_mode & 0o7777
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
                temporary = file.name
                file.write(self.after)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(mode)
            with path.open("r+b") as present:  # a file that may not be written is not replaced either
                if present.read() != self._before:
                    raise CouldNotRunError(f"{self._name} was changed meanwhile, and is not patched", "run the command again")
            Path(temporary).replace(path)
            temporary = None
        except OSError as problem:
            raise CouldNotRunError(f"cannot write {self._name}: {streams.reason(problem)}") from problem
        finally:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()


def _bytes(name: str, text: str) -> bytes:
    """Return the intent's bytes. Raises CouldNotRunError if they are no longer what was read."""
    if name == "-":
        return text.encode()
    data, _ = streams.read(name, source.MAX_BYTES)
    if data.decode("utf-8-sig", "replace") != text:
        raise CouldNotRunError(f"{name} was changed meanwhile", "run the command again")
    return data
