"""`gpushare plan`: intents and bundles side by side."""

import json
from pathlib import Path

import pytest

from gpushare.reading import schema
from tests.compiler.cli.process import gpushare


@pytest.fixture
def changed(intents: Path) -> Path:
    """The folder with a bundle of good.yaml and with changed.yaml beside it."""
    gpushare("compile", "good.yaml", cwd=intents)
    text = (intents / "good.yaml").read_text().replace("replicas: 4", "replicas: 2")
    text = text.replace("{3g.20gb: 1, 1g.5gb: 3}", "{3g.20gb: 2}").replace("        replicas: {1g.5gb: 2}\n", "")
    text = text.replace("notebooks: 8", "notebooks: 13")
    (intents / "changed.yaml").write_text(text)
    return intents


def test_bundle_and_its_intent_have_no_differences(changed: Path) -> None:
    for old, new in (("bundle", "good.yaml"), ("good.yaml", "bundle"), ("good.yaml", "good.yaml"), ("bundle", "bundle")):
        done = gpushare("plan", "--exit-code", old, new, cwd=changed)
        assert (done.returncode, done.stdout, done.stderr) == (0, "no changes\n", "")


def test_plan_lists_changes_per_pool_with_a_summary(changed: Path) -> None:
    done = gpushare("plan", "bundle", "changed.yaml", cwd=changed)
    assert done.returncode == 0
    assert "changed.yaml:23:23: warning GS606" in done.stderr
    assert "~ notebooks  relabelled, t4\n    3 nodes touched, at most 24 pods disturbed, 8 on each\n" in done.stdout
    assert "GPU 0-2: 1 x 3g.20gb kept, 3 x 1g.5gb destroyed, 1 x 3g.20gb created" in done.stdout
    assert "only 12 in the cluster" in done.stdout
    assert "1 quota no longer fits" in done.stdout.replace("\n", " ")
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_document_is_valid_under_its_schema(changed: Path) -> None:
    for old in ("bundle", "good.yaml"):
        done = gpushare("plan", "--exit-code", "--format", "json", old, "changed.yaml", cwd=changed)
        document = json.loads(done.stdout)
        assert done.returncode == 3
        assert schema.accepts(schema.load("plan.v1"), document)
        changes = {name: pool["change"] for name, pool in document["pools"].items()}
        assert changes == {"notebooks": "relabel", "training": "repartition"}
        (quota,) = document["quotas"]
        assert (quota["namespace"], quota["resource"]) == ("team", "nvidia.com/gpu.shared")
        assert (quota["before"], quota["after"], quota["capacity"], quota["problem"]) == (8, 13, 12, "exceeds")
        assert document["podsDisturbed"] is None  # training has no known number of nodes
        assert document["pools"]["notebooks"]["podsDisturbed"] == 24


def test_the_document_has_caps_and_action_before_and_after(changed: Path) -> None:
    text = (changed / "good.yaml").read_text().replace("cap: 3Gi", "cap: 2Gi")
    text = text.replace("    training:", "      enforcement: {action: warn}\n    research:")
    (changed / "other.yaml").write_text(text)
    done = gpushare("plan", "--format", "json", "good.yaml", "other.yaml", cwd=changed)
    pools = json.loads(done.stdout)["pools"]
    assert pools["notebooks"]["caps"] == [
        {"resource": "nvidia.com/gpu.shared", "profile": None, "capMiB": {"before": 3072, "after": 2048}}
    ]
    assert pools["notebooks"]["action"] == {"before": "kill", "after": "warn"}
    assert (pools["training"]["action"], pools["research"]["action"]) == (
        {"before": "kill", "after": None},
        {"before": None, "after": "kill"},
    )
    shared = [cap["capMiB"] for cap in pools["research"]["caps"] if cap["profile"] == "1g.5gb"]
    assert [cap["before"] for cap in shared] == [None]
    assert shared[0]["after"] > 0


def test_stdin_can_be_either_side(changed: Path) -> None:
    text = (changed / "good.yaml").read_bytes()
    assert gpushare("plan", "-", "good.yaml", stdin=text, cwd=changed).stdout == "no changes\n"
    assert gpushare("plan", "bundle", "-", stdin=text, cwd=changed).stdout == "no changes\n"
    assert gpushare("plan", "-", "-", stdin=text, cwd=changed).returncode == 2


