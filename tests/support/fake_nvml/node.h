/* How the library's files work together: the mapped node, handles, and the frame around every call. */
#pragma once
#include "abi.h"
#include "layout.h"

/* The mapped state file; NULL before the first nvmlInit. A former mapping is never unmapped: a call may still hang in it. */
extern struct state *node;

/* What a handle says. A handle is one number: what it is, whose session made it, what it points at, and a tag.
   The tag of a device is its generation, which a mode switch advances; the tag of an instance is its serial, used once.
   So a stale handle is told from a fresh one even where the id has been given out again. */
enum kind { DEVICE = 1, MIG_DEVICE = 2, INSTANCE = 3, COMPUTE = 4 };

struct target {
    enum kind kind;
    unsigned int index;        /* of the GPU */
    unsigned int gi, ci;       /* ids; NO_INSTANCE where it is not on an instance */
    struct gpu *gpu;
    struct instance *instance; /* NULL on a whole GPU */
    struct compute *compute;   /* NULL unless MIG_DEVICE or COMPUTE */
};

void *handle_of(enum kind kind, unsigned int gpu, unsigned int gi, unsigned int ci, unsigned int tag);
void *device_handle(unsigned int gpu);
void *instance_handle(unsigned int gpu, unsigned int gi);
void *compute_handle(enum kind kind, unsigned int gpu, unsigned int gi, unsigned int ci);
unsigned int gpu_of(const void *handle), gi_of(const void *handle), ci_of(const void *handle);
/* INVALID_ARGUMENT if the handle is of another kind, of a former session, or of what no longer exists. */
nvmlReturn_t resolve(const void *handle, unsigned int kinds, struct target *target);

/* The frame: every call begins with BEGIN or one of its kin, and whatever way it returns, `end` gives the lock back.
   A mutation is logged when it arrives, even if it is then refused. */
struct hold { int locked, mutates; };
nvmlReturn_t begin(struct hold *hold, const char *function, int gpu, const char *mutation, ...) __attribute__((format(printf, 4, 5)));
void end(struct hold *hold);
/* Whether the driver asks for CAP_SYS_ADMIN (not unless a test wants it) and the caller has it not. */
int is_unprivileged(void);

#define ANY_GPU (-1)
#define BEGIN_CALL_OF(function, ...) \
    __attribute__((cleanup(end))) struct hold hold = {0}; \
    nvmlReturn_t refused = begin(&hold, function, __VA_ARGS__); \
    if (refused != OK) return refused
#define BEGIN_CALL(...) BEGIN_CALL_OF(__func__, __VA_ARGS__)
#define BEGIN(gpu) BEGIN_CALL(gpu, NULL)
#define RESOLVE(handle, kinds) \
    struct target at; \
    refused = resolve(handle, kinds, &at); \
    if (refused != OK) return refused
#define BEGIN_ON(handle, kinds) BEGIN((int)gpu_of(handle)); RESOLVE(handle, kinds)
#define MUTATE_ON(handle, kinds, ...) BEGIN_CALL((int)gpu_of(handle), __VA_ARGS__); RESOLVE(handle, kinds)
#define ON(kind) (1u << (kind))
#define ON_GPU ON(DEVICE)
#define ON_ANY_DEVICE (ON(DEVICE) | ON(MIG_DEVICE))

/* The fd of the mapped file, for the locks of HELD rows. */
int state_fd(void);

/* Processes: whether any is on the GPU (gi NO_INSTANCE) or on an instance or compute instance of it; and what they use. */
int is_busy(struct target *at);
unsigned long long used_bytes(struct target *at);

/* Empties the GPU of instances and voids every handle of it: what a mode switch does. */
void switch_mode(struct gpu *gpu, unsigned int enabled);
unsigned int profile_memory_mib(const struct gpu *gpu, const struct instance *instance);
