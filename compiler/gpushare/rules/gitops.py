"""Rules on `gitops`: what Argo CD (GS730 to GS734) and Flux (GS735 to GS739) would refuse, or could not find or read.

`renamed` (GS795) is no rule: it compares the intent with the bundle that is there.
"""

import re
from collections.abc import Iterator, Mapping

from gpushare.core.diagnostics import Finding, Severity
from gpushare.core.units import is_dns_subdomain, parse_duration
from gpushare.core.wording import join_words, shorten
from gpushare.facts.catalog import upstream
from gpushare.intent import gitops
from gpushare.intent.gitops import PLAIN, REVISION, TOOLS
from gpushare.intent.types import Intent
from gpushare.reading import source
from gpushare.rules.rule import Problem, RuleContext, rule

_OF_ARGO_CD = rf"(https?|ssh|git|file)://{PLAIN}\Z"
_SCP = rf"[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:{PLAIN}\Z"
"""git@host:path, which Git and Argo CD read as ssh."""
_SERVER = r"https?://[^\s$\\@]+\Z"

_OF_FLUX = rf"(https?|ssh)://{PLAIN}\Z"
_MIN_INTERVAL = 10
"""Seconds. Flux looks up the whole repository each time."""
_MAX_LABEL_LENGTH = 63
"""Flux and Helm write the names of Flux's objects into labels."""


def _settings(context: RuleContext, tool: str) -> Mapping[str, str]:
    """Return what the intent has for the tool, without defaults; empty if it has nothing."""
    found: Mapping[str, str] = context.intent.gitops.get(tool, {})
    return found


def _wrong(tool: str, field: str, message: str, hint: str) -> Problem:
    return Problem(message=message, hints=(hint,), path=("spec", "gitops", tool, field))


def _secret(context: RuleContext, tool: str, hint: str) -> Iterator[Problem]:
    """Yield that the address has credentials in it, which would be committed. The message does not repeat them."""
    field = TOOLS[tool].repository
    if gitops.has_credentials(_settings(context, tool).get(field, "")):
        message = "the address of the repository has credentials in it, which would be in every commit of the bundle"
        yield _wrong(tool, field, message, f"remove what is before the @, and {hint}")


def _folder(context: RuleContext, tool: str) -> Iterator[Problem]:
    """Yield that the path is not inside the repository."""
    path = _settings(context, tool).get("path")
    if path is not None and not gitops.is_folder(path):
        hint = "write the bundle's folder, from the repository's root, such as clusters/physics-batch/bundle"
        yield _wrong(tool, "path", f"invalid folder {path!r}", hint)


@rule("GS730")
def check_address_of_argo_cd(context: RuleContext) -> Iterator[Problem]:
    """An address that is not one of a Git repository."""
    address = _settings(context, "argocd").get("repoURL")
    # GS731 does not repeat credentials.
    if address is None or re.match(_OF_ARGO_CD, address) or re.match(_SCP, address) or gitops.has_credentials(address):
        return
    hint = "write it as Argo CD knows it, such as https://git.example.org/gpu.git or git@git.example.org:gpu.git"
    yield _wrong("argocd", "repoURL", f"invalid address {address!r} of a Git repository", hint)


@rule("GS731")
def check_secret_of_argo_cd(context: RuleContext) -> Iterator[Problem]:
    """Credentials in an address for Argo CD."""
    return _secret(context, "argocd", "give Argo CD the credentials in a Secret of type repository")


@rule("GS732")
def check_path_of_argo_cd(context: RuleContext) -> Iterator[Problem]:
    """A path for Argo CD that is not inside the repository."""
    return _folder(context, "argocd")


@rule("GS733")
def check_names_of_argo_cd(context: RuleContext) -> Iterator[Problem]:
    """A project, revision or server in a form that Argo CD refuses."""
    settings = _settings(context, "argocd")
    checked = (
        ("project", is_dns_subdomain, "not the name of an AppProject", "write lower-case letters, digits and -"),
        ("targetRevision", re.compile(REVISION).match, "not a branch, tag or commit", "write a branch, such as main"),
        ("server", re.compile(_SERVER).match, "not the address of an API server", "write the SERVER of `argocd cluster list`"),
    )
    for field, is_right, what, hint in checked:
        if field in settings and not is_right(settings[field]):
            yield _wrong("argocd", field, f"{settings[field]!r} is {what}", hint)


@rule("GS734", Severity.WARNING)
def check_one_tool(context: RuleContext) -> Iterator[Problem]:
    """Two tools for one bundle."""
    titles = [tool.title for key, tool in TOOLS.items() if key in context.intent.gitops]
    if len(titles) > 1:
        yield Problem(
            message=f"{join_words(titles)} would each install this bundle, and overwrite each other's objects",
            hints=("keep the one that the cluster has, and remove the other",),
            path=("spec", "gitops"),
        )


