"""The two names of a profile, of which one is in the label that the device plugin follows. Pure.

Only a changed value of its label makes the device plugin enumerate again, so every profile has two names of the same content,
`-a` and `-b`. A name identifies the devices that it was published for; if the devices change, the other name is published.
"""

from gpushare_node.adapters.host.state_dir import Published


def publish(last: Published | None, label: str, profile: str, devices: frozenset[str]) -> Published:
    """Return what to publish for these devices. `label` is the node's current one, "" without one.

    Without a `profile` the plugin follows no label, and nothing has a name.

    If nothing is remembered, the label counts: if the plugin has enumerated other devices, that shows, and `flip` follows.
    """
    if not profile:
        return Published(key="", devices=devices)
    if last is None or last.key[:-2] != profile:
        key = label if label in (f"{profile}-a", f"{profile}-b") else f"{profile}-a"
        return Published(key=key, devices=devices)
    return last if last.devices == devices else Published(key=flip(last).key, devices=devices)


def flip(published: Published) -> Published:
    """Return these devices under the other profile name, if they have one."""
    if not published.key:
        return published
    other = "b" if published.key.endswith("-a") else "a"
    return Published(key=f"{published.key[:-2]}-{other}", devices=published.devices)
