"""`make release`: builds everything that a release of HEAD consists of into dist/, or prints what must be done first.

Sources come from `git archive`: files that are not committed are not in a release. Two builds of a commit with the same tools
have the same checksums. dist/ is replaced in one step, at the end. It does not tag, push or upload anything.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
CHART = "charts/gpushare"
MODULES = ("compiler/gpushare/__init__.py", "node-runtime/gpushare_node/__init__.py")
ARCHITECTURES = ("amd64", "arm64")
FILTERED = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""How our own archives are unpacked: Python 3.11.2, which Debian 12 has, has no filters yet."""
NOTES = "release-notes.md"
PROVENANCE = "provenance.json"
"""The predicate of SLSA's provenance v1, without the artifacts that it is about: which commit was built, and how."""
SUMS = "SHA256SUMS"


def main() -> int:
    """Build the release; return 0, or 1 if something must be done first or a build fails."""
    parser = argparse.ArgumentParser(description="Build a release of HEAD into dist/.")
    parser.add_argument("--without-image", action="store_true", help="leave out the node runtime's image")
    parser.add_argument("--base", metavar="REFERENCE", help="the image's base, as for node-runtime/image/build.py")
    arguments = parser.parse_args()
    with_image = not arguments.without_image
    try:
        version = versions()[MODULES[0]]
        problems = [*refusals(version), *(lacking(arguments.base) if with_image else ())]
        if problems:
            print(*(f"release: {problem}" for problem in problems), sep="\n", file=sys.stderr)
            return 1
        release(version, with_image=with_image, base=arguments.base)
        print(*summary(version, with_image=with_image), sep="\n")
    except subprocess.CalledProcessError as problem:
        print(f"{problem.output or ''}release: {problem}; dist/ is as it was", file=sys.stderr)
        return 1
    return 0


# What must be done first.


def refusals(version: str) -> Iterator[str]:
    """Yield every reason against a release at once, so that one run reports all of them."""
    yield from uncommitted()
    yield from differing(versions())
    yield from unwritten(version)
    yield from tagged_elsewhere(version)
    yield from foreign_files(version)


def uncommitted() -> Iterator[str]:
    """Yield a reason if the working tree differs from HEAD, because a release is of a commit."""
    changes = _git("status", "--porcelain").splitlines()
    if changes:
        yield f"the working tree has changes ({_few([line[3:] for line in changes])}): commit or remove them"


def versions() -> dict[str, str]:
    """Return the version by the place that has it, `make golden`'s output included."""
    found = {place: _match(r'^__version__ = "(.+)"$', (ROOT / place).read_text()) for place in MODULES}
    for chart in (ROOT / CHART, *sorted(ROOT.glob("examples/*/bundle/chart"))):
        place, described = chart.relative_to(ROOT), chart / "Chart.yaml"
        # An example without a Chart.yaml uses the chart's own.
        about = yaml.safe_load(described.read_text()) if described.exists() else {}
        found |= {f"{place}/Chart.yaml {key}": about[key] for key in ("version", "appVersion") if key in about}
        found[f"{place}/values.yaml image.tag"] = yaml.safe_load((chart / "values.yaml").read_text())["image"]["tag"]
    return found


def differing(places: dict[str, str]) -> Iterator[str]:
    """Yield a reason if the places have different versions."""
    different = sorted(set(places.values()))
    if len(different) > 1:
        told = "; ".join(f"{one} in {_few([place for place in places if places[place] == one])}" for one in different)
        yield f"versions differ: {told}: write one version everywhere, then run `make golden`"


def unwritten(version: str) -> Iterator[str]:
    """Yield a reason for each part that the changelog lacks: what is in the release, and its date."""
    section = changelog_section((ROOT / "CHANGELOG.md").read_text(), version)
    if section is None:
        yield f"CHANGELOG.md has no section for {version}: add `## {version} — YYYY-MM-DD` with what has changed"
        return
    title, body = section
    if not re.fullmatch(r" — \d{4}-\d\d-\d\d", title):
        yield f"CHANGELOG.md has `## {version}{title}`: replace it by `## {version} — YYYY-MM-DD`"
    if not body:
        yield f"the section for {version} in CHANGELOG.md is empty: write what has changed"


