"""`gpushare simulate`: its formats, comparisons and prices, and calls that are wrong."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpushare.cli.commands import commands
from gpushare.core.diagnostics import HintedError
from gpushare.reading import schema
from tests.compiler.cli.process import gpushare
from tests.compiler.rules.intents import pool, written

PODS = "namespace,name,memory,arrival,duration,team\na,x,2Gi,0,1h,t\na,y,2Gi,30m,1h,t\na,z,2GB,0,1h,t\n"


IMAGE = "{image: {repository: registry.example.org/gpushare/node-runtime}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two intents that differ in the number of nodes, a workload and prices."""
    for name, nodes in (("intent", 10), ("other", 1)):
        one = pool(nodes=f"{{matchLabels: {{gpu: t4}}, expected: {nodes}}}")
        (tmp_path / f"{name}.yaml").write_text(written(one, platform=IMAGE))
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "prices.yaml").write_text("t4: 0.50 EUR/h\n")
    return tmp_path


def simulated(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a call in this process, and its stdout."""
    call = ["simulate", str(folder / "intent.yaml"), "--workload", str(folder / "pods.csv"), *arguments]
    done = CliRunner().invoke(commands, call, standalone_mode=False)
    assert done.exception is None, done.exception
    return done.return_value, done.stdout


def refused(*arguments: object) -> HintedError | click.UsageError:
    """What a call in this process says in place of a product."""
    done = CliRunner().invoke(commands, ["simulate", *map(str, arguments)], standalone_mode=False)
    assert isinstance(done.exception, click.UsageError | HintedError), done.exception
    assert done.stdout == ""
    return done.exception


def test_a_process_reads_pods_from_stdin_and_says_what_became_of_them(folder: Path) -> None:
    call = ("simulate", folder / "intent.yaml", "--workload", "-", "--prices", folder / "prices.yaml")
    done = gpushare(*call, stdin=PODS.encode(), environment={"COLUMNS": "200"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "all 2 pods ran" in done.stdout
    assert "COST EUR" in done.stdout
    assert "left out: 1 of 3 rows\n  line 4, column 5: memory: '2GB' is no quantity of memory: write 2Gi or 2G" in done.stdout
    assert "columns not used: team" in done.stdout
    assert "\x1b" not in done.stdout


def test_document_conforms_to_its_schema_and_has_the_numbers_of_the_text(folder: Path) -> None:
    code, text = simulated(folder, "--format", "json", "--prices", str(folder / "prices.yaml"))
    document = json.loads(text)
    assert code == 0
    assert schema.accepts(schema.load("simulation.v1"), document)
    (intent,) = document["intents"]
    assert (intent["ran"], intent["neverRan"], intent["endSeconds"], intent["currency"]) == (2, 0, 5400, "EUR")
    (each,) = intent["pools"].values()
    assert each["gpuHours"] == each["gpus"] * 1.5
    assert each["cost"] == intent["cost"] == each["gpuHours"] * 0.5
    assert [(point["seconds"], point["shares"]) for point in each["points"]] == [(0, 1), (1800, 2), (3600, 1), (5400, 0)]
    assert document["workload"]["leftOut"][0]["line"] == 4


def test_pods_that_never_run_are_exit_code_1_with_the_reason(folder: Path) -> None:
    (folder / "pods.csv").write_text("memory,duration\n99Gi,1h\n1Gi,1h\n")
    code, text = simulated(folder)
    assert code == 1
    assert "1 of 2 pods never ran: " in text
    assert "\nnever ran:\n  1 pod: " in text
    document = json.loads(simulated(folder, "--format", "json")[1])["intents"][0]
    assert sum(document["unserved"].values()) + sum(sum(one["pending"].values()) for one in document["pools"].values()) == 1


def test_intents_are_compared_side_by_side(folder: Path) -> None:
    code, text = simulated(folder, "--compare", str(folder / "other.yaml"), "--prices", str(folder / "prices.yaml"))
    assert code == 0
    assert "In parentheses: the difference from" in text
    (row,) = [line for line in text.splitlines() if line.startswith(str(folder / "other.yaml")) and "(-" in line]
    assert "1 (-9)" in row
    document = json.loads(simulated(folder, "--compare", str(folder / "other.yaml"), "--format", "json")[1])
    assert [one["nodes"] for one in document["intents"]] == [10, 1]


VGPU = '{mode: vgpu, profile: A10-12Q, kernel: "5.15"}'
MANAGER = '{image: {repository: r.example/n}, vgpuManager: {repository: r.example/v, version: "595.71.03"}}'


def test_pools_for_virtual_machines_and_intents_that_only_observe_are_named(folder: Path) -> None:
    desktops = pool("desktops", "a10", "{names: [v1]}", VGPU)
    (folder / "intent.yaml").write_text(written(pool(), desktops, platform=MANAGER, adoption="observe"))
    (folder / "pods.csv").write_text("memory,pool\n2Gi,desktops\n2Gi,notebooks\n")
    code, text = simulated(folder)
    assert (code, "1 of 2 pods never ran: pool desktops is for virtual machines" in text) == (1, True)
    assert "without the pools for virtual machines, which serve no pods: desktops" in text
    assert "adoption: enforce, although the intent only observes" in text
    (folder / "prices.yaml").write_text("desktops: 1/h\n")
    assert "COST" not in simulated(folder, "--prices", str(folder / "prices.yaml"))[1]


def test_instances_that_come_and_go_with_claims_are_not_simulated(folder: Path) -> None:
    research = pool("research", "a100-pcie-40gb", sharing="{mode: mig, layout: on-demand}", backend="dra")
    dra = "{image: {repository: registry.example.org/gpushare/node-runtime}, dra: {}}"
    (folder / "intent.yaml").write_text(written(research, kubernetes='"1.36"', platform=dra))
    told = str(refused(folder / "intent.yaml", "--workload", folder / "pods.csv"))
    assert "cannot simulate pool research" in told


def test_an_intent_on_stdin_has_the_name_that_all_commands_give_it(folder: Path) -> None:
    call = ["simulate", "-", "--workload", str(folder / "pods.csv"), "--format", "json"]
    done = CliRunner().invoke(commands, call, standalone_mode=False, input=(folder / "intent.yaml").read_text())
    assert json.loads(done.stdout)["intents"][0]["file"] == "<stdin>"


def test_where_nothing_ran_nothing_is_over(folder: Path) -> None:
    (folder / "pods.csv").write_text("memory,duration\n900Gi,1h\n")
    assert "over in" not in simulated(folder)[1]


def test_scoring_changes_what_is_assumed(folder: Path) -> None:
    assert json.loads(simulated(folder, "--scoring", "most-allocated", "--format", "json")[1])["scoring"] == "most-allocated"


def test_prices_of_the_file_may_be_those_of_pools_of_any_intent(folder: Path) -> None:
    other = (folder / "other.yaml").read_text().replace("notebooks:", "desktops:")
    (folder / "other.yaml").write_text(other)
    (folder / "prices.yaml").write_text("notebooks: 1/h\ndesktops: 2/h\n")
    call = ("--compare", str(folder / "other.yaml"), "--prices", str(folder / "prices.yaml"), "--format", "json")
    first, second = json.loads(simulated(folder, *call)[1])["intents"]
    assert (first["cost"], second["cost"]) == (first["gpuHours"], 2 * second["gpuHours"])


def test_intent_with_errors_is_exit_code_1_without_a_product(folder: Path) -> None:
    (folder / "other.yaml").write_text("kind: ClusterIntent\n")
    done = gpushare("simulate", folder / "intent.yaml", "--workload", folder / "pods.csv", "--compare", folder / "other.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert "other.yaml:1:1: error" in done.stderr


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (None, "cannot read"),
        ("", "pods.csv is empty"),
        ("memory\n4096\n", "no row of"),
        ("a,b\n1,2\n", "has no known column in its first line"),
        ('{"items": [', "this is no JSON"),
        ("kind: Workload\nspec: {pods: 3}\n", "apiVersion"),
    ],
)
def test_workload_of_which_nothing_can_be_used(folder: Path, workload: str | None, message: str) -> None:
    (folder / "pods.csv").unlink()
    if workload is not None:
        (folder / "pods.csv").write_text(workload)
    problem = refused(folder / "intent.yaml", "--workload", folder / "pods.csv")
    assert message in str(problem)
    assert isinstance(problem, HintedError)
    assert problem.hint


def test_wrong_calls(folder: Path) -> None:
    intent, pods = folder / "intent.yaml", folder / "pods.csv"
    assert "Missing option '--workload'" in refused(intent).format_message()  # type: ignore[union-attr]
    assert "standard input can be only one of the files" in str(refused("-", "--workload", "-"))
    assert "cannot read" in str(refused(folder / "none.yaml", "--workload", pods))
    assert "cannot read" in str(refused(intent, "--workload", pods, "--compare", folder / "none.yaml"))
    assert "cannot read" in str(refused(intent, "--workload", pods, "--prices", folder / "none.yaml"))
