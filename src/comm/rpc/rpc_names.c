/*
 * rpc_names.c - where workers are, in a part of the store of their own:
 *
 *   worker/NAME  "v2 INCARNATION RANK PID PORT TOKEN BOOT SOCKET HOST ADDRESS,ADDRESS,.." of the
 *                worker that has the name now, or "left"; only ever replaced by compare_set
 *   member/N     the name of the Nth worker of an open set, once for each name; twice if
 *                its first worker died in between; member/count: N
 *   meet/..      where a closed set comes together (rpc_meet.c): which loopback interface each rank
 *                sees (if all see the same, they listen there), then "NAME RECORD" of each
 *
 * A name whose worker does not answer any more is free: the next one takes it with an incarnation
 * of its own.
 */
/* build: leaf */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/host.h"
#include "os/process.h"
#include "os/socket.h"
#include "os/unix.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"
#include "store/store_ops.h"

#define PROBE_MS 2000  /* for a worker to be reached */
#define DYING_MS 100   /* a process that ends listens as long as it has not closed that */
#define ANSWER_MS 2000 /* for the store, after the deadline: that may have been near */
#define MAX_HOSTS 8

/* --- the store of a worker that has come ---------------------------------- */

/* Passes the status of the calls on, with its line. */
static tri_status leave_store(tri_rpc *rpc, tri_status status)
{
    if (status == TRI_ERR_TIMEOUT)
        rpc->store_was_silent = true;
    rpc_lock(rpc);
    rpc->store_busy = false;
    rpc_changed(rpc);
    trii_mutex_unlock(&rpc->lock);
    return status;
}

/* Takes it for calls that end by the deadline; then leave_store is called. One that was silent is
 * connected to again, since nothing is known of what comes over the connection that it has. While a
 * closed set meets, the thread that makes the worker has it, too. */
static tri_status enter_store(tri_rpc *rpc, int64_t deadline_ns)
{
    int64_t left_ms, until_ns = deadline_ns;
    tri_store *again;
    tri_status status;
    bool was_busy, meets;

    if (deadline_ns != TRII_NO_DEADLINE)
        until_ns += ANSWER_MS * TRII_NS_PER_MS;
    rpc_lock(rpc);
    while (rpc->store_busy && rpc_sleep(rpc, &rpc->changed, until_ns))
        ;
    was_busy = rpc->store_busy;
    rpc->store_busy = true;
    meets = rpc->meeting > 0 && !rpc->has_read_all;
    trii_mutex_unlock(&rpc->lock); /* no event of the program's, which may look for a worker */
    if (was_busy)
        return TRII_FAIL(TRI_ERR_TIMEOUT, "the store does not answer");
    if (meets)
        return TRI_OK;
    left_ms = trii_deadline_left_ms(deadline_ns);
    trii_store_hurry(rpc->store, left_ms < 0 ? TRI_STORE_TIMEOUT_MS : left_ms + ANSWER_MS);
    if (!rpc->store_was_silent)
        return TRI_OK;
    status = tri_store_clone(rpc->store, &again);
    if (status != TRI_OK)
        return leave_store(rpc, status);
    tri_store_unref(rpc->store);
    rpc->store = again;
    rpc->store_was_silent = false;
    return TRI_OK;
}

/* --- records -------------------------------------------------------------- */

tri_status rpc_parse_record(const char *record, rpc_address *a)
{
    uint64_t token[RPC_TOKEN / 8];
    int got =
        sscanf(record, "v2 %" SCNx64 " %d %d %d %16" SCNx64 "%16" SCNx64 " %39s %63s %63s %511s",
               &a->incarnation, &a->rank, &a->pid, &a->port, &token[0], &token[1], a->boot,
               a->unix_name, a->host, a->hosts);

    if (got != 10 || a->port < 0 || a->port > 65535)
        return TRII_FAIL(TRI_ERR_FORMAT, "\"%.100s\" is not the address of a worker", record);
    memcpy(a->token, token, sizeof(token));
    return TRI_OK;
}

/* At most 639 bytes: of the addresses there are fewer than 384. */
static char *make_record(const tri_rpc *rpc, const char *unix_name, const char *addresses)
{
    char record[640], boot[40], host[64];
    uint64_t token[RPC_TOKEN / 8];

    trii_boot_id(boot);
    trii_host_name(host, sizeof(host));
    memcpy(token, rpc->token, sizeof(token));
    snprintf(record, sizeof(record),
             "v2 %" PRIx64 " %d %d %d %016" PRIx64 "%016" PRIx64 " %s %s %s %s", rpc->incarnation,
             rpc->rank, trii_process_id(), rpc->tcp_port, token[0], token[1], boot, unix_name, host,
             addresses);
    return trii_strdup(record, "worker");
}

