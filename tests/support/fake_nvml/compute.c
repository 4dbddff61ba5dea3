/* Compute instances of GPU instances, and the MIG devices that tenants see: one for each compute instance. */
#define _GNU_SOURCE
#include "node.h"
#include <stdio.h>
#include <string.h>

#define COMPUTE_PROFILES 9u
/* Slices of each compute-instance profile by its enum, which on hardware is its id too. The last two (1_SLICE_REV1, 7_SLICE_NVL): none here. */
static const unsigned int SLICES[COMPUTE_PROFILES] = {1, 2, 3, 4, 7, 8, 6, 0, 0};

static const struct profile *profile_of(const struct target *at) { return &at->gpu->profiles[at->instance->profile]; }

static nvmlReturn_t slices_of(const struct target *at, unsigned int number, unsigned int *slices)
{
    if (number >= COMPUTE_PROFILES) return INVALID_ARGUMENT;
    *slices = SLICES[number];
    return *slices == 0 || *slices > profile_of(at)->slices ? NOT_SUPPORTED : OK;
}

/* Media engines belong to the GPU instance; its compute instances share all of them. */
static nvmlReturn_t describe(const struct target *at, unsigned int number, nvmlComputeInstanceProfileInfo_v2_t *info)
{
    unsigned int slices;
    nvmlReturn_t code = slices_of(at, number, &slices);
    if (code != OK) return code;
    const struct profile *gi = profile_of(at);
    *info = (nvmlComputeInstanceProfileInfo_v2_t){
        .version = VERSION_COMPUTE_PROFILE_2, .id = number, .sliceCount = slices, .instanceCount = gi->slices / slices,
        .multiprocessorCount = gi->sm * slices / gi->slices, .sharedCopyEngineCount = gi->engines.copy,
        .sharedDecoderCount = gi->engines.decoders, .sharedEncoderCount = gi->engines.encoders, .sharedJpegCount = gi->engines.jpeg,
        .sharedOfaCount = gi->engines.ofa,
    };
    if (slices == gi->slices) snprintf(info->name, sizeof info->name, "MIG %s", gi->name);
    else snprintf(info->name, sizeof info->name, "MIG %uc.%s", slices, gi->name);
    return OK;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned int number, unsigned int engines,
                                                           nvmlComputeInstanceProfileInfo_v2_t *info)
{
    BEGIN_ON(instance, ON(INSTANCE));
    if (info->version != VERSION_COMPUTE_PROFILE_2) return ARGUMENT_VERSION_MISMATCH;
    return engines != 0 ? INVALID_ARGUMENT : describe(&at, number, info);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int number, unsigned int engines,
                                                          nvmlComputeInstanceProfileInfo_t *info)
{
    BEGIN_ON(instance, ON(INSTANCE));
    nvmlComputeInstanceProfileInfo_v2_t all;
    nvmlReturn_t code = engines != 0 ? INVALID_ARGUMENT : describe(&at, number, &all);
    if (code == OK) memcpy(info, &all.id, sizeof *info); /* the same fields in the same order */
    return code;
}

/* The first free stretch of the instance's slices; the instance's number of slices if there is none. */
static unsigned int free_start(const struct target *at, unsigned int slices)
{
    unsigned int start = 0, total = profile_of(at)->slices;
    for (unsigned int ci = 0; ci < COMPUTES && start + slices <= total; ci++) {
        const struct compute *other = &at->instance->computes[ci];
        if (!other->exists || other->start >= start + slices || start >= other->start + other->size) continue;
        start = other->start + other->size;
        ci = UNLIMITED; /* begins again: a former one may overlap the new place */
    }
    return start + slices <= total ? start : total;
}

/* MIG devices are counted through the whole GPU. What is destroyed leaves a hole until the number is given again. */
static unsigned int free_index(const struct gpu *gpu)
{
    unsigned int index = 0;
    for (unsigned int number = 0; number < INSTANCES * COMPUTES; number++) {
        const struct instance *instance = &gpu->instances[number / COMPUTES];
        const struct compute *compute = &instance->computes[number % COMPUTES];
        if (!instance->exists || !compute->exists || compute->index != index) continue;
        index++;
        number = UNLIMITED;
    }
    return index;
}

