"""Input that was made to break the program, through the whole program: findings or a clear no, soon, in little memory."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compiler.cli.conftest import GOOD
from tests.compiler.cli.process import gpushare
from tests.support import scale
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE

MIB = 1 << 20
HEAD = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: lab}\nspec:\n"
NOT_IN = "{{{{key: {}{{0}}, operator: NotIn, values: [x, w]}}}}"
POOL = "    p{number}: {{card: {card}, nodes: {nodes}, gpusPerNode: 8, priority: {priority}, sharing: {{mode: exclusive}}}}\n"


def pools(count: int = 2500, *, card: str = "t4", nodes: str = "{{names: [n{0}]}}", priority: str = "0") -> str:
    """That many pools; `{0}` stands for a pool's number."""
    lines = (
        POOL.format(number=number, card=card.format(number), nodes=nodes.format(number), priority=priority.format(number))
        for number in range(count)
    )
    return f"{HEAD}  pools:\n{''.join(lines)}"


def one_pool(sharing: str = "mode: exclusive", nodes: str = "names: [a]", more: str = "") -> str:
    """One pool of A100s."""
    fields = f"card: a100-sxm4-40gb, nodes: {{{nodes}}}, gpusPerNode: 8, sharing: {{{sharing}}}"
    return f"{HEAD}  pools:\n    a: {{{fields}}}\n{more}"


def many(form: str, count: int) -> str:
    """`form` with every number below `count`."""
    return ", ".join(form.format(number) for number in range(count))


PROFILES = [
    {
        "name": f"{size}g.{size * 12}gb",
        "nvmlEnum": size if size < 7 else size + 3,
        "profileId": size,
        "computeSlices": size,
        "memoryMiB": 12288 * size,
        "maxCount": 64 // size,
        "placements": [f"{start}:{size}" for start in range(65 - size)],
    }
    for size in range(1, 10)
]
WIDE_CARD = {
    "lab": {
        "name": "NVIDIA Lab 768GB",
        "computeCapability": "9.0",
        "memoryMiB": 768 * 1024,
        "mig": {"units": 64, "maxInstances": 64, "profiles": PROFILES},
    }
}

HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "a colon a million times": (":" * MIB, "GS003"),
    "aliases on one line": ("a: &a x\nb: [" + "*a," * 340_000 + "]", "GS007"),
    "wide characters on one line": ('a: "' + "漢" * 1_300_000 + '"', "GS101"),
    "tag directives": ("".join(f"%TAG !a{number}! tag:x\n" for number in range(40_000)) + "---\na: 1\n", "GS010"),
    "a version of a million characters": (one_pool(more=f"  kubernetes: '1.{'3' * 1_000_000}'\n"), "GS719"),
    "a duration of a million characters": (
        one_pool().replace("gpusPerNode: 8", f"gpusPerNode: 8, enforcement: {{grace: {'1h' * 400_000}}}"),
        "GS105",
    ),
    "a label of a million characters": (one_pool(nodes=f"matchLabels: {{k: {'y' * 1_000_000}}}"), "GS211"),
    "a profile for each letter": (one_pool(f"mode: mig, layout: {{{many('{0}g.5gb: 1', 60_000)}}}"), "GS403"),
    "a layout for each GPU, and again": (
        one_pool(f"mode: mig, layouts: [{', '.join(['{gpus: [1], layout: {1g.5gb: 7}}'] * 24_000)}]"),
        "GS404",
    ),
    "expressions on one label": (
        one_pool(nodes=f"matchExpressions: [{many('{{key: a, operator: NotIn, values: [x{0}]}}', 18_000)}]"),
        "",
    ),
    "nodes that two pools name": (
        one_pool(nodes=f"names: [{many('n{0}', 60_000)}]")
        + one_pool(nodes=f"names: [{many('n{0}', 60_000)}]").splitlines()[-1].replace(" a:", " b:"),
        "GS203",
    ),
    "thousands of pools": (pools(12_000), "GS107"),
    "pools of unknown cards": (pools(card="t{0}x"), "GS201"),
    "pools that all clash": (pools(nodes="{{matchLabels: {{a: b}}}}"), "GS203"),
    "a chain of priorities": (
        pools(nodes="{{matchExpressions: [{{key: a{0}, operator: NotIn, values: [x]}}]}}", priority="{0}"),
        "GS212",
    ),
    "priorities that leave many alternatives": (
        pools(1000, nodes=f"{{{{matchExpressions: [{NOT_IN.format('a')}, {NOT_IN.format('b')}]}}}}", priority="{0}"),
        "GS212",
    ),
    "values that no chart knows": (
        one_pool(more=f"  platform: {{values: {{driver: {{{many('k{0}: {{b: 1}}', 50_000)}}}}}}}\n"),
        "GS708",
    ),
    "quotas for everyone": (one_pool(more="  quotas:\n" + "".join(f"    n{n}: {{a: 2}}\n" for n in range(50_000))), "GS107"),
    "a card with a row of 64 slices": (
        one_pool("mode: mig, goal: most-instances", more=f"  cards: {json.dumps(WIDE_CARD)}\n").replace(
            "a100-sxm4-40gb", "lab"
        ),
        "GS903",
    ),
}


