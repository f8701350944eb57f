/*
 * hierarchy_layout.c - where the ranks of a group are, and what follows from that: see hierarchy.h.
 */
/* build: leaf */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/param.h"
#include "comm/composites/hierarchy/hierarchy.h"
#include "comm/group/reduce/reduce.h"
#include "os/socket.h"

#define HOST_TEXT 96

/* --- the canonical tree --------------------------------------------------- */

static bool on_one_host(const hierarchy_layout *l, int first, int n)
{
    for (int r = first + 1; r < first + n; r++) {
        if (l->host_of[r] != l->host_of[first])
            return false;
    }
    return true;
}

/* Sets ranks_at[r] to the size of the partial beginning at r. */
static void find_partials(const hierarchy_layout *l, int first, int n, int *ranks_at)
{
    int half;

    if (on_one_host(l, first, n)) {
        ranks_at[first] = n;
        return;
    }
    half = trii_reduce_split(n);
    find_partials(l, first, half, ranks_at);
    find_partials(l, first + half, n - half, ranks_at);
}

/* Whether the tree over ranks [first, first + n), partials as leaves, equals the tree over n_hosts
 * hosts, from `host` on. */
static bool fits(const hierarchy_layout *l, int first, int n, int host, int n_hosts)
{
    int half, hosts;

    if (n_hosts == 1)
        return l->partial_of[first] == host && l->partial_ranks[host] == n;
    if (n == 1)
        return false;
    half = trii_reduce_split(n);
    hosts = trii_reduce_split(n_hosts);
    return fits(l, first, half, host, hosts) &&
           fits(l, first + half, n - half, host + hosts, n_hosts - hosts);
}

static void fill_partials(hierarchy_layout *l)
{
    int *ranks_at = l->partial_of; /* same memory; overwritten rank by rank */

    memset(ranks_at, 0, (size_t)l->size * sizeof(*ranks_at));
    find_partials(l, 0, l->size, ranks_at);
    for (int host = 0; host < l->n_hosts; host++) {
        l->partial_at[host] = l->n_partials;
        for (int i = l->host_at[host]; i < l->host_at[host + 1]; i++) {
            int r = l->by_host[i], n = ranks_at[r];

            l->partial_of[r] = n > 0 ? l->n_partials : -1;
            if (n == 0)
                continue;
            l->partial_first[l->n_partials] = r;
            l->partial_ranks[l->n_partials++] = n;
        }
    }
    l->partial_at[l->n_hosts] = l->n_partials;
    l->tree_fits = l->n_partials == l->n_hosts && fits(l, 0, l->size, 0, l->n_hosts);
}

/* --- filling -------------------------------------------------------------- */

static void fill_columns(hierarchy_layout *l)
{
    int n = 0;

    l->n_columns = l->size;
    for (int host = 0; host < l->n_hosts; host++) {
        int ranks = l->host_at[host + 1] - l->host_at[host];

        l->n_columns = ranks < l->n_columns ? ranks : l->n_columns;
    }
    l->column = l->local_rank < l->n_columns ? l->local_rank : -1;
    for (int column = 0; column < l->n_columns; column++) {
        for (int host = 0; host < l->n_hosts; host++) {
            l->piece_at[column * l->n_hosts + host] = n;
            for (int i = l->host_at[host] + column; i < l->host_at[host + 1]; i += l->n_columns)
                l->by_column[n++] = l->by_host[i];
        }
    }
    l->piece_at[l->n_columns * l->n_hosts] = n;
    for (int host = 0; host < l->n_hosts && l->column >= 0; host++)
        l->column_ranks[host] = l->by_host[l->host_at[host] + l->column];
}

