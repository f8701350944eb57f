/*
 * guard.c - see guard.h. agent.c starts it before the first worker and dismisses it when the job is
 * over; shutdown.c is told if it dies. It is a copy of the agent (os/descendants.h) that does
 * nothing until its pipe closes, so it costs a few pages of memory and no processor time.
 */
#include "launch/guard.h"

#include <string.h>

#include "launch/os/descendants.h"
#include "launch/os/pipe.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/socket.h"

enum { MAX_ROUNDS = 200, ROUND_MS = 10 };

typedef struct guard_args {
    const trii_run_folder *folder;
    const trii_cgroup *cgroup;
    int fd;
} guard_args;

static int guard_main(void *arg)
{
    const guard_args *args = arg;
    trii_run_folder folder = *args->folder;
    trii_cgroup cgroup = *args->cgroup;
    char mark[TRII_RUN_FOLDER_BYTES + 16];
    int64_t died_ns;

    /* Nothing is ever written there: it is readable when the agent's end is closed. */
    while (trii_socket_wait(args->fd, TRII_READABLE, TRII_NO_DEADLINE) != TRI_OK)
        ;
    died_ns = trii_now_ns(); /* what workers do from now on comes of the deaths of others */
    snprintf(mark, sizeof(mark), "TRI_RUN_DIR=%s", folder.path);
    trii_cgroup_kill(&cgroup);
    /* What is killed may be starting something this moment, so look until nothing is found. */
    for (int i = 0; i < MAX_ROUNDS && trii_process_kill_marked(mark) > 0; i++)
        trii_sleep_until(trii_now_ns() + ROUND_MS * TRII_NS_PER_MS);
    trii_cgroup_remove(&cgroup);
    trii_run_folder_note_stop(&folder, died_ns,
                              "trirun was killed or crashed, and the job ended with it");
    trii_run_folder_keep(&folder);
    return 0;
}

tri_status trii_guard_start(trii_guard *guard, const trii_run_folder *folder,
                            const trii_cgroup *cgroup)
{
    guard_args args = {.folder = folder, .cgroup = cgroup};
    int kept[3];
    tri_status status = trii_pipe_open(&args.fd, &guard->alive_fd);

    if (status != TRI_OK)
        return status;
    kept[0] = args.fd;
    kept[1] = folder->lock_fd;
    kept[2] = cgroup->fd;
    status = trii_process_fork(guard_main, &args, kept, 3, &guard->pid);
    trii_fd_close(args.fd);
    if (status != TRI_OK) {
        trii_fd_close(guard->alive_fd);
        guard->pid = 0;
    }
    return status;
}

bool trii_guard_reaped(trii_guard *guard, int pid)
{
    if (guard->pid == 0 || guard->pid != pid)
        return false;
    trii_fd_close(guard->alive_fd);
    guard->pid = 0;
    return true;
}

void trii_guard_dismiss(trii_guard *guard)
{
    if (guard->pid == 0)
        return;
    trii_process_kill(guard->pid); /* SIGKILL also ends one that is stopped */
    trii_fd_close(guard->alive_fd);
    guard->pid = 0;
}
