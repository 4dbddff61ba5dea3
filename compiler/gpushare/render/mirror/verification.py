"""Which images a registry lacks, by what skopeo or crane says; logins, certificates and proxies are the program's own."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from gpushare.core.diagnostics import HintedError

SECONDS = 60.0
"""How long one question may take."""
AT_ONCE = 8
"""Most questions at a time."""

_MISSING = re.compile(r"(?i)manifest.unknown|name.unknown|(?:artifact|repository) \S+ not found|status.?code:? 404")
"""What the last line says if the registry has no such image: the OCI specification's codes, Harbor's words, or the status."""


class VerificationError(HintedError):
    """Nothing says whether an image is there."""


def missing(references: Sequence[str], *, plain_http: bool) -> tuple[str, ...]:
    """Return the references that their registries lack, in the given order. Raises VerificationError.

    `plain_http`: without TLS, or with a certificate that is not trusted.
    """
    program = next(filter(shutil.which, ("skopeo", "crane")), None)
    if program is None:
        raise VerificationError("--verify runs skopeo or crane, and neither is on PATH", "install one of them")

    def is_missing(reference: str) -> bool:
        return _is_missing(program, reference, plain_http=plain_http)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        lacking = list(threads.map(is_missing, references))
    return tuple(reference for reference, is_lacking in zip(references, lacking, strict=True) if is_lacking)


def _is_missing(program: str, reference: str, *, plain_http: bool) -> bool:
    if program == "skopeo":
        command = ["skopeo", "inspect", "--raw", *(["--tls-verify=false"] if plain_http else []), f"docker://{reference}"]
    else:
        command = ["crane", "digest", *(["--insecure"] if plain_http else []), "--", reference]
    nowhere = subprocess.DEVNULL
    try:
        with tempfile.TemporaryFile() as errors:  # a pipe would be waited for as long as a credential helper has it
            code = subprocess.call(command, stdin=nowhere, stdout=nowhere, stderr=errors, timeout=SECONDS)  # noqa: S603 - of PATH
            errors.seek(0)
            stderr = errors.read().decode(errors="replace").strip()
    except subprocess.TimeoutExpired as problem:
        message = f"{program} did not say within {SECONDS:.0f} s whether {reference} is there"
        raise VerificationError(message, "check the name, the port, and HTTPS_PROXY") from problem
    except OSError as problem:
        raise VerificationError(f"{program} cannot be run: {problem.strerror}", "reinstall it") from problem
    if code == 0:
        return False
    reason = (stderr or f"exit status {code}").splitlines()[-1]
    if _MISSING.search(reason):
        return True
    hint = f"logins and certificates are those of {program}; --plain-http asks a registry without TLS"
    raise VerificationError(f"{program} does not say whether {reference} is there: {reason}", hint)
