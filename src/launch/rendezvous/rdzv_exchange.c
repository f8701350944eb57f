/*
 * rdzv_exchange.c - what the members of a round tell each other before it begins: how many workers
 * each has, so that all learn their ranks, where the workers' store is, and where the agents listen
 * to each other. All keys but the last are torchrun's:
 *
 *   torchelastic/role_info/RANK        {"role": TEXT, "rank": N, "local_world_size": N}
 *   torchelastic/assigned_ranks/RANK   [FIRST_RANK, WORLD_SIZE, FIRST_ROLE_RANK, ROLE_SIZE]
 *   MASTER_ADDR, MASTER_PORT
 *   trireme/ROUND/agent/RANK           PORT SERVES KEYED RESTARTS TOKEN NAME, and with given ranks,
 *                                      where no shared state says it: HOST PID
 */
#include "launch/rendezvous/rdzv_internal.h"

#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "store/exchange.h"

enum { KEY_BYTES = 64, ROLE_BYTES = 4096 };

typedef struct role_info {
    char *role;
    int local_size;
} role_info;

static void agent_key(int64_t round, int rank, char *key, size_t bytes)
{
    snprintf(key, bytes, "trireme/%lld/agent/%d", (long long)round, rank);
}

static tri_status set_text(trii_rendezvous *r, const char *key, const char *text)
{
    return tri_store_set(r->kv, key, text, strlen(text));
}

tri_status trii_rdzv_round_store(trii_rendezvous *r, int64_t round, tri_store **kv_out)
{
    char prefix[sizeof(r->id) + 64];

    snprintf(prefix, sizeof(prefix), "torch.rendezvous.%s.%lld", r->id, (long long)round);
    return tri_store_prefix(prefix, r->base, kv_out);
}

static tri_status set_role(trii_rendezvous *r)
{
    json_t *json = json_pack("{s:s, s:i, s:i}", "role", r->options->role, "rank",
                             r->round.group_rank, "local_world_size", r->options->nproc);
    char key[64], text[ROLE_BYTES];
    size_t bytes = json_dumpb(json, text, sizeof(text), 0);

    json_decref(json);
    if (bytes == 0 || bytes > sizeof(text))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "--role: the name is not UTF-8, or longer than about %d bytes",
                         ROLE_BYTES - 100);
    snprintf(key, sizeof(key), "torchelastic/role_info/%d", r->round.group_rank);
    return tri_store_set(r->kv, key, text, bytes);
}

/* Writes it unless another agent has, whose token is in what is there then. */
static tri_status say_who(trii_rendezvous *r, const char *key, const char *text, bool *taken_out)
{
    char token[sizeof(r->setup.self.token)] = "";
    trii_store_call call = {.kind = TRII_STORE_CLAIM, .key = key, .text = text};
    tri_status status = trii_store_calls(r->kv, &call, 1);
    bool is_there;

    if (status != TRI_OK)
        return status;
    is_there = strcmp(call.value, text) == 0;
    *taken_out = !is_there && sscanf(call.value, "%*d %*d %*d %*d %16s", token) == 1 &&
                 strcmp(token, r->setup.self.token) != 0;
    trii_store_calls_free(&call, 1);
    return is_there || *taken_out ? TRI_OK : set_text(r, key, text);
}

tri_status trii_rdzv_introduce(trii_rendezvous *r, bool *taken_out)
{
    char key[64], text[2 * TRII_RDZV_ADDR_BYTES + 160];
    int used;
    tri_status status;

    agent_key(r->round.number, r->round.group_rank, key, sizeof(key));
    used = snprintf(text, sizeof(text), "%d %d %d %d %s %s", r->setup.self.port, r->server != NULL,
                    r->setup.self.keyed, r->restarts, r->setup.self.token, r->node_name);
    if (r->nodes == NULL)
        snprintf(text + used, sizeof(text) - (size_t)used, " %s %lld", r->self.addr,
                 (long long)r->self.pid);
    status = say_who(r, key, text, taken_out);
    if (status != TRI_OK || *taken_out)
        return status;
    if (r->round.group_rank == 0 && r->handler->publish_master != NULL)
        status = r->handler->publish_master(r);
    return status == TRI_OK ? set_role(r) : status;
}

static tri_status read_role(const char *text, int rank, role_info *info_out)
{
    json_t *json = json_loads(text, 0, NULL);
    const char *role = json_string_value(json_object_get(json, "role"));
    json_int_t n = json_integer_value(json_object_get(json, "local_world_size"));
    tri_status status = TRI_OK;

    if (role == NULL || n < 1 || n > 100000)
        status = TRII_FAIL(TRI_ERR_FORMAT, "rendezvous: host %d says \"%s\" of itself", rank, text);
    else
        *info_out = (role_info){trii_strdup(role, "rendezvous"), (int)n};
    json_decref(json);
    return status == TRI_OK && info_out->role == NULL ? TRI_ERR_NO_MEMORY : status;
}