def changelog_section(changelog: str, version: str) -> tuple[str, str] | None:
    """Return the text after the version in its heading, and the text below it up to the next heading of that level."""
    found = re.search(rf"^## {re.escape(version)}(?![\w.+-])(.*)\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    return (found[1].rstrip(), found[2].strip()) if found else None


def tagged_elsewhere(version: str) -> Iterator[str]:
    """Yield a reason if another commit has the version's tag, because a version is released only once."""
    tagged, head = _tagged(version), _git("rev-parse", "HEAD")
    if tagged not in ("", head):
        yield f"the tag v{version} is at {tagged[:12]}, not at HEAD ({head[:12]}): raise the version, or check out the tag"


def foreign_files(version: str) -> Iterator[str]:
    """Yield a reason if dist/ has files that no release of this version wrote: only its own files may be replaced."""
    sums = DIST / SUMS
    written = {line.split()[1] for line in sums.read_text().splitlines()} | {SUMS} if sums.exists() else set()
    present = {path.name for path in DIST.iterdir()} if DIST.exists() else set()
    others = sorted(present - (written & contents(version, with_image=True)))
    if others:
        yield f"dist/ has files that no release of {version} has written ({_few(others)}): remove dist/"


def lacking(base: str | None) -> Iterator[str]:
    """Yield a reason if something that building the image needs is missing."""
    tools = ("buildah", "mmdebstrap") if base == "debian" else ("buildah",)
    missing = [tool for tool in tools if not shutil.which(tool)] + (["root's rights"] if os.geteuid() else [])
    if missing:
        told = ", ".join(missing)
        yield f"the image cannot be built without {told}: provide what is missing, or run `make release ARGS=--without-image`"


# What a release consists of.


def contents(version: str, *, with_image: bool) -> set[str]:
    """Return the names of all files of a release."""
    packages = {f"gpushare_compiler-{version}{end}" for end in ("-py3-none-any.whl", ".tar.gz")}
    images = {f"gpushare-node-{version}-{one}.{end}" for one in ARCHITECTURES for end in ("oci.tar", "sbom.cdx.json")}
    return packages | {f"gpushare-{version}.tgz", NOTES, PROVENANCE, SUMS} | (images if with_image else set())


def release(version: str, *, with_image: bool, base: str | None) -> None:
    """Build the release outside dist/ and replace dist/ at the end. CalledProcessError if a build fails."""
    os.umask(0o022)  # Wheels contain file modes.
    seconds = int(_git("log", "-1", "--format=%ct"))
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="release-", dir=ROOT / "build") as scratch:
        source, made = Path(scratch, "source"), Path(scratch, "dist")
        made.mkdir()
        export(source)
        build_python(source, made, seconds)
        build_chart(source, made)
        for archive in (*made.glob("*.tar.gz"), *made.glob("*.tgz")):
            repack(archive, seconds)
        if with_image:
            build_image(source, made, version, base)
        section = changelog_section((source / "CHANGELOG.md").read_text(), version)
        assert section is not None
        (made / NOTES).write_text(f"{section[1]}\n")
        (made / PROVENANCE).write_text(provenance(version, base))
        (made / SUMS).write_text(checksums(made))
        assert {path.name for path in made.iterdir()} == contents(version, with_image=with_image)
        if DIST.exists():
            DIST.rename(Path(scratch, "former"))
        made.rename(DIST)


