"""Device plugins: what kubelet gave to which pod, the label that a plugin follows, and what the node must offer."""
