/* How GPUs are connected: what the device plugin asks before it chooses whole GPUs. The machine has PCI alone: every GPU below one
   host bridge, and no NVLink. */
#include "node.h"

enum { HOST_BRIDGE = 30 };

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t peer, unsigned int *level)
{
    BEGIN_ON(device, ON_GPU);
    struct target other;
    refused = resolve(peer, ON_GPU, &other);
    if (refused != OK) return refused;
    if (at.index == other.index) return INVALID_ARGUMENT;
    *level = HOST_BRIDGE;
    return OK;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *is_active)
{
    BEGIN_ON(device, ON_GPU);
    (void)link, (void)is_active;
    return NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    BEGIN_ON(device, ON_GPU);
    (void)link, (void)pci;
    return NOT_SUPPORTED;
}