def export(target: Path) -> None:
    """Write the files of HEAD, with modes that do not depend on the user's settings."""
    packed = subprocess.run(["git", "-C", ROOT, "-c", "tar.umask=0022", "archive", "HEAD"], stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(target, **FILTERED)


def build_python(project: Path, made: Path, seconds: int) -> None:
    """Build the sdist, and the wheel with both packages from the sdist, which shows that the sdist is complete."""
    _run("-m", "build", "--outdir", made, project, cwd=made, SOURCE_DATE_EPOCH=str(seconds))


def build_chart(source: Path, made: Path) -> None:
    """Build the chart's package."""
    _run("-m", "tests.support.helm", "package", CHART, "--destination", made, cwd=source)


def build_image(source: Path, made: Path, version: str, base: str | None) -> None:
    """Build the image's OCI archive for each architecture, without dates, like its layers; and its bill of materials."""
    output = source / "build/image"
    _run(
        "node-runtime/image/build.py",
        *(["--base", base] if base else []),
        "--output",
        output,
        cwd=source,
        REVISION=_git("rev-parse", "HEAD"),
    )
    for architecture in ARCHITECTURES:
        built, name = f"gpushare-node-{architecture}", f"gpushare-node-{version}-{architecture}"
        pack(output / built, made / f"{name}.oci.tar", 0)
        shutil.copyfile(output / f"{built}.sbom.cdx.json", made / f"{name}.sbom.cdx.json")


def repack(archive: Path, seconds: int) -> None:
    """Write the archive again without the build time and the builder's name, which Helm and setuptools include."""
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, **FILTERED)
        pack(Path(scratch), archive, seconds)


def pack(folder: Path, archive: Path, seconds: int) -> None:
    """Write the folder as a tar file that depends only on names, content and execution bits. `.tar` is not compressed."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        member.mtime, member.uid, member.gid, member.uname, member.gname = seconds, 0, 0, "", ""
        return member

    with archive.open("wb") as file:
        stream = file if archive.suffix == ".tar" else gzip.GzipFile("", "wb", fileobj=file, mtime=seconds)
        with stream, tarfile.open(fileobj=stream, mode="w") as packed:
            for path in sorted(folder.rglob("*")):
                packed.add(path, path.relative_to(folder), recursive=False, filter=plain)


def provenance(version: str, base: str | None) -> str:
    """Return the text of PROVENANCE. Its builder is this program: who runs it is said by the signature."""
    parameters = {"version": version} | ({"base": base} if base else {})
    document = {
        "buildDefinition": {
            "buildType": "https://gpushare.dev/make-release/v1",
            "externalParameters": parameters,
            "resolvedDependencies": [{"digest": {"gitCommit": _git("rev-parse", "HEAD")}}],
        },
        "runDetails": {"builder": {"id": "https://gpushare.dev/make-release"}},
    }
    return json.dumps(document, indent=2) + "\n"


def checksums(folder: Path) -> str:
    """Return a line for each file, as `sha256sum --check` reads it."""
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir()))


def summary(version: str, *, with_image: bool) -> Iterator[str]:
    """Yield the lines that list dist/, and the commands that publish it."""
    yield f"dist/ has gpushare {version} of {_git('rev-parse', 'HEAD')}:"
    yield from (f"  {path.stat().st_size:>11,}  {path.name}" for path in sorted(DIST.iterdir()))
    if not with_image:
        yield "LEFT OUT: the node runtime's image (--without-image). The chart runs it: build and publish it elsewhere."
    yield "To publish it:"
    if not _tagged(version):
        yield f"  git tag --annotate v{version} --message 'gpushare {version}'"
    yield f"  git push origin v{version}"
    yield "  make upload"
    yield "  make publish REGISTRY=REGISTRY KEY=cosign.key" + ("" if with_image else ", after a release with the image")
    yield f"and attach all files of dist/ to the release v{version}, with the text of dist/{NOTES}."


def _tagged(version: str) -> str:
    """Return the commit that has the version's tag; empty if none has."""
    names = _git("for-each-ref", "--format=%(objectname) %(*objectname)", f"refs/tags/v{version}").split()
    return names[-1] if names else ""  # For an annotated tag, the tag object's name comes before the commit's.


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout.rstrip()


def _run(*arguments: object, cwd: Path, **environment: str) -> None:
    """Run Python in that folder. Its output is shown only if it fails."""
    command = [sys.executable, *map(str, arguments)]
    print(f"release: {' '.join(command)}", flush=True)
    inherited = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "SOURCE_DATE_EPOCH"}}
    subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **environment},
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _match(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, pattern
    return found[1]


def _few(names: Sequence[str]) -> str:
    """Return the first three, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


if __name__ == "__main__":
    sys.exit(main())
