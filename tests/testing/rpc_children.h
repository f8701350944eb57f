/*
 * rpc_children.h - workers that are processes, to be killed, stopped and started again: they are
 * forked before the library is used here, and meet in the file of a store. Tests only.
 */
#ifndef TEST_RPC_CHILDREN_H
#define TEST_RPC_CHILDREN_H

#include <trireme/rpc.h>

#include "os/clock.h"
#include "os/shared_file.h"
#include "os/thread.h"
#include "testing/scratch.h"
#include "testing/test_fork.h"

typedef struct child {
    int pid;
    int go[2]; /* it begins when it reads a byte */
} child;

static scratch child_folder;
static char child_store[192];
static int child_number;        /* of a child: which of its name it is, from 1 on */
static bool child_joins = true; /* else it leaves at SIGUSR1 */
static volatile sig_atomic_t child_quits;
static tri_rpc *child_rpc; /* a child's own worker */
/* What all workers serve; the file sets it before the first one begins. */
static const tri_rpc_function *const *child_functions;
static int child_n_functions;

static inline tri_rpc *open_worker(const char *name, const tri_rpc_options *more)
{
    tri_rpc_options o = more != NULL ? *more : (tri_rpc_options){0};
    tri_store *store = NULL;
    tri_rpc *rpc = NULL;

    o.open = true;
    o.threads = o.threads != 0 ? o.threads : 1;
    o.timeout_ms = o.timeout_ms != 0 ? o.timeout_ms : 20000;
    o.functions = child_functions;
    o.n_functions = child_n_functions;
    TRI_TRY(tri_store_file(child_store, NULL, &store));
    TRI_TRY(tri_rpc_create(store, name, 0, 0, &o, &rpc));
    tri_store_unref(store);
    return rpc;
}

static inline void leave_worker(tri_rpc *rpc)
{
    CHECK_OK(tri_rpc_leave(rpc, 0));
    tri_rpc_destroy(rpc);
}

static inline void child_quit(int number)
{
    (void)number;
    child_quits = 1;
}

static inline void child_main(const child *c, const char *name, const tri_rpc_options *opt)
{
    char byte;

    sigset_t blocked, before;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, &before); /* but in sigsuspend */
    signal(SIGUSR1, child_quit);
    close(c->go[1]);
    if (read(c->go[0], &byte, 1) != 1)
        _exit(0);
    child_rpc = open_worker(name, opt);
    while (!child_joins && !child_quits)
        sigsuspend(&before);
    if ((child_joins && tri_rpc_join(child_rpc, TRI_FOREVER) != TRI_OK) ||
        tri_rpc_leave(child_rpc, 0) != TRI_OK)
        fprintf(stderr, "%s: %s\n", name, tri_last_error());
    tri_rpc_destroy(child_rpc);
    _exit(0);
}

static inline void child_fork(child *c, const char *name, int number, const tri_rpc_options *opt)
{
    snprintf(child_store, sizeof(child_store), "%s", scratch_path(&child_folder, "store"));
    setenv("TRI_LOG", "error", 1);
    child_number = number;
    assert_int_equal(pipe(c->go), 0);
    c->pid = test_fork();
    if (c->pid == 0)
        child_main(c, name, opt);
    close(c->go[0]);
    child_number = 0;
}

static inline void child_go(const child *c)
{
    assert_int_equal(write(c->go[1], "x", 1), 1);
}

/* While it does not have the lock of the store's file, for which the others would wait: one that is
 * in tri_rpc_join reads the store at any time. */
static inline void child_stop(const child *c)
{
    int fd;

    CHECK_OK(trii_shared_file_open(child_store, false, &fd));
    CHECK_OK(trii_shared_file_lock(fd, child_store, true, trii_deadline_ms(20000)));
    assert_int_equal(kill(c->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(c->pid, NULL, WUNTRACED), c->pid);
    trii_shared_file_close(fd);
}

static inline void child_kill(child *c)
{
    assert_int_equal(kill(c->pid, SIGKILL), 0);
    assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
    c->pid = 0;
}

/* Waits for those that were not killed. */
static inline void children_end(child *children, int n)
{
    for (int i = 0; i < n; i++)
        close(children[i].go[1]);
    for (int i = 0; i < n; i++) {
        if (children[i].pid != 0)
            assert_int_equal(waitpid(children[i].pid, NULL, 0), children[i].pid);
    }
    scratch_end(&child_folder);
}

/* Until the call has been cancelled, or its caller is lost. */
static inline tri_status child_hang(tri_rpc_request *request, void *object)
{
    (void)object;
    while (!tri_rpc_request_is_cancelled(request))
        trii_thread_yield();
    return TRI_OK;
}

#endif
