/*
 * rpc_job.c - threads of their own for what happens now and then: a connection is made, the next
 * worker of a name is looked for.
 */
#include "base/alloc.h"
#include "comm/rpc/rpc_internal.h"

typedef struct job {
    tri_rpc *rpc;
    void (*run)(void *arg);
    void *arg;
} job;

/* A connection may be made while the worker is destroyed, which does not wait for it for long. */
static trii_loop *take_loop(void)
{
    trii_loop *loop;

    return trii_control_take(&loop) == TRI_OK ? loop : NULL;
}

static void job_main(void *arg)
{
    job j = *(job *)arg;
    trii_loop *loop = take_loop();

    trii_free(arg);
    j.run(j.arg);
    rpc_stay_end(j.rpc, loop);
}

trii_loop *rpc_stay_begin(tri_rpc *rpc)
{
    rpc_lock(rpc);
    rpc_use(rpc);
    rpc->n_jobs++;
    rpc_unlock(rpc);
    return take_loop();
}

void rpc_stay_end(tri_rpc *rpc, const trii_loop *loop)
{
    if (loop != NULL)
        trii_control_release(loop);
    rpc_lock(rpc);
    rpc_thread_ends(rpc, &rpc->n_jobs);
}

tri_status rpc_start_job(tri_rpc *rpc, void (*run)(void *arg), void *arg)
{
    job *j = trii_alloc(1, sizeof(*j), "job");
    trii_thread thread;
    tri_status status;

    if (j == NULL)
        return TRI_ERR_NO_MEMORY;
    *j = (job){rpc, run, arg};
    rpc_use(rpc);
    status = trii_thread_start(&thread, "tri-rpc-job", job_main, j);
    if (status != TRI_OK) {
        trii_free(j);
        rpc_drop_use(rpc);
        return status;
    }
    rpc->n_jobs++;
    trii_thread_detach(&thread);
    return TRI_OK;
}
