/* The system and its GPUs: names, memory, compute mode, field values, and the driver's own memory limits. */
#define _GNU_SOURCE
#include "node.h"
#include <stdio.h>
#include <string.h>

/* Copies a text out as NVML does: a buffer too small is an error, nothing is cut. */
static nvmlReturn_t tell(const char *text, char *buffer, unsigned int length)
{
    if (buffer == NULL) return INVALID_ARGUMENT;
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return OK;
}

const char *nvmlErrorString(nvmlReturn_t code)
{
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case FUNCTION_NOT_FOUND: return "Function Not Found";
    case GPU_IS_LOST: return "GPU is lost";
    case RESET_REQUIRED: return "GPU requires reset";
    case IN_USE: return "In use by another client";
    case INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    BEGIN(ANY_GPU);
    return tell(node->driver, version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    BEGIN(ANY_GPU);
    return tell(node->nvml, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    BEGIN(ANY_GPU);
    *version = (int)node->cuda;
    return OK;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* The first word of the command line. Needs no GPU, so any process of the machine has a name. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    BEGIN(ANY_GPU);
    char path[64], text[1024] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return NOT_FOUND;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = 0;
    if (length > 0 && strlen(text) >= length) text[length - 1] = 0;
    return tell(text, name, length);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    BEGIN(ANY_GPU);
    *count = node->gpu_count;
    return OK;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    BEGIN((int)index);
    if (index >= node->gpu_count) return INVALID_ARGUMENT;
    *device = device_handle(index);
    return OK;
}

/* Which GPU has the UUID or a MIG device with it; ANY_GPU for none. Read before the call begins, so that faults of this GPU apply to it. */
static int owner_of(const char *uuid, unsigned int *gi, unsigned int *ci)
{
    for (unsigned int number = 0; uuid != NULL && node != NULL && number < node->gpu_count; number++) {
        struct gpu *gpu = &node->gpus[number];
        *gi = *ci = NO_INSTANCE;
        if (strcmp(gpu->uuid, uuid) == 0) return (int)number;
        for (*gi = 0; *gi < INSTANCES; ++*gi)
            for (*ci = 0; gpu->instances[*gi].exists && *ci < COMPUTES; ++*ci)
                if (gpu->instances[*gi].computes[*ci].exists && strcmp(gpu->instances[*gi].computes[*ci].uuid, uuid) == 0)
                    return (int)number;
    }
    return ANY_GPU;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    unsigned int gi, ci;
    int gpu = owner_of(uuid, &gi, &ci);
    BEGIN(gpu);
    if (gpu == ANY_GPU) return uuid == NULL ? INVALID_ARGUMENT : NOT_FOUND;
    *device = gi == NO_INSTANCE ? device_handle((unsigned int)gpu) : compute_handle(MIG_DEVICE, (unsigned int)gpu, gi, ci);
    return OK;
}

static void pci_bus_id(unsigned int index, char *text, size_t size)
{
    snprintf(text, size, "%08X:%02X:00.0", 0u, node->gpus[index].pci_bus);
}

static int owner_of_bus(const char *bus)
{
    for (unsigned int index = 0; bus != NULL && node != NULL && index < node->gpu_count; index++) {
        char own[32];
        pci_bus_id(index, own, sizeof own);
        /* sysfs writes a domain of four digits, NVML of eight. */
        if (strcasecmp(bus, own) == 0 || strcasecmp(bus, own + 4) == 0) return (int)index;
    }
    return ANY_GPU;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
    int gpu = owner_of_bus(bus);
    BEGIN(gpu);
    if (gpu == ANY_GPU) return bus == NULL ? INVALID_ARGUMENT : NOT_FOUND;
    *device = device_handle((unsigned int)gpu);
    return OK;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    BEGIN_ON(device, ON_ANY_DEVICE);
    return tell(at.compute ? at.compute->uuid : at.gpu->uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    BEGIN_ON(device, ON_ANY_DEVICE);
    if (at.compute == NULL) return tell(at.gpu->name, name, length);
    char text[160];
    snprintf(text, sizeof text, "%s MIG %s", at.gpu->name, at.gpu->profiles[at.instance->profile].name);
    return tell(text, name, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    BEGIN_ON(device, ON_ANY_DEVICE);
    *index = at.compute ? at.compute->index : at.index;
    return OK;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    BEGIN_ON(device, ON_GPU);
    *minor = at.index;
    return OK;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    BEGIN_ON(device, ON_GPU);
    *pci = (nvmlPciInfo_t){.bus = at.gpu->pci_bus, .pciDeviceId = at.gpu->pci_device_id};
    pci_bus_id(at.index, pci->busId, sizeof pci->busId);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%.12s", pci->busId + 4);
    return OK;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
    BEGIN_ON(device, ON_GPU);
    *architecture = at.gpu->architecture;
    return OK;
}

/* What current drivers say of every data center card, of a Tesla T4 too. */
nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand)
{
    BEGIN_ON(device, ON_GPU);
    *brand = BRAND_NVIDIA;
    return OK;
}

/* No GPU here is passed to a virtual machine, or divided among some. */
nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN_ON(device, ON_GPU);
    *mode = VIRTUALIZATION_NONE;
    return OK;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    BEGIN_ON(device, ON_GPU);
    *major = (int)at.gpu->major;
    *minor = (int)at.gpu->minor;
    return OK;
}

/* A process without known memory adds nothing here, as on hardware what is not attributed is in the total only: `unattributed`. */
static nvmlMemory_v2_t memory_of(struct target *at)
{
    nvmlMemory_v2_t memory = {.total = at->gpu->memory_bytes, .reserved = at->gpu->reserved_bytes};
    unsigned long long extra = at->gpu->unattributed_bytes;
    for (unsigned int gi = 0; at->instance == NULL && gi < INSTANCES; gi++) extra += at->gpu->instances[gi].unattributed_bytes;
    if (at->instance != NULL) {
        memory.total = (unsigned long long)profile_memory_mib(at->gpu, at->instance) << 20;
        memory.reserved = 0;
        extra = at->instance->unattributed_bytes;
    }
    memory.used = used_bytes(at) + extra;
    unsigned long long taken = memory.used + memory.reserved;
    memory.free = taken < memory.total ? memory.total - taken : 0;
    return memory;
}

/* The first form counts what the driver has reserved as used, the second tells it apart. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    BEGIN_ON(device, ON_ANY_DEVICE);
    nvmlMemory_v2_t all = memory_of(&at);
    *memory = (nvmlMemory_t){.total = all.total, .free = all.free, .used = all.used + all.reserved};
    return OK;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    BEGIN_ON(device, ON_ANY_DEVICE);
    if (memory->version != VERSION_MEMORY_2) return ARGUMENT_VERSION_MISMATCH;
    *memory = memory_of(&at);
    memory->version = VERSION_MEMORY_2;
    return OK;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN_ON(device, ON_ANY_DEVICE);
    *mode = at.gpu->compute_mode;
    return OK;
}

/* The driver answers from Hopper on. */
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *info)
{
    BEGIN_ON(device, ON(DEVICE));
    if (at.gpu->architecture < ARCHITECTURE_HOPPER) return NOT_SUPPORTED;
    if (info->version != VERSION_FABRIC_2) return ARGUMENT_VERSION_MISMATCH;
    info->state = at.gpu->fabric_state;
    info->status = at.gpu->fabric_status;
    return OK;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode)
{
    MUTATE_ON(device, ON_ANY_DEVICE, "(%u,%u)", gpu_of(device), mode);
    if (mode != 0 && mode != 2 && mode != 3) return mode == 1 ? NOT_SUPPORTED : INVALID_ARGUMENT;
    at.gpu->compute_mode = mode;
    return OK;
}

/* 184: MIG without reset; 199: profiles are told while MIG is off; 230: what would bring the GPU back. */
static nvmlReturn_t field(const struct gpu *gpu, unsigned int id, unsigned int *value)
{
    switch (id) {
    case 184: *value = gpu->mig_capable && !gpu->mig_survives_reboot; return OK;
    case 199: *value = gpu->mig_capable && node->tells_profiles_when_off; return OK;
    case 230: *value = gpu->recovery_action; return OK;
    default: return NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    BEGIN_ON(device, ON_ANY_DEVICE);
    for (int number = 0; number < count; number++) {
        values[number].valueType = 1; /* unsigned int */
        values[number].nvmlReturn = field(at.gpu, values[number].fieldId, &values[number].value.uiVal);
    }
    return OK;
}

static struct limit *limit_of(struct gpu *gpu, const char *cgroup)
{
    for (unsigned int number = 0; number < LIMITS; number++)
        if (strcmp(gpu->limits[number].cgroup, cgroup) == 0) return &gpu->limits[number];
    return NULL;
}

/* A hard limit of all ones is none; without a soft one the cgroup has no limits any more, and its place is free again. */
nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_t *limits)
{
    const char *cgroup = limits != NULL && limits->nameSpace != NULL ? limits->nameSpace : "";
    MUTATE_ON(device, ON_GPU, "(%u,%s,%llu)", gpu_of(device), cgroup, limits != NULL ? limits->hardLimit : 0);
    if (cgroup[0] != '/' || strlen(cgroup) >= sizeof at.gpu->limits[0].cgroup) return INVALID_ARGUMENT;
    if (at.gpu->mig_current) return NOT_SUPPORTED;
    struct limit *limit = limit_of(at.gpu, cgroup);
    if (limit == NULL) limit = limit_of(at.gpu, "");
    if (limit == NULL) return INSUFFICIENT_RESOURCES;
    *limit = (struct limit){.soft_bytes = limits->softLimit, .hard_bytes = limits->hardLimit};
    int has_soft = limits->softLimit != 0 && limits->softLimit != UNKNOWN_BYTES;
    if (limits->hardLimit != UNKNOWN_BYTES || has_soft) strcpy(limit->cgroup, cgroup);
    return OK;
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_t *limits)
{
    BEGIN_ON(device, ON_GPU);
    if (limits == NULL || limits->nameSpace == NULL || limits->nameSpace[0] != '/') return INVALID_ARGUMENT;
    if (at.gpu->mig_current) return NOT_SUPPORTED;
    struct limit *limit = limit_of(at.gpu, limits->nameSpace);
    if (limit == NULL) return NOT_FOUND;
    limits->softLimit = limit->soft_bytes;
    limits->hardLimit = limit->hard_bytes;
    limits->currentUsed = 0; /* rows have no cgroup here */
    return OK;
}
