/* MIG: mode, profiles, placements and GPU instances. What stands in an instance is in compute.c. */
#define _GNU_SOURCE
#include "node.h"
#include <stdio.h>
#include <string.h>

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    BEGIN_ON(device, ON_GPU);
    if (!at.gpu->mig_capable) return NOT_SUPPORTED;
    *current = at.gpu->mig_current;
    *pending = at.gpu->mig_pending;
    return OK;
}

static int has_instances(const struct gpu *gpu)
{
    for (unsigned int gi = 0; gi < INSTANCES; gi++)
        if (gpu->instances[gi].exists) return 1;
    return 0;
}

void switch_mode(struct gpu *gpu, unsigned int enabled)
{
    gpu->mig_current = gpu->mig_pending = enabled;
    memset(gpu->instances, 0, sizeof gpu->instances);
    gpu->compute_mode = 0;
    gpu->generation++;
}

/* The call succeeds even when the mode does not change; then it stays pending and the activation status tells why. */
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation)
{
    MUTATE_ON(device, ON_GPU, "(%u,%u)", gpu_of(device), mode);
    if (!at.gpu->mig_capable) return NOT_SUPPORTED;
    if (mode > 1 || activation == NULL) return INVALID_ARGUMENT;
    at.gpu->mig_pending = mode;
    *activation = OK;
    if (at.gpu->mig_current == mode) return OK;
    if (at.gpu->blocked_times != 0) {
        if (at.gpu->blocked_times > 0) at.gpu->blocked_times--;
        *activation = at.gpu->blocked_code;
        return OK;
    }
    if (is_busy(&at) || has_instances(at.gpu)) {
        *activation = IN_USE;
        return OK;
    }
    switch_mode(at.gpu, mode);
    return OK;
}

/* --- profiles: asked for by enum, known by id --- */

static nvmlReturn_t profile_by_enum(const struct gpu *gpu, unsigned int number, const struct profile **found)
{
    if (!gpu->mig_capable) return NOT_SUPPORTED;
    if (number >= node->profile_enums) return INVALID_ARGUMENT; /* an older driver knows fewer */
    if (!gpu->mig_current && !node->tells_profiles_when_off) return NOT_SUPPORTED;
    if (!gpu->profiles[number].exists) return NOT_SUPPORTED;
    *found = &gpu->profiles[number];
    return OK;
}

static nvmlReturn_t profile_by_id(const struct gpu *gpu, unsigned int id, const struct profile **found)
{
    if (!gpu->mig_capable) return NOT_SUPPORTED;
    if (!gpu->mig_current && !node->tells_profiles_when_off) return NOT_SUPPORTED;
    for (unsigned int number = 0; number < PROFILES && number < node->profile_enums; number++)
        if (gpu->profiles[number].exists && gpu->profiles[number].id == id) {
            *found = &gpu->profiles[number];
            return OK;
        }
    return INVALID_ARGUMENT;
}

static void describe(const struct profile *profile, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    *info = (nvmlGpuInstanceProfileInfo_v2_t){
        .version = VERSION_GPU_PROFILE_2, .id = profile->id, .sliceCount = profile->slices, .instanceCount = profile->told_count,
        .multiprocessorCount = profile->sm, .copyEngineCount = profile->engines.copy, .decoderCount = profile->engines.decoders,
        .encoderCount = profile->engines.encoders, .jpegCount = profile->engines.jpeg, .ofaCount = profile->engines.ofa,
        .memorySizeMB = profile->memory_mib,
    };
    /* NVML writes the name as nvidia-smi shows it. */
    snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int number, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    BEGIN_ON(device, ON_GPU);
    if (info->version != VERSION_GPU_PROFILE_2) return ARGUMENT_VERSION_MISMATCH;
    const struct profile *profile;
    nvmlReturn_t code = profile_by_enum(at.gpu, number, &profile);
    if (code == OK) describe(profile, info);
    return code;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number, nvmlGpuInstanceProfileInfo_t *info)
{
    BEGIN_ON(device, ON_GPU);
    const struct profile *profile;
    nvmlReturn_t code = profile_by_enum(at.gpu, number, &profile);
    if (code != OK) return code;
    nvmlGpuInstanceProfileInfo_v2_t all;
    describe(profile, &all);
    memcpy(info, &all.id, offsetof(nvmlGpuInstanceProfileInfo_t, memorySizeMB)); /* the same fields in the same order */
    info->memorySizeMB = all.memorySizeMB;
    return OK;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    BEGIN_ON(device, ON_GPU);
    const struct profile *profile;
    nvmlReturn_t code = profile_by_id(at.gpu, id, &profile);
    if (code == OK) describe(profile, info);
    return code;
}

