"""How a site's registry replaces the host of a repository. The chart's template does the same for our own image."""


def mirrored(repository: str, registry: str | None) -> str:
    """Return the repository under another registry: `nvcr.io/nvidia/x` under `reg.example.org` is `reg.example.org/nvidia/x`.

    A first part is a host if it has a dot or a port or is `localhost`; a repository without one gets the registry in front.
    """
    if registry is None:
        return repository
    host, slash, rest = repository.partition("/")
    is_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
    return f"{registry.rstrip('/')}/{rest if is_host else repository}"


def example_image(registry: str | None) -> str:
    """Return the image of the README's pods: any image with a C library works, because the runtime adds nvidia-smi."""
    return mirrored("docker.io/library/ubuntu", registry) + ":24.04"
