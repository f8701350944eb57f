/*
 * early_exit.c - see early_exit.h. Called by attempt.c when a worker ends; read by
 * src/group/join/join.c. Without it a worker would wait until tri_init's deadline for one
 * that will never come.
 */
#include "launch/worker/early_exit.h"

#include <stdio.h>
#include <string.h>

#include <trireme/store.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/param.h"
#include "launch/output/background.h"

#define STORE_TIMEOUT_MS 10000 /* of a store on another host */

/* The store of another agent; the thread's. */
typedef struct remote_store {
    tri_store *store; /* NULL until it is needed */
    char host[256];
    int port;
    int restart_count;
} remote_store;

struct trii_early_exit {
    trii_tcp_server *store;
    trii_loop *loop;
    trii_background *background;  /* NULL until it is needed, as the next */
    trii_background_file *remote; /* writes to `place` */
    remote_store place;           /* if the store is another agent's */
};

/* --- a store on another host ---------------------------------------------- */

static tri_status set_remote_keys(remote_store *e, int rank, const char *how, size_t bytes)
{
    char key[64];
    tri_status status;

    snprintf(key, sizeof(key), "trireme/%d/ended/%d", e->restart_count, rank);
    status = tri_store_set(e->store, key, how, bytes);
    snprintf(key, sizeof(key), "trireme/%d/ended", e->restart_count);
    return status == TRI_OK ? tri_store_set(e->store, key, "", 0) : status;
}

/* Lines of "RANK HOW". */
static tri_status put_lines(void *target, const char *data, size_t bytes)
{
    const tri_store_tcp_options options = {.timeout_ms = STORE_TIMEOUT_MS};
    remote_store *e = target;
    tri_status status = TRI_OK;

    if (e->store == NULL)
        status = tri_store_tcp(e->host, e->port, &options, &e->store);
    while (status == TRI_OK && bytes > 0) {
        const char *end = memchr(data, '\n', bytes), *how = memchr(data, ' ', bytes);
        char rank[16];
        int64_t number;

        if (end == NULL || how == NULL || how > end)
            return TRII_FAIL(TRI_ERR_INTERNAL, "a line about a worker's end is torn");
        snprintf(rank, sizeof(rank), "%.*s", (int)(how - data), data);
        status = trii_parse_i64(rank, "rank", 0, INT32_MAX, &number);
        if (status == TRI_OK)
            status = set_remote_keys(e, (int)number, how + 1, (size_t)(end - how - 1));
        bytes -= (size_t)(end + 1 - data);
        data = end + 1;
    }
    return status;
}

static void release_store(void *target)
{
    tri_store_unref(((remote_store *)target)->store);
    trii_free(target);
}

static void ignore_progress(void *arg)
{
    (void)arg;
}

/* Those that wait have their deadline all the same. */
static void log_warning(void *arg, const char *text)
{
    (void)arg;
    TRII_LOG(TRII_LOG_INFO, "launch", "%s", text);
}

static tri_status open_remote_store(trii_early_exit *early)
{
    static const trii_background_kind kind = {.put = put_lines, .release = release_store};
    remote_store *target = trii_alloc(1, sizeof(*target), "early exit");
    tri_status status;

    if (target == NULL)
        return TRI_ERR_NO_MEMORY;
    *target = early->place;
    status = early->background == NULL
                 ? trii_background_create(early->loop, ignore_progress, log_warning, NULL,
                                          &early->background)
                 : TRI_OK;
    if (status != TRI_OK) {
        trii_free(target);
        return status;
    }
    return trii_background_open(early->background, &kind, "the workers' store, of one that ended",
                                target, &early->remote);
}

/* --- publishing ----------------------------------------------------------- */

tri_status trii_early_exit_create(const trii_launch_job *job, trii_tcp_server *store,
                                  trii_loop *loop, trii_early_exit **early_out)
{
    trii_early_exit *early;

    *early_out = NULL;
    if (!job->new_store || job->world_size == 1)
        return TRI_OK;
    early = trii_alloc(1, sizeof(*early), "early exit");
    if (early == NULL)
        return TRI_ERR_NO_MEMORY;
    early->store = store;
    early->loop = loop;
    snprintf(early->place.host, sizeof(early->place.host), "%s", job->master_addr);
    early->place.port = job->master_port;
    early->place.restart_count = job->restart_count;
    *early_out = early;
    return TRI_OK;
}

static tri_status set_own_keys(trii_early_exit *early, int rank, const char *how)
{
    char key[64];
    tri_status status;

    snprintf(key, sizeof(key), "trireme/%d/ended/%d", early->place.restart_count, rank);
    status = trii_tcp_server_tell(early->store, key, how);
    snprintf(key, sizeof(key), "trireme/%d/ended", early->place.restart_count);
    return status == TRI_OK ? trii_tcp_server_tell(early->store, key, "") : status;
}

void trii_early_exit_publish(trii_early_exit *early, const trii_worker *worker)
{
    char how[80], line[120];
    tri_status status = TRI_OK;

    if (early == NULL)
        return;
    trii_worker_describe(worker, how, sizeof(how));
    if (worker->exit.signal == 0 && worker->exit.code == 0)
        snprintf(how, sizeof(how), "ended with status 0");
    if (early->store != NULL) {
        status = set_own_keys(early, worker->rank, how);
    } else {
        if (early->remote == NULL)
            status = open_remote_store(early);
        snprintf(line, sizeof(line), "%d %s\n", worker->rank, how);
        if (status == TRI_OK)
            trii_background_put(early->remote, line, strlen(line));
    }
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "launch", "%s", tri_last_error());
}

void trii_early_exit_destroy(trii_early_exit *early)
{
    if (early == NULL)
        return;
    trii_background_destroy(early->background);
    trii_free(early);
}
