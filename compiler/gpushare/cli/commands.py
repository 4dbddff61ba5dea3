"""The group of commands for click, the one parser of the command line, and running it.

Owns the list of commands and the exit codes of click's own exceptions.
"""

from importlib import import_module

import click
from click.shell_completion import CompletionItem, shell_complete

from gpushare import __version__
from gpushare.cli import options
from gpushare.cli.exits import EXIT_CODES, ExitCode

COMMANDS = {
    "init": "Write a commented starter intent.",
    "import": "Write an intent from ConfigMaps, Helm values and Nodes.",
    "check": "Report errors in an intent, and where they are.",
    "compile": "Validate an intent and write its bundle.",
    "show": "Show the nodes, resources and GPU memory of every pool.",
    "plan": "Show what changes from one intent to another.",
    "size": "Compute the mode and number of nodes that users need.",
    "simulate": "Simulate what becomes of a workload on the pools.",
    "images": "List the images to mirror, or those missing from a registry.",
    "claims": "Print the claim templates of pools of DRA for a namespace.",
    "status": "Show what the pools of a running cluster offer and use.",
    "usage": "Report what namespaces held and used of the pools in a month.",
    "advise": "Advise replicas, caps and modes from measured use.",
    "drift": "Show how a running cluster differs from a bundle.",
    "rbac": "Print the RBAC objects that status, drift, explain and plan --live need.",
    "cards": "List the cards, or the MIG layouts of one.",
    "explain": "Explain a finding's code, a reason, a node or a pod.",
    "schema": "Print the JSON Schemas.",
    "completion": "Print the completion script for a shell.",
}
"""What each command does, in the order in which a new user needs them."""
_ENVIRONMENT = (
    "Environment: show, plan, cards and explain show output longer than the terminal in $PAGER, else `less`; PAGER=cat turns "
    "that off. NO_COLOR turns colours off, COLUMNS sets the width."
)
_ELSEWHERE = {
    "import": "importing.command",
    "check": "compile.check_command",
    "claims": "show.claims",
    "status": "live.status_command",
    "drift": "live.drift_command",
    "rbac": "live.rbac",
    "cards": "catalogue.cards_command",
    "schema": "catalogue.schema_command",
    "completion": "catalogue.completion",
}
"""The module and the name of commands that are not `command` in a module of their own name."""


class Commands(options.Command, click.Group):
    """The commands by name; a module is imported when its command is used, and not to be listed or completed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return every command's name."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write what each command does."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with the incomplete word, and what click completes of the options."""
        names = [CompletionItem(name, help=does) for name, does in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Return the command of that name, None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = _ELSEWHERE.get(cmd_name, f"{cmd_name}.command").partition(".")
        command: click.Command = getattr(import_module(f"gpushare.cli.{module}"), name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command like click, and suggest the nearest name if there is no such command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = options.did_you_mean(args[0], tuple(COMMANDS)) or f"the commands are {', '.join(COMMANDS)}"
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
        return shell_complete(commands, {}, program, complete_variable, instruction)
    try:
        with commands.make_context(program, arguments) as context:
            return int(commands.invoke(context))
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as problem:
        problem.show()
        return ExitCode.COULD_NOT_RUN
