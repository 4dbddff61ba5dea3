"""The group of commands for click, the one parser of the command line, and running it.

Owns the list of commands and the exit codes of click's own exceptions.
"""

from importlib import import_module

import click

from gpushare import __version__
from gpushare.cli import options
from gpushare.cli.exits import EXIT_CODES, ExitCode

NAMES = (
    "init",
    "import",
    "check",
    "compile",
    "show",
    "plan",
    "size",
    "simulate",
    "images",
    "claims",
    "status",
    "usage",
    "advise",
    "drift",
    "rbac",
    "cards",
    "explain",
    "schema",
    "completion",
)
_ENVIRONMENT = (
    "Environment: show, plan, cards and explain show output longer than the terminal in $PAGER, else `less`; PAGER=cat turns "
    "that off. NO_COLOR turns colours off, COLUMNS sets the width."
)
_MODULES = {"import": "importing", "images": "image_list"}


class Commands(options.Command, click.Group):
    """The commands by name, in the order in which a new user needs them; a module is imported when its command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return every command's name."""
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Return the command of that name, None if there is none."""
        if cmd_name not in NAMES:
            return None
        command: click.Command = import_module(f"gpushare.cli.{_MODULES.get(cmd_name, cmd_name)}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command like click, and suggest the nearest name if there is no such command."""
        if args and args[0] not in NAMES and not args[0].startswith("-"):
            hint = options.did_you_mean(args[0], NAMES) or f"the commands are {', '.join(NAMES)}"
            ctx.fail(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, epilog=f"{EXIT_CODES}\n\n{_ENVIRONMENT}", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="gpushare %(version)s")
def commands() -> None:
    """Share a cluster's GPUs, validated before you deploy.

    One cluster intent is validated against the card catalogue and compiled into
    everything that Kubernetes needs.

    gpushare init -o intent.yaml      start here
    gpushare import FILES...          or start from the cluster's configuration
    gpushare check intent.yaml        find errors, and how to fix them
    gpushare show intent.yaml         see pools, nodes and the layout of every GPU
    gpushare compile intent.yaml      write the bundle for Helm and GitOps
    """


def run(program: str, arguments: list[str], complete_variable: str, instruction: str | None) -> int:
    """Run one call and return the exit code. `instruction` is the shell's, if it requests completions."""
    if instruction:
        from click.shell_completion import shell_complete  # noqa: PLC0415 - only for the shell's own calls

        return shell_complete(commands, {}, program, complete_variable, instruction)
    try:
        with commands.make_context(program, arguments) as context:
            return int(commands.invoke(context))
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as problem:
        problem.show()
        return ExitCode.COULD_NOT_RUN
