"""How a sharing mode divides a GPU: shares, memory caps, configurations of the device plugin."""
