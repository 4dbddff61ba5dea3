"""The bundle as a whole: which files, always the same bytes, and what one compile remembers of the one before."""

import io

import pytest
import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.bundle.artifact import digest
from gpushare.bundle.lock import Lock
from gpushare.compare import files as compare_files
from gpushare.core import resources
from gpushare.reading import source
from tests.compiler.render.compiled import POOLS, compiled, document, files, intent
from tests.support.paths import ROOT

RULES = YamlLintConfig((ROOT / ".yamllint").read_text())


def test_a_bundle_has_a_policy_for_every_pool_and_a_profile_for_every_way_to_share_and_its_lock_last() -> None:
    """The other files: docs/bundle.md lists them, which the tests of the documentation compare with every example."""
    bundle = files("notebooks", "dense")
    policies = [path for path in bundle if path.startswith("chart/files/policies/")]
    assert policies == ["chart/files/policies/dense.yaml", "chart/files/policies/notebooks.yaml"]
    assert len([path for path in bundle if path.startswith("chart/files/profiles/")]) == 2
    assert list(bundle)[-1] == lock.FILE


OPTIONAL = tuple(f"templates/{part}/" for part in ("monitoring", "vgpu", "vendors", "dra"))


def test_chart_is_copied_unchanged_except_for_its_values() -> None:
    bundle, root = files("hpc"), resources.chart()
    every = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    shipped = {path for path in every if not path.startswith(OPTIONAL)}
    assert {path.removeprefix("chart/") for path in bundle if path.startswith("chart/") and "/files/" not in path} == shipped
    for path in shipped - {"values.yaml"}:
        assert bundle[f"chart/{path}"] == (root / path).read_text()


def test_the_generated_values_have_the_keys_of_the_charts_own() -> None:
    own = yaml.safe_load((resources.chart() / "values.yaml").read_text())
    generated = document(files(), "chart/values.yaml")
    # A bundle has `adoption` only if it observes.
    assert list(generated) == [key for key in own if key != "adoption"]
    assert list(generated["image"]) == list(own["image"])
    assert list(generated["migParted"]) == list(own["migParted"])


def test_every_yaml_file_is_clean_under_yamllint_and_every_text_ends_with_one_newline() -> None:
    for path, text in files(more="  quotas: {atlas: {hpc: 8}}\n").items():
        assert text.endswith("\n"), path
        assert not text.endswith("\n\n"), path
        assert "\r" not in text, path
        if path.endswith(".yaml") and "templates/" not in path:
            problems = [f"{path}:{problem.line}: {problem.desc}" for problem in linter.run(io.StringIO(text), RULES)]
            assert not problems


def test_the_document_of_a_file_is_what_a_reader_of_its_text_finds() -> None:
    """A comparison takes the documents of a bundle that it has compiled, and reads those of one on the disk."""
    made = compare_files.of_artifacts(pipeline.compile_intent(intent(), "intent.yaml", lock.EMPTY).artifacts)
    written = {path: text for path, text in made.items() if isinstance(text, compare_files.WrittenText)}
    assert {"chart/values.yaml", "chart/files/policies/dense.yaml", lock.INTENT} <= written.keys()
    for path, text in written.items():
        assert compare_files.parsed(path, text) == source.read(text.encode(), path, own=True).data, path


def test_pool_order_does_not_change_the_bundle() -> None:
    assert files(*POOLS) == files(*reversed(POOLS))


def test_the_lock_lists_the_digest_of_every_other_file() -> None:
    bundle = files()
    memory = lock.read(bundle[lock.FILE].encode())
    assert isinstance(memory, Lock)
    assert memory.files == {path: digest(text) for path, text in bundle.items() if path != lock.FILE}


def after(data: bytes, bundle: dict[str, str]) -> dict[str, str]:
    memory = lock.read(bundle[lock.FILE].encode())
    assert isinstance(memory, Lock)
    return compiled(data, memory)[1]


def test_an_identical_compile_after_a_compile_gives_the_same_bytes() -> None:
    first = files()
    assert after(intent(), first) == first


def profile_keys(bundle: dict[str, str]) -> set[str]:
    return {path.split("/")[-1].removesuffix(".yaml") for path in bundle if path.startswith("chart/files/profiles/")}


