/*
 * early_exit.c - see early_exit.h. Called by attempt.c when a worker ends; read by
 * src/comm/group/join/join.c. Without it a worker would wait until tri_init's deadline for one
 * that will never come.
 */
#include "launch/worker/early_exit.h"

#include <stdio.h>
#include <string.h>

#include <trireme/store.h>

#include "base/alloc.h"
#include "base/log.h"
#include "launch/output/background.h"

#define STORE_TIMEOUT_MS 10000 /* of a store on another host */

/* How one worker has ended, as it goes to the thread that writes to another host. */
typedef struct ended {
    int rank;
    char how[80];
} ended;

/* The store of another agent; the thread's. */
typedef struct remote_store {
    tri_store *store; /* NULL until it is needed */
    char host[256];
    int port;
    int restart_count;
} remote_store;

struct trii_early_exit {
    trii_tcp_server *store; /* this agent's; NULL: the next two write to another's */
    trii_background *background;
    trii_background_file *remote;
    int restart_count;
};

/* One of the two stores is given. */
static tri_status set_keys(trii_tcp_server *own, tri_store *other, int restart_count,
                           const ended *worker)
{
    const char *values[] = {worker->how, ""};
    char keys[2][64];
    tri_status status = TRI_OK;

    snprintf(keys[0], sizeof(keys[0]), "trireme/%d/ended/%d", restart_count, worker->rank);
    snprintf(keys[1], sizeof(keys[1]), "trireme/%d/ended", restart_count);
    for (int i = 0; i < 2 && status == TRI_OK; i++)
        status = own != NULL ? trii_tcp_server_tell(own, keys[i], values[i])
                             : tri_store_set(other, keys[i], values[i], strlen(values[i]));
    return status;
}

/* --- a store on another host ---------------------------------------------- */

static tri_status put_ended(void *target, const char *data, size_t bytes)
{
    const tri_store_tcp_options options = {.timeout_ms = STORE_TIMEOUT_MS};
    remote_store *remote = target;
    tri_status status = TRI_OK;
    ended worker;

    if (remote->store == NULL)
        status = tri_store_tcp(remote->host, remote->port, &options, &remote->store);
    for (; status == TRI_OK && bytes >= sizeof(worker); bytes -= sizeof(worker)) {
        memcpy(&worker, data, sizeof(worker));
        status = set_keys(NULL, remote->store, remote->restart_count, &worker);
        data += sizeof(worker);
    }
    return status;
}

static void release_store(void *target)
{
    tri_store_unref(((remote_store *)target)->store);
    trii_free(target);
}

/* Those that wait have their deadline all the same. */
static void log_warning(void *arg, const char *text)
{
    (void)arg;
    TRII_LOG(TRII_LOG_INFO, "launch", "%s", text);
}

static tri_status open_remote_store(trii_early_exit *early, const trii_launch_job *job,
                                    trii_loop *loop)
{
    static const trii_background_kind kind = {.put = put_ended, .release = release_store};
    remote_store *target = trii_alloc(1, sizeof(*target), "early exit");
    tri_status status;

    if (target == NULL)
        return TRI_ERR_NO_MEMORY;
    snprintf(target->host, sizeof(target->host), "%s", job->master_addr);
    target->port = job->master_port;
    target->restart_count = job->restart_count;
    status = trii_background_create(loop, NULL, log_warning, NULL, &early->background);
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
    tri_status status = TRI_OK;

    *early_out = NULL;
    if (!job->new_store || job->world_size == 1)
        return TRI_OK;
    early = trii_alloc(1, sizeof(*early), "early exit");
    if (early == NULL)
        return TRI_ERR_NO_MEMORY;
    early->store = store;
    early->restart_count = job->restart_count;
    if (store == NULL)
        status = open_remote_store(early, job, loop);
    if (status != TRI_OK) {
        trii_early_exit_destroy(early);
        return status;
    }
    *early_out = early;
    return TRI_OK;
}

void trii_early_exit_publish(trii_early_exit *early, const trii_worker *worker)
{
    ended what = {.rank = worker->rank};
    tri_status status;

    if (early == NULL)
        return;
    trii_worker_describe(worker, what.how, sizeof(what.how));
    if (!trii_worker_failed(worker))
        snprintf(what.how, sizeof(what.how), "ended with status 0");
    if (early->store == NULL) {
        trii_background_put(early->remote, (const char *)&what, sizeof(what));
        return;
    }
    status = set_keys(early->store, NULL, early->restart_count, &what);
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
