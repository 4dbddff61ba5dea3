"""Builds an image base from Debian's packages if no registry can be reached: `base.py ARCHITECTURE OUT.tar [PACKAGE…]`.

mmdebstrap downloads and unpacks; nothing is configured and nothing runs, so any architecture can be built on any machine, and
the base has no shell. This file is also mmdebstrap's hook, which receives the root folder: it writes each package's description
where Google's distroless images have it, `/var/lib/dpkg/status.d`, and deletes what no program in a container reads. Two runs
over one state of the archive give the same bytes; `MIRROR` (a snapshot.debian.org address) pins a state permanently.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SUITE = "bookworm"
RUNTIME = ("python3-minimal", "libpython3-stdlib", "ca-certificates", "tzdata")
BUILD = ("python3-pip",)
"""What the build stage needs in addition to RUNTIME."""

# Copyright notices stay: the licences require them.
_UNREAD = (
    "bin/tar",
    "sbin",
    "usr/sbin",
    "usr/bin/c_rehash",
    "usr/bin/debconf*",
    "usr/bin/dpkg*",
    "usr/bin/openssl",
    "usr/bin/py3*",
    "usr/bin/update-alternatives",
    "usr/lib/dpkg",
    "usr/lib/mime",
    "usr/lib/python3.*/idlelib",
    "usr/lib/python3.*/lib2to3/tests",
    "usr/lib/python3.*/pydoc_data",
    "usr/share/bash-completion",
    "usr/share/binfmts",
    "usr/share/bug",
    "usr/share/debconf",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl5",
    "usr/share/pixmaps",
    "usr/share/polkit-1",
    "var/log/*",
)


def bootstrap(architecture: str, target: Path, packages: tuple[str, ...] = ()) -> None:
    """Write the base's tar archive. Needs mmdebstrap and root; CalledProcessError if Debian cannot be reached."""
    command = [
        "mmdebstrap",
        "--quiet",
        "--variant=extract",
        "--skip=output/dev",
        f"--architectures={architecture}",
        f"--include={','.join((*RUNTIME, *packages))}",
        f'--extract-hook={shlex.join([sys.executable, str(Path(__file__).resolve()), "--hook"])} "$1"',
        SUITE,
        str(target),
    ]
    mirror = os.environ.get("MIRROR")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", "0")}
    subprocess.run([*command, *([mirror] if mirror else [])], check=True, env=environment, stdout=sys.stderr)


def finish(root: Path) -> None:
    """Clean up the root folder: mmdebstrap's hook between unpacking and packing."""
    descriptions = root / "var/lib/dpkg/status.d"
    descriptions.mkdir(parents=True)
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        fields = subprocess.run(["dpkg-deb", "--field", package], capture_output=True, text=True, check=True).stdout
        (descriptions / package.name.partition("_")[0]).write_text(fields)
    for pattern in _UNREAD:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in root.glob("usr/share/doc/*/*"):
        if path.name != "copyright":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    _trust(root)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n")
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")


def _trust(root: Path) -> None:
    """Write the bundle that update-ca-certificates would write."""
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    found = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle.write_text("".join(path.read_text() for path in found))


if __name__ == "__main__":
    if sys.argv[1] == "--hook":
        finish(Path(sys.argv[2]))
    else:
        bootstrap(sys.argv[1], Path(sys.argv[2]), tuple(sys.argv[3:]))
