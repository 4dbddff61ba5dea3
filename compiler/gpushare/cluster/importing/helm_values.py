"""Values of NVIDIA's two charts, and the ClusterPolicy: the default config, the MIG strategy, the stack.

Facts: charts nvidia-device-plugin 0.20.0 and gpu-operator v26.7.0. The operator's `mig.strategy` is `single` unless it is set,
and takes precedence over every config; it has no fallback but whole GPUs. The plugin's chart falls back to the config
`default`, then to the only one.
"""

from gpushare.cluster.importing.facts import Settings
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import join_words, shorten

OPERATOR, PLUGIN = "gpu-operator", "device-plugin"
_OPERATOR_KEYS = ("devicePlugin", "migManager", "mig", "toolkit", "dcgmExporter", "daemonsets")
_PLUGIN_KEYS = ("config", "migStrategy", "gfd", "compatWithCPUManager", "deviceListStrategy", "deviceIDStrategy", "mps")
_STRATEGIES = ("none", "single", "mixed")


def stack(part: Part) -> str:
    """Return which chart's values a document without `kind` is, empty if neither's."""
    if part.has("kind") or part.has("version"):
        return ""
    if sum(part.has(key) for key in _OPERATOR_KEYS) > (1 if part.has("config") else 0):
        return OPERATOR
    known = part.at("config").has("map") or part.at("config").has("name") or part.at("config").has("default")
    return PLUGIN if known or any(part.has(key) for key in _PLUGIN_KEYS[1:]) else ""


def read(part: Part, which: str, origin: str, notes: Notes) -> tuple[Settings, Part, Part]:
    """Return the settings, and the parts with configs of the plugin and of mig-parted, by name.

    What of the values decides nothing here is the business of `chart_values`, which shows all of them.
    """
    config = part.at("devicePlugin", "config") if which == OPERATOR else part.at("config")
    strategy = part.at("mig", "strategy") if which == OPERATOR else part.at("migStrategy")
    data = config.at("data") if which == OPERATOR else config.at("map")
    word = _strategy(strategy, notes)
    if which == OPERATOR and word is None and not part.at("mig").has("strategy"):
        word = "single"
    fallbacks = tuple(entry.text for entry in config.at("fallbackStrategies").entries()) or ("named", "single")
    settings = Settings(
        stack=which,
        origin=origin,
        part=part,
        mig_strategy=word or None,
        says_strategy=bool(strategy.value),
        default=config.at("default") if config.at("default").text else None,
        config_group=config.at("name").text,
        mig_group=part.at("migManager", "config", "name").text,
        vgpu_group=part.at("vgpuDeviceManager", "config", "name").text,
        fallbacks=fallbacks if which == PLUGIN else (),
    )
    return settings, data, part.at("migManager", "config", "data")


def _strategy(part: Part, notes: Notes) -> str | None:
    if part.value in (None, ""):
        return None
    if part.value not in _STRATEGIES:
        notes.error("GS850", part, f"there is no MIG strategy {shorten(part.value)}", f"write {join_words(_STRATEGIES, 'or')}")
        return None
    return str(part.value)
