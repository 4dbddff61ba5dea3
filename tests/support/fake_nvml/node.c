/* The node: the mapped state file and its lock, sessions, handles, injected faults, the log of mutations, planned deaths. */
#define _GNU_SOURCE
#include "node.h"
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct state *node;
static int fd = -1;
static struct stat mapped;
static char path[4096];
static unsigned int references, session, generations[GPUS];

/* Between processes flock: the kernel gives it back when its owner is killed. Between threads a mutex: they share the file. */
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER;

static void lock(void)
{
    pthread_mutex_lock(&threads);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0) {}
}

static void unlock(void)
{
    if (fd >= 0) flock(fd, LOCK_UN);
    pthread_mutex_unlock(&threads);
}

int state_fd(void) { return fd; }

/* A forked child shares its parent's open file and with it the lock, so it opens the file for itself. */
static void reopen(void)
{
    pthread_mutex_init(&threads, NULL);
    if (fd < 0) return;
    close(fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
}

__attribute__((constructor)) static void at_load(void) { pthread_atfork(NULL, NULL, reopen); }

/* Maps the file that the environment names, unless it is mapped already. */
static nvmlReturn_t map(void)
{
    const char *wanted = getenv("GPUSHARE_FAKE_NVML");
    struct stat there;
    if (wanted == NULL || stat(wanted, &there) != 0) return DRIVER_NOT_LOADED;
    if (node != NULL && there.st_ino == mapped.st_ino && there.st_dev == mapped.st_dev && strcmp(wanted, path) == 0) return OK;
    int opened = open(wanted, O_RDWR | O_CLOEXEC);
    if (opened < 0) return NO_PERMISSION;
    struct state *found = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    if (found == MAP_FAILED || there.st_size < (off_t)sizeof(struct state) || found->magic != MAGIC || found->size != sizeof *found) {
        fprintf(stderr, "fake_nvml: %s is not a state file of this library\n", wanted);
        close(opened);
        return DRIVER_NOT_LOADED;
    }
    if (fd >= 0) close(fd);
    fd = opened;
    node = found;
    mapped = there;
    snprintf(path, sizeof path, "%s", wanted);
    return OK;
}

static void pause_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Applies the delays and answers the code that was injected for this call. Called with the lock, which it lends out while it waits;
   a hang ends early when the fault is healed, so that no test must wait for it. */
static nvmlReturn_t inject(const char *function, int gpu)
{
    nvmlReturn_t code = OK;
    for (unsigned int number = 0; number < FAULTS; number++) {
        struct fault *fault = &node->faults[number];
        if (!fault->active || strcmp(fault->function, function) != 0 || (fault->gpu >= 0 && fault->gpu != gpu)) continue;
        if (fault->after > 0) { fault->after--; continue; }
        if (fault->times == 0) continue;
        if (fault->times > 0) fault->times--;
        if (fault->code && code == OK) code = fault->code;
        long left = fault->delay_ms;
        if (left == 0) continue;
        unlock();
        for (; left > 0 && *(volatile uint32_t *)&fault->active; left -= 10) pause_ms(left < 10 ? left : 10);
        lock();
    }
    return code;
}

static int has_privilege(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) != 0) return 0;
    return (data[0].effective >> CAP_SYS_ADMIN) & 1;
}

int is_unprivileged(void) { return node->needs_privilege && !has_privilege(); }

static void die_at(int32_t *countdown)
{
    if (*countdown > 0 && --*countdown == 0) kill(getpid(), SIGKILL);
}

nvmlReturn_t begin(struct hold *hold, const char *function, int gpu, const char *mutation, ...)
{
    lock();
    hold->locked = 1;
    if (references == 0 || node == NULL) return UNINITIALIZED;
    hold->mutates = mutation != NULL;
    if (mutation != NULL) {
        char *text = node->calls[node->call_count++ % CALLS].text;
        int length = snprintf(text, sizeof node->calls[0].text, "%s", function);
        va_list values;
        va_start(values, mutation);
        vsnprintf(text + length, sizeof node->calls[0].text - length, mutation, values);
        va_end(values);
        die_at(&node->kill_before);
    }
    nvmlReturn_t code = inject(function, gpu);
    if (code != OK) return code;
    if (gpu >= 0 && gpu < (int)node->gpu_count && node->gpus[gpu].lost) return GPU_IS_LOST;
    return mutation != NULL && is_unprivileged() ? NO_PERMISSION : OK;
}