/* Rank 0 gives out the ranks: blocks in the order of hosts. */
static tri_status assign(trii_rendezvous *r, const role_info *infos)
{
    int n = r->round.group_size, first = 0, world = 0;
    tri_status status = TRI_OK;

    for (int i = 0; i < n; i++)
        world += infos[i].local_size;
    for (int i = 0; i < n && status == TRI_OK; i++) {
        int role_first = 0, role_size = 0;
        char key[64], text[96];

        for (int k = 0; k < n; k++) {
            if (strcmp(infos[k].role, infos[i].role) != 0)
                continue;
            role_size += infos[k].local_size;
            role_first += k < i ? infos[k].local_size : 0;
        }
        snprintf(key, sizeof(key), "torchelastic/assigned_ranks/%d", i);
        snprintf(text, sizeof(text), "[%d, %d, %d, %d]", first, world, role_first, role_size);
        status = set_text(r, key, text);
        first += infos[i].local_size;
    }
    return status;
}

/* How many keys a round of n hosts has in one read: two arrays in one block. NULL = no memory. */
static const char **key_list(int n)
{
    const char **keys = trii_alloc((size_t)n, sizeof(*keys) + KEY_BYTES, "rendezvous");
    char(*text)[KEY_BYTES] = (char(*)[KEY_BYTES])(keys + n);

    for (int i = 0; keys != NULL && i < n; i++)
        keys[i] = text[i];
    return keys;
}

static char *key_at(const char **keys, int n, int i)
{
    return (char *)(keys + n) + (size_t)i * KEY_BYTES;
}

static const char **role_keys(int n)
{
    const char **keys = key_list(n);

    for (int i = 0; keys != NULL && i < n; i++)
        snprintf(key_at(keys, n, i), KEY_BYTES, "torchelastic/role_info/%d", i);
    return keys;
}

int trii_rdzv_count_came(trii_rendezvous *r, char *missing_out, size_t bytes)
{
    int came = 0, missing = 0, n = r->round.group_size;
    const char **keys = role_keys(n);
    trii_store_call *calls = trii_alloc((size_t)n, sizeof(*calls), "rendezvous");
    size_t used = 0;

    snprintf(missing_out, bytes, "none");
    for (int i = 0; i < n && keys != NULL && calls != NULL; i++)
        calls[i] = (trii_store_call){.kind = TRII_STORE_CHECK, .key = keys[i]};
    if (keys != NULL && calls != NULL && trii_store_calls(r->kv, calls, n) == TRI_OK) {
        for (int i = 0; i < n; i++) {
            if (calls[i].number != 0)
                came++;
            else if (missing++ == 0)
                used += (size_t)snprintf(missing_out, bytes, "%d", i);
            else if (used + 24 < bytes)
                used += (size_t)snprintf(missing_out + used, bytes - used, ", %d", i);
        }
    }
    if (used + 24 >= bytes)
        snprintf(missing_out + used, bytes - used, " ...");
    trii_free(calls);
    trii_free(keys);
    return came;
}

/* Rank 0 gave out no ranks: since hosts are missing, or for a reason of its own. */
static tri_status no_ranks(trii_rendezvous *r)
{
    char missing[120], name[TRII_RDZV_ADDR_BYTES + 40];
    int n = r->round.group_size, came = trii_rdzv_count_came(r, missing, sizeof(missing));

    if (came < n && r->handler->fixed_hosts)
        return r->handler->too_few(r, 0, came, missing);
    r->handler->describe_member(r, 0, name, sizeof(name));
    return TRII_FAIL(TRI_ERR_TIMEOUT,
                     "rendezvous of job %s: %d of %d hosts said how many workers they have, but "
                     "%s, which gives out the ranks, gave none within %g s: is its agent stopped, "
                     "or cut off?",
                     r->id, came, n, name, (double)r->exchange_ms / 1000);
}

void trii_rdzv_wait_for(trii_rendezvous *r, int rank)
{
    r->waited_rank = rank;
    trii_mutex_lock(&r->mutex);
    r->handler->describe_member(r, rank, r->waited_for, sizeof(r->waited_for));
    trii_mutex_unlock(&r->mutex);
    if (!r->handler->fixed_hosts || r->round.number > 0)
        atomic_store(&r->met, r->round.group_size);
}

static tri_status collect_roles(trii_rendezvous *r, int64_t deadline_ns)
{
    int n = r->round.group_size;
    role_info *infos = trii_alloc((size_t)n, sizeof(*infos), "rendezvous");
    char **values = trii_alloc((size_t)n, sizeof(*values), "rendezvous");
    const char **keys = role_keys(n);
    char missing[120];
    tri_status status = TRI_ERR_NO_MEMORY;

    if (infos != NULL && values != NULL && keys != NULL) {
        status = trii_rdzv_read_keys(r, keys, n, n, deadline_ns, values, trii_rdzv_wait_for);
        if (status == TRI_ERR_TIMEOUT) {
            int came = trii_rdzv_count_came(r, missing, sizeof(missing));

            status = r->handler->too_few(r, r->waited_rank, came, missing);
        }
        for (int i = 0; i < n; i++) {
            if (status == TRI_OK)
                status = read_role(values[i], i, &infos[i]);
            tri_store_free(values[i]);
        }
        if (status == TRI_OK)
            status = assign(r, infos);
        for (int i = 0; i < n; i++)
            trii_free(infos[i].role);
    }
    trii_free(keys);
    trii_free(values);
    trii_free(infos);
    return status;
}

