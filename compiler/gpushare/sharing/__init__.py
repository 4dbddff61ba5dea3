"""How a sharing mode divides a GPU: shares and memory caps."""
