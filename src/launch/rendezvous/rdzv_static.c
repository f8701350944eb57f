/*
 * rdzv_static.c - the rendezvous in which each agent knows its rank: --node-rank, and a store at
 * --master-addr that the agent of rank 0 serves and the workers use too.
 *
 * Workers keep that store through restarts, as with torchrun, so its address does not change.
 * Unlike there, each agent first says that its workers are gone, also one that takes the place of a
 * lost one, and then rank 0 empties the store. Agents of trirun also see to it that no rank is
 * taken twice:
 *
 *   trireme/claim/RANK          PID MIN MAX NAME TOKEN, or "gone ROUND" of an agent that was lost
 *   trireme/ROUND/stopped/RANK  no worker of that host runs
 *   trireme/ROUND/go            all have said so, and the store is empty
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <string.h>

#include "base/log.h"
#include "store/exchange.h"
#include "store/tcp_client.h"

#define COUNT_MS 500      /* between two counts of the hosts that have come */
#define PROBE_MS 1000     /* for a store to answer that has the port we want */
#define CLAIM_LOOK_MS 20  /* between two looks whether a rank is free again */
#define CLAIM_MORE_MS 500 /* for the others to free one, once they see that its agent is gone */

/* --- ranks ---------------------------------------------------------------- */

static tri_status rank_taken(const trii_rendezvous *r, const char *claim)
{
    char name[TRII_RDZV_ADDR_BYTES];
    int pid, min, max;

    if (sscanf(claim, "%d %d %d %255s", &pid, &min, &max, name) != 4)
        return TRII_FAIL(TRI_ERR_FORMAT, "job %s: claim \"%s\"", r->id, claim);
    if (r->round.world_size > 0) /* it was ours */
        return TRII_FAIL(TRI_ERR_STATE,
                         "job %s: this agent, on host %s (pid %d), was silent for longer than "
                         "--host-timeout, and the one on host %s (pid %d) has taken its "
                         "--node-rank %d",
                         r->id, r->node_name, (int)r->self.pid, name, pid, r->options->node_rank);
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "job %s: the agent on host %s (pid %d) has --node-rank %d already, and this "
                     "one, on host %s (pid %d), was given it too: give every agent its own, 0 to "
                     "%d",
                     r->id, name, pid, r->options->node_rank, r->node_name, (int)r->self.pid,
                     r->options->max_nodes - 1);
}

/* Writes the text if `expected` is there ("": nothing), else gives out what is, to be freed. NULL:
 * ours is there. */
static tri_status put(trii_rendezvous *r, const char *key, const char *expected, const char *text,
                      char **other_out)
{
    void *value;
    size_t bytes;
    tri_status status = tri_store_compare_set(r->kv, key, expected, strlen(expected), text,
                                              strlen(text), &value, &bytes);

    *other_out = NULL;
    if (status != TRI_OK)
        return status;
    if (strcmp(value, text) == 0)
        tri_store_free(value);
    else
        *other_out = value;
    return TRI_OK;
}

static void claim_key(int rank, char *key_out, size_t bytes)
{
    snprintf(key_out, bytes, "trireme/claim/%d", rank);
}

/* Takes the rank if it is free, or finds that we have it still; else *other_out is who has it. An
 * agent that was given up, by mistake or not, has lost its rank: the first to claim it from then on
 * has it, and *number_out is the round that begins with that agent; else it is left alone. */
static tri_status try_claim(trii_rendezvous *r, const char *key, const char *text,
                            int64_t *number_out, char **other_out)
{
    char *last = NULL;
    long long lost_round;
    tri_status status = put(r, key, "", text, other_out);

    if (status == TRI_OK && *other_out != NULL &&
        sscanf(*other_out, "gone %lld", &lost_round) == 1) {
        last = *other_out;
        status = put(r, key, last, text, other_out);
        if (status == TRI_OK && *other_out == NULL)
            *number_out = lost_round + 1;
    }
    tri_store_free(last);
    return status;
}

