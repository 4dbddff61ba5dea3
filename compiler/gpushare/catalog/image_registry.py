"""The node runtime's image, and how a site's registry replaces the host of a repository. The chart's templates do the same."""

from collections.abc import Mapping

from gpushare import __version__
from gpushare.intent.types import Platform

NODE_IMAGE = "ghcr.io/gpushare/node-runtime"
"""The default repository of the node runtime's image. Nothing is published there: GS725 warns of a bundle that names it."""


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


def example_image(registry: str | None) -> str:
    """Return the image of the README's pods: any image with a C library works, because the runtime adds nvidia-smi."""
    return mirrored("docker.io/library/ubuntu", registry) + ":24.04"
