"""The help of `gpushare-node`: every command has examples, and they are calls that it understands."""

import subprocess
import sys

import pytest

from gpushare_node.cli import options

COMMANDS = ("apply", "assert", "export", "enforce", "release")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_examples_of_the_help_are_understood(command: str) -> None:
    words = [*([command] if command else []), "--help"]
    told = subprocess.run([sys.executable, "-m", "gpushare_node", *words], capture_output=True, text=True, check=True).stdout
    examples = [line.split()[1:] for line in told.splitlines() if line.startswith("  gpushare-node ")]
    assert len(examples) >= 2
    for example in examples:
        assert options.parse(example).command == example[0]
        assert not command or example[0] == command
    assert "exit status:" in told
