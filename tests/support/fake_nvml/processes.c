/* Processes on GPUs: who is there, whom the caller may see and under which pid, and NVML's lists of them.

   A row of the state file is known in one of four ways.
   - HELD: the process itself holds a POSIX lock on the byte LOCK_BASE + number of the row. The kernel drops the lock when the process
     dies, zombie or not, and F_GETLK answers its pid in the caller's own pid namespace, 0 if it is not visible there. That is just
     what the driver does, and it needs neither /proc nor a capability.
   - FOLLOWED: somebody else wrote the row of a living process, with its start time. It ends when that pid ends or is another process.
     It is visible in the pid namespace in which it was written, and in no other.
   - MADE_UP: a pid that was not alive when it was written. It stays until it is taken away.
   - RAW: junk that is shown in the lists exactly as it is and counts for nothing else. */
#define _GNU_SOURCE
#include "node.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_SHOWN 950u /* NV2080_CTRL_GPU_GET_PIDS_MAX_COUNT: the driver tells of no more, and does not say so */

static uint64_t own_pid_namespace(void)
{
    struct stat namespace;
    return stat("/proc/self/ns/pid", &namespace) == 0 ? namespace.st_ino : 0;
}

/* Field 22 of /proc/PID/stat; 0 if the process is gone or only a zombie, which has given its memory back. A main thread that
   ended before its others looks like a zombie: the process keeps its memory as long as one of them runs (field 20). */