void end(struct hold *hold)
{
    if (hold->mutates) die_at(&node->kill_after);
    if (hold->locked) unlock();
}

/* kind 4 bits, session 8, GPU 8, GPU instance 8, compute instance 8, tag 24; from the top, below four bits that are never zero. */
void *handle_of(enum kind kind, unsigned int gpu, unsigned int gi, unsigned int ci, unsigned int tag)
{
    uint64_t high = 0x50u | kind;
    return (void *)(high << 56 | (uint64_t)(session & 0xFF) << 48 | (uint64_t)gpu << 40 | (uint64_t)(gi & 0xFF) << 32
                    | (uint64_t)(ci & 0xFF) << 24 | (tag & 0xFFFFFF));
}

unsigned int gpu_of(const void *handle) { return (uint64_t)handle >> 40 & 0xFF; }
unsigned int gi_of(const void *handle) { return (uint64_t)handle >> 32 & 0xFF; }
unsigned int ci_of(const void *handle) { return (uint64_t)handle >> 24 & 0xFF; }

/* The generation is that of the last nvmlInit: after a mode switch no call finds a valid handle until there is another one. */
void *device_handle(unsigned int gpu) { return handle_of(DEVICE, gpu, NO_INSTANCE, NO_INSTANCE, generations[gpu]); }

void *instance_handle(unsigned int gpu, unsigned int gi)
{
    return handle_of(INSTANCE, gpu, gi, NO_INSTANCE, node->gpus[gpu].instances[gi].serial);
}

void *compute_handle(enum kind kind, unsigned int gpu, unsigned int gi, unsigned int ci)
{
    return handle_of(kind, gpu, gi, ci, node->gpus[gpu].instances[gi].computes[ci].serial);
}

nvmlReturn_t resolve(const void *handle, unsigned int kinds, struct target *target)
{
    uint64_t value = (uint64_t)handle;
    unsigned int kind = value >> 56 & 0xF, tag = value & 0xFFFFFF, gi = gi_of(handle), ci = ci_of(handle), gpu = gpu_of(handle);
    if (value >> 60 != 5 || !(kinds & ON(kind)) || (value >> 48 & 0xFF) != (session & 0xFF)) return INVALID_ARGUMENT;
    if (gpu >= node->gpu_count || generations[gpu] != node->gpus[gpu].generation) return INVALID_ARGUMENT;
    *target = (struct target){.kind = kind, .index = gpu, .gpu = &node->gpus[gpu], .gi = NO_INSTANCE, .ci = NO_INSTANCE};
    if (kind == DEVICE) return (generations[gpu] & 0xFFFFFF) == tag ? OK : INVALID_ARGUMENT;
    if (gi >= INSTANCES || !target->gpu->instances[gi].exists) return INVALID_ARGUMENT;
    target->gi = gi;
    target->instance = &target->gpu->instances[gi];
    if (kind == INSTANCE) return (target->instance->serial & 0xFFFFFF) == tag ? OK : INVALID_ARGUMENT;
    if (ci >= COMPUTES || !target->instance->computes[ci].exists) return INVALID_ARGUMENT;
    target->ci = ci;
    target->compute = &target->instance->computes[ci];
    return (target->compute->serial & 0xFFFFFF) == tag ? OK : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    pthread_mutex_lock(&threads);
    nvmlReturn_t code = map();
    pthread_mutex_unlock(&threads);
    if (code != OK) return code;
    lock();
    code = inject(__func__, ANY_GPU);
    if (code == OK) code = node->init_code;
    if (code == OK) {
        if (references++ == 0) session++;
        for (unsigned int gpu = 0; gpu < GPUS; gpu++) generations[gpu] = node->gpus[gpu].generation;
    }
    unlock();
    return code;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
    BEGIN(ANY_GPU);
    references--;
    return OK;
}

/* For the tests' own process only: drops sessions that a failed test has left open. */
void fake_nvml_forget(void)
{
    lock();
    references = 0;
    unlock();
}
