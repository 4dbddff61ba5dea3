"""Rules on `gitops.flux` (GS735 to GS739): what Flux would refuse, or could not read."""

import re
from collections.abc import Iterator, Mapping

from gpushare.core.diagnostics import Finding, Path
from gpushare.core.units import is_dns_subdomain, parse_duration
from gpushare.facts.catalog import upstream
from gpushare.intent import gitops
from gpushare.rules.rule import RuleContext, rule

HERE: Path = ("spec", "gitops", "flux")

_URL = rf"(https?|ssh)://{gitops.PLAIN}\Z"
_MIN_INTERVAL = 10
"""Seconds. Flux looks up the whole repository each time."""
_MAX_LABEL_LENGTH = 63
"""Flux and Helm write the names of Flux's objects into labels."""


def _settings(context: RuleContext) -> Mapping[str, str]:
    """Return what the intent has; empty if it has nothing for Flux."""
    found: Mapping[str, str] = context.intent.gitops.get("flux", {})
    return found


@rule("GS735")
def check_address(context: RuleContext) -> Iterator[Finding]:
    """An address that Flux does not read as one of a Git repository."""
    address = _settings(context).get("url")
    if address is None or re.match(_URL, address) or gitops.has_credentials(address):
        return
    hint = "write it with https:// or ssh://, such as ssh://git@git.example.org/gpu.git"
    if address.startswith("oci://"):
        hint = "Flux installs a chart that is a folder from a Git repository only: write the address of one"
    yield Finding(
        code="GS735",
        message=f"invalid address {address!r} of a Git repository for Flux",
        hints=(hint,),
        path=(*HERE, "url"),
    )


@rule("GS736")
def check_secret(context: RuleContext) -> Iterator[Finding]:
    """Credentials in an address, which would be committed. The message does not repeat them."""
    if gitops.has_credentials(_settings(context).get("url", "")):
        yield Finding(
            code="GS736",
            message="the address of the repository has credentials in it, which would be in every commit of the bundle",
            hints=("remove what is before the @, and write the name of a Secret with them into gitops.flux.secret",),
            path=(*HERE, "url"),
        )


@rule("GS737")
def check_path(context: RuleContext) -> Iterator[Finding]:
    """A path that is not inside the repository."""
    path = _settings(context).get("path")
    if path is not None and not gitops.is_folder(path):
        yield Finding(
            code="GS737",
            message=f"invalid folder {path!r}",
            hints=("write the bundle's folder, from the repository's root, such as clusters/physics-batch/bundle",),
            path=(*HERE, "path"),
        )


@rule("GS738")
def check_fields(context: RuleContext) -> Iterator[Finding]:
    """A branch, a Secret or an interval in a form that Flux refuses, or an address of ssh without its Secret."""
    settings = _settings(context)
    if "branch" in settings and not re.match(gitops.REVISION, settings["branch"]):
        yield _field("branch", f"invalid branch {settings['branch']!r}", "write a branch, such as main")
    if "secret" in settings and not is_dns_subdomain(settings["secret"]):
        yield _field("secret", f"invalid Secret name {settings['secret']!r}", "write lower-case letters, digits and -")
    if "secret" not in settings and settings.get("url", "").startswith("ssh://"):
        hint = "write secret: and the name of a Secret with the keys identity and known_hosts"
        yield _field("url", "Flux has no key for a repository by ssh without a Secret", hint)
    if "interval" in settings and (parse_duration(settings["interval"]) or 0) < _MIN_INTERVAL:
        message = f"an interval of {settings['interval']} makes Flux fetch the repository continuously"
        yield _field("interval", message, f"write {_MIN_INTERVAL}s or more, such as 10m")


def _field(field: str, message: str, hint: str) -> Finding:
    return Finding(code="GS738", message=message, hints=(hint,), path=(*HERE, field))


@rule("GS739")
def check_name(context: RuleContext) -> Iterator[Finding]:
    """A cluster's name of which Flux cannot make a label."""
    intent = context.intent
    if not _settings(context):
        return
    named, name = _settings(context).get("name", ""), gitops.object_name(intent, "flux")
    parts = ["gpushare"]
    if gitops.installs_upstream(intent):
        parts.append(upstream.chart(intent.platform.stack.value).name)
    if intent.installs_dra_driver:
        parts.append(upstream.chart(upstream.DRA).name)
    too_long = max(len(f"{name}-{part}") for part in parts) - _MAX_LABEL_LENGTH
    if too_long > 0:
        given = named or intent.name
        yield Finding(
            code="GS739",
            message=f"the name is too long for Flux, which writes it into labels with the names of the charts: {given!r}",
            hints=(f"write a name of at most {len(given) - too_long} characters",),
            path=(*HERE, "name") if named else ("metadata", "name"),
        )
