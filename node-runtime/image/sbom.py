"""The image's bill of materials: CycloneDX 1.6, from the files in the image. The same image gives the same bytes.

Debian's packages are read from the base's list (`/var/lib/dpkg/status`, or distroless's `status.d`), Python's from
their METADATA. It has no serial number and no date: both would differ from build to build.
"""

import re
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

NAME = "sbom.cdx.json"


def describe(runtime: Path, packages: Path, architecture: str) -> dict[str, Any]:
    """Return the document. `packages` is the folder that is added to the base."""
    components = [*_debian(runtime), *_python(packages)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**_own(packages), "properties": [{"name": "architecture", "value": architecture}]}},
        "components": sorted(components, key=lambda one: one["bom-ref"]),
    }


def _own(packages: Path) -> dict[str, Any]:
    found = re.search(r'__version__ = "(.+)"', (packages / "gpushare_node/__init__.py").read_text())
    assert found is not None
    return {
        "type": "container",
        "bom-ref": "gpushare-node",
        "name": "gpushare-node",
        "version": found[1],
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }


def _debian(runtime: Path) -> Iterator[dict[str, Any]]:
    folder = runtime / "var/lib/dpkg"
    files = [path for path in [folder / "status", *folder.glob("status.d/*")] if path.is_file() and path.suffix != ".md5sums"]
    for path in files:
        for paragraph in path.read_text(errors="replace").split("\n\n"):
            fields = HeaderParser().parsestr(paragraph.strip())
            if "Package" in fields:
                yield _debian_package(fields["Package"], fields["Version"], fields["Architecture"])


def _debian_package(name: str, version: str, architecture: str) -> dict[str, Any]:
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={architecture}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _python(packages: Path) -> Iterator[dict[str, Any]]:
    for path in packages.glob("*.dist-info/METADATA"):
        fields = HeaderParser().parsestr(path.read_text())
        name = re.sub(r"[-_.]+", "-", fields["Name"]).lower()
        purl = f"pkg:pypi/{name}@{fields['Version']}"
        found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": fields["Version"], "purl": purl}
        expression, text = fields["License-Expression"], fields["License"]
        if expression:
            found["licenses"] = [{"expression": expression}]
        elif text and "\n" not in text:
            found["licenses"] = [{"license": {"name": text}}]
        yield found
