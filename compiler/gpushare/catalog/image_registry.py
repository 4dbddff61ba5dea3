"""How the host of a repository is replaced by a site's registry. The chart's template does the same to our own image."""


def mirrored(repository: str, registry: str | None) -> str:
    """The repository under another registry: `nvcr.io/nvidia/x` under `reg.example.org` is `reg.example.org/nvidia/x`.

    A first part is a host if it has a dot or a port or is `localhost`; a repository without one gets the registry in front.
    """
    if registry is None:
        return repository
    host, slash, rest = repository.partition("/")
    is_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
    return f"{registry.rstrip('/')}/{rest if is_host else repository}"


def example_image(registry: str | None) -> str:
    """The image of the README's pods: anything with a C library will do, the runtime adds nvidia-smi."""
    return mirrored("docker.io/library/ubuntu", registry) + ":24.04"