/* Else an agent that was given the rank of another one would wait without a word. */
static void say_that_it_waits(const trii_rendezvous *r, const char *claim, int64_t ms)
{
    char name[TRII_RDZV_ADDR_BYTES];
    int pid;

    if (sscanf(claim, "%d %*d %*d %255s", &pid, name) == 2)
        TRII_LOG(
            TRII_LOG_WARN, "launch",
            "job %s: the agent on host %s (pid %d) has --node-rank %d; waiting up to %.1f s, in "
            "case it is gone",
            r->id, name, pid, r->options->node_rank, (double)ms * 1e-3);
}

/* Frees `other`, which has our rank, and waits a moment: it may be gone, and the others be about to
 * find that. They give up an agent that is silent for --host-timeout, or for half as long again
 * where they never reached it. *deadline_ns: 0 before the first time. An agent that has run workers
 * under its rank has been given up itself. */
static tri_status await_rank(trii_rendezvous *r, char *other, int64_t *deadline_ns)
{
    tri_status status = TRI_OK;

    trii_rdzv_answered(r);
    if (*deadline_ns == 0 && r->round.world_size == 0) {
        int64_t ms = r->options->host_timeout_ms * 3 / 2 + CLAIM_MORE_MS;

        *deadline_ns = trii_rdzv_deadline(r, ms);
        say_that_it_waits(r, other, ms);
    }
    if (r->round.world_size > 0 || trii_rdzv_now(r) >= *deadline_ns)
        status = rank_taken(r, other);
    else if (trii_rdzv_interrupted(r))
        status = TRI_ERR_STATE;
    tri_store_free(other);
    if (status == TRI_OK)
        status = trii_rdzv_check_own(r);
    if (status != TRI_OK)
        return status;
    trii_rdzv_take_losses(r);
    trii_rdzv_pause_about(r, CLAIM_LOOK_MS);
    return TRI_OK;
}

static tri_status claim(trii_rendezvous *r, int64_t *number_out)
{
    char key[64], text[TRII_RDZV_ADDR_BYTES + 80], *other;
    int64_t deadline_ns = 0;
    tri_status status;

    claim_key(r->options->node_rank, key, sizeof(key));
    trii_rdzv_settings_text(r, text, sizeof(text));
    snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s", r->setup.self.token);
    do {
        status = try_claim(r, key, text, number_out, &other);
        if (status != TRI_OK || other == NULL)
            return status;
        status = await_rank(r, other, &deadline_ns);
    } while (status == TRI_OK);
    return status;
}

/* Lets another agent take the place of one that is lost. */
static tri_status vacate(trii_rendezvous *r, const trii_rdzv_order *lost)
{
    char key[64], text[40], token[sizeof(lost->gone.token)] = "", *claim, *other = NULL;
    tri_status status;

    claim_key(lost->news.gone, key, sizeof(key));
    snprintf(text, sizeof(text), "gone %lld", (long long)lost->round);
    status = trii_store_read(r->kv, key, &claim);
    if (status == TRI_OK && claim != NULL && sscanf(claim, "%*d %*d %*d %*255s %16s", token) == 1 &&
        strcmp(token, lost->gone.token) == 0)
        status = put(r, key, claim, text, &other); /* another may have been quicker */
    tri_store_free(other);
    tri_store_free(claim);
    return status;
}

/* --- starting again ------------------------------------------------------- */

/* Deletes the workers' keys, which are all that are not the agents', and the ranks: an agent that
 * takes the place of another may have another number of workers. */
static tri_status empty_store(trii_rendezvous *r)
{
    static const char ranks[] = "torchelastic/assigned_ranks/";
    char **keys = NULL;
    int64_t n = 0;
    size_t own = strlen(r->id);
    tri_status status = tri_store_list_keys(r->base, &keys, &n);

    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        bool is_agents = strncmp(keys[i], r->id, own) == 0 && keys[i][own] == '/', existed;

        if (!is_agents || strncmp(keys[i] + own + 1, ranks, sizeof(ranks) - 1) == 0)
            status = tri_store_delete(r->base, keys[i], &existed);
    }
    tri_store_free(keys);
    return status;
}

static void stopped_key(const trii_rendezvous *r, int rank, char *key, size_t bytes)
{
    snprintf(key, bytes, "trireme/%lld/stopped/%d", (long long)r->round.number, rank);
}

