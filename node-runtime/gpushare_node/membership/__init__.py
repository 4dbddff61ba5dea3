"""Which pool has the node: the labels that say so, and whether the pool still selects it. Changes no hardware."""
