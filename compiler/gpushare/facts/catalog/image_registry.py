"""The node runtime's image: its reference, and how it is built and pushed.

A site's registry replaces the host of a repository here as in the chart's templates.
"""

import re
from collections.abc import Mapping

from gpushare import __version__
from gpushare.intent.types import Platform, RuntimeImage

NODE_IMAGE = "ghcr.io/gpushare/node-runtime"
"""The default repository of the node runtime's image. Nothing is published there: GS725 warns of a bundle that names it."""
_EXAMPLE_HOST = "registry.example.org"
EXAMPLE_IMAGE = f"{_EXAMPLE_HOST}/gpushare/node-runtime"
"""The repository in a starter intent without --image. The host is reserved: no registry has its name (RFC 2606)."""

_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
REPOSITORY = rf"(?=.{{1,150}}\Z)[a-z0-9]+((\.|-+)[a-z0-9]+)*(:[0-9]{{1,5}})?(/{_PART})*\Z"
IMAGE = rf"(?=.{{1,50}}\Z){_PART}\Z"
"""As registries and container runtimes read references (distribution's grammar), and short enough for all of one."""
OWN_IMAGE = rf"(?=.{{1,100}}\Z)([a-z0-9]+((\.|-+)[a-z0-9]+)*(:[0-9]{{1,5}})?/)?{_PART}(/{_PART})*\Z"
"""A repository of an image, where a part behind the host is required: `name:5000` would be a name with a tag."""
TAG = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z"
DIGEST = r"sha256:[0-9a-f]{64}\Z"


def has_host(repository: str) -> bool:
    """Whether the repository names its registry: its first part has a dot or a port, or is `localhost`."""
    host, slash, _ = repository.partition("/")
    return bool(slash) and ("." in host or ":" in host or host == "localhost")


def hostless(repository: str) -> str:
    """Return the repository without its registry's host."""
    return repository.partition("/")[2] if has_host(repository) else repository


def mirrored(repository: str, registry: str | None) -> str:
    """Return the repository under another registry: `nvcr.io/nvidia/x` under `reg.example.org` is `reg.example.org/nvidia/x`.

    A repository without a host gets the registry in front.
    """
    if registry is None:
        return repository
    return f"{registry.rstrip('/')}/{hostless(repository)}"


def node_image(platform: Platform) -> dict[str, str]:
    """Return what decides the node runtime's image, in the chart's fields; `reference` reads them."""
    image = platform.image
    return {
        "registry": platform.registry or "",
        "repository": image.repository or NODE_IMAGE,
        "tag": image.tag or __version__,
        "digest": image.digest or "",
    }


def reference(image: Mapping[str, str]) -> str:
    """Return the reference that the chart makes of its value `image`: a digest takes the place of the tag."""
    repository = mirrored(image["repository"], image.get("registry") or None)
    return f"{repository}@{image['digest']}" if image.get("digest") else f"{repository}:{image['tag']}"


def parsed(text: str) -> RuntimeImage | None:
    """Return the image of REPOSITORY, REPOSITORY:TAG or REPOSITORY@DIGEST; None if the text is none of them."""
    repository, at, digest = text.partition("@")
    path, slash, last = repository.rpartition("/")
    name, colon, tag = last.partition(":")
    repository = f"{path}{slash}{name}"
    given = [(repository, OWN_IMAGE)] + ([(digest, DIGEST)] if at else []) + ([(tag, TAG)] if colon else [])
    if (at and colon) or not all(re.match(form, part) for part, form in given):
        return None
    return RuntimeImage(repository=repository, tag=tag or None, digest=digest or None)


def is_unpublished(platform: Platform) -> bool:
    """Return whether nodes would pull the default repository, where nothing is published."""
    return platform.registry is None and platform.image.repository in (None, NODE_IMAGE)


def is_example(platform: Platform) -> bool:
    """Return whether nodes would pull from the registry that stands for a site's own."""
    return reference(node_image(platform)).startswith(f"{_EXAMPLE_HOST}/")


def build_commands(platform: Platform) -> tuple[str, str]:
    """Return two commands, each of which builds the image in a clone of gpushare's repository and pushes it: any one will do.

    Where no published image is named, they push to EXAMPLE_IMAGE. An image is pushed by tag, also one that is pulled by digest.
    """
    image = node_image(platform)
    repository = EXAMPLE_IMAGE if is_unpublished(platform) else image["repository"]
    target = reference(image | {"repository": repository, "digest": ""})
    build = f"--platform linux/amd64 -t {target}"
    return (
        f"docker buildx build --push {build} node-runtime",
        f"podman build {build} node-runtime && podman push {target}",
    )


def example_image(registry: str | None) -> str:
    """Return the image of the README's pods: any image with a C library works, because the runtime adds nvidia-smi."""
    return mirrored("docker.io/library/ubuntu", registry) + ":24.04"
