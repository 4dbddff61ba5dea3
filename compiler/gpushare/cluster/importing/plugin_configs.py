"""Configs of NVIDIA's device plugin (`version: v1`): what each shares, and what the plugin ignores or refuses.

Facts about the plugin: k8s-device-plugin v0.20.0, api/config/v1 and cmd/nvidia-device-plugin/main.go. It ignores unknown
fields, custom names and lists of devices, takes MPS where both strategies are given, and needs at least two replicas.
"""

from gpushare.cluster.importing.accounting import shown as json_text
from gpushare.cluster.importing.facts import GPU, MIG, PluginConfig, Strategy
from gpushare.cluster.importing.parts import PLACEHOLDER_HINT, Notes, Part, is_placeholder
from gpushare.core.wording import join_words, nearest, shorten
from gpushare_node.contract.struct import replace

_TOP = ("version", "flags", "resources", "sharing", "imex")
_SHARING = ("timeSlicing", "mps")
_STRATEGY = ("renameByDefault", "failRequestsGreaterThanOne", "resources")
_RESOURCE = ("name", "rename", "devices", "replicas")
_STRATEGIES = ("none", "single", "mixed")
_IGNORED = {
    "rename": "the plugin ignores custom names, and an intent has none",
    "devices": "the plugin ignores lists of devices and shares every GPU, as an intent does",
}
_STARTS_NOT = "the device plugin does not start with this config"
MIN_REPLICAS = 2


def is_config(part: Part) -> bool:
    """Whether a document looks like a config of the device plugin."""
    if part.has("kind"):
        return False
    return part.has("sharing") or (part.has("version") and (part.has("flags") or part.has("resources")))


def read(part: Part, name: str, group: str, origin: str, notes: Notes) -> PluginConfig:
    """Return the config; `works` is false if the plugin would not start with it. An empty one shares nothing."""
    config = PluginConfig(name=name, group=group, origin=origin, part=part)
    if part.value is None:
        return config
    if not isinstance(part.value, dict):
        notes.error(
            "GS850", part, f"config {shorten(name)} is not a mapping: {_STARTS_NOT}", "write version: v1, then sharing:"
        )
        return replace(config, works=False)
    _unknown(part, _TOP, notes, dict.fromkeys(_SHARING, ("sharing",)))
    version = part.at("version")
    if version.value is not None and version.value != "v1":
        notes.error("GS850", version, f"the version is {shorten(version.value)}: {_STARTS_NOT}", "write version: v1")
        return replace(config, works=False)
    if part.at("resources").value:
        text = json_text(part.at("resources").whole)
        notes.warn(
            "GS852",
            part.at("resources"),
            f"the plugin ignores this table of names, and an intent has none: {text}",
            "leave it out",
            on_key=True,
        )
    config = replace(config, **_flags(part.at("flags"), notes))
    return _sharing(config, part.at("sharing"), notes)


def _flags(flags: Part, notes: Notes) -> dict[str, object]:
    found: dict[str, object] = {}
    strategy = flags.at("migStrategy")
    if strategy.value is not None:
        word = str(strategy.value)
        if word in _STRATEGIES:
            found["mig_strategy"] = word
        else:
            hint = f"write {join_words(_STRATEGIES, 'or')}"
            notes.error("GS850", strategy, f"there is no MIG strategy {shorten(word)}: {_STARTS_NOT}", hint)
            found["works"] = False
    policy = flags.at("plugin", "sharedDevicesAllocationPolicy")
    found["packed"] = policy.value == "packed"
    for key in _STRATEGY:
        if flags.has(key):
            text = json_text(flags.at(key).whole)
            notes.warn(
                "GS851",
                flags.at(key),
                f"the plugin has no flag {key} and ignores it: {text} has no effect",
                "move it below sharing.timeSlicing (or sharing.mps)",
                on_key=True,
            )
    return found


def _unknown(part: Part, known: tuple[str, ...], notes: Notes, elsewhere: dict[str, tuple[str, ...]] | None = None) -> None:
    for key, value in part.items():
        if key in known or not notes.has_room("GS851"):
            continue
        home = (elsewhere or {}).get(key)
        close = nearest(key[:40], known, 1)
        text = shorten(json_text(value.whole))
        hint = (
            f"move it below {home[0]}: indent it by two more spaces"
            if home
            else f"did you mean {close[0]}?"
            if close
            else f"the fields here are {join_words(known)}"
        )
        notes.warn("GS851", value, f"the plugin has no field {shorten(key)} here and ignores it: {text}", hint, on_key=True)