def test_errors_on_either_side_name_their_file(changed: Path) -> None:
    done = gpushare("plan", "bad.yaml", "bad.yaml", cwd=changed)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("bad.yaml:20:37: error GS402") == 2


def test_plan_of_a_folder_without_a_bundle_exits_with_2(changed: Path) -> None:
    done = gpushare("plan", ".", "good.yaml", cwd=changed)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpushare: . is not a bundle")
    (changed / "intent.yaml").write_text((changed / "good.yaml").read_text())
    assert gpushare("compile", "intent.yaml", cwd=changed).returncode == 0
    beside = gpushare("plan", ".", "good.yaml", cwd=changed)
    assert (beside.returncode, beside.stdout) == (2, "")
    assert beside.stderr == "gpushare: . is not a bundle: it has no chart\n   = name bundle\n"


POOL = "{{card: t4, nodes: {nodes}, gpusPerNode: 2, sharing: {{mode: {sharing}}}}}"
HEAD = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: lab}\nspec:\n  pools:\n"


def intent(path: Path, **pools: tuple[str, str]) -> str:
    lines = (f"    {name}: {POOL.format(nodes=nodes, sharing=sharing)}\n" for name, (nodes, sharing) in pools.items())
    path.write_text(HEAD + "".join(lines))
    return str(path)


def test_moved_nodes_renamed_pools_and_new_pools_are_reported(tmp_path: Path) -> None:
    labels, two, three = "{matchLabels: {a: b}, expected: 5}", "{names: [n1, n2]}", "{names: [n2, n3]}"
    old = intent(tmp_path / "old.yaml", alpha=(labels, "exclusive"), beta=(two, "time-slicing, replicas: 4"))
    new = intent(tmp_path / "new.yaml", gamma=(labels, "exclusive"), beta=(three, "time-slicing, replicas: 4"))
    shown = gpushare("plan", old, new).stdout
    assert "- alpha  gone, t4\n    5 nodes touched, no pod disturbed\n    its nodes go to the new pool gamma\n" in shown
    assert "+ gamma  new, t4\n" in shown
    assert [line.split() for line in shown.splitlines() if line.startswith(("n1", "n3"))] == [
        ["n1", "beta", "none", "at", "most", "8"],
        ["n3", "none", "beta", "at", "most", "2"],
    ]
    assert "Pools: 1 new, 1 gone, 1 policy only. 7 nodes touched, at most 10 pods disturbed." in shown.replace("\n", " ")


def test_changed_cap_is_reported_to_disturb_nothing(intents: Path) -> None:
    (intents / "cap.yaml").write_text((intents / "good.yaml").read_text().replace("cap: 3Gi", "cap: 2Gi"))
    shown = gpushare("plan", "good.yaml", "cap.yaml", cwd=intents).stdout
    told = " ".join(shown.split())
    assert "memory cap 3072 → 2048 MiB: running containers keep their old cap; new ones get the new cap" in told
    assert "ConfigMaps only: no node is touched, no pod disturbed." in shown.replace("\n", " ")


def test_custom_card_keeps_its_instances(intents: Path) -> None:
    profile = "{name: 1g.10gb, nvmlEnum: 0, profileId: 0, computeSlices: 1, memoryMiB: 9000, maxCount: 2"
    profile += ", placements: ['0:1', '1:1']}"
    card = f"""
  cards:
    lab-card:
      name: Lab Card
      computeCapability: "9.0"
      memoryMiB: 20000
      migSupported: true
      mig:
        units: 2
        maxInstances: 2
        profiles:
        - {profile}
"""
    pool = "    a: {card: lab-card, nodes: {names: [n1]}, gpusPerNode: 1, sharing: {mode: mig, layout: {1g.10gb: %d}}}\n"
    for number in (1, 2):
        (intents / f"own{number}.yaml").write_text(HEAD + pool % number + card)
    done = gpushare("plan", "own1.yaml", "own2.yaml", cwd=intents)
    assert "GPU 0: 1 x 1g.10gb kept, 1 x 1g.10gb created" in done.stdout, done.stderr


