"""NVIDIA's DRA driver on the nodes of the cluster: a double of it, and when it and the device plugin run."""
