"""The names of NVIDIA's resources, and of the labels that its programs read and write on nodes."""

RESOURCES = "nvidia.com/"
"""With which the names of its resources begin: GPUs, and devices of network and virtual-machine plugins."""

WHOLE_GPU = "nvidia.com/gpu"
GPU_RESOURCES = (WHOLE_GPU, "nvidia.com/mig-")
"""With which those of GPUs and of parts of them begin."""

PLUGIN_LABEL = "nvidia.com/device-plugin.config"
"""The configuration of the device plugin, which watches no other label."""

MIG_LABEL = "nvidia.com/mig.config"
"""The layout for mig-manager."""

MIG_STATE_LABEL = "nvidia.com/mig.config.state"
"""What mig-manager says of the layout."""

SHARING_LABEL = "nvidia.com/gpu.sharing-strategy"
"""In which GPU feature discovery says how the device plugin shares: none, time-slicing or mps."""

DEPLOY_LABELS = "nvidia.com/gpu.deploy."
"""With which the labels begin that say whether a program of gpu-operator runs on the node."""
