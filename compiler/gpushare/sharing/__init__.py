"""What a sharing mode makes of a GPU: shares, memory caps, configurations of the device plugin."""
