/*
 * rpc_worker.c - life of a worker: made, aborted, freed when the last call, reference or thread
 * lets go; and the process's own. How it joins and leaves: rpc_leave.c.
 */
#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/option.h"
#include "base/param.h"
#include "comm/group/group_internal.h"
#include "os/cpu.h"
#include "os/forked.h"
#include "os/random.h"
#include "os/socket.h"
#include "comm/rpc/rpc_arena.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"

#define DESTROY_MS 1000 /* for the library's threads to end */

static void free_all(tri_rpc *rpc);

static const tri_rpc_function *const built_in[] = {&rpc_find_function};

static const rpc_upcalls upcalls = {
    .find = &rpc_find_function,
    .request = rpc_on_request,
    .reply = rpc_on_reply,
    .cancel = rpc_on_cancel,
    .where = rpc_on_where,
    .define = rpc_on_define,
    .hold = rpc_on_hold,
    .held = rpc_on_held,
    .drop = rpc_on_drop,
    .gone = rpc_on_gone,
    .lose_calls = rpc_calls_lose,
    .lose_requests = rpc_requests_lose,
    .lose_refs = rpc_refs_lose,
    .say_gone = rpc_say_gone,
    .pump = rpc_pump,
    .connect_later = rpc_connect_later,
    .probe = rpc_probe,
    .stream_read = rpc_stream_read,
    .stream_flush = rpc_stream_flush,
    .stream_release = rpc_stream_release,
    .is_wanted = rpc_is_wanted,
    .run = rpc_run_request,
    .fail = rpc_request_fail_line,
    .forget_find = rpc_forget_find,
    .promise_wait = rpc_promise_wait,
    .promise_end = rpc_promise_end,
    .promise_forget = rpc_promise_forget,
    .promise_freed = rpc_promise_freed,
    .promises_lose = rpc_promises_lose,
    .call_unuse = rpc_call_unuse,
    .call_fail = rpc_call_fail,
    .submit_waiting = rpc_submit_waiting,
    .submit_replies = rpc_submit_replies,
    .revive = rpc_revive,
    .free = free_all,
};

/* --- life ----------------------------------------------------------------- */

static void free_all(tri_rpc *rpc)
{
    for (int i = 0; i < rpc->n_calls; i++)
        trii_free(rpc->calls[i]);
    while (rpc->idle_requests != NULL) {
        tri_rpc_request *r = rpc->idle_requests;

        rpc->idle_requests = r->next;
        trii_free(r);
    }
    while (rpc->peers != NULL) { /* that nobody ever used */
        rpc->peers->users++;
        rpc_peer_unuse(rpc->peers);
    }
    rpc_arenas_fini(rpc);
    rpc_record_close(rpc);
    trii_free(rpc->calls);
    trii_free(rpc->served);
    trii_free(rpc->used);
    trii_free(rpc->objects);
    trii_free(rpc->object_ages);
    trii_free(rpc->names);
    trii_free(rpc->record);
    tri_store_unref(rpc->store);
    trii_socket_close(rpc->kick_fd);
    trii_cond_fini(&rpc->changed);
    trii_cond_fini(&rpc->work);
    trii_mutex_fini(&rpc->lock);
    trii_free(rpc);
}

static tri_status fill_options(tri_rpc *rpc, const tri_rpc_options *opt)
{
    tri_rpc_options *o = &rpc->options;
    trii_cpu_set cores;
    int64_t threads;
    tri_status status;

    if (opt != NULL)
        *o = *opt;
    trii_cpu_allowed(&cores);
    threads = trii_cpu_set_count(&cores);
    status = trii_param_i64(TRII_PARAM_NUM_THREADS, threads, &threads);
    if (status == TRI_OK)
        status = trii_param_i64(TRII_PARAM_RPC_THREADS, threads, &threads);
    if (status != TRI_OK)
        return status;
    if (o->threads < 0 || o->max_threads < 0 || o->window_calls < 0 || o->timeout_ms < TRI_FOREVER)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "threads %d, max_threads %d, window_calls %d and timeout_ms %lld must not "
                         "be negative",
                         o->threads, o->max_threads, o->window_calls, (long long)o->timeout_ms);
    o->threads = o->threads > 0 ? o->threads : (int)threads;
    o->max_threads = o->max_threads > 0 ? o->max_threads : 64;
    o->max_threads = o->max_threads > o->threads ? o->max_threads : o->threads;
    o->timeout_ms = o->timeout_ms != 0 ? o->timeout_ms : TRI_RPC_TIMEOUT_MS;
    o->window_bytes = o->window_bytes > 0 ? o->window_bytes : (size_t)64 << 20;
    o->window_calls = o->window_calls > 0 ? o->window_calls : 1024;
    o->max_message = o->max_message > 0 ? o->max_message : (size_t)1 << 30;
    return TRI_OK;
}

