/* Event sets: XIDs that were injected into the state file, told to every process that has registered for their GPU. */
#define _GNU_SOURCE
#include "node.h"
#include <stdlib.h>
#include <time.h>

#define XID_CRITICAL 0x8ull
#define SUPPORTED 0xC11Full

struct event_set {
    unsigned long long masks[GPUS];
    uint64_t seen; /* how many events of the state file this set has passed */
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    BEGIN(ANY_GPU);
    *set = calloc(1, sizeof **set);
    if (*set == NULL) return MEMORY;
    (*set)->seen = node->event_count;
    return OK;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    BEGIN(ANY_GPU);
    free(set);
    return OK;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    BEGIN_ON(device, ON_GPU);
    *types = SUPPORTED;
    return OK;
}

/* In MIG the events of all instances come on the GPU's own handle. */
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    BEGIN_ON(device, ON_GPU);
    if (set == NULL) return INVALID_ARGUMENT;
    if (types & ~SUPPORTED) return NOT_SUPPORTED;
    set->masks[at.index] |= types;
    return OK;
}

/* TIMEOUT where there is no event yet. */
static nvmlReturn_t take(nvmlEventSet_t set, nvmlEventData_t *data)
{
    BEGIN_CALL_OF("nvmlEventSetWait_v2", ANY_GPU, NULL);
    if (set == NULL) return INVALID_ARGUMENT;
    if (node->event_count > set->seen + EVENTS) set->seen = node->event_count - EVENTS;
    while (set->seen < node->event_count) {
        const struct event *event = &node->events[set->seen++ % EVENTS];
        if (!(set->masks[event->gpu] & XID_CRITICAL)) continue;
        *data = (nvmlEventData_t){.device = device_handle(event->gpu), .eventType = XID_CRITICAL, .eventData = event->xid,
                                  .gpuInstanceId = event->gi, .computeInstanceId = event->ci};
        return OK;
    }
    return TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long end = now.tv_sec * 1000ll + now.tv_nsec / 1000000 + timeout_ms;
    for (;;) {
        nvmlReturn_t code = take(set, data);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (code != TIMEOUT || now.tv_sec * 1000ll + now.tv_nsec / 1000000 >= end) return code;
        nanosleep(&pause, NULL); /* other processes write events; polling needs no signal from them */
    }
}