static tri_status take_ranks(trii_rendezvous *r, const char *text)
{
    trii_rdzv_round *round = &r->round;

    if (sscanf(text, " [ %d , %d , %d , %d", &round->first_rank, &round->world_size,
               &round->first_role_rank, &round->role_size) != 4 ||
        round->first_rank < 0 || round->world_size < round->first_rank + r->options->nproc ||
        round->first_role_rank < 0 || round->role_size < 1)
        return TRII_FAIL(TRI_ERR_FORMAT, "rendezvous: ranks \"%s\"", text);
    return TRI_OK;
}

/* What an agent has said of itself; NULL: nothing, it is torchrun's. */
static void take_agent(trii_rendezvous *r, int rank, const char *text)
{
    trii_rdzv_round *round = &r->round;
    trii_rdzv_agent *agent = &round->agents[rank];
    int serves = 0, restarts = 0, keyed = 0;
    long long pid = 0;

    if (r->nodes != NULL)
        agent->node = r->nodes[rank];
    if (text == NULL) {
        round->mixed = true;
        if (r->nodes != NULL)
            snprintf(agent->name, sizeof(agent->name), "%s", r->nodes[rank].addr);
        return;
    }
    if (sscanf(text, "%d %d %d %d %16s %255s %255s %lld", &agent->port, &serves, &keyed, &restarts,
               agent->token, agent->name, agent->host, &pid) < 6)
        agent->port = 0;
    if (r->nodes == NULL)
        agent->node.pid = pid;
    else
        memcpy(agent->host, r->nodes[rank].addr, sizeof(agent->host));
    agent->serves = serves != 0;
    agent->keyed = keyed != 0;
    r->round_serves = agent->serves ? rank : r->round_serves;
    if (restarts > round->restarts)
        round->restarts = restarts;
}

enum { RANKS, ADDR, PORT, AGENTS }; /* the keys that everybody reads, and then one per agent */

static tri_status take_all(trii_rendezvous *r, char **values, int64_t deadline_ns)
{
    trii_rdzv_round *round = &r->round;
    tri_status status = take_ranks(r, values[RANKS]);

    if (status != TRI_OK)
        return status;
    trii_free(round->agents);
    round->agents = trii_alloc((size_t)round->group_size, sizeof(*round->agents), "rendezvous");
    if (round->agents == NULL)
        return TRI_ERR_NO_MEMORY;
    round->mixed = false;
    r->round_serves = -1;
    round->restarts = r->restarts;
    for (int i = 0; i < round->group_size; i++)
        take_agent(r, i, values[AGENTS + i]);
    round->master = false;
    return r->handler->find_master(r, values[ADDR], values[PORT], deadline_ns);
}

/* Once rank 0 has given out the ranks, which it does when all have introduced themselves. */
static tri_status read_round(trii_rendezvous *r, int64_t deadline_ns)
{
    int n = AGENTS + r->round.group_size;
    const char **keys = key_list(n);
    char **values = trii_alloc((size_t)n, sizeof(*values), "rendezvous");
    tri_status status = TRI_ERR_NO_MEMORY;

    if (keys != NULL && values != NULL) {
        snprintf(key_at(keys, n, RANKS), KEY_BYTES, "torchelastic/assigned_ranks/%d",
                 r->round.group_rank);
        snprintf(key_at(keys, n, ADDR), KEY_BYTES, "MASTER_ADDR");
        snprintf(key_at(keys, n, PORT), KEY_BYTES, "MASTER_PORT");
        for (int i = AGENTS; i < n; i++)
            agent_key(r->round.number, i - AGENTS, key_at(keys, n, i), KEY_BYTES);
        trii_rdzv_wait_for(r, 0);
        status = trii_rdzv_read_keys(r, keys, n, 1, deadline_ns, values, NULL);
        if (status == TRI_ERR_TIMEOUT)
            status = no_ranks(r);
        else if (status == TRI_OK)
            status = take_all(r, values, deadline_ns);
        for (int i = 0; i < n; i++)
            tri_store_free(values[i]);
    }
    trii_free(values);
    trii_free(keys);
    return status;
}

tri_status trii_rdzv_exchange(trii_rendezvous *r)
{
    int64_t deadline = trii_rdzv_deadline(r, r->exchange_ms);
    bool taken;
    tri_status status = trii_rdzv_introduce(r, &taken);

    if (status == TRI_OK && taken)
        return TRII_FAIL(TRI_ERR_STATE, "rendezvous of job %s: another agent has our rank %d",
                         r->id, r->round.group_rank);
    if (status == TRI_OK && r->round.group_rank == 0)
        status = collect_roles(r, deadline);
    return status == TRI_OK ? read_round(r, deadline) : status;
}