/* In a round to which another agent with our rank has introduced itself, the others may have read
 * that, and would not find us. If it is lost they will find that, and we are in the round after
 * that; meanwhile they need not wait for its workers, which are gone. Else it has taken our place.
 */
static tri_status introduce(trii_rendezvous *r)
{
    bool taken;
    tri_status status = trii_rdzv_introduce(r, &taken);

    while (status == TRI_OK && taken) {
        int64_t number = r->round.number + 1;
        char key[64];

        status = claim(r, &number);
        if (status != TRI_OK)
            break;
        stopped_key(r, r->round.group_rank, key, sizeof(key));
        status = tri_store_set(r->kv, key, "1", 1);
        r->round.number = number;
        if (status == TRI_OK)
            status = trii_rdzv_introduce(r, &taken);
    }
    return status;
}

/* One after the other: of a host that is lost this can take long. */
static tri_status await_all(trii_rendezvous *r, int64_t deadline_ns)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < r->round.group_size && status == TRI_OK; i++) {
        char key[64], *value = NULL;
        const char *keys[] = {key};

        stopped_key(r, i, key, sizeof(key));
        trii_rdzv_wait_for(r, i);
        status = trii_rdzv_read_keys(r, keys, 1, 1, deadline_ns, &value, NULL);
        tri_store_free(value);
        if (status == TRI_ERR_TIMEOUT)
            status = TRII_FAIL(TRI_ERR_TIMEOUT,
                               "job %s: the host of --node-rank %d was not ready to start again "
                               "within %g s: start its agent there",
                               r->id, i, (double)r->join_ms / 1000);
    }
    return status;
}

/* All are here and none of their workers runs: rank 0 waits for that, the others for its word. */
static tri_status assemble(trii_rendezvous *r)
{
    char key[64];
    const char *keys[] = {key};
    char *value = NULL;
    int64_t deadline = trii_rdzv_deadline(r, r->join_ms);
    tri_status status;

    stopped_key(r, r->round.group_rank, key, sizeof(key));
    status = tri_store_set(r->kv, key, "1", 1);
    snprintf(key, sizeof(key), "trireme/%lld/go", (long long)r->round.number);
    if (r->round.group_rank == 0) {
        if (status == TRI_OK)
            status = await_all(r, deadline);
        if (status == TRI_OK)
            status = empty_store(r);
        return status == TRI_OK ? tri_store_set(r->kv, key, "1", 1) : status;
    }
    trii_rdzv_wait_for(r, -1);
    if (status == TRI_OK)
        status = trii_rdzv_read_keys(r, keys, 1, 1, deadline, &value, NULL);
    tri_store_free(value);
    if (status == TRI_ERR_TIMEOUT)
        status = TRII_FAIL(TRI_ERR_TIMEOUT,
                           "job %s: not all of %d hosts were ready to start again within %g s",
                           r->id, r->round.group_size, (double)r->join_ms / 1000);
    return status;
}

static tri_status join(trii_rendezvous *r)
{
    bool first = r->kv == NULL;
    int64_t number = r->round.number + !first;
    tri_status status = TRI_OK;

    if (first) {
        r->round.group_rank = r->options->node_rank;
        r->round.group_size = r->options->max_nodes;
        status = tri_store_prefix(r->id, r->base, &r->kv);
    } else if (r->round.mixed) {
        return TRI_OK; /* torchrun's agents start their own workers again, alone */
    }
    if (status == TRI_OK)
        status = claim(r, &number);
    if (status == TRI_OK)
        trii_rdzv_enter(r, TRII_RDZV_JOINING);
    r->round.number = number;
    if (status != TRI_OK || number == 0)
        return status;
    status = introduce(r);
    return status == TRI_OK ? assemble(r) : status;
}

/* --- the table ------------------------------------------------------------ */

static trii_rdzv_server server(const trii_launch_options *options)
{
    return options->node_rank == 0 ? TRII_RDZV_MUST_SERVE : TRII_RDZV_CLIENT;
}

static void describe_place(const trii_launch_options *options, int port, char *text_out,
                           size_t bytes)
{
    snprintf(text_out, bytes, "%s:%d", options->rdzv_host, port);
}

