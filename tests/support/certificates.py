"""Certificates of 127.0.0.1 that no authority has signed."""

import subprocess
from pathlib import Path

_REQUEST = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    " -addext subjectAltName=IP:127.0.0.1"
)


def certify(certificate: Path) -> tuple[Path, Path]:
    """Make a certificate and, beside it, its key; return both."""
    key = certificate.with_suffix(".key")
    subprocess.run([*_REQUEST.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key