/* Whether the worker of a record can still be reached. */
static bool is_alive(tri_rpc *rpc, const rpc_address *a)
{
    char boot[40], byte;
    int fd = -1;
    tri_status status;

    trii_boot_id(boot);
    if (strcmp(boot, a->boot) == 0) {
        status = trii_unix_connect(a->unix_name, trii_deadline_ms(PROBE_MS), &fd);
        if (status == TRI_OK &&
            trii_socket_wait(fd, TRII_READABLE, trii_deadline_ms(DYING_MS)) == TRI_OK &&
            trii_unix_peek(fd, &byte, 1) < 0)
            status = TRI_ERR_PEER_LOST;
        trii_unix_close(fd);
        if (status != TRI_ERR_UNSUPPORTED)
            return status == TRI_OK || status == TRI_ERR_TIMEOUT;
    }
    return a->port != 0 && rpc->up->probe(rpc, a, trii_deadline_ms(PROBE_MS));
}

/* The first of its name in an open set, which has no other list of who may be there. It is listed
 * before it has the name: one that fails in between, or dies, leaves no name that is never listed,
 * and the next one may list it twice. */
static tri_status add_member(tri_rpc *rpc)
{
    const char *const keys[] = {rpc->key};
    char key[32];
    int64_t n = 0;
    bool there = false;
    tri_status status = tri_store_check(rpc->store, keys, 1, &there);

    if (status != TRI_OK || there)
        return status;
    status = tri_store_add(rpc->store, "member/count", 1, &n);
    snprintf(key, sizeof(key), "member/%" PRId64, n);
    return status == TRI_OK ? tri_store_set(rpc->store, key, rpc->name, strlen(rpc->name)) : status;
}

tri_status rpc_read_member(tri_rpc *rpc, int64_t number, int64_t deadline_ns,
                           char name_out[RPC_NAME], int64_t *n_out)
{
    char key[32];
    trii_store_call calls[] = {{.kind = TRII_STORE_ADD, .key = "member/count"},
                               {.kind = TRII_STORE_READ, .key = key}};
    tri_status status = enter_store(rpc, deadline_ns);

    snprintf(key, sizeof(key), "member/%" PRId64, number);
    if (status == TRI_OK)
        status = leave_store(rpc, trii_store_calls(rpc->store, calls, 2));
    *n_out = calls[0].number;
    snprintf(name_out, RPC_NAME, "%s", calls[1].value != NULL ? calls[1].value : "");
    tri_store_free(calls[1].value);
    return status;
}

tri_status rpc_publish(tri_rpc *rpc)
{
    char *there = NULL, *expected;
    rpc_address a;
    tri_status status = rpc->options.open ? add_member(rpc) : TRI_OK;

    for (expected = NULL; status == TRI_OK;) {
        status = tri_store_compare_set(rpc->store, rpc->key, expected != NULL ? expected : "",
                                       expected != NULL ? strlen(expected) : 0, rpc->record,
                                       strlen(rpc->record), (void **)&there, NULL);
        tri_store_free(expected);
        if (status != TRI_OK)
            return status;
        if (strcmp(there, rpc->record) == 0)
            break;
        if (rpc_parse_record(there, &a) == TRI_OK && is_alive(rpc, &a)) {
            status = TRII_FAIL(TRI_ERR_STATE,
                               "the name %s belongs to rank %d (host %s, pid %d), which lives: "
                               "names are unique",
                               rpc->name, a.rank, a.host, a.pid);
            break;
        }
        expected = there;
        there = NULL;
    }
    tri_store_free(there);
    return status;
}

/* Words of all ranks, as of rpc_meet. NULL: no memory. */
static char **take_words(const tri_rpc *rpc)
{
    return trii_alloc((size_t)rpc->size, sizeof(char *), "names");
}

void rpc_free_records(const tri_rpc *rpc, char **records)
{
    for (int r = 0; r < rpc->size; r++)
        tri_store_free(records[r]);
    trii_free(records);
}

