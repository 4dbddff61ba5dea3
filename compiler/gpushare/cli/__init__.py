"""The command line: one module per command, loaded only when it is called. Owns dispatch and the way every run ends.

A command module has one click command called `command`, which returns an ExitCode. Only `streams` touches stdin, stdout
and stderr; only here are exceptions turned into exit codes.
"""

import gc
import os
import sys
from importlib import import_module
from pathlib import PurePath

import click

from gpushare import __version__
from gpushare.cli import options, streams
from gpushare.cli.exits import EXIT_CODES, CouldNotRunError, ExitCode, ReaderGoneError

NAMES = ("init", "check", "compile", "show", "plan", "cards", "explain", "schema", "completion")
COMPLETE_VARIABLE = "_GPUSHARE_COMPLETE"


class Commands(options.Command, click.Group):
    """The commands by name, in the order in which a newcomer meets them; a module is imported when its command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every command's name."""
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The command of that name, None if there is none."""
        if cmd_name not in NAMES:
            return None
        command: click.Command = import_module(f"gpushare.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with the nearest name where there is no such command."""
        if args and args[0] not in NAMES and not args[0].startswith("-"):
            ctx.fail(f"no command {args[0]!r}; {options.nearest(args[0], NAMES) or 'the commands are ' + ', '.join(NAMES)}")
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="gpushare %(version)s")
def commands() -> None:
    """Share a cluster's GPUs, and know beforehand that it will work.

    One cluster intent is proved against the cards and compiled into everything
    that Kubernetes needs.

    gpushare init -o intent.yaml      start here
    gpushare check intent.yaml        what is wrong, and what to write instead
    gpushare show intent.yaml         what every GPU becomes
    gpushare compile intent.yaml      write the bundle for Helm and GitOps
    """


def main() -> int:
    """Run the command that the process was called with; the exit code."""
    # A run lasts a fraction of a second and leaves hardly any cycles: collecting them takes a fifth of it.
    gc.disable()
    program = "kubectl gpushare" if PurePath(sys.argv[0]).stem == "kubectl-gpushare" else "gpushare"
    try:
        return _run(program, sys.argv[1:] or ["--help"])
    except (CouldNotRunError, ReaderGoneError, OSError) as problem:
        return _outside(problem)
    except click.ClickException as problem:
        problem.show()
        return ExitCode.COULD_NOT_RUN
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as problem:
        return _bug(problem)
    finally:
        gc.freeze()  # nor at exit


def _run(program: str, arguments: list[str]) -> int:
    instruction = os.environ.get(COMPLETE_VARIABLE)
    if instruction:
        from click.shell_completion import shell_complete  # noqa: PLC0415 - only for the shell's own calls

        return shell_complete(commands, {}, program, COMPLETE_VARIABLE, instruction)
    try:
        with commands.make_context(program, arguments) as context:
            return int(commands.invoke(context))
    except click.exceptions.Exit as done:
        return done.exit_code


def _outside(problem: CouldNotRunError | ReaderGoneError | OSError) -> ExitCode:
    if isinstance(problem, OSError):
        if problem.filename is None:
            return _outside(streams.refused(problem))
        problem = CouldNotRunError(f"{os.fsdecode(problem.filename)}: {streams.reason(problem)}")
    if isinstance(problem, ReaderGoneError):
        return ExitCode.READER_GONE
    from gpushare.cli.terminal import visible  # noqa: PLC0415 - a name in a message may hold anything

    streams.tell(f"gpushare: {visible(str(problem))}\n" + (f"   = {visible(problem.hint)}\n" if problem.hint else ""))
    return ExitCode.COULD_NOT_RUN


def _bug(problem: Exception) -> ExitCode:
    from traceback import format_exception  # noqa: PLC0415 - never needed on a good day

    streams.tell("".join(format_exception(problem)))
    streams.tell(
        f"gpushare: this is a bug in gpushare {__version__}, not in your input ({type(problem).__name__})\n"
        "   = please report it with the text above and the intent that shows it\n"
    )
    return ExitCode.BUG
