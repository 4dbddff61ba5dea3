"""Facts about the world: cards, vendors, layouts of MIG, nodes and clouds."""