def test_markdown_plan_is_a_complete_comment(changed: Path) -> None:
    done = gpushare("plan", "--format", "markdown", "bundle", "changed.yaml", cwd=changed)
    assert done.stdout.startswith("**Pools: ")
    assert "**notebooks** relabelled, t4\n\n- 3 nodes touched, at most 24 pods disturbed, 8 on each\n" in done.stdout
    assert "- out of service: 3 nodes, one at a time" in done.stdout
    assert "| team | `nvidia.com/gpu.shared` | 8 | 13 | only 12 in the cluster |\n" in done.stdout
    assert done.stdout.count("```") == 2
    assert (
        gpushare("plan", "--format", "markdown", "bundle", "good.yaml", cwd=changed).stdout
        == "No changes: both sides are equal.\n"
    )


def test_a_setting_of_the_cluster_is_a_change(intents: Path) -> None:
    text = (intents / "good.yaml").read_text()
    (intents / "audit.yaml").write_text(f"{text}  admission: {{enforce: audit}}\n  namespace: elsewhere\n")
    done = gpushare("plan", "--exit-code", "good.yaml", "audit.yaml", cwd=intents)
    told = " ".join(done.stdout.split())
    assert done.returncode == 3
    assert "admission.enforce deny → audit: no pod is refused that was admitted before" in told
    assert "namespace gpu-system → elsewhere: another release; uninstall the one that is installed first" in told
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_an_edited_bundle_is_compared_as_it_is_now(changed: Path) -> None:
    values = changed / "bundle/chart/values.yaml"
    values.write_text(values.read_text().replace("enforce: deny", "enforce: none"))
    done = gpushare("plan", "--exit-code", "--format", "json", "bundle", "good.yaml", cwd=changed)
    document = json.loads(done.stdout)
    assert done.returncode == 3
    assert schema.accepts(schema.load("plan.v1"), document)
    assert [(one["path"], one["change"]) for one in document["files"]] == [("chart/values.yaml", "changed")]
    (setting,) = document["files"][0]["settings"]
    assert (setting["path"], setting["before"], setting["after"]) == (["admission", "enforce"], "none", "deny")
    told = [(effect["kind"], effect["subject"]) for effect in document["effects"]]
    assert told == [("refused", "admission.enforce"), ("ended", "admission.enforce")]
    values.unlink()
    done = gpushare("plan", "--format", "json", "bundle", "good.yaml", cwd=changed)
    assert [(one["path"], one["change"]) for one in json.loads(done.stdout)["files"]] == [("chart/values.yaml", "added")]


def test_a_pool_that_only_its_notice_changes_is_shown(intents: Path) -> None:
    for name, notice in (("long", "72h"), ("short", "0s")):
        pool = POOL.format(nodes="{names: [n1]}", sharing="time-slicing, replicas: 4")
        pool = pool.removesuffix("}") + f", enforcement: {{notice: {notice}}}}}"
        (intents / f"{name}.yaml").write_text(f"{HEAD}    desks: {pool}\n")
    shown = " ".join(gpushare("plan", "long.yaml", "short.yaml", cwd=intents).stdout.split())
    assert "~ desks policy only" in shown
    assert "enforcement.noticeSeconds 259200 → 0: holds for running containers too" in shown


def test_markdown_has_moves_strategies_instances_and_successors(tmp_path: Path, changed: Path) -> None:
    labels, two, three = "{matchLabels: {a: b}, expected: 5}", "{names: [n1, n2]}", "{names: [n2, n3]}"
    old = intent(tmp_path / "old.yaml", alpha=(labels, "exclusive"), beta=(two, "time-slicing, replicas: 4"))
    new = intent(tmp_path / "new.yaml", gamma=(labels, "exclusive"), beta=(three, "time-slicing, replicas: 4"))
    shown = gpushare("plan", "--format", "markdown", old, new).stdout
    assert "| n1 | beta | none | at most 8 |\n" in shown
    assert "**alpha** gone, t4\n" in shown
    assert "- its nodes go to the new pool gamma\n" in shown
    shown = gpushare("plan", "--format", "markdown", "bundle", "changed.yaml", cwd=changed).stdout
    assert "GPU 0-2: 1 x 3g.20gb kept, 3 x 1g.5gb destroyed, 1 x 3g.20gb created" in shown


SHARED = "time-slicing, replicas: {}"


def many(path: Path, replicas: int, count: int = 45) -> str:
    """An intent with so many pools that differ in names and labels alone."""
    pools = {
        f"desk-{number:03}": (f"{{matchLabels: {{a: d{number}}}, expected: 2}}", SHARED.format(replicas))
        for number in range(count)
    }
    return intent(path, **pools)


