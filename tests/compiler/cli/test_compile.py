"""`gpushare compile` and `gpushare show`: what is written, printed and refused."""

import json
from pathlib import Path

import pytest

from gpushare.cli import COMPLETE_VARIABLE
from gpushare.reading import schema
from tests.compiler.cli.conftest import GOOD
from tests.compiler.cli.process import gpushare


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_bundle_is_written_beside_the_intent_and_compile_is_idempotent(intents: Path) -> None:
    first = gpushare("compile", intents / "good.yaml")
    before = tree(intents / "bundle")
    second = gpushare("compile", intents / "good.yaml")
    assert (first.returncode, first.stderr) == (0, "")
    assert f"{len(before)} files written, 0 unchanged, 0 removed" in first.stdout
    assert "helm upgrade --install gpushare" in first.stdout
    assert second.stdout == f"{intents}/bundle: compiled, no changes\n"
    assert tree(intents / "bundle") == before


def test_next_steps_of_a_gitops_tool_go_to_stderr_beside_json(intents: Path) -> None:
    gitops = "spec:\n  gitops: {argocd: {repoURL: 'https://git.example.org/gpu.git', path: out}}"
    (intents / "good.yaml").write_text(GOOD.replace("spec:", gitops))
    done = gpushare("compile", "good.yaml", "--format", "json", "-o", "out", cwd=intents)
    assert json.loads(done.stdout)["errors"] == 0
    assert "  kubectl apply -f out/argocd/root.yaml\n" in done.stderr
    assert "helm" not in done.stderr


def test_stdin_is_compiled_into_the_working_directory(intents: Path) -> None:
    done = gpushare("compile", "-", stdin=(intents / "good.yaml").read_bytes(), cwd=intents)
    assert done.returncode == 0
    assert (intents / "bundle" / "chart" / "values.yaml").is_file()


def test_changed_files_are_counted(intents: Path) -> None:
    gpushare("compile", "good.yaml", "-o", "out", cwd=intents)
    (intents / "out" / "images.txt").unlink()
    everything = len(tree(intents / "out")) + 1
    done = gpushare("compile", "good.yaml", "-o", "out", cwd=intents)
    assert done.stdout.startswith(f"out: 1 file written, {everything - 1} unchanged, 0 removed\n")


def test_compile_check_reports_a_stale_bundle_without_writing(intents: Path) -> None:
    missing = gpushare("compile", "--check", "good.yaml", cwd=intents)
    assert missing.returncode == 3
    assert "chart/Chart.yaml" in missing.stdout
    assert not (intents / "bundle").exists()
    gpushare("compile", "good.yaml", cwd=intents)
    assert gpushare("compile", "--check", "good.yaml", cwd=intents).returncode == 0
    (intents / "bundle" / "README.md").write_text("mine")
    before = tree(intents / "bundle")
    stale = gpushare("compile", "--check", "good.yaml", cwd=intents)
    assert stale.returncode == 3
    assert stale.stdout.splitlines()[1:] == ["  different README.md"]
    assert tree(intents / "bundle") == before


@pytest.mark.parametrize("style", ["text", "json", "sarif", "github"])
def test_intent_with_errors_writes_findings_to_one_stream_and_no_files(style: str, intents: Path) -> None:
    done = gpushare("compile", "--format", style, "bad.yaml", cwd=intents)
    assert done.returncode == 1
    said, other = (done.stdout, done.stderr) if style in ("json", "sarif") else (done.stderr, done.stdout)
    assert ("GS402" in said, other) == (True, "")
    assert not (intents / "bundle").exists()


def test_json_findings_are_one_document_on_stdout(intents: Path) -> None:
    for name, code in (("good", 0), ("warning", 0), ("bad", 1)):
        for command in ("check", "compile"):
            done = gpushare(command, "--format", "json", f"{name}.yaml", cwd=intents)
            document = json.loads(done.stdout)
            assert done.returncode == code
            assert schema.accepts(schema.load("findings.v1"), document)
            assert document["errors"] == (name == "bad")
            assert document["warnings"] == (name == "warning")


def test_resolved_goal_is_printed(intents: Path) -> None:
    text = (intents / "good.yaml").read_text()
    start, end = text.index("        layouts:"), text.index("        replicas: {1g")
    (intents / "goal.yaml").write_text(text[:start] + "        goal: balanced\n" + text[end:])
    done = gpushare("compile", "goal.yaml", cwd=intents)
    assert "goal of pool training: layout {3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}, kept until" in done.stdout
    assert "goal resolved to {3g.20gb: 1" in gpushare("show", "goal.yaml", cwd=intents).stdout


def test_invalid_lock_is_a_finding_with_its_position(intents: Path) -> None:
    (intents / "bundle").mkdir()
    (intents / "bundle" / "gpushare.lock.yaml").write_text("kind: Lock\nkind: Lock\n")
    done = gpushare("compile", "good.yaml", cwd=intents)
    assert done.returncode == 1
    assert done.stderr.startswith("bundle/gpushare.lock.yaml:2:1: error GS790: ")
    assert "    2 | kind: Lock\n      | ^^^^\n" in done.stderr