def _sharing(config: PluginConfig, sharing: Part, notes: Notes) -> PluginConfig:
    if sharing.value is None:
        return config
    if not isinstance(sharing.value, dict):
        notes.error("GS850", sharing, f"sharing is not a mapping: {_STARTS_NOT}", "write timeSlicing: or mps: below it")
        return replace(config, works=False)
    _unknown(sharing, _SHARING, notes, dict.fromkeys(_STRATEGY, ("timeSlicing",)))
    slicing, mps = sharing.at("timeSlicing"), sharing.at("mps")
    if mps.value is not None:
        if slicing.value is not None:
            notes.warn(
                "GS853",
                slicing,
                "both timeSlicing and mps are given: the plugin uses mps and ignores timeSlicing silently",
                "remove the one that is not wanted",
                on_key=True,
            )
        if config.mig_strategy == "mixed":
            notes.error("GS856", mps, f"MPS with migStrategy mixed: {_STARTS_NOT}", "write migStrategy: none", on_key=True)
            config = replace(config, works=False)
        return _resources(replace(config, strategy=Strategy.MPS), mps, notes)
    if not sharing.has("timeSlicing"):
        return config
    return _resources(replace(config, strategy=Strategy.TIME_SLICING), slicing, notes)


def _resources(config: PluginConfig, how: Part, notes: Notes) -> PluginConfig:
    word = str(how.path[-1])
    if isinstance(how.value, dict):
        _unknown(how, _STRATEGY, notes)
    rows = list(how.at("resources").entries())
    if not rows:
        notes.error(
            "GS850",
            how,
            f"{word} has no list of resources: {_STARTS_NOT}",
            f"indent `resources:` below `{word}:`, with entries `- name: {GPU}` and `replicas: 4`",
            on_key=True,
        )
        return replace(config, strategy=Strategy.NONE, works=False)
    rename, single = how.at("renameByDefault"), how.at("failRequestsGreaterThanOne")
    for flag in (rename, single):
        if flag.value is not None and flag.truth is None:
            notes.error("GS850", flag, f"{shorten(flag.value)} is neither true nor false: {_STARTS_NOT}", "write true or false")
            config = replace(config, works=False)
    if not (single.truth if single.value is not None else config.strategy is Strategy.MPS):
        notes.warn(
            "GS861",
            single if single.value is not None else how,
            "a container may request several shares here; with gpushare it may request one, others are refused",
            "look for containers that request two or more: several shares may be the same GPU",
            on_key=True,
        )
    replicas: dict[str, Part] = {}
    for row in rows:
        _resource(row, replicas, notes)
    config = replace(config, replicas=replicas, rename=bool(rename.truth), works=config.works and None not in replicas.values())
    if any(count.count is None for count in replicas.values()):
        return replace(config, works=False)
    kept = {name: count for name, count in replicas.items() if (count.count or 0) >= MIN_REPLICAS}
    return replace(config, replicas=kept, strategy=config.strategy if kept else Strategy.NONE)


def _resource(row: Part, replicas: dict[str, Part], notes: Notes) -> None:
    name, count = row.at("name"), row.at("replicas")
    resource = name.text if "/" in name.text else f"nvidia.com/{name.text}"
    if not name.text or not resource.startswith("nvidia.com/"):
        problem = f"{shorten(resource)} is not NVIDIA's" if name.text else "the entry has no name"
        notes.error("GS850", name if name.text else row, f"{problem}: {_STARTS_NOT}", f"write name: {GPU}, or {MIG}1g.5gb")
        replicas[f"?{row.path}"] = Part(None, count.origin, count.path)
        return
    _unknown(row, _RESOURCE, notes)
    for field, why in _IGNORED.items():
        if row.at(field).value not in (None, "", "all"):
            notes.warn("GS852", row.at(field), f"{field}: {json_text(row.at(field).whole)}: {why}", "leave it out", on_key=True)
    number = count.value if isinstance(count.value, str) else count.count
    if not isinstance(number, int) or number < 1:
        given = "there are no replicas" if count.value is None else f"{shorten(count.value)} is not a whole number from 2 on"
        where = count if row.has("replicas") else row
        hint = PLACEHOLDER_HINT if is_placeholder(count.text) else "write replicas: 4, without quotes"
        given = f"{shorten(count.text)} is a placeholder, not a number" if is_placeholder(count.text) else given
        notes.error("GS850", where, f"{given}: {_STARTS_NOT}", hint)
        count = Part(None, count.origin, count.path)
    elif number < MIN_REPLICAS:
        notes.warn(
            "GS854", count, f"replicas: 1: {_STARTS_NOT}; imported as not shared", "leave the entry out, or write 2 or more"
        )
    before = replicas.get(resource)
    if before is not None and count.value is not None:
        notes.warn(
            "GS854",
            name,
            f"{shorten(resource)} is listed twice: the plugin takes the larger number of replicas",
            "keep one of the entries",
        )
        count = max(before, count, key=lambda part: part.count or 0)
    replicas[resource] = count
