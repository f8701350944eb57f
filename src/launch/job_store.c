/*
 * job_store.c - the store of the workers of an attempt, served by the agent's own loop.
 *
 * Every attempt gets a new one: a worker that is restarted would else read addresses that workers
 * of the attempt before left there.
 */
#include "launch/agent_internal.h"

#include "base/err.h"
#include "base/log.h"
#include "launch/rendezvous/rendezvous.h"
#include "os/clock.h"
#include "os/limits.h"
#include "os/secret.h"

enum { REBIND_MS = 2000 };

tri_status trii_job_key_check(const trii_agent *a, bool set)
{
    return set || !a->options->require_key
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_INVALID_ARG, "--require-key: TRI_JOB_KEY_FILE does not name a "
                                                "file with a job key (make one: head -c 32 "
                                                "/dev/urandom | base64 >FILE; chmod 600 FILE)");
}

static tri_status port_taken(const trii_launch_options *o)
{
    char why[TRII_ERR_BYTES];

    snprintf(why, sizeof(why), "%s", tri_last_error());
    return TRII_FAIL(TRI_ERR_STATE,
                     "the job's %s: another job or program uses the port (which: ss -ltnp | grep "
                     ":%d); choose another %s",
                     why, o->master_port,
                     *o->rdzv_endpoint != '\0' ? "one in --rdzv-endpoint"
                                               : "--master-port, or --master-port 0 for any");
}

void trii_job_store_warn(trii_agent *a, int agents_port)
{
    const trii_launch_options *o = a->options;
    bool open = a->store != NULL && trii_tcp_server_is_open(a->store);
    int port = open ? trii_tcp_server_port(a->store) : 0;
    char ports[64];
    const char *what;

    if (a->warned_open || (port == 0 && agents_port == 0))
        return;
    a->warned_open = true;
    if (port != 0 && agents_port != 0)
        snprintf(ports, sizeof(ports), "ports %d and %d are", agents_port, port);
    else
        snprintf(ports, sizeof(ports), "port %d is", port != 0 ? port : agents_port);
    if (a->hosts != NULL)
        what = "give all hosts the same TRI_JOB_KEY_FILE, or use a network that you trust";
    else if (*o->rdzv_endpoint != '\0')
        what = "name a loopback address (--rdzv-endpoint 127.0.0.1:PORT)";
    else
        what = "name a loopback address (--master-addr 127.0.0.1)";
    TRII_LOG(
        TRII_LOG_WARN, "launch",
        "%s open to the network, and no job key protects the job: any process that reaches it can "
        "read and change the job's keys; %s",
        ports, what);
}

/* What clients may take leaves the agent what it needs to start its workers again, and the agents'
 * store its part. */
static int max_clients(const trii_agent *a)
{
    int agents = a->hosts != NULL ? TRII_RDZV_QUARTERS : 0;
    int keep = TRII_FDS_OF_AGENT + TRII_FDS_OF_WORKER * a->n_workers +
               trii_descriptors_share(agents, 0, 0);

    return trii_descriptors_share(3 - agents, keep, a->n_workers + TRII_FDS_OF_AGENT);
}

/* The port that the attempt before had: the kernel may keep its listener for moments after the last
 * descriptor was closed (seen in 3 of 100 restarts where four processes wanted each core). */
static tri_status create_server(const trii_tcp_server_options *options, int again_ms,
                                trii_tcp_server **server_out)
{
    int64_t end_ns = trii_deadline_ms(again_ms);
    tri_status status = trii_tcp_server_create(options, server_out);

    while (status == TRI_ERR_STATE && trii_now_ns() < end_ns) {
        trii_sleep_until(trii_now_ns() + TRII_NS_PER_MS);
        status = trii_tcp_server_create(options, server_out);
    }
    return status;
}

/* A name that is not loopback is served everywhere, as torchrun does: workers may resolve it to
 * any of our addresses. */
tri_status trii_job_store_open(trii_agent *a, const char *host, int port)
{
    bool loopback = trii_socket_is_loopback(host);
    trii_job_key key = {0};
    const trii_tcp_server_options server = {.host = loopback ? host : NULL,
                                            .port = port,
                                            .key = &key,
                                            .key_optional = loopback,
                                            .no_open_warning = true,
                                            .max_connections = max_clients(a),
                                            .loop = a->loop};
    tri_status status = trii_job_key_load(&key);

    if (status == TRI_OK)
        status = trii_job_key_check(a, key.set);
    if (status == TRI_OK) {
        status = create_server(&server, a->restarts > 0 ? REBIND_MS : 0, &a->store);
        if (status == TRI_ERR_STATE && a->options->master_port != 0)
            status = port_taken(a->options);
        else if (status != TRI_OK)
            status = TRII_FAIL_CTX(status, "the job's store");
    }
    trii_secret_wipe(&key, sizeof(key));
    if (status == TRI_OK && a->hosts == NULL)
        trii_job_store_warn(a, 0);
    return status;
}

void trii_job_store_close(trii_agent *a)
{
    trii_tcp_server_destroy(a->store);
    a->store = NULL;
}