/* All legal places of the profile on an empty card: what stands there now does not matter. */
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id, nvmlPlacement_t *places,
                                                           unsigned int *count)
{
    BEGIN_ON(device, ON_GPU);
    const struct profile *profile;
    nvmlReturn_t code = profile_by_id(at.gpu, id, &profile);
    if (code != OK || count == NULL) return code != OK ? code : INVALID_ARGUMENT;
    if (places != NULL && *count < profile->placement_count) return INSUFFICIENT_SIZE;
    for (unsigned int number = 0; places != NULL && number < profile->placement_count; number++)
        places[number] = (nvmlPlacement_t){profile->placements[number].start, profile->placements[number].size};
    *count = profile->placement_count;
    return OK;
}

unsigned int profile_memory_mib(const struct gpu *gpu, const struct instance *instance)
{
    return gpu->profiles[instance->profile].memory_mib;
}

/* --- GPU instances --- */

static int exceeds(unsigned int used, unsigned int wanted, unsigned int total) { return total != UNLIMITED && used + wanted > total; }

/* Whether the card has the engines and the number of instances left, wherever the profile may stand. */
static int has_room(const struct gpu *gpu, const struct profile *wanted)
{
    struct engines used = {0};
    unsigned int all = 0, same = 0;
    for (unsigned int gi = 0; gi < INSTANCES; gi++) {
        if (!gpu->instances[gi].exists) continue;
        const struct profile *other = &gpu->profiles[gpu->instances[gi].profile];
        all++;
        same += other == wanted;
        used.decoders += other->engines.decoders;
        used.encoders += other->engines.encoders;
        used.jpeg += other->engines.jpeg;
        used.ofa += other->engines.ofa;
    }
    return all < gpu->max_instances && same < wanted->max_count
        && !exceeds(used.decoders, wanted->engines.decoders, gpu->totals.decoders)
        && !exceeds(used.encoders, wanted->engines.encoders, gpu->totals.encoders)
        && !exceeds(used.jpeg, wanted->engines.jpeg, gpu->totals.jpeg) && !exceeds(used.ofa, wanted->engines.ofa, gpu->totals.ofa);
}

static int is_free(const struct gpu *gpu, struct placement place)
{
    for (unsigned int gi = 0; gi < INSTANCES; gi++) {
        const struct instance *other = &gpu->instances[gi];
        if (other->exists && other->start < place.start + place.size && place.start < other->start + other->size) return 0;
    }
    return 1;
}

/* Ids are given again: the lowest free one, from 1 on; 0 is for an instance of the whole card, as on an A100. */
static unsigned int free_instance(const struct gpu *gpu, struct placement place)
{
    unsigned int gi = place.size == gpu->units ? 0 : 1;
    while (gi < INSTANCES && gpu->instances[gi].exists) gi++;
    return gi;
}