@rule("GS735")
def check_address_of_flux(context: RuleContext) -> Iterator[Problem]:
    """An address that Flux does not read as one of a Git repository."""
    address = _settings(context, "flux").get("url")
    if address is None or re.match(_OF_FLUX, address) or gitops.has_credentials(address):
        return
    hint = "write it with https:// or ssh://, such as ssh://git@git.example.org/gpu.git"
    if address.startswith("oci://"):
        hint = "Flux installs a chart that is a folder from a Git repository only: write the address of one"
    yield _wrong("flux", "url", f"invalid address {address!r} of a Git repository for Flux", hint)


@rule("GS736")
def check_secret_of_flux(context: RuleContext) -> Iterator[Problem]:
    """Credentials in an address for Flux."""
    return _secret(context, "flux", "write the name of a Secret with them into gitops.flux.secret")


@rule("GS737")
def check_path_of_flux(context: RuleContext) -> Iterator[Problem]:
    """A path for Flux that is not inside the repository."""
    return _folder(context, "flux")


@rule("GS738")
def check_fields_of_flux(context: RuleContext) -> Iterator[Problem]:
    """A branch, a Secret or an interval in a form that Flux refuses, or an address of ssh without its Secret."""
    settings = _settings(context, "flux")
    found = []
    if "branch" in settings and not re.match(REVISION, settings["branch"]):
        found.append(("branch", f"invalid branch {settings['branch']!r}", "write a branch, such as main"))
    if "secret" in settings and not is_dns_subdomain(settings["secret"]):
        found.append(("secret", f"invalid Secret name {settings['secret']!r}", "write lower-case letters, digits and -"))
    if "secret" not in settings and settings.get("url", "").startswith("ssh://"):
        hint = "write secret: and the name of a Secret with the keys identity and known_hosts"
        found.append(("url", "Flux has no key for a repository by ssh without a Secret", hint))
    if "interval" in settings and (parse_duration(settings["interval"]) or 0) < _MIN_INTERVAL:
        message = f"an interval of {settings['interval']} makes Flux fetch the repository continuously"
        found.append(("interval", message, f"write {_MIN_INTERVAL}s or more, such as 10m"))
    return (_wrong("flux", *one) for one in found)


@rule("GS739")
def check_name_of_flux(context: RuleContext) -> Iterator[Problem]:
    """A cluster's name of which Flux cannot make a label."""
    intent = context.intent
    if not _settings(context, "flux"):
        return
    named, name = _settings(context, "flux").get("name", ""), gitops.object_name(intent, "flux")
    parts = ["gpushare"]
    if gitops.installs_upstream(intent):
        parts.append(upstream.chart(intent.platform.stack.value).name)
    if intent.installs_dra_driver:
        parts.append(upstream.chart(upstream.DRA).name)
    too_long = max(len(f"{name}-{part}") for part in parts) - _MAX_LABEL_LENGTH
    if too_long > 0:
        given = named or intent.name
        yield Problem(
            message=f"the name is too long for Flux, which writes it into labels with the names of the charts: {given!r}",
            hints=(f"write a name of at most {len(given) - too_long} characters",),
            path=("spec", "gitops", "flux", "name") if named else ("metadata", "name"),
        )


def renamed(intent: Intent, roots: Mapping[str, bytes]) -> Iterator[Finding]:
    """Yield an error (GS795) for a tool whose objects get other names, unless the intent states their name.

    `roots` are the files with the tools' roots that the former bundle has. Both tools delete an object that leaves the
    repository together with what it installed; objects of the former names do leave it.
    """
    for key, tool in TOOLS.items():
        if "name" in intent.gitops.get(key, {"name": ""}):
            continue
        before, after = _name(roots.get(tool.root, b"")), gitops.object_name(intent, key)
        if before and before != after:
            field = f"gitops.{key}.name"
            rename = f"to rename them, first {tool.detach}; then write {field}: {after}, compile, and apply "
            rename += join_words(tool.named)
            yield Finding(
                code="GS795",
                message=f"the names of the {tool.objects} change from {shorten(before)} to {after}: {tool.title} deletes "
                "the former ones and releases every node, and running pods lose their GPUs",
                hints=(f"to keep them, write {field}: {shorten(before)}", rename),
                path=("metadata", "name"),
            )


def _name(root: bytes) -> str:
    """Return the name of an object; empty if the text has none, such as one with a merge conflict."""
    document = source.read(root, "").data if root else None
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