static uint64_t start_time(unsigned int pid)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = 0;
    char state = 0;
    unsigned long long started = 0;
    long threads = 0;
    const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
    if (rest == NULL || sscanf(rest, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu", &state, &threads, &started) != 3)
        return 0;
    const int has_left = state == 'X' || (state == 'Z' && threads < 2);
    return has_left ? 0 : started;
}

/* Whether the row's process lives; `pid` becomes what the caller knows it by, 0 if it is not visible to the caller. A dead one's row is freed. */
static int lives(struct row *row, off_t byte, unsigned int *pid)
{
    *pid = row->pid;
    if (row->how == MADE_UP || row->how == RAW) return 1;
    if (row->how == HELD) {
        struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
        if (fcntl(state_fd(), F_GETLK, &held) == 0 && held.l_type != F_UNLCK) {
            *pid = held.l_pid > 0 ? (unsigned int)held.l_pid : 0;
            return 1;
        }
    } else if (row->pid_namespace != own_pid_namespace()) {
        *pid = 0;
        return 1;
    } else if (start_time(row->pid) == row->started) return 1;
    memset(row, 0, sizeof *row);
    return 0;
}

/* The next row with a living process on the target, from `*number` on. A GPU has those of all its instances. */
static struct row *next(const struct target *at, unsigned int *number, unsigned int *pid)
{
    for (; *number < at->gpu->row_end; ++*number) {
        struct row *row = &at->gpu->rows[*number];
        int is_here = (at->gi == NO_INSTANCE || row->gi == at->gi) && (at->ci == NO_INSTANCE || row->ci == at->ci);
        if (row->kinds == 0 || !is_here || !lives(row, (off_t)(LOCK_BASE + at->index * ROWS + *number), pid)) continue;
        ++*number;
        return row;
    }
    return NULL;
}

/* What nobody can see still uses the GPU. */
int is_busy(struct target *at)
{
    unsigned int number = 0, pid;
    return next(at, &number, &pid) != NULL;
}

/* A process in several rows (compute and graphics) uses its memory once: the first row with the greatest amount counts. A HELD row is
   the only one of its process, and its pid may be another's in another pid namespace. */
static int counts(const struct gpu *gpu, const struct row *row)
{
    if (row->how == RAW || row->used_bytes == UNKNOWN_BYTES) return 0;
    if (row->how == HELD) return 1;
    for (const struct row *other = gpu->rows; other < gpu->rows + gpu->row_end; other++) {
        if (other == row || other->kinds == 0 || other->how == RAW || other->how == HELD || other->pid != row->pid || other->gi != row->gi || other->ci != row->ci
            || other->pid_namespace != row->pid_namespace || other->used_bytes == UNKNOWN_BYTES) continue;
        if (other->used_bytes > row->used_bytes || (other->used_bytes == row->used_bytes && other < row)) return 0;
    }
    return 1;
}

unsigned long long used_bytes(struct target *at)
{
    unsigned long long sum = 0;
    unsigned int number = 0, pid;
    for (struct row *row; (row = next(at, &number, &pid)) != NULL;)
        if (counts(at->gpu, row)) sum += row->used_bytes;
    return sum;
}

/* --- the lists --- */

struct list { unsigned int count; nvmlProcessDetail_t rows[MOST_SHOWN]; };

static void collect(const struct target *at, unsigned int kinds, struct list *list)
{
    unsigned int number = 0, pid;
    list->count = 0;
    for (struct row *row; list->count < MOST_SHOWN && (row = next(at, &number, &pid)) != NULL;) {
        if (!(row->kinds & kinds) || (pid == 0 && row->how != MADE_UP && row->how != RAW)) continue;
        list->rows[list->count++] = (nvmlProcessDetail_t){.pid = pid, .usedGpuMemory = row->used_bytes, .gpuInstanceId = row->gi,
                                                          .computeInstanceId = row->ci};
    }
}

/* How many entries the caller must bring. A race: the list has grown past whatever was brought. */
static int is_short(struct gpu *gpu, const struct list *list, unsigned int brought, unsigned int *needed)
{
    *needed = list->count;
    if (list->count > 0 && brought > 0 && gpu->races > 0) {
        gpu->races--;
        *needed = brought + 1;
    }
    return brought < *needed;
}

/* With MIG on, only the privileged are told of all instances together; of a MIG device everybody is told. */
static int is_hidden(const struct target *at) { return at->kind == DEVICE && at->gpu->mig_current && is_unprivileged(); }

static nvmlReturn_t list(const char *function, nvmlDevice_t device, unsigned int kinds, unsigned int *count, nvmlProcessInfo_t *rows)
{
    BEGIN_CALL_OF(function, (int)gpu_of(device), NULL);
    RESOLVE(device, ON_ANY_DEVICE);
    if (count == NULL) return INVALID_ARGUMENT;
    if (is_hidden(&at)) return NO_PERMISSION;
    struct list found;
    unsigned int needed;
    collect(&at, kinds, &found);
    int is_too_short = is_short(at.gpu, &found, rows == NULL ? 0 : *count, &needed);
    *count = needed;
    if (is_too_short) return INSUFFICIENT_SIZE;
    for (unsigned int number = 0; number < found.count; number++)
        rows[number] = (nvmlProcessInfo_t){found.rows[number].pid, found.rows[number].usedGpuMemory, found.rows[number].gpuInstanceId,
                                           found.rows[number].computeInstanceId};
    return OK;
}

/* An MPS client (Volta on) is in the compute list too. */
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *rows)
{
    return list(__func__, device, KIND_COMPUTE | KIND_MPS, count, rows);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *rows)
{
    return list(__func__, device, KIND_GRAPHICS, count, rows);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *rows)
{
    return list(__func__, device, KIND_MPS, count, rows);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *asked)
{
    static const unsigned int KINDS_OF_MODE[] = {KIND_COMPUTE | KIND_MPS, KIND_GRAPHICS, KIND_MPS, KIND_COMPUTE | KIND_GRAPHICS | KIND_MPS};
    BEGIN_ON(device, ON_ANY_DEVICE);
    if (asked->version != VERSION_PROCESS_DETAILS_1) return ARGUMENT_VERSION_MISMATCH;
    if (asked->mode > 3) return INVALID_ARGUMENT;
    if (is_hidden(&at)) return NO_PERMISSION;
    struct list found;
    unsigned int needed;
    collect(&at, KINDS_OF_MODE[asked->mode], &found);
    int is_too_short = is_short(at.gpu, &found, asked->procArray == NULL ? 0 : asked->numProcArrayEntries, &needed);
    asked->numProcArrayEntries = needed;
    if (is_too_short) return INSUFFICIENT_SIZE;
    if (found.count > 0) memcpy(asked->procArray, found.rows, found.count * sizeof found.rows[0]);
    return OK;
}
