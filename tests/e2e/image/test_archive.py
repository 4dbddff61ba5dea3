"""The archive of the image that a release has."""

import json
import subprocess
from pathlib import Path

from tests.e2e.image.building import built
from tests.packaging.test_release import RELEASE


def test_the_archive_of_the_image_is_the_image(tmp_path: Path) -> None:
    RELEASE.pack(built().layout, tmp_path / "image.oci.tar", 0)
    command = ["skopeo", "inspect", f"oci-archive:{tmp_path / 'image.oci.tar'}"]
    assert json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["Digest"] == built().digest