static tri_status open_store(trii_rendezvous *r)
{
    /* torchrun's rank 0 counts the connections before it continues */
    const tri_store_tcp_options options = {.timeout_ms = r->join_ms,
                                           .world_size = r->options->max_nodes};
    tri_status status = trii_rdzv_connect(r, &options);

    if (status == TRI_OK)
        status = trii_rdzv_watch_own(r);
    return status == TRI_OK ? trii_rdzv_agrees_with_server(r) : status;
}

static tri_status find_master(trii_rendezvous *r, const char *addr, const char *port,
                              int64_t deadline_ns)
{
    (void)addr;
    (void)port;
    (void)deadline_ns;
    snprintf(r->round.master_addr, sizeof(r->round.master_addr), "%s", r->options->rdzv_host);
    r->round.master_port = r->server_port;
    return TRI_OK;
}

/* Counts the hosts that have come, for the user. */
static tri_status check_members(trii_rendezvous *r)
{
    int64_t now = trii_rdzv_now(r);
    char missing[120];

    if (now - r->counted_ns >= COUNT_MS * TRII_NS_PER_MS) {
        r->counted_ns = now;
        atomic_store(&r->came, trii_rdzv_count_came(r, missing, sizeof(missing)));
    }
    return TRI_OK;
}

/* If the job continues, another agent may take the place of the one that is gone. */
static tri_status drop(trii_rendezvous *r, const trii_rdzv_order *lost)
{
    int64_t n;

    return lost->news.over || r->kv == NULL ? tri_store_num_keys(r->base, &n) : vacate(r, lost);
}

/* No host is known before it comes. */
static void describe_member(const trii_rendezvous *r, int rank, char *text_out, size_t bytes)
{
    (void)r;
    if (rank < 0)
        snprintf(text_out, bytes, "all of them");
    else
        snprintf(text_out, bytes, "the host of --node-rank %d", rank);
}

static tri_status too_few(trii_rendezvous *r, int rank, int came, const char *missing)
{
    double seconds = (double)r->join_ms / 1000;
    char why[TRII_ERR_BYTES];

    (void)rank;
    if (trii_own_address_verdict(r->own, why, sizeof(why)) == TRII_OWN_NOBODY)
        return TRII_FAIL(TRI_ERR_TIMEOUT,
                         "rendezvous of job %s: %d of %d hosts joined within %g s; %s", r->id, came,
                         r->round.group_size, seconds, why);
    return TRII_FAIL(
        TRI_ERR_TIMEOUT,
        "rendezvous of job %s: %d of %d hosts joined within %g s; missing: --node-rank "
        "%s: start the agent there, or is a firewall between?",
        r->id, came, r->round.group_size, seconds, missing);
}

/* The agent that serves the store has rank 0, as we do. */
static tri_status port_taken(const trii_rendezvous *r, const char *why)
{
    const tri_store_tcp_options options = {.timeout_ms = PROBE_MS};
    tri_store *store, *kv = NULL;
    void *value = NULL;
    tri_status status = tri_store_tcp(r->options->rdzv_host, r->server_port, &options, &store);

    if (status == TRI_OK) {
        status = tri_store_prefix(r->id, store, &kv);
        if (status == TRI_OK)
            status = tri_store_get(kv, trii_rdzv_serves_key(true), PROBE_MS, &value, NULL);
        tri_store_unref(kv);
        tri_store_unref(store);
    }
    if (status != TRI_OK)
        return TRII_FAIL(TRI_ERR_STATE,
                         "the agents' %s: another job or program uses the port (which: ss -ltnp | "
                         "grep :%d); choose another %s, the same on all hosts",
                         why, r->server_port,
                         *r->options->rdzv_endpoint != '\0' ? "one in --rdzv-endpoint"
                                                            : "--master-port");
    status = rank_taken(r, value);
    tri_store_free(value);
    return status;
}

const trii_rdzv_handler trii_rdzv_static = {
    .fixed_hosts = true,
    .timeout_key = "timeout",
    .timeout_ms = 900000,
    .server = server,
    .describe_place = describe_place,
    .open = open_store,
    .join = join,
    .find_master = find_master,
    .check_members = check_members,
    .drop = drop,
    .describe_member = describe_member,
    .too_few = too_few,
    .other_server = rank_taken,
    .port_taken = port_taken,
};
