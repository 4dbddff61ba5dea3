"""Rules on `gitops.argocd` (GS730 to GS734): what Argo CD would refuse, or could not find."""

import re
from collections.abc import Iterator, Mapping

from gpushare.core.diagnostics import Finding, Path, Severity
from gpushare.core.units import is_dns_subdomain
from gpushare.core.wording import join_words
from gpushare.intent.gitops import PLAIN, REVISION, TOOLS, has_credentials, is_folder
from gpushare.rules.rule import RuleContext, rule

HERE: Path = ("spec", "gitops", "argocd")

_URL = rf"(https?|ssh|git|file)://{PLAIN}\Z"
_SCP = rf"[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:{PLAIN}\Z"
"""git@host:path, which Git and Argo CD read as ssh."""
_SERVER = r"https?://[^\s$\\@]+\Z"


def _settings(context: RuleContext) -> Mapping[str, str]:
    """Return what the intent has; empty if it has nothing for Argo CD."""
    found: Mapping[str, str] = context.intent.gitops.get("argocd", {})
    return found


@rule("GS730")
def check_address(context: RuleContext) -> Iterator[Finding]:
    """An address that is not one of a Git repository."""
    address = _settings(context).get("repoURL")
    # GS731 does not repeat credentials.
    if address is None or re.match(_URL, address) or re.match(_SCP, address) or has_credentials(address):
        return
    yield Finding(
        code="GS730",
        message=f"invalid address {address!r} of a Git repository",
        hints=("write it as Argo CD knows it, such as https://git.example.org/gpu.git or git@git.example.org:gpu.git",),
        path=(*HERE, "repoURL"),
    )


@rule("GS731")
def check_secret(context: RuleContext) -> Iterator[Finding]:
    """Credentials in an address, which would be committed. The message does not repeat them."""
    address = _settings(context).get("repoURL", "")
    if has_credentials(address):
        yield Finding(
            code="GS731",
            message="the address of the repository has credentials in it, which would be in every commit of the bundle",
            hints=("remove what is before the @, and give Argo CD the credentials in a Secret of type repository",),
            path=(*HERE, "repoURL"),
        )


@rule("GS732")
def check_path(context: RuleContext) -> Iterator[Finding]:
    """A path that is not inside the repository."""
    path = _settings(context).get("path")
    if path is not None and not is_folder(path):
        yield Finding(
            code="GS732",
            message=f"invalid folder {path!r}",
            hints=("write the bundle's folder, from the repository's root, such as clusters/physics-batch/bundle",),
            path=(*HERE, "path"),
        )


@rule("GS733")
def check_names(context: RuleContext) -> Iterator[Finding]:
    """A project, revision or server in a form that Argo CD refuses."""
    settings = _settings(context)
    checked = (
        ("project", is_dns_subdomain, "not the name of an AppProject", "write lower-case letters, digits and -"),
        ("targetRevision", re.compile(REVISION).match, "not a branch, tag or commit", "write a branch, such as main"),
        ("server", re.compile(_SERVER).match, "not the address of an API server", "write the SERVER of `argocd cluster list`"),
    )
    for field, is_right, what, hint in checked:
        if field in settings and not is_right(settings[field]):
            yield Finding(code="GS733", message=f"{settings[field]!r} is {what}", hints=(hint,), path=(*HERE, field))


@rule("GS734")
def check_one_tool(context: RuleContext) -> Iterator[Finding]:
    """Two tools for one bundle."""
    titles = [tool.title for key, tool in TOOLS.items() if key in context.intent.gitops]
    if len(titles) > 1:
        yield Finding(
            code="GS734",
            severity=Severity.WARNING,
            message=f"{join_words(titles)} would each install this bundle, and overwrite each other's objects",
            hints=("keep the one that the cluster has, and remove the other",),
            path=("spec", "gitops"),
        )
