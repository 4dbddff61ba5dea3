"""The image itself: what is in it, what is not, and that it is the same whoever builds it."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpushare_node import __version__
from tests.e2e.image.building import ARCHITECTURES, OWN, Built, build, built, copy_sources
from tests.support.fake_api.server import ApiServer
from tests.support.paths import ROOT

ALL = pytest.mark.parametrize("architecture", ARCHITECTURES)
MAX_COMPRESSED_BYTES = 60_000_000
ELF_MACHINES = {"amd64": 62, "arm64": 183}


def test_two_builds_have_one_digest_whatever_the_clone_s_umask_and_leftovers(tmp_path: Path) -> None:
    source = copy_sources(tmp_path / "source")
    left = source / "gpushare_node/before/__pycache__"
    left.mkdir(parents=True)
    (left / "gone.cpython-311.pyc").touch()
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode & 0o700)
    again = Built(folder=build(source, tmp_path / "again", OWN), architecture=OWN)
    assert again.digest == built().digest


@ALL
def test_compressed_image_size_is_limited(architecture: str) -> None:
    assert built(architecture).size_bytes <= MAX_COMPRESSED_BYTES


@ALL
def test_image_config_and_labels_are_set(architecture: str) -> None:
    config = built(architecture).config
    labels = config["config"]["Labels"]
    assert config["architecture"] == architecture
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/gpushare-node"]
    assert labels["org.opencontainers.image.title"] == "gpushare-node"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.revision"] == "test"


@ALL
def test_image_has_no_shell_or_installer(architecture: str) -> None:
    programs = {
        Path(name).name
        for name, member in built(architecture).files().items()
        if Path(name).parent.name in ("bin", "sbin") and not member.isdir()
    }
    assert programs == {"python3", "python3.11", "gpushare-node"}
    assert not [name for name in built(architecture).files() if Path(name).name in ("pip", "setuptools", "ensurepip")]


@ALL
def test_image_has_the_time_zones(architecture: str) -> None:
    names = {name.removeprefix("./") for name in built(architecture).files()}
    assert {f"usr/share/zoneinfo/{zone}" for zone in ("Europe/Zurich", "America/New_York", "UTC")} <= names


@ALL
def test_image_has_no_setuid_files_or_dates(architecture: str) -> None:
    members = built(architecture).files().values()
    assert not [member.name for member in members if member.mode & 0o6000]
    assert {member.mtime for member in members} == {0}
    writable = {member.name.strip("./") for member in members if member.mode & 0o002 and not member.issym()}
    assert writable <= {"tmp", "var/tmp"}


@ALL
def test_every_binary_is_of_the_image_s_architecture(architecture: str, tmp_path: Path) -> None:
    root = built(architecture).unpack(tmp_path)
    heads = [path.read_bytes()[:20] for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    machines = [int.from_bytes(head[18:20], "little") for head in heads if head.startswith(b"\x7fELF")]
    assert len(machines) > 50
    assert set(machines) == {ELF_MACHINES[architecture]}


@ALL
def test_sbom_lists_every_package_in_the_image(architecture: str) -> None:
    image = built(architecture)
    bill = image.bill()
    named = {component["purl"].partition("?")[0] for component in bill["components"]}
    folders = [Path(name).name for name in image.files() if name.startswith("opt/gpushare/") and name.endswith(".dist-info")]
    described = [Path(name).name for name in image.files() if "/dpkg/status.d/" in name]
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert len(folders) >= 18
    for folder in folders:
        name, _, version = folder.removesuffix(".dist-info").rpartition("-")
        assert f"pkg:pypi/{name.replace('_', '-').lower()}@{version}" in named
    assert {component["name"] for component in bill["components"] if component["purl"].startswith("pkg:deb/")} == set(described)
    assert {"libc6", "libssl3", "python3.11-minimal"} <= set(described)


def test_sbom_in_the_image_equals_the_one_beside_it(tmp_path: Path) -> None:
    image = built()
    inside = image.unpack(tmp_path) / "opt/gpushare/sbom.cdx.json"
    assert inside.read_bytes() == (image.folder / f"gpushare-node-{OWN}.sbom.cdx.json").read_bytes()


def test_every_runtime_module_imports_in_the_stripped_image(tmp_path: Path) -> None:
    root = built().unpack(tmp_path)
    modules = [
        ".".join(path.relative_to(root / "opt/gpushare").with_suffix("").parts).removesuffix(".__init__")
        for path in (root / "opt/gpushare/gpushare_node").rglob("*.py")
        if path.stem != "__main__"
    ]
    program = f"import sys; sys.path.insert(0, '/opt/gpushare')\nfor name in {sorted(modules)}: __import__(name)"
    subprocess.run(["chroot", root, "/usr/bin/python3", "-ISB", "-c", program], check=True)


def test_kubeconfig_is_read_in_the_stripped_image(tmp_path: Path) -> None:
    root = built().unpack(tmp_path)
    ApiServer(token="secret").kubeconfig(root / "config")
    program = "\n".join(
        (
            "import sys; sys.path.insert(0, '/opt/gpushare')",
            "from gpushare_node.adapters.kube.connection import find_endpoint",
            "address = find_endpoint({'KUBECONFIG': '/config'})",
            "assert address.headers() == {'authorization': 'Bearer secret'}, address.headers()",
            "assert address.open_pool()",
        )
    )
    subprocess.run(["chroot", root, "/usr/bin/python3", "-ISB", "-c", program], check=True)


def test_pinned_requirements_match_the_runtimes_dependencies() -> None:
    pinned = (ROOT / "node-runtime/image/requirements.txt").read_text()
    for name in ("kubernetes==", "nvidia-ml-py==", "pyyaml=="):
        assert name in pinned


def test_the_build_explains_bases_that_do_not_fit_together(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/python3.2").mkdir(parents=True)
    command: list[str | Path] = [sys.executable, ROOT / "node-runtime/image/install.py", tmp_path, tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"TARGETARCH": OWN})
    assert done.returncode == 1
    assert "take bases of one Python version" in done.stderr
