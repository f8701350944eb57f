/*
 * rpc_serve.c - the functions that a worker serves, how its peers number them, and the error lines
 * about functions that it does not serve and about objects of the wrong kind.
 */
/* build: leaf */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/option.h"
#include "base/param.h"
#include "comm/rpc/rpc_internal.h"

#define BUILT_IN "trireme." /* what names of our functions begin with */

static const tri_rpc_function *served(const tri_rpc *rpc, const char *name)
{
    for (int i = 0; i < rpc->n_served; i++) {
        if (strcmp(rpc->served[i]->name, name) == 0)
            return rpc->served[i];
    }
    return NULL;
}

void rpc_on_define(rpc_peer *peer, const rpc_header *h, rpc_source *source)
{
    char name[RPC_NAME + 1] = "";
    tri_status status = TRI_OK;

    if (h->function != peer->n_known || peer->n_known >= RPC_MAX_FUNCTIONS || h->n_refs > 0 ||
        h->data_bytes == 0 || h->data_bytes > RPC_NAME || h->bytes != h->data_bytes) {
        rpc_peer_lose(peer, false, "it defines a function wrongly");
        return;
    }
    rpc_source_copy(source, name, (size_t)h->bytes);
    if (rpc_check_name(name, "a function") != TRI_OK) {
        rpc_peer_lose(peer, false, "it defines a function without a name");
        return;
    }
    status = trii_array_grow(&peer->known, &peer->known_room, peer->n_known, 16,
                             sizeof(*peer->known), "functions");
    if (status == TRI_OK)
        status = trii_array_grow(&peer->known_names, &peer->known_names_room, peer->n_known, 16,
                                 sizeof(char *), "functions");
    if (status == TRI_OK) {
        peer->known_names[peer->n_known] = trii_strdup(name, "function");
        status = peer->known_names[peer->n_known] != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status != TRI_OK) {
        rpc_peer_lose(peer, false, "no memory for what it sends");
        return;
    }
    peer->known[peer->n_known] = served(peer->rpc, name);
    peer->n_known++;
}

tri_status tri_rpc_serve(tri_rpc *rpc, const tri_rpc_function *const *functions, int n)
{
    tri_status status = rpc_resolve(&rpc, "rpc_serve");
    int n_before;

    if (status == TRI_OK && n > 0)
        status = trii_need(functions, "rpc_serve", "functions");
    for (int i = 0; i < n && status == TRI_OK; i++) {
        status = trii_need(functions[i], "rpc_serve", "functions[i]");
        if (status == TRI_OK)
            status = TRII_CHECK_RESERVED(tri_rpc_function, functions[i]);
        if (status == TRI_OK)
            status = rpc_check_name(functions[i]->name, "rpc_serve");
        if (status == TRI_OK && functions[i]->run == NULL)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "rpc_serve: %s has no run", functions[i]->name);
    }
    if (status != TRI_OK)
        return status;
    rpc_lock(rpc);
    n_before = rpc->n_served;
    for (int i = 0; i < n && status == TRI_OK; i++) {
        const tri_rpc_function *there = served(rpc, functions[i]->name);

        if (there == functions[i])
            continue;
        if (there != NULL) {
            status = TRII_FAIL(TRI_ERR_STATE, "rpc_serve: %s is another function already",
                               functions[i]->name);
            break;
        }
        status = trii_array_grow(&rpc->served, &rpc->served_room, rpc->n_served, 16,
                                 sizeof(*rpc->served), "functions");
        if (status == TRI_OK)
            rpc->served[rpc->n_served++] = functions[i];
    }
    if (status != TRI_OK)
        rpc->n_served = n_before; /* all, or none */
    for (rpc_peer *p = rpc->peers; p != NULL && status == TRI_OK; p = p->next) {
        for (int i = 0; i < p->n_known; i++) {
            if (p->known[i] == NULL)
                p->known[i] = served(rpc, p->known_names[i]);
        }
    }
    trii_mutex_unlock(&rpc->lock); /* nothing was put aside */
    return status;
}

/* --- lines ---------------------------------------------------------------- */

/* NULL: the library itself serves it. */
static const char *function_at(const tri_rpc *rpc, int i)
{
    const char *name = rpc->served[i]->name;

    return strncmp(name, BUILT_IN, strlen(BUILT_IN)) != 0 ? name : NULL;
}

void rpc_name_nearest(const tri_rpc *rpc, int n_names, const char *(*name_at)(const tri_rpc *, int),
                      const char *name, char text[RPC_NEAREST])
{
    int best[3], n_there = 0;
    size_t used;

    for (int i = 0; i < n_names; i++)
        n_there += name_at(rpc, i) != NULL;
    used = (size_t)snprintf(text, RPC_NEAREST,
                            n_there > 3              ? "most like it, of %d:"
                            : n_there > 1            ? "there are"
                            : n_there == 1           ? "there is"
                            : name_at == function_at ? "it has none (tri_rpc_serve)"
                                                     : "it has none (tri_rpc_own)",
                            n_there);
    for (int n = 0; n < 3 && n < n_there; n++) {
        int nearest = -1, least = INT32_MAX;

        for (int i = 0; i < n_names; i++) {
            const char *other = name_at(rpc, i);
            int d = other != NULL ? trii_name_distance(name, strlen(name), other) : INT32_MAX;
            bool taken = false;

            for (int k = 0; k < n; k++)
                taken = taken || best[k] == i;
            if (!taken && d < least) {
                least = d;
                nearest = i;
            }
        }
        best[n] = nearest;
        used += (size_t)snprintf(text + used, RPC_NEAREST - used, "%s %.60s", n == 0 ? "" : ",",
                                 name_at(rpc, nearest));
    }
}

tri_status rpc_not_served(const tri_rpc_request *r)
{
    const char *name = r->peer->known_names[r->function_number];
    const tri_rpc *rpc = r->rpc;
    char nearest[RPC_NEAREST];

    rpc_name_nearest(rpc, rpc->n_served, function_at, name, nearest);
    return TRII_FAIL(TRI_ERR_NOT_FOUND, "no function %s on worker %s; %s", name, rpc->name,
                     nearest);
}

static const char *kind_name(const tri_rpc_object *kind)
{
    return kind->name != NULL ? kind->name : "(without a name)";
}

tri_status rpc_not_of_kind(const tri_rpc_object *of, const tri_rpc_object *on)
{
    if (on == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "it is for objects of the kind \"%.60s\", not for a worker",
                         kind_name(of));
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "it is for objects of the kind \"%.60s\", not for one of the kind \"%.60s\"",
                     kind_name(of), kind_name(on));
}
