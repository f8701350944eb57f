/*
 * cgroup.h - a control group below trirun's (version 2 of the kernel's), to end what is in it at
 * once: also what left its session and its parent and cleared its environment.
 *
 * No controller is enabled, nothing is limited or counted in it. Allowed to root, in a container
 * whose /sys/fs/cgroup can be written, and where systemd delegates (Delegate=). It is locked while
 * it is used; one without a lock was left by an agent that was killed.
 */
#ifndef TRII_CGROUP_H
#define TRII_CGROUP_H

#include <trireme/status.h>

#define TRII_CGROUP_BYTES 1024 /* of the path of a group's folder */
/* In front of the process id and a number in the name of a group. */
#define TRII_CGROUP_PREFIX "trireme-"

typedef struct trii_cgroup {
    int fd; /* of its folder, with the lock on it; -1 = there is no group */
    char path[TRII_CGROUP_BYTES];
} trii_cgroup;

#define TRII_CGROUP_NONE                                                                           \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Cuts off the end of a path the names of such groups, which have no counters: what is left is the
 * group that the job was started in. */
void trii_cgroup_outside(char *path);
/* The folder of the group of version 2 that we are in, below /sys/fs/cgroup. root: "", or a copy of
 * the system's files for tests. Errors: UNSUPPORTED (there is none). */
tri_status trii_cgroup_own(const char *root, char path_out[TRII_CGROUP_BYTES]) TRI_MUST_CHECK;

/* Makes one in a folder from trii_cgroup_own. Groups there that processes of this user have left
 * without lock are killed and removed first, waiting up to 0.1 s for each.
 * Errors: UNSUPPORTED (not allowed, or the kernel has no cgroup.kill; says why). */
tri_status trii_cgroup_create(const char *parent, trii_cgroup *group_out) TRI_MUST_CHECK;

/* The rest does nothing to a group that there is none of. A process that knows `group` by being a
 * copy of the one that made it may do the same. */

/* SIGKILL to all in it and in groups below. */
void trii_cgroup_kill(const trii_cgroup *group);
/* Kills what is there, and waits for its end, at most 2 s. */
void trii_cgroup_clear(const trii_cgroup *group);
/* Clears and removes it, with the groups that its processes made in it. */
void trii_cgroup_remove(trii_cgroup *group);

#endif