static nvmlReturn_t create(struct target *at, const struct profile *profile, struct placement place, nvmlGpuInstance_t *made)
{
    unsigned int gi = free_instance(at->gpu, place);
    if (!has_room(at->gpu, profile) || !is_free(at->gpu, place) || gi == INSTANCES) return INSUFFICIENT_RESOURCES;
    at->gpu->instances[gi] = (struct instance){
        .exists = 1, .profile = (unsigned int)(profile - at->gpu->profiles), .start = place.start, .size = place.size,
        .serial = ++node->serial,
    };
    *made = instance_handle(at->index, gi);
    return OK;
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id, const nvmlPlacement_t *place,
                                                      nvmlGpuInstance_t *made)
{
    MUTATE_ON(device, ON_GPU, "(%u,%u,%u,%u)", gpu_of(device), id, place ? place->start : 0, place ? place->size : 0);
    const struct profile *profile;
    if (!at.gpu->mig_capable || !at.gpu->mig_current) return NOT_SUPPORTED;
    nvmlReturn_t code = profile_by_id(at.gpu, id, &profile);
    if (code != OK || place == NULL) return code != OK ? code : INVALID_ARGUMENT;
    for (unsigned int number = 0; number < profile->placement_count; number++)
        if (profile->placements[number].start == place->start && profile->placements[number].size == place->size)
            return create(&at, profile, profile->placements[number], made);
    return INVALID_ARGUMENT;
}

/* The driver's own choice: the free place with the highest start. So 1g, 1g, 2g, 3g in this order fails on an A100, and 3g first works. */
nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *made)
{
    MUTATE_ON(device, ON_GPU, "(%u,%u)", gpu_of(device), id);
    const struct profile *profile;
    if (!at.gpu->mig_capable || !at.gpu->mig_current) return NOT_SUPPORTED;
    nvmlReturn_t code = profile_by_id(at.gpu, id, &profile);
    if (code != OK) return code;
    const struct placement *best = NULL;
    for (unsigned int number = 0; number < profile->placement_count; number++) {
        const struct placement *place = &profile->placements[number];
        if (is_free(at.gpu, *place) && (best == NULL || place->start > best->start)) best = place;
    }
    return best == NULL ? INSUFFICIENT_RESOURCES : create(&at, profile, *best, made);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count)
{
    BEGIN_ON(device, ON_GPU);
    const struct profile *profile;
    if (!at.gpu->mig_current) return NOT_SUPPORTED;
    nvmlReturn_t code = profile_by_id(at.gpu, id, &profile);
    if (code != OK) return code;
    struct gpu trial = *at.gpu;
    *count = 0;
    for (unsigned int number = 0; number < profile->placement_count; number++) {
        struct placement place = profile->placements[number];
        unsigned int gi = free_instance(&trial, place);
        if (!has_room(&trial, profile) || !is_free(&trial, place) || gi == INSTANCES) continue;
        trial.instances[gi] = (struct instance){.exists = 1, .profile = (unsigned int)(profile - at.gpu->profiles), .start = place.start,
                                                .size = place.size};
        ++*count;
    }
    return OK;
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *found, unsigned int *count)
{
    BEGIN_ON(device, ON_GPU);
    const struct profile *profile;
    if (!at.gpu->mig_current) return NOT_SUPPORTED;
    nvmlReturn_t code = profile_by_id(at.gpu, id, &profile);
    if (code != OK) return code;
    *count = 0;
    for (unsigned int gi = 0; gi < INSTANCES; gi++)
        if (at.gpu->instances[gi].exists && at.gpu->instances[gi].profile == profile - at.gpu->profiles)
            found[(*count)++] = instance_handle(at.index, gi);
    return OK;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int gi, nvmlGpuInstance_t *found)
{
    BEGIN_ON(device, ON_GPU);
    if (!at.gpu->mig_current) return NOT_SUPPORTED;
    if (gi >= INSTANCES || !at.gpu->instances[gi].exists) return NOT_FOUND;
    *found = instance_handle(at.index, gi);
    return OK;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    BEGIN_ON(instance, ON(INSTANCE));
    *info = (nvmlGpuInstanceInfo_t){.device = device_handle(at.index), .id = at.gi, .profileId = at.gpu->profiles[at.instance->profile].id,
                                    .placement = {at.instance->start, at.instance->size}};
    return OK;
}

static int has_computes(const struct instance *instance)
{
    for (unsigned int ci = 0; ci < COMPUTES; ci++)
        if (instance->computes[ci].exists) return 1;
    return 0;
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    MUTATE_ON(instance, ON(INSTANCE), "(%u,%u)", gpu_of(instance), gi_of(instance));
    if (has_computes(at.instance) || is_busy(&at)) return IN_USE;
    memset(at.instance, 0, sizeof *at.instance);
    return OK;
}