def test_previous_profile_stays_in_the_bundle_and_a_cap_adds_none() -> None:
    first = files("notebooks")
    capped = POOLS["notebooks"].replace("tolerations", "memory: {cap: 2Gi}, tolerations")
    assert profile_keys(after(intent("notebooks", notebooks=capped), first)) == profile_keys(first)
    more = POOLS["notebooks"].replace("replicas: 4", "replicas: 6")
    second = after(intent("notebooks", notebooks=more), first)
    assert profile_keys(second) > profile_keys(first)
    assert len(profile_keys(second)) == 2


def test_pools_that_share_alike_share_a_profile() -> None:
    again = POOLS["notebooks"].replace("p: notebooks", "p: others").replace("card: t4", "card: l4")
    assert len(profile_keys(files("notebooks", "others", others=again))) == 1


def test_a_goal_is_pinned_until_its_question_changes() -> None:
    goal = "{card: a100-sxm4-40gb, nodes: {matchLabels: {p: g}}, gpusPerNode: 1, sharing: {mode: mig, goal: {instances: 3}}}"
    first = files("g", g=goal)
    memory = lock.read(first[lock.FILE].encode())
    assert isinstance(memory, Lock)
    assert sum(count for _, count in memory.goals["g"].layout) == 3
    pinned = (("2g.10gb", 2), ("1g.5gb", 1))
    remembered = Lock(files={}, goals={"g": lock.GoalPin(question=memory.goals["g"].question, layout=pinned)})
    plan, _ = compiled(intent("g", g=goal), remembered)
    assert plan.pools[0].layout_of_goal == pinned
    plan, _ = compiled(intent("g", g=goal.replace("instances: 3", "instances: 4")), remembered)
    assert sum(count for _, count in plan.pools[0].layout_of_goal or ()) == 4


def test_the_namespace_lets_privileged_pods_in() -> None:
    labels = document(files("hpc"), "namespace.yaml")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


@pytest.mark.parametrize(
    ("platform", "more", "made"),
    [
        ("{}", "", ["gpu-system"]),
        ("{namespace: gpu-system}", "", ["gpu-system"]),
        ("{namespace: nvidia}", "", ["gpu-system", "nvidia"]),
        ("{stack: existing, namespace: nvidia}", "", ["gpu-system"]),
        ("{namespace: nvidia}", "  adoption: observe\n", ["gpu-system"]),
    ],
)
def test_namespace_of_nvidias_chart_is_created_if_the_bundle_installs_it(platform: str, more: str, made: list[str]) -> None:
    _, bundle = compiled(intent("hpc", platform=platform, more=more))
    files_of = [path for path in ("namespace.yaml", "platform-namespace.yaml") if path in bundle]
    assert [document(bundle, path)["metadata"]["name"] for path in files_of] == made
    values, elsewhere = document(bundle, "chart/values.yaml"), {"nvidia"} if "nvidia" in platform else set()
    assert {values.get("pluginNamespace")} - {None} == elsewhere
    assert set(values["admission"]["platformNamespaces"]) == {"kube-system", "gpu-system"} | elsewhere
    assert f"kubectl apply{''.join(f' -f {path}' for path in files_of)}\n" in bundle["README.md"]


@pytest.mark.parametrize("pool", sorted(POOLS))
def test_policy_digest_changes_only_with_the_policy(pool: str) -> None:
    before = document(files(), "chart/values.yaml")["pools"]
    changed = POOLS[pool].removesuffix("}") + ", priority: 5}"
    assert document(files(**{pool: changed}), "chart/values.yaml")["pools"][pool]["policy"] == before[pool]["policy"]
    changed = POOLS[pool].replace("gpusPerNode", "namespaces: [atlas], gpusPerNode")
    after_change = document(files(**{pool: changed}), "chart/values.yaml")["pools"]
    assert {name for name in before if before[name]["policy"] != after_change[name]["policy"]} == {pool}


def test_the_bundle_grows_with_pools_and_namespaces_and_not_with_their_product() -> None:
    def size(pools: int, namespaces: int) -> int:
        named = {f"p{number:02}": POOLS["notebooks"].replace("p: notebooks", f"p: p{number:02}") for number in range(pools)}
        quotas = "".join(f"    team-{number:05}: {{p00: 1}}\n" for number in range(namespaces))
        return sum(map(len, compiled(intent(*named, more=f"  quotas:\n{quotas}", **named))[1].values()))

    one_each = size(1, 1)
    more_pools, more_namespaces = size(40, 1) - one_each, size(1, 400) - one_each
    assert min(one_each, more_pools, more_namespaces) > 10_000
    assert size(40, 400) - one_each < 1.05 * (more_pools + more_namespaces)
