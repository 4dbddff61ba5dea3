/* A tenant: a static program that takes GPU memory in the state file and holds it until it is killed.

   usage: tenant [--gpu INDEX|GPU-UUID|MIG-UUID] --mib N [--grow-to N] [--grow-after SECONDS] [--kind compute|graphics|mps]
                 [--on-term exit|ignore] [--comm NAME] [--state FILE]

   Without --gpu it is the one that NVIDIA_VISIBLE_DEVICES names: kubelet puts into arguments what a device plugin says of that, and
   not what a CDI device says.

   It needs nothing but the state file (GPUSHARE_FAKE_NVML where --state is left out): not /proc, not its pid on the host. It holds a file
   lock on its row's byte, and by that the library knows it, in every pid namespace; see processes.c. It writes `ready` when its memory is
   taken and `grown` when it has grown, which it does after so many seconds, or as soon as SIGUSR1 tells it to. Exit codes: 0 ended by SIGTERM, 2 wrong usage, 3 no such GPU, 4 no room or no memory left. */
#define _GNU_SOURCE
#include "layout.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static struct state *node;
static int fd;
static unsigned int gpu, gi = NO_INSTANCE, ci = NO_INSTANCE;

static void end(int code, const char *why)
{
    fprintf(stderr, "tenant: %s\n", why);
    exit(code);
}

static void lock(void) { while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {} }
static void unlock(void) { flock(fd, LOCK_UN); }

static void open_state(const char *path)
{
    if (path == NULL) end(2, "no state file: give --state or set GPUSHARE_FAKE_NVML");
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) end(2, "the state file cannot be opened");
    node = mmap(NULL, sizeof *node, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (node == MAP_FAILED || node->magic != MAGIC || node->size != sizeof *node) end(2, "not a state file of this program");
}

/* Sets gpu, gi and ci to what the name says. */
static int find(const char *name)
{
    for (gpu = 0; gpu < node->gpu_count; gpu++) {
        struct gpu *own = &node->gpus[gpu];
        char index[12];
        snprintf(index, sizeof index, "%u", gpu);
        if (strcmp(name, index) == 0 || strcmp(name, own->uuid) == 0) return 1;
        for (gi = 0; gi < INSTANCES; gi++)
            for (ci = 0; own->instances[gi].exists && ci < COMPUTES; ci++)
                if (own->instances[gi].computes[ci].exists && strcmp(name, own->instances[gi].computes[ci].uuid) == 0) return 1;
        gi = ci = NO_INSTANCE;
    }
    return 0;
}

/* Whether the row can be taken: nobody holds its lock. Takes the lock, for as long as this process lives. */
static int hold(unsigned int number)
{
    struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(LOCK_BASE + gpu * ROWS + number), .l_len = 1};
    return fcntl(fd, F_SETLK, &held) == 0;
}

static struct row *take(unsigned int kind, unsigned long long mib)
{
    lock();
    struct gpu *own = &node->gpus[gpu];
    unsigned int number = 0;
    while (number < ROWS && !((own->rows[number].kinds == 0 || number >= own->row_end) && hold(number))) number++;
    if (number == ROWS) end(4, "no free row");
    if (number >= own->row_end) own->row_end = number + 1;
    own->rows[number] = (struct row){.kinds = kind, .how = HELD, .pid = (uint32_t)getpid(), .gi = gi, .ci = ci, .used_bytes = mib << 20};
    unlock();
    return &own->rows[number];
}

static void tell(const char *word)
{
    printf("%s\n", word);
    fflush(stdout);
}

/* Handled, not left to the default: as PID 1 of a container a process without a handler would not end. */
static void on_term(int signal)
{
    (void)signal;
    _exit(0);
}

static unsigned int kind_of(const char *name)
{
    if (strcmp(name, "compute") == 0) return KIND_COMPUTE;
    if (strcmp(name, "graphics") == 0) return KIND_GRAPHICS;
    if (strcmp(name, "mps") == 0) return KIND_MPS;
    end(2, "--kind is compute, graphics or mps");
    return 0;
}

int main(int count, char **arguments)
{
    static const struct option options[] = {
        {"state", 1, 0, 's'}, {"gpu", 1, 0, 'g'}, {"mib", 1, 0, 'm'}, {"grow-to", 1, 0, 't'}, {"grow-after", 1, 0, 'a'},
        {"kind", 1, 0, 'k'}, {"on-term", 1, 0, 'o'}, {"comm", 1, 0, 'c'}, {0, 0, 0, 0}};
    const char *state = getenv("GPUSHARE_FAKE_NVML"), *name = getenv("NVIDIA_VISIBLE_DEVICES");
    unsigned long long mib = 0, grown = 0;
    unsigned int kind = KIND_COMPUTE, after = 1;
    sigset_t told;
    signal(SIGTERM, on_term);
    sigemptyset(&told);
    sigaddset(&told, SIGUSR1);
    sigprocmask(SIG_BLOCK, &told, NULL);
    for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;) switch (option) {
        case 's': state = optarg; break;
        case 'g': name = optarg; break;
        case 'm': mib = strtoull(optarg, NULL, 10); break;
        case 't': grown = strtoull(optarg, NULL, 10); break;
        case 'a': after = (unsigned int)strtoul(optarg, NULL, 10); break;
        case 'k': kind = kind_of(optarg); break;
        case 'o': signal(SIGTERM, strcmp(optarg, "ignore") == 0 ? SIG_IGN : on_term); break;
        case 'c': prctl(PR_SET_NAME, optarg); break;
        default: end(2, "wrong usage");
        }
    if (name == NULL) end(2, "which --gpu?");
    open_state(state);
    if (!find(name)) end(3, "no such GPU");
    struct row *row = take(kind, mib);
    tell("ready");
    if (grown > 0) {
        sigtimedwait(&told, NULL, &(struct timespec){.tv_sec = after});
        lock();
        row->used_bytes = grown << 20;
        unlock();
        tell("grown");
    }
    for (;;) pause();
}
