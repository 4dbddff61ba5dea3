"""`gpushare import` as a process: streams, exit codes, a file that exists."""

import json
from pathlib import Path

from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.importing.imports import config_map, node, selected, sharing
from tests.compiler.rules.intents import pool, written

WARNED = "---\n".join([config_map(sharing().replace("replicas: 4", "replicas: 4\n      renam: x")), selected()])


def test_the_intent_goes_to_stdout_and_the_findings_to_stderr() -> None:
    done = gpushare("import", "-", "--name", "physics", stdin=WARNED.encode())
    assert done.returncode == 0
    assert "name: physics\n" in done.stdout
    assert "<stdin>:14:11: warning GS851" in done.stderr
    assert "   14 |           renam: x\n      |           ^^^^^\n" in done.stderr
    assert gpushare("check", "-", stdin=done.stdout.encode()).returncode == 0
    assert gpushare("import", "-", "--strict", stdin=WARNED.encode()).returncode == 1


def test_json_findings_are_one_document() -> None:
    done = gpushare("import", "-", "--format", "json", stdin=WARNED.encode())
    assert [finding["code"] for finding in json.loads(done.stderr)["findings"]] == ["GS851"]
    log = json.loads(gpushare("import", "-", "--format", "sarif", stdin=WARNED.encode()).stderr)
    assert [result["ruleId"] for result in log["runs"][0]["results"]] == ["GS851"]
    commands = gpushare("import", "-", "--format", "github", stdin=WARNED.encode()).stderr.splitlines()
    assert [command.partition(" ")[0] for command in commands] == ["::warning"]


def test_with_an_error_the_rest_is_written_and_the_exit_code_is_1() -> None:
    done = gpushare("import", "-", stdin=(node() + "---\n" + node("nvidia.com/gpu.product: Z9", "gpu-02")).encode())
    assert done.returncode == 1
    assert done.stdout.startswith("# NOT COMPLETE: 1 error;")
    assert "t4-exclusive" in done.stdout


def test_a_file_is_overwritten_with_force_only(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(node())
    (tmp_path / "intent.yaml").write_text("mine")
    refused = gpushare("import", "nodes.yaml", "-o", "intent.yaml", cwd=tmp_path)
    assert refused.returncode == 2
    assert (tmp_path / "intent.yaml").read_text() == "mine"
    assert gpushare("import", "nodes.yaml", "-o", "intent.yaml", "--force", cwd=tmp_path).returncode == 0
    assert gpushare("check", "intent.yaml", cwd=tmp_path).returncode == 0


def test_unreadable_input_and_invalid_name_exit_with_2() -> None:
    assert gpushare("import", "no-such-file").returncode == 2
    assert gpushare("import", "-", "--name", "No Name").returncode == 2
    assert gpushare("import").returncode == 2


def test_a_bundle_is_imported_as_the_intent_that_it_was_made_from(tmp_path: Path) -> None:
    (tmp_path / "intent.yaml").write_text(written(pool()))
    assert gpushare("compile", "intent.yaml", cwd=tmp_path).returncode == 0
    done = gpushare("import", "bundle", "-o", "again.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert gpushare("plan", "--exit-code", "bundle", "again.yaml", cwd=tmp_path).returncode == 0
    inside = tmp_path / "bundle/intent.yaml"
    inside.write_text(inside.read_text().replace("gpusPerNode: 4", "gpusPerNode: 8"))
    edited = gpushare("import", "bundle", cwd=tmp_path)
    assert (edited.returncode, "GS796" in edited.stderr, "gpusPerNode: 8" in edited.stdout) == (0, True, True)
    assert gpushare("import", "bundle", "--strict", cwd=tmp_path).returncode == 1
    inside.unlink()
    refused = gpushare("import", "bundle", cwd=tmp_path)
    assert (refused.returncode, "no bundle" in refused.stderr) == (2, True)


def test_an_intent_that_the_lock_does_not_list_is_not_believed_unsaid(tmp_path: Path) -> None:
    """Who edits the intent of a bundle can also drop its line from the lock, or the lock."""
    (tmp_path / "intent.yaml").write_text(written(pool()))
    assert gpushare("compile", "intent.yaml", cwd=tmp_path).returncode == 0
    lock = tmp_path / "bundle/gpushare.lock.yaml"
    lock.write_text("".join(line for line in lock.read_text().splitlines(keepends=True) if "  intent.yaml:" not in line))
    for command in (("import", "bundle"), ("plan", "bundle", "intent.yaml")):
        done = gpushare(*command, cwd=tmp_path)
        assert (done.returncode, "GS796" in done.stderr, "does not list it" in done.stderr) == (0, True, True)
    lock.unlink()
    assert "GS796" in gpushare("import", "bundle", cwd=tmp_path).stderr