/* Where to listen: NULL = everywhere. */
static tri_status choose_interface(tri_rpc *rpc, int64_t deadline_ns, const char **listen_out)
{
    char net[96], **words;
    bool same = true;
    tri_status status;

    *listen_out = NULL;
    if (rpc->options.open)
        return TRI_OK;
    words = take_words(rpc);
    if (words == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_socket_network_id(net);
    status = rpc_meet(rpc, RPC_MEET_NET, net, deadline_ns, words);
    if (status != TRI_OK) {
        trii_free(words);
        return status;
    }
    for (int r = 0; r < rpc->size; r++)
        same = same && strcmp(words[r], net) == 0;
    rpc_free_records(rpc, words);
    if (same)
        *listen_out = "localhost";
    return TRI_OK;
}

tri_status rpc_open_ports(tri_rpc *rpc, int64_t deadline_ns)
{
    char unix_name[TRII_UNIX_NAME] = "-", addresses[384] = "";
    char hosts[MAX_HOSTS][TRII_ADDR_TEXT];
    const char *listen_at = NULL;
    size_t used = 0;
    int n = 0;
    tri_status status = choose_interface(rpc, deadline_ns, &listen_at);

    if (status == TRI_OK)
        status = trii_unix_listen(&rpc->unix_fd, unix_name);
    if (status == TRI_OK)
        status = trii_socket_listen(listen_at, 0, &rpc->tcp_fd, &rpc->tcp_port);
    if (status != TRI_OK)
        return status;
    if (listen_at == NULL)
        n = trii_socket_addresses(hosts, MAX_HOSTS);
    for (int i = 0; i < n && used + TRII_ADDR_TEXT < sizeof(addresses); i++)
        used += (size_t)snprintf(addresses + used, sizeof(addresses) - used, "%s%s",
                                 i > 0 ? "," : "", hosts[i]);
    if (n == 0)
        snprintf(addresses, sizeof(addresses), "127.0.0.1");
    rpc->record = make_record(rpc, unix_name, addresses);
    return rpc->record != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

tri_status rpc_unpublish(tri_rpc *rpc, int64_t deadline_ns)
{
    void *there = NULL;
    tri_status status;

    if (rpc->record == NULL)
        return TRI_OK;
    status = enter_store(rpc, deadline_ns);
    if (status != TRI_OK)
        return status;
    status = tri_store_compare_set(rpc->store, rpc->key, rpc->record, strlen(rpc->record), "left",
                                   4, &there, NULL);
    tri_store_free(there);
    if (status == TRI_OK)
        rpc_meet_end(rpc);
    return leave_store(rpc, status);
}

tri_status rpc_meet_all(tri_rpc *rpc, int64_t deadline_ns, char ***records_out)
{
    char **words = take_words(rpc), word[RPC_NAME + 640];
    tri_status status = words != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    snprintf(word, sizeof(word), "%s %s", rpc->name, rpc->record);
    if (status == TRI_OK)
        status = rpc_meet(rpc, RPC_MEET_NAME, word, deadline_ns, words);
    if (status != TRI_OK) {
        trii_free(words);
        return status;
    }
    for (int r = 0; r < rpc->size; r++) {
        char *record = strchr(words[r], ' ');

        record = record != NULL ? record + 1 : strchr(words[r], '\0');
        (void)sscanf(words[r], "%127s", rpc->names[r]);
        memmove(words[r], record, strlen(record) + 1);
    }
    *records_out = words;
    rpc_lock(rpc);
    rpc->has_read_all = true;
    rpc_unlock(rpc);
    return TRI_OK;
}

tri_status rpc_read_record(tri_rpc *rpc, const char *name, bool wait, int64_t deadline_ns,
                           char record_out[640])
{
    char key[RPC_NAME + 8], *value;
    const char *const keys[] = {key};
    trii_store_call read = {.value = NULL};
    tri_store *own = NULL;
    tri_status status = enter_store(rpc, deadline_ns);

    snprintf(key, sizeof(key), "worker/%s", name);
    if (status == TRI_OK) {
        status = trii_store_peek(rpc->store, keys, &read, 1);
        wait = wait && status == TRI_OK && read.value == NULL;
        if (wait) /* others need this one */
            status = tri_store_clone(rpc->store, &own);
        status = leave_store(rpc, status);
    }
    value = read.value;
    if (status == TRI_OK && wait) {
        int left_ms = trii_deadline_left_ms(deadline_ns);

        status = tri_store_wait(own, keys, 1, left_ms < 0 ? TRI_FOREVER : left_ms + 1);
        tri_store_unref(own);
        if (status == TRI_ERR_TIMEOUT)
            return TRII_FAIL(status, "no worker %s has come", name);
        if (status == TRI_OK)
            return rpc_read_record(rpc, name, false, deadline_ns, record_out);
    }
    if (status != TRI_OK)
        return status;
    if (value == NULL)
        return TRII_FAIL(TRI_ERR_NOT_FOUND, "no worker has the name %s", name);
    if (strcmp(value, "left") == 0)
        status = TRII_FAIL(TRI_ERR_NOT_FOUND, "worker %s has left", name);
    snprintf(record_out, 640, "%s", value);
    tri_store_free(value);
    return status;
}