MEASURED = """
import os, pathlib, re, sys
from gpushare.cli import call
code = call()
sys.stdout.flush()
# Not getrusage: its peak is inherited from the process that started this one.
print(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1], file=sys.stderr)
os._exit(code)
"""


def checked(text: bytes, folder: Path) -> tuple[int, str, float, float]:
    """Exit code, stdout, seconds of processor time and MiB of the whole program."""
    file = folder / "intent.yaml"
    file.write_bytes(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, "check", str(file)],
        capture_output=True,
        check=False,
        timeout=PATIENCE,
        cwd=ROOT,
        env={**os.environ, "GITHUB_ACTIONS": "", "PYTHONUTF8": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    error = run.stderr.decode()
    assert "Traceback" not in error
    return run.returncode, run.stdout.decode(), seconds, int(error.split()[-1]) / 1024


@pytest.fixture(scope="module")
def plain_seconds(tmp_path_factory: pytest.TempPathFactory) -> float:
    """CPU time of a right intent of two thousand pools: what everything else is compared with."""
    exit_code, _, seconds, _ = checked(pools(2000).encode(), tmp_path_factory.mktemp("plain"))
    assert exit_code == 0
    return seconds


@pytest.mark.parametrize("name", scale.part(list(HOSTILE), 24))
def test_hostile_input_is_cheap_to_check(name: str, tmp_path: Path, plain_seconds: float) -> None:
    text, code = HOSTILE[name]
    exit_code, told, seconds, mib = checked(text if isinstance(text, bytes) else text.encode(), tmp_path)
    assert exit_code == (1 if code else 0), told[:500]
    assert code in told
    assert len(told) < 100_000
    assert max(map(len, told.splitlines())) < 1_500
    assert seconds < 10 * plain_seconds
    assert mib < 200


def test_a_message_that_quotes_a_huge_value_stays_readable(tmp_path: Path) -> None:
    (tmp_path / "intent.yaml").write_text(one_pool(nodes=f"matchLabels: {{k: {'y' * 100_000}}}"))
    for style in ("text", "json", "github", "sarif"):
        done = gpushare("check", "--format", style, tmp_path / "intent.yaml")
        assert done.returncode == 1
        assert "GS211" in done.stdout
        assert len(done.stdout) < 20_000


@pytest.mark.parametrize("style", ["text", "json", "github", "sarif"])
def test_a_file_name_need_not_be_text(style: str, tmp_path: Path) -> None:
    name = os.fsdecode(b"b\xff%,:.yaml")
    (tmp_path / name).write_text("a: b\n")
    done = gpushare("check", "--format", style, name, cwd=tmp_path)
    assert done.returncode == 1
    if style == "sarif":
        location = json.loads(done.stdout)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
        assert location == {"uri": "b%FF%25%2C%3A.yaml"}
    if style == "github":
        assert "file=b\\udcff%25%2C%3A.yaml," in done.stdout


def test_control_characters_in_error_names_are_escaped() -> None:
    done = gpushare("check", "\x1b[31m\nno such file")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert done.stderr.startswith("gpushare: cannot read \\x1b[31m\\nno such file: no such file")


@pytest.mark.parametrize(
    "arguments", [("check", ""), ("compile", ""), ("compile", "good.yaml", "-o", ""), ("plan", "", "good.yaml")]
)
def test_empty_path_is_refused(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    done = gpushare(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "empty text" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["good.yaml"]


@pytest.mark.parametrize("columns", ["9" * 5000, "0", "-5", "٣", "1e9"])
def test_invalid_terminal_width_is_ignored(columns: str, intents: Path) -> None:
    done = gpushare("check", intents / "bad.yaml", environment={"COLUMNS": columns})
    assert (done.returncode, done.stderr) == (1, "")