/* A MIG device gets a new UUID whenever it is made. It carries its serial, so that no two are ever the same. */
static void name(struct compute *compute, unsigned int gpu)
{
    snprintf(compute->uuid, sizeof compute->uuid, "MIG-%08x-51c0-5000-8000-%012x", compute->serial * 2654435761u, gpu << 24 | compute->serial);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int number, nvmlComputeInstance_t *made)
{
    MUTATE_ON(instance, ON(INSTANCE), "(%u,%u,%u)", gpu_of(instance), gi_of(instance), number);
    unsigned int slices, ci = 0;
    nvmlReturn_t code = slices_of(&at, number, &slices);
    if (code != OK) return code;
    unsigned int start = free_start(&at, slices);
    while (ci < COMPUTES && at.instance->computes[ci].exists) ci++;
    if (start == profile_of(&at)->slices || ci == COMPUTES) return INSUFFICIENT_RESOURCES;
    struct compute *compute = &at.instance->computes[ci];
    *compute = (struct compute){.exists = 1, .profile_id = number, .start = start, .size = slices, .serial = ++node->serial,
                                .index = free_index(at.gpu)};
    name(compute, at.index);
    *made = compute_handle(COMPUTE, at.index, at.gi, ci);
    return OK;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int number, nvmlComputeInstance_t *found,
                                                unsigned int *count)
{
    BEGIN_ON(instance, ON(INSTANCE));
    unsigned int slices;
    nvmlReturn_t code = slices_of(&at, number, &slices);
    if (code != OK) return code;
    *count = 0;
    for (unsigned int ci = 0; ci < COMPUTES; ci++)
        if (at.instance->computes[ci].exists && at.instance->computes[ci].profile_id == number)
            found[(*count)++] = compute_handle(COMPUTE, at.index, at.gi, ci);
    return OK;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int ci, nvmlComputeInstance_t *found)
{
    BEGIN_ON(instance, ON(INSTANCE));
    if (ci >= COMPUTES || !at.instance->computes[ci].exists) return NOT_FOUND;
    *found = compute_handle(COMPUTE, at.index, at.gi, ci);
    return OK;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info)
{
    BEGIN_ON(compute, ON(COMPUTE));
    *info = (nvmlComputeInstanceInfo_t){
        .device = compute_handle(MIG_DEVICE, at.index, at.gi, at.ci), .gpuInstance = instance_handle(at.index, at.gi), .id = at.ci,
        .profileId = at.compute->profile_id, .placement = {at.compute->start, at.compute->size},
    };
    return OK;
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
    MUTATE_ON(compute, ON(COMPUTE), "(%u,%u,%u)", gpu_of(compute), gi_of(compute), ci_of(compute));
    if (is_busy(&at)) return IN_USE;
    memset(at.compute, 0, sizeof *at.compute);
    return OK;
}

/* --- MIG devices --- */

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    BEGIN_ON(device, ON_GPU);
    *count = at.gpu->mig_current ? at.gpu->max_instances : 0;
    return OK;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *found)
{
    BEGIN_ON(device, ON_GPU);
    if (!at.gpu->mig_current) return NOT_SUPPORTED;
    if (index >= at.gpu->max_instances) return INVALID_ARGUMENT;
    for (unsigned int gi = 0; gi < INSTANCES; gi++)
        for (unsigned int ci = 0; at.gpu->instances[gi].exists && ci < COMPUTES; ci++)
            if (at.gpu->instances[gi].computes[ci].exists && at.gpu->instances[gi].computes[ci].index == index) {
                *found = compute_handle(MIG_DEVICE, at.index, gi, ci);
                return OK;
            }
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    BEGIN_ON(device, ON_ANY_DEVICE);
    *is_mig = at.kind == MIG_DEVICE;
    return OK;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    BEGIN_ON(device, ON_ANY_DEVICE);
    if (at.kind != MIG_DEVICE) return NOT_SUPPORTED;
    *id = at.gi;
    return OK;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    BEGIN_ON(device, ON_ANY_DEVICE);
    if (at.kind != MIG_DEVICE) return NOT_SUPPORTED;
    *id = at.ci;
    return OK;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent)
{
    BEGIN_ON(device, ON(MIG_DEVICE));
    *parent = device_handle(at.index);
    return OK;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    BEGIN_ON(device, ON_ANY_DEVICE);
    if (at.kind != MIG_DEVICE) return NOT_SUPPORTED;
    const struct profile *gi = profile_of(&at);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = gi->sm * at.compute->size / gi->slices, .sharedCopyEngineCount = gi->engines.copy,
        .sharedDecoderCount = gi->engines.decoders, .sharedEncoderCount = gi->engines.encoders, .sharedJpegCount = gi->engines.jpeg,
        .sharedOfaCount = gi->engines.ofa, .gpuInstanceSliceCount = gi->slices, .computeInstanceSliceCount = at.compute->size,
        .memorySizeMB = gi->memory_mib,
    };
    return OK;
}