static tri_status make(tri_store *store, const char *name, int rank, int size,
                       const tri_rpc_options *opt, tri_rpc **rpc_out)
{
    tri_rpc *rpc = trii_alloc(1, sizeof(*rpc), "worker");
    tri_store *clone = NULL;
    tri_status status;

    if (rpc == NULL)
        return TRI_ERR_NO_MEMORY;
    rpc->up = &upcalls;
    trii_mutex_init(&rpc->lock);
    trii_cond_init(&rpc->changed);
    trii_cond_init(&rpc->work);
    rpc->users = 1;
    rpc->unix_fd = rpc->tcp_fd = rpc->kick_fd = -1;
    rpc->queue_end = &rpc->queue;
    rpc->after_calls_end = &rpc->after_calls;
    rpc->startable_end = &rpc->startable;
    rpc->resolved_end = &rpc->resolved;
    rpc->timer_ns = TRII_NO_DEADLINE;
    rpc->rank = rank;
    rpc->size = size;
    snprintf(rpc->name, sizeof(rpc->name), "%s", name);
    snprintf(rpc->key, sizeof(rpc->key), "worker/%s", name);
    trii_fork_level_watch();
    rpc->fork_level = atomic_load(&trii_fork_level);
    status = fill_options(rpc, opt);
    if (status == TRI_OK)
        status = rpc_heartbeat_init(rpc);
    rpc->size = rpc->options.open ? 0 : size;
    if (status == TRI_OK && (!trii_random_bytes(&rpc->incarnation, sizeof(rpc->incarnation)) ||
                             !trii_random_bytes(rpc->token, sizeof(rpc->token))))
        status = TRII_FAIL(TRI_ERR_IO, "this system gives no random numbers");
    rpc->incarnation |= 1;
    if (status == TRI_OK && rpc->size > 0) {
        rpc->names = trii_alloc((size_t)rpc->size, sizeof(*rpc->names), "names");
        status = rpc->names != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status == TRI_OK)
        status = trii_job_key_load(&rpc->job_key);
    if (status == TRI_OK)
        status = trii_wakeup_create(&rpc->kick_fd);
    if (status == TRI_OK)
        status = tri_store_clone(store, &clone);
    if (status == TRI_OK)
        status = tri_store_prefix("rpc", clone, &rpc->store);
    tri_store_unref(clone);
    if (status == TRI_OK)
        status = trii_control_take(&rpc->loop);
    if (status != TRI_OK) {
        rpc_unuse(rpc);
        return status;
    }
    *rpc_out = rpc;
    return TRI_OK;
}

tri_status tri_rpc_create(tri_store *store, const char *name, int rank, int size,
                          const tri_rpc_options *opt, tri_rpc **rpc_out)
{
    bool open = opt != NULL && opt->open;
    int64_t deadline_ns;
    char **records = NULL;
    tri_rpc *rpc = NULL;
    tri_status status = trii_need(store, "rpc_create", "store");

    if (status == TRI_OK)
        status = trii_need(rpc_out, "rpc_create", "rpc_out");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_rpc_options, opt);
    if (status == TRI_OK)
        status = rpc_check_name(name, "rpc_create");
    if (status == TRI_OK && !open && (size < 1 || rank < 0 || rank >= size))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "rpc_create: rank %d of %d workers", rank, size);
    if (status != TRI_OK)
        return status;
    status = make(store, name, rank, size, opt, &rpc);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "rpc_create: worker %s", name);
    deadline_ns = trii_deadline_ms(rpc->options.timeout_ms);
    if (!open)
        status = rpc_meet_begin(rpc);
    if (status == TRI_OK)
        status = rpc_open_ports(rpc, deadline_ns);
    if (status == TRI_OK)
        status = rpc_listen(rpc);
    if (status == TRI_OK)
        status = tri_rpc_serve(rpc, built_in, (int)TRII_COUNT_OF(built_in));
    if (status == TRI_OK && rpc->options.n_functions > 0)
        status = tri_rpc_serve(rpc, rpc->options.functions, rpc->options.n_functions);
    if (status == TRI_OK)
        status = rpc_publish(rpc);
    if (status == TRI_OK)
        rpc_record_open(rpc);
    if (status == TRI_OK && !open)
        status = rpc_meet_all(rpc, deadline_ns, &records);
    if (status == TRI_OK && !open) {
        rpc_connect_all(rpc, records, deadline_ns);
        rpc_free_records(rpc, records);
    }
    rpc_end_meeting(rpc);
    if (status != TRI_OK) {
        rpc_meet_fail(rpc, status);
        (void)TRII_FAIL_CTX(status, "rpc_create: worker %s", name);
        (void)rpc_unpublish(rpc, deadline_ns);
        tri_rpc_destroy(rpc);
        return status;
    }
    *rpc_out = rpc;
    return TRI_OK;
}