tri_status hierarchy_layout_fill(hierarchy_layout *l, const int *hosts, int size, int rank)
{
    size_t n = (size_t)size + 1;
    int *next, n_ranks = 0;

    memset(l, 0, sizeof(*l));
    l->memory = next = trii_alloc(11 * n, sizeof(*l->memory), "hierarchy");
    if (next == NULL)
        return TRI_ERR_NO_MEMORY;
    int **const arrays[] = {
        &l->host_of,       &l->local_of,   &l->host_at,      &l->by_host,
        &l->by_column,     &l->piece_at,   &l->partial_at,   &l->partial_first,
        &l->partial_ranks, &l->partial_of, &l->column_ranks,
    };

    for (size_t i = 0; i < TRII_COUNT_OF(arrays); i++, next += n)
        *arrays[i] = next;
    l->size = size;
    for (int r = 0; r < size; r++) {
        l->host_of[r] = hosts[r];
        l->n_hosts = hosts[r] >= l->n_hosts ? hosts[r] + 1 : l->n_hosts;
    }
    for (int host = 0; host < l->n_hosts; host++) {
        l->host_at[host] = n_ranks;
        for (int r = 0; r < size; r++) {
            if (hosts[r] != host)
                continue;
            l->local_of[r] = n_ranks - l->host_at[host];
            l->by_host[n_ranks++] = r;
        }
    }
    l->host_at[l->n_hosts] = n_ranks;
    l->host = hosts[rank];
    l->local_rank = l->local_of[rank];
    l->local_size = l->host_at[l->host + 1] - l->host_at[l->host];
    fill_columns(l);
    fill_partials(l);
    return TRI_OK;
}

void hierarchy_layout_fini(hierarchy_layout *l)
{
    trii_free(l->memory);
    l->memory = NULL;
}

/* --- reading -------------------------------------------------------------- */

/* Names the host that a rank is on: ranks that share a loopback interface share memory too.
 * TRI_HOSTS overrides it, for tests, with names of the ranks' hosts: "a,a,b,b". */
static void host_name(int rank, char text_out[HOST_TEXT])
{
    const char *pretended = trii_param_text(TRII_PARAM_HOSTS);

    for (int r = 0; r < rank && pretended != NULL; r++) {
        pretended = strchr(pretended, ',');
        pretended = pretended != NULL ? pretended + 1 : NULL;
    }
    if (pretended != NULL)
        snprintf(text_out, HOST_TEXT, "%.*s", (int)strcspn(pretended, ","), pretended);
    else
        trii_socket_network_id(text_out);
}

/* Numbers the hosts that texts[size] name; returns how many there are. first: room for [size]. */
static int number_hosts(char *const *texts, int size, int *hosts, int *first)
{
    int n_hosts = 0;

    for (int r = 0; r < size; r++) {
        hosts[r] = 0;
        while (hosts[r] < n_hosts && strcmp(texts[first[hosts[r]]], texts[r]) != 0)
            hosts[r]++;
        if (hosts[r] == n_hosts)
            first[n_hosts++] = r;
    }
    return n_hosts;
}

tri_status hierarchy_layout_init(hierarchy_layout *layout, const trii_group_args *args,
                                 tri_status status)
{
    size_t size = (size_t)args->size;
    char mine[HOST_TEXT], **texts = trii_alloc(size, sizeof(*texts), "hierarchy");
    int *hosts = trii_alloc(2 * size, sizeof(*hosts), "hierarchy"), n_hosts;

    if (status == TRI_OK && (texts == NULL || hosts == NULL || layout == NULL))
        status = TRI_ERR_NO_MEMORY;
    host_name(args->rank, mine);
    status =
        trii_group_begin(args, &(trii_engine_id){.what = "engine hierarchy"}, status, mine, texts);
    if (status == TRI_OK) {
        assert(texts != NULL && hosts != NULL && layout != NULL); /* else `status` is a failure */
        n_hosts = number_hosts(texts, args->size, hosts, hosts + size);
        for (size_t r = 0; r < size; r++)
            tri_store_free(texts[r]);
        if (n_hosts == 1 || n_hosts == args->size) /* which all ranks see */
            status = TRII_FAIL(TRI_ERR_UNSUPPORTED,
                               "engine hierarchy: %d ranks on %d host%s; it needs at least two "
                               "hosts, one of them with at least two ranks",
                               args->size, n_hosts, n_hosts == 1 ? "" : "s");
        else
            status = trii_group_agree(args, "layout",
                                      hierarchy_layout_fill(layout, hosts, args->size, args->rank));
    }
    trii_free(texts);
    trii_free(hosts);
    return status;
}
