"""`compile --fleet`: many clusters in one run, none of which stops or spoils another."""

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpushare.bundle import writer
from gpushare.bundle.artifact import Artifact
from gpushare.bundle.lock import Lock
from gpushare.bundle.writer import FileChange
from gpushare.cli import commands
from gpushare.reading import schema
from tests.compiler.cli.process import gpushare
from tests.support.terminal import on_terminal

FLEET = """\
clusters:
  north: {intent: good.yaml, overlays: [north.yaml], output: clusters/north/bundle}
  south: {intent: good.yaml, output: clusters/south/bundle}
"""


@pytest.fixture
def folder(intents: Path) -> Path:
    (intents / "north.yaml").write_text("metadata: {name: north}\n")
    (intents / "clusters.yaml").write_text(FLEET)
    return intents


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_cluster_gets_the_bundle_that_its_own_compile_writes(folder: Path, tmp_path: Path) -> None:
    done = gpushare("compile", "--fleet", "clusters.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2 clusters: 2 compiled"
    gpushare("compile", "good.yaml", "--overlay", "north.yaml", "-o", "alone", cwd=folder)
    assert contents(folder / "clusters/north/bundle") == contents(folder / "alone")
    elsewhere = gpushare("compile", "--fleet", folder / "clusters.yaml", "--check", cwd=folder.parent)
    assert (elsewhere.returncode, elsewhere.stdout.splitlines()[-1]) == (0, "2 clusters: 2 current")
    (folder / "north.yaml").write_text("metadata: {name: far-north}\n")
    stale = gpushare("compile", "--fleet", "clusters.yaml", "--check", cwd=folder)
    assert stale.returncode == 3
    assert stale.stdout.splitlines()[-1] == "2 clusters: 1 current, 1 stale"


def test_failing_cluster_keeps_its_bundle_and_does_not_stop_others(folder: Path) -> None:
    assert gpushare("compile", "--fleet", "clusters.yaml", cwd=folder).returncode == 0
    before = contents(folder / "clusters/north/bundle")
    (folder / "north.yaml").write_text("spec: {pools: {notebooks: {card: t5}}}\n")
    fleet = FLEET.replace("south:", "west: {intent: absent.yaml, output: clusters/west/bundle}\n  south:")
    (folder / "clusters.yaml").write_text(fleet.replace("clusters/south", "clusters/new"))
    done = gpushare("compile", "--fleet", "clusters.yaml", cwd=folder)
    assert done.returncode == 2
    assert "north.yaml:1:34: error" in done.stderr
    assert "cannot read absent.yaml" in done.stderr
    assert done.stdout.splitlines()[-1] == "3 clusters: 1 compiled, 1 could-not-run, 1 findings"
    assert contents(folder / "clusters/north/bundle") == before
    assert not (folder / "clusters/west").exists()
    assert (folder / "clusters/new/bundle/gpushare.lock.yaml").is_file()
    document = json.loads(gpushare("compile", "--fleet", "clusters.yaml", "--format", "json", cwd=folder).stdout)
    assert schema.accepts(schema.load("fleet-result.v1"), document)
    assert [(one["name"], one["outcome"], one["exitCode"]) for one in document["clusters"]] == [
        ("north", "findings", 1),
        ("west", "could-not-run", 2),
        ("south", "compiled", 0),
    ]
    assert document["exitCode"] == 2
    for one in document["clusters"]:
        assert one["findings"] is None or schema.accepts(schema.load("findings.v1"), one["findings"])
    log = json.loads(gpushare("compile", "--fleet", "clusters.yaml", "--format", "sarif", cwd=folder).stdout)
    [run] = log["runs"]  # GitHub takes at most 20
    codes = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(codes[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    assert [(one["ruleId"], one["properties"]["clusters"]) for one in run["results"]] == [("GS201", ["north"])]
    [invocation] = run["invocations"]
    assert invocation["executionSuccessful"] is False
    [told] = invocation["toolExecutionNotifications"]
    assert told["message"]["text"].startswith("west: gpushare: cannot read absent.yaml")


def test_a_result_that_clusters_share_is_in_the_log_once(folder: Path) -> None:
    (folder / "good.yaml").write_text((folder / "warning.yaml").read_text())
    log = json.loads(gpushare("compile", "--fleet", "clusters.yaml", "--format", "sarif", cwd=folder).stdout)
    [run] = log["runs"]
    assert [(one["ruleId"], one["properties"]["clusters"]) for one in run["results"]] == [("GS504", ["north", "south"])]
    assert "invocations" not in run


def test_the_line_of_a_cluster_counts_its_findings_on_github_too(folder: Path) -> None:
    (folder / "north.yaml").write_text("spec: {pools: {notebooks: {card: t5}}}\n")
    for command in ("compile", "plan"):
        gpushare("compile", "good.yaml", "-o", "clusters/north/bundle", cwd=folder)
        done = gpushare(command, "--fleet", "clusters.yaml", cwd=folder, environment={"GITHUB_ACTIONS": "true"})
        assert done.returncode == 1
        assert done.stdout.splitlines()[0] == "north  findings       1 error"
        assert "::error file=north.yaml" in done.stderr


GITOPS = """\
spec:
  gitops:
    argocd: {repoURL: https://git.example.org/gpu.git, path: %s%s}
    flux: {url: https://git.example.org/gpu.git, path: %s}
"""


@pytest.mark.parametrize(
    ("north", "south", "told"),
    [
        (
            GITOPS % ("clusters/north/bundle", "", "clusters/north/bundle"),
            GITOPS % ("clusters/north/bundle", "", "clusters/south/bundle"),
            "Argo CD would sync it from clusters/north/bundle, which is the folder of the cluster north",
        ),
        (
            GITOPS % ("clusters/north/bundle", "", "a/bundle"),
            GITOPS % ("clusters/south/bundle", "", "./a/bundle/"),
            "Flux would sync it from ./a/bundle/",
        ),
        (
            GITOPS % ("clusters/north/bundle", ", server: https://n.example.org", "clusters/north/bundle"),
            GITOPS % ("clusters/south/bundle", ", server: https://s.example.org", "clusters/south/bundle"),
            "its Applications in Argo CD would have the names of those of the cluster north",
        ),
        (
            "metadata: {name: north}\n"
            + GITOPS % ("clusters/north/bundle", ", server: https://n.example.org, name: g", "n/bundle"),
            "metadata: {name: south}\n"
            + GITOPS % ("clusters/south/bundle", ", server: https://s.example.org, name: g", "s/bundle"),
            "its Applications in Argo CD would have the names of those of the cluster north",
        ),
        (
            "metadata: {name: north}\n"
            + GITOPS % ("clusters/north/bundle", ", server: https://n.example.org:6443", "n/bundle"),
            "metadata: {name: south}\n"
            + GITOPS % ("clusters/south/bundle", ", server: https://n.example.org:6443/", "s/bundle"),
            "Argo CD would install it on the server https://n.example.org:6443, which is that of the cluster north",
        ),
    ],
)
def test_clusters_that_share_a_gitops_target_are_refused(folder: Path, north: str, south: str, told: str) -> None:
    (folder / "north.yaml").write_text(north)
    (folder / "south.yaml").write_text(south)
    (folder / "clusters.yaml").write_text(FLEET.replace("good.yaml, output", "good.yaml, overlays: [south.yaml], output"))
    before = contents(folder)
    for command in ("compile", "plan"):
        done = gpushare(command, "--fleet", "clusters.yaml", cwd=folder)
        assert (done.returncode, done.stdout) == (1, "")
        assert "clusters.yaml:3:3: error GS740" in done.stderr
        assert told in done.stderr
    assert contents(folder) == before


def test_a_bundle_that_is_not_in_the_folder_that_is_synced_is_a_warning(folder: Path) -> None:
    (folder / "north.yaml").write_text("metadata: {name: north}\n" + GITOPS % ("gpus/north", "", "clusters/north/bundle"))
    done = gpushare("compile", "--fleet", "clusters.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    said = "gpushare: warning: Argo CD syncs north from gpus/north, but its bundle is written into clusters/north/bundle"
    assert [line for line in done.stderr.splitlines() if line.startswith("gpushare: ")] == [said]


def test_missing_clusters_file_gets_no_starter_intent(folder: Path) -> None:
    done = gpushare("compile", "--fleet", "absent.yaml", cwd=folder)
    assert "gpushare init" not in done.stderr
    assert "list the clusters in it" in done.stderr


def test_the_plan_of_a_fleet_in_markdown_has_a_table_and_a_fold_for_each_change(folder: Path) -> None:
    assert gpushare("compile", "--fleet", "clusters.yaml", cwd=folder).returncode == 0
    (folder / "north.yaml").write_text("metadata: {name: north}\nspec: {pools: {notebooks: {sharing: {replicas: 3}}}}\n")
    (folder / "clusters.yaml").write_text(
        FLEET + "  west: {intent: absent.yaml, output: clusters/west/bundle}\n  east: {intent: good.yaml, output: e}\n"
    )
    done = gpushare("plan", "--fleet", "clusters.yaml", "--format", "markdown", cwd=folder)
    assert done.returncode == 2
    assert "cannot read absent.yaml" in done.stderr
    sides = ("clusters/north/bundle", "good.yaml", "--overlay", "north.yaml")
    alone = gpushare("plan", *sides, "--format", "markdown", cwd=folder)
    table, _, fold = done.stdout.partition("\n\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert [row[:2] for row in rows] == [
        ["`north`", "changes"],
        ["`south`", "unchanged"],
        ["`west`", "could-not-run"],
        ["`east`", "new"],
    ]
    assert rows[0][2] == alone.stdout.splitlines()[0].strip("*")
    assert "cannot read absent.yaml" in rows[2][2]
    assert fold == f"<details><summary>north</summary>\n\n{alone.stdout}\n</details>\n"


def test_findings_take_precedence_over_changes_in_the_exit_code(folder: Path) -> None:
    (folder / "north.yaml").write_text("spec: 3\n")
    assert gpushare("compile", "--fleet", "clusters.yaml", "--check", cwd=folder).returncode == 1


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        (FLEET.replace("clusters/north", "clusters/south"), "GS740", "3:"),
        (FLEET.replace("clusters/north/bundle", "clusters"), "GS740", "3:"),
        (FLEET.replace("clusters/north/bundle", "clusters/x/../south/bundle"), "GS740", "3:"),
        ("clusters: {}\n", "GS1", "1:"),
        ("clusters: {a: {intent: good.yaml}}\n", "GS1", "1:"),
        ("clusters: {a: {intent: good.yaml, output: o, overlay: x}}\n", "GS1", "1:"),
        ("clusters: {../a: {intent: good.yaml, output: o}}\n", "GS1", "1:"),
        ('clusters: {a: {intent: "a\\0b", output: o}}\n', "GS1", "1:"),
        ("clusters: {a: 1, a: 2}\n", "GS004", "1:"),
        ("", "GS011", "1:"),
    ],
)
def test_invalid_clusters_file_compiles_nothing(folder: Path, text: str, code: str, place: str) -> None:
    (folder / "clusters.yaml").write_text(text)
    before = contents(folder)
    done = gpushare("compile", "--fleet", "clusters.yaml", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"clusters.yaml:{place}" in done.stderr
    assert code in done.stderr
    assert contents(folder) == before


def test_clusters_file_paths_are_not_options_or_stdin(folder: Path) -> None:
    (folder / "clusters.yaml").write_text('clusters: {a: {intent: "-", output: o}, b: {intent: --help, output: p}}\n')
    done = gpushare("compile", "--fleet", "clusters.yaml", cwd=folder)
    assert done.returncode == 2
    assert "cannot read ./-" in done.stderr
    assert "cannot read ./--help" in done.stderr


def test_cluster_whose_output_is_a_file_is_reported_in_its_line(folder: Path) -> None:
    (folder / "clusters.yaml").write_text("clusters: {a: {intent: good.yaml, output: good.yaml}}\n")
    done = gpushare("compile", "--fleet", "clusters.yaml", cwd=folder)
    assert (done.returncode, done.stdout.splitlines()[0].split()[:2]) == (2, ["a", "could-not-run"])
    assert "gpushare: good.yaml is a file, not a folder" in done.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (ValueError("a defect"), "this is a bug in gpushare"),
        (MemoryError(), "this is a bug in gpushare"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "gpushare: no space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "x/y"), "gpushare: x/y: permission denied"),
    ],
)
def test_an_exception_in_one_cluster_does_not_stop_or_spoil_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], problem: Exception, told: str
) -> None:
    write = writer.write
    code, outcome = (2, "could-not-run") if isinstance(problem, OSError) else (70, "bug")

    def refuse_north(artifacts: Sequence[Artifact], directory: Path, lock: Lock) -> tuple[FileChange, ...]:
        if "north" in str(directory):
            raise problem
        return write(artifacts, directory, lock)

    monkeypatch.setattr(writer, "write", refuse_north)
    monkeypatch.chdir(folder)
    assert commands.run("gpushare", ["compile", "--fleet", "clusters.yaml"], "", None) == code
    shown = capfd.readouterr()
    north, *_, last = shown.out.splitlines()
    assert told in north
    assert told in shown.err
    assert ("Traceback" in shown.err) == (code == 70)
    assert set(last.removeprefix("2 clusters: ").split(", ")) == {f"1 {outcome}", "1 compiled"}
    gpushare("compile", "good.yaml", "-o", "alone", cwd=folder)
    assert contents(folder / "clusters/south/bundle") == contents(folder / "alone")


