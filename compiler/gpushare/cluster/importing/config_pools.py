"""Configs of the device plugin without Nodes: a pool for each config that is named after a card.

Everything but the sharing is an assumption here, and reported as one.
"""

from typing import Any

from gpushare.cluster.importing import card_names, sharing_fields
from gpushare.cluster.importing.draft import Draft
from gpushare.cluster.importing.facts import GPU, MIG, Facts
from gpushare.cluster.importing.node_layouts import Layouts
from gpushare.cluster.importing.parts import Notes
from gpushare.core.wording import join_first, shorten
from gpushare.facts.catalog import cards
from gpushare.offering import modes

_HINT = "give the Nodes, too: kubectl get nodes -o yaml > nodes.yaml"


def add(facts: Facts, draft: Draft, notes: Notes) -> None:
    """Add the pools."""
    unknown = [one for one in facts.configs if one.works and card_names.of_config_name(one.name) is None]
    if unknown:
        named = f"{join_first([shorten(one.name) for one in unknown])} {'names' if len(unknown) == 1 else 'name'} no card"
        notes.error("GS859", unknown[0].part, f"the card is unknown: no Node was given, and {named}", _HINT, on_key=True)
    for config in facts.configs:
        name = shorten(config.name)
        card_id = card_names.of_config_name(config.name)
        if card_id is None or not config.works or not draft.has_room(config.part, notes):
            continue
        if any(resource.startswith(MIG) for resource in config.replicas):
            notes.error(
                "GS862",
                config.part,
                f"config {name} shares MIG instances, and no file says which there are",
                _HINT,
                on_key=True,
            )
            continue
        for resource, count in config.replicas.items():
            if resource != GPU:
                notes.warn(
                    "GS855",
                    count,
                    f"a node without MIG does not offer {shorten(resource)}: nothing is shared by it",
                    f"write name: {GPU}",
                )
        whole = Layouts(gpus=((),))
        sharing = sharing_fields.document(sharing_fields.of_config(config), whole, "none", config.part, notes)
        if sharing is None:
            continue
        selection = {"matchLabels": {"node.example.org/gpu": card_id}}
        document: dict[str, Any] = {"card": card_id, "nodes": selection, "gpusPerNode": 1, "sharing": sharing}
        if "replicas" in sharing and not modes.named(sharing["mode"]).has_daemon:
            document["memory"] = {"cap": "none"}
        path = draft.add(config.name, document, config.part)
        notes.warn(
            "GS860",
            config.part,
            f"assumed: config {name} is for one {cards.load(card_id).name} per node",
            _HINT,
            "or correct card, nodes and gpusPerNode by hand",
            on_key=True,
        )
        draft.note((*path, "card"), config.part, f"assumed from the name of the config {name}")
        draft.note((*path, "nodes"), None, "assumed: replace the label by one that these nodes have")
        draft.note((*path, "gpusPerNode"), None, "assumed")
        draft.note((*path, "sharing"), config.part, f"from {sharing_fields.name_of(config)}")
        cap = sharing_fields.cap_comment(sharing)
        if cap:
            draft.note((*path, "memory") if "memory" in document else (*path, "sharing", "replicas"), None, cap)
        for resource, profile in sharing_fields.resources(sharing, whole).items():
            draft.offer(resource, path, profile)
