/*
 * hierarchy_child.c - one child engine of the hierarchy: its ranks, posting to it, its failure,
 * which fails the whole group. The lowest file of the room.
 */
#include "comm/composites/hierarchy/hierarchy.h"

#include <string.h>

#include "base/err.h"

/* --- faults --------------------------------------------------------------- */

static void raise_from(hierarchy *h, const hierarchy_child *c)
{
    int lost = atomic_load(&c->fault.lost_rank); /* rank + 1; 0 = none */

    if (lost > 0 && lost <= h->size)
        atomic_store(&h->fault->lost_rank, lost);
    trii_fault_raise(h->fault, trii_fault_status(&c->fault), "%s", c->fault.text);
}

void hierarchy_abort_children(hierarchy *h)
{
    tri_status status = trii_fault_cause(h->fault);

    for (int i = 0; i < HIERARCHY_CHILDREN; i++) {
        hierarchy_child *c = &h->children[i];

        if (c->self == NULL)
            continue;
        trii_fault_raise(&c->fault, status, "%s", h->fault->text);
        c->engine->abort(c->self);
    }
}

bool hierarchy_check_faults(hierarchy *h)
{
    bool failed = trii_fault_status(h->fault) != TRI_OK;
    bool all = true;

    /* Backwards: FLAT, the last one, knows all ranks, and its message says most. */
    for (int i = HIERARCHY_CHILDREN - 1; i >= 0; i--) {
        const hierarchy_child *c = &h->children[i];
        bool fault = c->self != NULL && trii_fault_status(&c->fault) != TRI_OK;

        if (fault && !failed)
            raise_from(h, c);
        failed = failed || fault;
        all = all && (c->self == NULL || fault);
    }
    if (failed && !all)
        hierarchy_abort_children(h);
    return failed;
}

/* --- posting -------------------------------------------------------------- */

tri_status hierarchy_post(hierarchy *h, hierarchy_call *c, int which, const trii_collective *piece)
{
    hierarchy_child *child = &h->children[which];
    tri_status status;

    trii_op_init(&c->inner, piece);
    c->inner.made.piece_of = trii_collective_whole(&c->op->call);
    c->inner.made.seq = ++child->seq;
    status = child->engine->submit(child->self, &c->inner, false);
    if (status != TRI_OK)
        trii_fault_raise(&child->fault, status, "%s", tri_last_error());
    else
        c->inner_on = child;
    c->met_here = c->met_here || which == HIERARCHY_IN;
    return status;
}

/* --- making --------------------------------------------------------------- */

/* Fills in a child's ranks, and its key in the store; size 0: this rank is not in it. */
static void place_child(const hierarchy *h, int which, trii_group_args *child_args, char key[24])
{
    static const char *const names[HIERARCHY_CHILDREN] = {"in", "cross", "back", "out", "flat"};
    const hierarchy_layout *l = &h->layout;

    if (which == HIERARCHY_FLAT) {
        child_args->rank = h->rank;
        child_args->size = h->size;
        snprintf(key, 24, "%s", names[which]);
    } else if (which == HIERARCHY_IN || which == HIERARCHY_OUT) {
        child_args->rank = l->local_rank;
        child_args->size = l->local_size > 1 ? l->local_size : 0;
        child_args->names = l->by_host + l->host_at[l->host];
        snprintf(key, 24, "%s/%d", names[which], l->host);
    } else {
        child_args->rank = l->host;
        child_args->size = l->column >= 0 ? l->n_hosts : 0;
        child_args->names = l->column_ranks;
        snprintf(key, 24, "%s/%d", names[which], l->column);
    }
}

tri_status hierarchy_child_create(hierarchy *h, const trii_group_args *args, int which)
{
    static const char *const engines[HIERARCHY_CHILDREN] = {"shm", "tcp", "tcp", "shm", "tcp"};
    hierarchy_child *c = &h->children[which];
    trii_group_args child_args = *args;
    char key[24];
    tri_status status;

    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (strcmp((*e)->name, engines[which]) == 0)
            c->engine = *e;
    }
    if (c->engine == NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "engine hierarchy needs engine %s, which is not built in", engines[which]);
    place_child(h, which, &child_args, key);
    if (child_args.size == 0)
        return TRI_OK;
    snprintf(c->name, sizeof(c->name), "%.15s/%s", args->name, key);
    child_args.name = c->name;
    child_args.fault = &c->fault;
    status = tri_store_prefix(key, args->store, &child_args.store);
    if (status != TRI_OK)
        return status;
    status = c->engine->create(&child_args, &c->self);
    tri_store_unref(child_args.store);
    return status;
}