def test_equal_pool_changes_are_listed_once_and_long_lists_truncated(tmp_path: Path) -> None:
    old, new = many(tmp_path / "old.yaml", 2), many(tmp_path / "new.yaml", 4)
    shown = gpushare("plan", old, new).stdout
    lines = shown.splitlines()
    assert lines.count("~ desk-000, desk-001, desk-002 and 42 more  each relabelled, t4") == 1
    assert shown.count("2 nodes touched") == 1
    summary = "Pools: 45 relabelled. 90 nodes touched, no pod disturbed."
    assert (lines.count(summary), lines[-1]) == (2, summary)
    verdict = " ".join(shown.partition(summary)[0].split())
    assert verdict.count("On the way") == verdict.count("New pods get") == 1
    assert verdict.count("desk-000, desk-001, desk-002 and 42 more") == 2
    assert all(f"desk-{number:03}" in shown.partition("POOLS ALIKE")[2] for number in range(45))
    assert lines.count("  and 5 more; --format json has them") == 1  # settings of the intent
    assert shown.partition("INTENT\n")[2].partition("  and")[0].count("\n") == 40
    assert len(json.loads(gpushare("plan", "--format", "json", old, new).stdout)["intent"]) == 45


def test_a_short_comparison_has_its_summary_at_the_end_alone(tmp_path: Path) -> None:
    old, new = many(tmp_path / "old.yaml", 2, 2), many(tmp_path / "new.yaml", 4, 2)
    shown = gpushare("plan", old, new).stdout
    assert shown.count("Pools: 2 relabelled") == 1
    assert "~ desk-000 and desk-001  each relabelled, t4\n" in shown
    assert "POOLS ALIKE" not in shown


def test_only_selected_pools_are_compared(changed: Path) -> None:
    done = gpushare("plan", "--exit-code", "good.yaml", "changed.yaml", "--pool", "notebooks", cwd=changed)
    assert done.returncode == 3
    assert "~ notebooks  relabelled, t4\n" in done.stdout
    assert "training" not in done.stdout
    assert "mig-" not in done.stdout.partition("CAPACITY")[2].partition("\n\n")[0]
    assert "Pools: 1 relabelled. 3 nodes touched, at most 24 pods disturbed; 1 quota" in " ".join(done.stdout.split())
    named = ("--pool", "notebooks", "--pool=training", "--format", "json")
    document = json.loads(gpushare("plan", "good.yaml", "changed.yaml", *named, cwd=changed).stdout)
    assert schema.accepts(schema.load("plan.v1"), document)
    assert list(document["pools"]) == ["notebooks", "training"]


def test_a_named_pool_that_does_not_change_has_no_changes(intents: Path) -> None:
    (intents / "cap.yaml").write_text((intents / "good.yaml").read_text().replace("cap: 3Gi", "cap: 2Gi"))
    done = gpushare("plan", "--exit-code", "good.yaml", "cap.yaml", "--pool", "training", cwd=intents)
    assert (done.returncode, done.stdout) == (0, "no changes\n")


def test_cluster_wide_change_is_shown_for_a_selected_pool(intents: Path) -> None:
    (intents / "audit.yaml").write_text((intents / "good.yaml").read_text() + "  namespace: elsewhere\n")
    done = gpushare("plan", "--exit-code", "good.yaml", "audit.yaml", "--pool", "training", cwd=intents)
    assert done.returncode == 3
    assert "namespace gpu-system → elsewhere" in done.stdout


def test_pool_that_neither_side_has_is_an_error(intents: Path) -> None:
    done = gpushare("plan", "good.yaml", "good.yaml", "--pool", "trainin", cwd=intents)
    assert (done.returncode, done.stdout) == (2, "")
    assert "neither OLD nor NEW has a pool 'trainin'\n   = did you mean training?" in done.stderr
    assert gpushare("plan", "--fleet", "x.yaml", "--pool", "a", cwd=intents).returncode == 2


def test_a_cap_that_is_removed_keeps_its_unit(intents: Path) -> None:
    text = (intents / "good.yaml").read_text().replace("      memory: {cap: 3Gi}", "      memory: {cap: none}")
    (intents / "none.yaml").write_text(text)
    told = " ".join(gpushare("plan", "good.yaml", "none.yaml", cwd=intents).stdout.split())
    assert "nvidia.com/gpu.shared memory cap 3072 MiB → none:" in told