void tri_rpc_abort(tri_rpc *rpc, const char *why)
{
    if (rpc_resolve(&rpc, "rpc_abort") != TRI_OK)
        return;
    rpc_lock(rpc);
    rpc_end_all(rpc, why != NULL ? why : "it was aborted");
    rpc_unlock(rpc);
}

/* The loop knows nothing of us afterwards. */
static void close_peers(tri_rpc *rpc)
{
    rpc_peer *p;

    trii_loop_lock(rpc->loop);
    rpc_lock(rpc);
    do {
        p = rpc->peers;
        while (p != NULL && p->closed)
            p = p->next;
        if (p != NULL) {
            rpc_peer_close(p);
            rpc_peer_unuse(p);
        }
    } while (p != NULL);
    trii_mutex_unlock(&rpc->lock);
    trii_loop_unlock(rpc->loop);
}

void tri_rpc_destroy(tri_rpc *rpc)
{
    int64_t deadline_ns = trii_deadline_ms(DESTROY_MS);
    trii_loop *loop;

    if (rpc == NULL || rpc_check_process(rpc, "rpc_destroy") != TRI_OK)
        return;
    loop = rpc->loop;
    rpc_lock(rpc);
    rpc_end_all(rpc, "it was destroyed");
    while ((rpc->n_threads > 0 || rpc->n_jobs > 0 || rpc->tells) &&
           rpc_sleep(rpc, &rpc->changed, deadline_ns))
        trii_cond_broadcast(&rpc->work);
    rpc_unlock(rpc);
    close_peers(rpc);
    rpc_unlisten(rpc);
    rpc_lock(rpc);
    rpc_unlock(rpc); /* what was put aside meanwhile */
    trii_control_release(loop);
    rpc_unuse(rpc);
}

const char *tri_rpc_name(const tri_rpc *rpc)
{
    tri_rpc *found = (tri_rpc *)(uintptr_t)rpc;

    return rpc_resolve(&found, "rpc_name") == TRI_OK ? found->name : "";
}

/* --- the process's own ---------------------------------------------------- */

static struct {
    trii_mutex mutex; /* of init and fini */
    bool has_joined;  /* the world, for it */
} own = {.mutex = TRII_MUTEX_INITIALIZER};

tri_status tri_rpc_init(const char *name, const tri_rpc_options *opt)
{
    char text[32];
    tri_store *store = NULL;
    tri_group *world;
    tri_rpc *rpc = NULL;
    bool joins;
    tri_status status = TRII_CHECK_RESERVED(tri_rpc_options, opt);

    if (status == TRI_OK && name != NULL)
        status = rpc_check_name(name, "rpc_init");
    if (status != TRI_OK)
        return status;
    trii_mutex_lock(&own.mutex);
    joins = !tri_is_initialized();
    if (atomic_load(&rpc_own) != NULL)
        status = TRII_FAIL(TRI_ERR_STATE, "rpc_init: this process is worker %s already",
                           atomic_load(&rpc_own)->name);
    else if (joins)
        status = tri_init(NULL);
    if (status == TRI_OK) {
        snprintf(text, sizeof(text), "worker%d", tri_rank());
        world = trii_group_get_world();
        if (world != NULL && world->store != NULL)
            store = tri_store_ref(world->store);
        else
            status = tri_store_hash(&store); /* alone */
        if (status == TRI_OK)
            status = tri_rpc_create(store, name != NULL ? name : text, tri_rank(), tri_world_size(),
                                    opt, &rpc);
        tri_store_unref(store);
        if (status != TRI_OK && joins)
            tri_finalize();
    }
    if (status == TRI_OK) {
        own.has_joined = joins;
        atomic_store(&rpc_own, rpc);
    }
    trii_mutex_unlock(&own.mutex);
    return status;
}

tri_status tri_rpc_fini(void)
{
    char line[TRII_ERR_BYTES];
    tri_rpc *rpc;
    tri_status status;

    if (rpc_running != NULL) /* the one that it would wait for may have the mutex */
        return TRII_FAIL(TRI_ERR_STATE, "rpc_fini: called by a handler, which it would wait for");
    trii_mutex_lock(&own.mutex);
    rpc = atomic_load(&rpc_own);
    status = rpc != NULL ? tri_rpc_leave(rpc, 0)
                         : TRII_FAIL(TRI_ERR_STATE, "rpc_fini: this process is not a worker");
    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (rpc != NULL && rpc_check_process(rpc, "rpc_fini") == TRI_OK) {
        atomic_store(&rpc_own, NULL);
        tri_rpc_destroy(rpc);
        if (own.has_joined)
            tri_finalize();
        if (status != TRI_OK)
            trii_err_set("%s", line);
    }
    trii_mutex_unlock(&own.mutex);
    return status;
}