def test_modules_beside_the_intents_are_not_imported(folder: Path) -> None:
    (folder / "yaml.py").write_text("raise SystemExit(9)\n")
    (folder / "clusters.yaml").write_text(FLEET)
    done = gpushare("compile", "--fleet", folder / "clusters.yaml", cwd=folder.parent)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile",),
        ("compile", "--fleet", "clusters.yaml", "good.yaml"),
        ("compile", "--fleet", "clusters.yaml", "-o", "x"),
        ("compile", "--fleet", "absent.yaml"),
    ],
)
def test_invalid_call_is_refused(folder: Path, arguments: tuple[str, ...]) -> None:
    done = gpushare(*arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")


def test_progress_is_shown_only_on_a_terminal(folder: Path) -> None:
    """And the line is gone at the end; a log of a pipeline has none of it."""
    assert gpushare("compile", "--fleet", "clusters.yaml", cwd=folder).stderr == ""
    done, shown = on_terminal(lambda at: gpushare("compile", "--fleet", "clusters.yaml", cwd=folder, stderr=at))
    assert done.returncode == 0
    assert shown == "\r\x1b[K1 of 2 clusters\r\x1b[K2 of 2 clusters\r\x1b[K"


def test_the_plan_of_a_fleet_has_a_line_for_every_cluster_and_writes_nothing(folder: Path) -> None:
    call = ("plan", "--fleet", "clusters.yaml")
    before = contents(folder)
    new = gpushare(*call, "--exit-code", cwd=folder)
    assert (new.returncode, new.stdout.splitlines()) == (3, ["north  new", "south  new", "2 clusters: 2 new"])
    assert contents(folder) == before
    assert gpushare("compile", "--fleet", "clusters.yaml", cwd=folder).returncode == 0
    current = gpushare(*call, "--exit-code", cwd=folder)
    assert (current.returncode, current.stdout.splitlines()[-1]) == (0, "2 clusters: 2 unchanged")
    overlay = "metadata: {name: north}\nspec: {pools: {notebooks: {sharing: {replicas: 3}}}}\n"
    (folder / "north.yaml").write_text(overlay)
    before = contents(folder)
    changed = gpushare(*call, cwd=folder)
    assert changed.returncode == 0
    assert changed.stdout.startswith("north  changes        Pools: 1 ")
    assert changed.stdout.splitlines()[-1] == "2 clusters: 1 changes, 1 unchanged"
    assert gpushare(*call, "--exit-code", cwd=folder).returncode == 3
    assert contents(folder) == before
    document = json.loads(gpushare(*call, "--format", "json", cwd=folder).stdout)
    assert schema.accepts(schema.load("fleet-plan.v1"), document)
    north, south = document["clusters"]
    alone = gpushare("plan", "clusters/north/bundle", "good.yaml", "--overlay", "north.yaml", "--format", "json", cwd=folder)
    assert north["plan"] == json.loads(alone.stdout)
    assert (north["outcome"], south["outcome"], south["plan"]["changed"]) == ("changes", "unchanged", False)


def test_plan_tells_what_is_wrong_with_a_new_cluster(folder: Path) -> None:
    (folder / "north.yaml").write_text("spec: {pools: {notebooks: {card: t5}}}\n")
    done = gpushare("plan", "--fleet", "clusters.yaml", cwd=folder)
    assert done.stdout.splitlines() == ["north  findings       1 error", "south  new", "2 clusters: 1 findings, 1 new"]
    assert "north.yaml:1:34: error" in done.stderr


def test_cluster_without_a_plan_does_not_hide_others(folder: Path) -> None:
    assert gpushare("compile", "--fleet", "clusters.yaml", cwd=folder).returncode == 0
    (folder / "north.yaml").write_text("spec: {pools: {notebooks: {card: t5}}}\n")
    (folder / "clusters.yaml").write_text(FLEET + "  west: {intent: absent.yaml, output: clusters/west/bundle}\n")
    done = gpushare("plan", "--fleet", "clusters.yaml", cwd=folder)
    assert done.returncode == 2
    assert "north.yaml:1:34: error" in done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()[:-1]] == [
        ["north", "findings"],
        ["south", "unchanged"],
        ["west", "could-not-run"],
    ]


@pytest.mark.parametrize("more", [("good.yaml",), ("--live",), ("--overlay", "x.yaml"), ("--html",)])
def test_fleet_plan_refuses_conflicting_options(folder: Path, more: tuple[str, ...]) -> None:
    done = gpushare("plan", "--fleet", "clusters.yaml", *more, cwd=folder)
    assert (done.returncode, "--fleet excludes" in done.stderr) == (2, True)
