"""`gpushare rbac`: the least rights for the commands that ask a running cluster."""

import click

from gpushare.cli import options, streams
from gpushare.cli.cluster import RELEASE
from gpushare.cli.exits import ExitCode
from gpushare.cluster.live import rights
from gpushare.core import emit
from gpushare.core.units import is_dns_label, is_dns_subdomain
from gpushare.core.wording import visible


@click.command(cls=options.Command)
@click.option("--user", default="", help="For this user.")
@click.option("--group", default="", help="For this group.")
@click.option("--service-account", "account", default="", metavar="NAME", help="For this account of the release's namespace.")
@click.option("--release-namespace", default=RELEASE, help=f"Where gpushare is installed. Default: {RELEASE}.")
@click.option(
    "--plugin-namespace",
    default="",
    metavar="NAMESPACE",
    help="Where the device plugin's configs are, if elsewhere: the intent's platform.namespace.",
)
@click.option(
    "--amd-namespace",
    default="",
    metavar="NAMESPACE",
    help="Also what `drift` reads where AMD's operator is.",
)
@click.option("--metrics", is_flag=True, help="Also what `status --kills` reads from the runtimes.")
@click.option("--helm-values", is_flag=True, help="Also the Secrets of the namespace, for Helm's values in `drift`.")
@click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="NAMESPACE",
    help="Also what `import --live` reads in this namespace; repeatable.",
)
def command(  # noqa: PLR0913 - one for each argument of the command line
    *,
    user: str,
    group: str,
    account: str,
    release_namespace: str,
    plugin_namespace: str,
    amd_namespace: str,
    metrics: bool,
    helm_values: bool,
    imports: tuple[str, ...],
) -> ExitCode:
    """Print the RBAC objects for status, drift, explain and plan --live, as YAML.

    Nothing is sent to a cluster, and none of these rights allows a change.
    Without a subject they are for the service account gpushare-viewer.

    For example:
      gpushare rbac --group gpu-operators | kubectl apply -f -
      gpushare rbac --service-account gpushare-drift | kubectl apply -f -

    Exit codes:
      0  done
    """
    if sum(map(bool, (user, group, account))) > 1:
        raise click.UsageError("name one of --user, --group and --service-account")
    for namespace in (release_namespace, *filter(None, [plugin_namespace, amd_namespace]), *imports):
        if not is_dns_label(namespace):
            raise click.UsageError(f"{visible(namespace)!r} is not the name of a namespace")
    if account and not is_dns_subdomain(account):
        raise click.UsageError(f"{visible(account)!r} is not the name of a service account")
    if user or group:
        subject = rights.Subject(kind="User" if user else "Group", name=user or group)
    else:
        subject = rights.Subject(kind="ServiceAccount", name=account or rights.NAME, namespace=release_namespace)
    found = rights.objects(
        release_namespace,
        subject,
        plugin=plugin_namespace,
        amd=amd_namespace,
        metrics=metrics,
        values=helm_values,
        imports=imports,
    )
    streams.product("---\n".join(emit.yaml_text(one) for one in found))
    return ExitCode.DONE
