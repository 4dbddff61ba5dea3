"""`gpushare usage`: its formats, prices and periods, and calls that are wrong."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpushare.cli.commands import commands
from gpushare.core.diagnostics import HintedError
from gpushare.reading import schema
from tests.compiler.cli.process import gpushare
from tests.compiler.rules.intents import pool, written
from tests.compiler.study.measured.prometheus_double import Double, serving, usual
from tests.compiler.study.measured.test_usage_report import BY_NAMESPACE, BY_POOL, EXPORTED, MEMORY, SHARED

MONTH = ("--month", "2026-02")
DAYS = ("--from", "2026-02-01", "--to", "2026-02-03")


def refused(*arguments: object) -> str:
    """What a call in this process says in place of a product."""
    done = CliRunner().invoke(commands, ["usage", *map(str, arguments)], standalone_mode=False)
    assert isinstance(done.exception, click.UsageError | HintedError)
    assert done.stdout == ""
    return str(done.exception)


@pytest.fixture
def double() -> Iterator[Double]:
    with serving() as server:
        labels = {"namespace": "atlas", "resource": EXPORTED}
        numbers = {
            BY_NAMESPACE: [(labels, 24)],
            BY_POOL: [({**labels, "pool": "notebooks"}, 24)],
            MEMORY: [({"namespace": "atlas", "pool": "notebooks"}, 3)],
        }
        server.values = usual({**numbers, "count_over_time(group(": [({}, 9)]})
        yield server


@pytest.fixture
def intent(tmp_path: Path) -> Path:
    path = tmp_path / "intent.yaml"
    path.write_text(written(pool()))
    (tmp_path / "prices.yaml").write_text("t4: 9 EUR/h\nnotebooks: 0.50 EUR/h\n")
    return path


def test_formats_have_the_same_numbers(double: Double, intent: Path) -> None:
    call = ("usage", intent, "--prometheus", double.url, "--prices", intent.parent / "prices.yaml")
    done = gpushare(*call, *MONTH, environment={"COLUMNS": "120"})
    assert done.returncode == 0, done.stderr
    assert "2026-02-01T00:00Z to 2026-03-01T00:00Z (UTC), 672 hours" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["atlas", "notebooks", "gpu.shared:", "672.00", "168.00", "84.00", "84.00"] in rows
    assert "cost in all: 84.00 EUR" in done.stdout
    assert "kube-state-metrics has no samples: 168 of 672 hours" in done.stdout
    document = json.loads(gpushare(*call, *DAYS, "--format", "json").stdout)
    assert schema.accepts(schema.load("usage.v1"), document)
    assert document["uses"][0]["shares"] == {SHARED: {"shareHours": 48, "gpuHours": 12, "cost": 6}}
    assert (document["uses"][0]["gibHours"], document["currency"]) == (6, "EUR")
    written = gpushare(*call, *DAYS, "--format", "csv")
    rows_of_csv = list(csv.DictReader(io.StringIO(written.stdout)))
    assert [(one["resource"], one["share_hours"], one["gib_hours"], one["cost"]) for one in rows_of_csv] == [
        (SHARED, "48.0", "", "6.0"),
        ("", "", "6.0", ""),
    ]
    assert "Not counted: kube-state-metrics" in written.stderr


def test_address_and_token_come_from_the_environment(double: Double, intent: Path) -> None:
    done = gpushare("usage", intent, *DAYS, environment={"PROMETHEUS_URL": double.url, "PROMETHEUS_TOKEN": "secret"})
    assert done.returncode == 0, done.stderr
    assert {headers["Authorization"] for _, _, headers in double.requests} == {"Bearer secret"}
    sent = gpushare("usage", intent, "--prometheus", double.url, *DAYS, "--header", "X-Scope-OrgID: physics")
    assert sent.returncode == 0
    assert {name.lower(): value for name, value in double.requests[-1][2].items()}["x-scope-orgid"] == "physics"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((), "name the period"),
        (("--month", "2026-13"), "--month is not YYYY-MM"),
        (("--month", "2026-02", "--from", "2026-02-01"), "exclude each other"),
        (("--month", "9998-02"), "it has not begun"),
        (("--from", "2026-02-01"), "name the period"),
        (("--from", "yesterday", "--to", "2026-02-01"), "--from is not a time such as"),
        (("--from", "2026-02-01", "--to", "2026-02-01T00:30Z"), "--to is not a whole hour in UTC"),
        (("--from", "0001-01-01", "--to", "2026-02-01"), "--from is before 1970"),
        (("--from", "2026-02-02", "--to", "2026-02-01"), "it ends before it begins"),
        (("--from", "2020-02-02", "--to", "2026-02-01"), "longer than a year"),
        ((*MONTH, "--header", "X"), "--header is not of the form"),
        ((*MONTH, "--timeout", "0"), "is not a number from 1"),
        ((*MONTH, "--prices", "none.yaml"), "cannot read none.yaml"),
        ((*MONTH, "--cacert", "none.pem"), "cannot read none.pem"),
    ],
)
def test_wrong_call_asks_nothing(double: Double, intent: Path, call: tuple[str, ...], message: str) -> None:
    assert message in refused(intent, "--prometheus", double.url, *call)
    assert double.requests == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[t4]", "is not a mapping from pools or cards to prices"),
        ("t4: 1/h\nt4: 2/h\n", "is not a mapping"),
        ("t4: 0.35", "t4 has the price '0.35'"),
        ("t4: -1/h", "t4 has the price '-1/h'"),
        ("lab: 1/h", "there is no pool and no card 'lab'"),
        ("7: 1/h", "a key must be text"),
        ("t4: 1 EUR/h\nnotebooks: 1 USD/h", "several currencies"),
        ("t4: 1 EUR/h\nnotebooks: 1/h", "not all prices name a currency"),
        ("t4: null", "t4 has no price"),
    ],
)
def test_prices_that_cannot_be_read(double: Double, intent: Path, text: str, message: str) -> None:
    (intent.parent / "prices.yaml").write_text(text)
    assert message in refused(intent, "--prometheus", double.url, *MONTH, "--prices", intent.parent / "prices.yaml")


def test_hint_at_names_of_prices_says_what_they_are(intent: Path) -> None:
    (intent.parent / "prices.yaml").write_text("a100: 1/h")
    call = ["usage", str(intent), "--prometheus", "http://host", *MONTH, "--prices", str(intent.parent / "prices.yaml")]
    problem = CliRunner().invoke(commands, call, standalone_mode=False).exception
    assert isinstance(problem, HintedError)
    assert problem.hint.startswith("nearest: a100-pcie-40gb")


def test_failure_of_one_query_is_the_end(double: Double, intent: Path) -> None:
    usual_answer, refused = double.answer, '{"status":"error","errorType":"timeout","error":"query timed out"}'
    double.answer = lambda handler: handler.send(503, refused) if len(double.requests) > 20 else usual_answer(handler)
    done = gpushare("usage", intent, "--prometheus", double.url, *MONTH)
    assert (done.returncode, done.stdout, len(double.requests)) == (2, "", 21)
    assert f"gpushare: {double.url} refuses the query (503, timeout): query timed out" in done.stderr
