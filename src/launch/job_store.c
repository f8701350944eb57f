/*
 * job_store.c - the store in which the workers of an attempt meet, in the agent's own loop.
 *
 * Every attempt gets a new one: a worker that is started again would else read addresses that the
 * dead have left there.
 */
#include "launch/agent_inside.h"

#include "base/err.h"
#include "os/secret.h"

tri_status trii_job_key_check(const trii_agent *a, bool set)
{
    return set || !a->options->require_key
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "--require-key: TRI_JOB_KEY_FILE names no file with a key (head -c 32 "
                           "/dev/urandom | base64 >FILE; chmod 600 FILE)");
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
                                            .loop = a->loop};
    tri_status status = trii_job_key_load(&key);

    if (status == TRI_OK)
        status = trii_job_key_check(a, key.set);
    if (status == TRI_OK)
        status = trii_tcp_server_create(&server, &a->store);
    trii_secret_wipe(&key, sizeof(key));
    if (status == TRI_ERR_STATE && a->options->master_port != 0)
        return TRII_FAIL_CTX(status,
                             "store of the job: another job or program has the port (who: ss -ltnp "
                             "| grep :%d); choose another --master-port, or for one host "
                             "--master-port 0",
                             a->options->master_port);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "store of the job");
}

void trii_job_store_close(trii_agent *a)
{
    trii_tcp_server_destroy(a->store);
    a->store = NULL;
}