def test_show_draws_to_scale_with_unused_slices(intents: Path) -> None:
    done = gpushare("show", "good.yaml", cwd=intents)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "  GPU 0-2  unused: 1 of 8 memory slices, 1 of 7 compute slices" in lines
    assert "  │1g.5gb×2│1g.5gb×2│1g.5gb×2│░░░░░░░░│              3g.20gb              │" in lines
    assert "  GPU 3" in lines
    row = next(line.split() for line in lines if line.startswith("  nvidia.com/gpu.shared"))
    assert row == ["nvidia.com/gpu.shared", "8", "24", "15360Mi", "3072Mi"]
    unknown = next(line.split() for line in lines if line.startswith("  nvidia.com/mig-3g.20gb"))
    assert unknown[1:3] == ["3", "?"]


def test_show_draws_equal_pools_once(intents: Path) -> None:
    pool = "    {name}: {{card: t4, nodes: {{matchLabels: {{gpu: {name}}}}}, gpusPerNode: 2, sharing: {{mode: exclusive}}}}\n"
    head, _, _ = GOOD.partition("    notebooks:")
    (intents / "equal.yaml").write_text(head + "".join(pool.format(name=name) for name in ("a", "b", "c", "d", "e")))
    shown = gpushare("show", "equal.yaml", cwd=intents).stdout
    assert shown.count("GPU 0-1") == 1
    assert "\na, b, c and 2 more  Tesla T4, exclusive\n" in shown
    assert [line.split()[0] for line in shown.splitlines()[3:8]] == ["a", "b", "c", "d", "e"]


def test_show_truncates_no_card_or_mode(intents: Path) -> None:
    text = GOOD.replace("notebooks:\n      card: t4", "render-farm-number-01:\n      card: rtx-pro-6000-workstation")
    (intents / "rtx.yaml").write_text(text.replace("{notebooks: 8}", "{render-farm-number-01: 8}"))
    shown = gpushare("show", "rtx.yaml", cwd=intents, environment={"COLUMNS": "80"}).stdout
    (row,) = (line for line in shown.splitlines() if line.startswith("render-farm-number-01  rtx"))
    assert row.split()[1:3] == ["rtx-pro-6000-workstation", "time-slicing"]
    assert "…" not in row
    assert len(row) <= 80


def test_show_json_is_the_offer_document(intents: Path) -> None:
    document = json.loads(gpushare("show", "--format", "json", "good.yaml", cwd=intents).stdout)
    assert schema.accepts(schema.load("offer.v1"), document)
    assert document["pools"]["notebooks"]["resources"] == {"nvidia.com/gpu.shared": {"perNode": 8, "total": 24}}


def test_show_json_has_the_quotas(intents: Path) -> None:
    document = json.loads(gpushare("show", "--format", "json", "good.yaml", cwd=intents).stdout)
    assert document["quotas"] == {"team": {"nvidia.com/gpu.shared": 8}}


def test_show_of_selected_pools_omits_the_others(intents: Path) -> None:
    done = gpushare("show", "good.yaml", "--pool", "training", cwd=intents)
    assert done.returncode == 0
    assert "training" in done.stdout
    assert "notebooks" not in done.stdout
    assert "team" not in done.stdout
    named = ("--pool", "training", "--pool=notebooks", "--format", "json")
    both = json.loads(gpushare("show", "good.yaml", *named, cwd=intents).stdout)
    assert both == json.loads(gpushare("show", "--format", "json", "good.yaml", cwd=intents).stdout)
    one = json.loads(gpushare("show", "--pool", "training", "--format", "json", "good.yaml", cwd=intents).stdout)
    assert (list(one["pools"]), one["quotas"]) == (["training"], {})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("trainin", "did you mean training?"),
        ("zz\x1b[1m", "the pools are notebooks and"),
    ],
)
def test_show_of_an_unknown_pool_is_an_error(name: str, said: str, intents: Path) -> None:
    done = gpushare("show", "good.yaml", "--pool", name, cwd=intents)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("intent", "expected"),
    [
        ("show good.yaml", {"training"}),
        ("show absent.yaml", set()),
        ("show -", set()),
        ("show list.yaml", set()),
        ("show text.yaml", set()),
        ("plan bundle good.yaml", {"training"}),
    ],
)
def test_shells_complete_the_pools_of_the_intent(intent: str, expected: set[str], intents: Path) -> None:
    (intents / "list.yaml").write_text("spec: {pools: [training]}")
    (intents / "text.yaml").write_bytes(b"\xff{")
    words = f"gpushare {intent} --pool tr"
    asked = {COMPLETE_VARIABLE: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = gpushare(environment=asked, cwd=intents)
    assert (done.returncode, done.stderr) == (0, "")
    assert {line.partition(",")[2] for line in done.stdout.split()} == expected


def test_compile_json_lists_the_files_of_the_bundle(intents: Path) -> None:
    listed = json.loads(gpushare("compile", "--format", "json", "good.yaml", cwd=intents).stdout)["files"]
    written = [str(path.relative_to(intents / "bundle")) for path in (intents / "bundle").rglob("*") if path.is_file()]
    assert sorted(listed) == sorted(written)
    assert json.loads(gpushare("compile", "--format", "json", "bad.yaml", cwd=intents).stdout)["files"] == []
    assert "files" not in json.loads(gpushare("check", "--format", "json", "good.yaml", cwd=intents).stdout)


def test_show_of_an_intent_with_errors_shows_nothing(intents: Path) -> None:
    done = gpushare("show", "bad.yaml", cwd=intents)
    assert (done.returncode, done.stdout) == (1, "")
    assert "GS402" in done.stderr
