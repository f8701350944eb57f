/*
 * host_events.c - see host_events.h. Called by agent_hosts.c with the members of a new round, and
 * when one of them is gone.
 */
#include "launch/report/host_events.h"

#include "launch/output/escape.h"

#include "base/err.h"

static void put_host(const trii_events *events, const char *name, int attempt, int64_t round,
                     int rank, const trii_rdzv_agent *agent, const char *why)
{
    char host[2 * TRII_RDZV_ADDR_BYTES], reason[2 * TRII_ERR_BYTES];

    trii_events_put(events, name,
                    "\"attempt\": %d, \"round\": %lld, \"node_rank\": %d, \"host\": %s, \"pid\": "
                    "%lld%s%s",
                    attempt, (long long)round, rank,
                    trii_json_quote(agent->name, host, sizeof(host)), (long long)agent->node.pid,
                    why != NULL ? ", \"reason\": " : "",
                    why != NULL ? trii_json_quote(why, reason, sizeof(reason)) : "");
}

/* With static ranks agents have no node; the rank identifies them. */
static bool is_among(const trii_rdzv_agent *agent, int rank, const trii_rdzv_agent *agents, int n)
{
    if (agent->node.addr[0] == '\0')
        return rank < n;
    for (int i = 0; i < n; i++) {
        if (trii_rdzv_node_same(&agents[i].node, &agent->node))
            return true;
    }
    return false;
}

void trii_host_events_round(const trii_events *events, int attempt, const trii_rdzv_agent *before,
                            int n_before, const trii_rdzv_round *round)
{
    for (int i = 0; i < n_before; i++) {
        if (!before[i].gone && !is_among(&before[i], i, round->agents, round->group_size))
            put_host(events, "host_lost", attempt, round->number, i, &before[i],
                     "it did not come to the next round");
    }
    for (int i = 0; i < round->group_size; i++) {
        if (!is_among(&round->agents[i], i, before, n_before))
            put_host(events, "host_joined", attempt, round->number, i, &round->agents[i], NULL);
    }
}

void trii_host_events_gone(const trii_events *events, int attempt, trii_rdzv_round *round, int rank,
                           bool left, const char *why)
{
    if (round->agents == NULL || rank < 0 || rank >= round->group_size || round->agents[rank].gone)
        return;
    round->agents[rank].gone = true;
    put_host(events, left ? "host_left" : "host_lost", attempt, round->number, rank,
             &round->agents[rank], why);
}
