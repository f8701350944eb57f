/*
 * proc.c - see proc.h.
 */
/* build: leaf */
#include "os/proc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/syscall.h>

#include "base/hash.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/read_whole.h"

size_t trii_proc_read(const char *pid, const char *name, char *buf, size_t bytes)
{
    char path[80];

    snprintf(path, sizeof(path), "/proc/%.40s/%.20s", pid, name);
    return trii_read_whole(path, buf, bytes);
}

/* /proc/PID/stat from the state on, which is field 3; NULL if there is no such process. */
static const char *read_stat(const char *pid, char *stat, size_t bytes)
{
    const char *after;

    if (trii_proc_read(pid, "stat", stat, bytes) == 0)
        return NULL;
    after = strrchr(stat, ')'); /* the name may have spaces and parentheses of its own */
    return after != NULL && after[1] == ' ' ? after + 2 : NULL;
}

char trii_proc_state(int pid)
{
    char stat[512], name[16];
    const char *fields;

    snprintf(name, sizeof(name), "%d", pid);
    fields = read_stat(name, stat, sizeof(stat));
    return fields != NULL ? fields[0] : 'X';
}

/* Field 22. */
static uint64_t started_at(const char *fields)
{
    for (int field = 3; field < 22 && fields != NULL; field++) {
        fields = strchr(fields, ' ');
        fields = fields != NULL ? fields + 1 : NULL;
    }
    return fields != NULL ? strtoull(fields, NULL, 10) : 0;
}

static uint64_t own_space(void)
{
    char boot[40], space[64] = "";

    trii_boot_id(boot);
    if (boot[0] == '\0' || readlink("/proc/self/ns/pid", space, sizeof(space) - 1) < 0)
        return 0;
    return trii_hash_text(trii_hash_text(TRII_HASH_SEED, boot), space);
}

void trii_proc_id_own(trii_proc_id *id_out)
{
    char stat[512];

    id_out->pid = getpid();
    id_out->started = started_at(read_stat("self", stat, sizeof(stat)));
    id_out->space = own_space();
}

bool trii_proc_has_ended(const trii_proc_id *id)
{
    char stat[512], name[24];
    const char *fields;

    if (id->started == 0 || id->space == 0 || id->space != own_space())
        return false;
    snprintf(name, sizeof(name), "%" PRId64, id->pid);
    fields = read_stat(name, stat, sizeof(stat));
    return fields == NULL || fields[0] == 'Z' || fields[0] == 'X' ||
           started_at(fields) != id->started;
}

int trii_proc_open(const trii_proc_id *id)
{
    int fd;

    if (id->started == 0 || id->space == 0 || id->pid == getpid() || id->space != own_space())
        return -1;
    fd = trii_fd_above_standard((int)syscall(SYS_pidfd_open, (pid_t)id->pid, 0));
    if (fd >= 0 && trii_proc_has_ended(id)) { /* and another one may have its number */
        close(fd);
        return -1;
    }
    return fd;
}
