"""`gpushare completion`: the script that makes a shell complete commands, options, card ids, codes and schema names."""

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from gpushare.cli import options, streams
from gpushare.cli.exits import ExitCode


@click.command(cls=options.Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> ExitCode:
    """Print the completion script for SHELL.

    For example:
      source <(gpushare completion bash)        in ~/.bashrc
      source <(gpushare completion zsh)         in ~/.zshrc
      gpushare completion fish > ~/.config/fish/completions/gpushare.fish

    Exit codes:
      0  done
      2  unknown shell
    """
    form = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    script = form(context.find_root().command, {}, "gpushare", "_GPUSHARE_COMPLETE")
    # The base class's `source`, because that of the bash class starts a bash to find out its version.
    streams.product(ShellComplete.source(script) + "\n")
    return ExitCode.DONE
