/*
 * served_graphs.c - forwards of a served module that wait for their backward, and contexts for the
 * next ones. Of the module's thread.
 *
 * A context that has been used is used again: a forward that repeats the last one there is recorded
 * without being checked, and its plan is found again.
 */
#include "base/alloc.h"
#include "train/parallel/rpc/account.h"
#include "train/parallel/rpc/served_run.h"

static void free_inputs(trii_remote_graph *g)
{
    for (int i = 0; i < g->n_in; i++)
        tri_tensor_unref(g->in[i]);
    g->n_in = 0;
}

static void graph_free(trii_remote_graph *g)
{
    tri_context_destroy(g->context);
    free_inputs(g);
    trii_free(g);
}

tri_status trii_graph_take(trii_served *s, trii_remote_graph **graph_out)
{
    trii_remote_graph *g = s->idle;
    tri_status status = TRI_OK;

    if (g != NULL) {
        s->idle = g->next;
    } else {
        g = trii_alloc(1, sizeof(*g), "graph");
        if (g == NULL)
            return TRI_ERR_NO_MEMORY;
        status = tri_context_create(&g->context);
        if (status != TRI_OK) {
            trii_free(g);
            return status;
        }
    }
    *graph_out = g;
    return TRI_OK;
}

void trii_graph_give(trii_served *s, trii_remote_graph *g, bool bad)
{
    tri_status status = bad ? TRI_ERR_STATE : tri_context_enter(g->context);

    if (status == TRI_OK) {
        status = tri_step_end_status();
        if (tri_context_leave() != TRI_OK)
            status = TRI_ERR_STATE;
    }
    if (status != TRI_OK) {
        graph_free(g);
        return;
    }
    free_inputs(g);
    g->session = NULL;
    g->next = s->idle;
    s->idle = g;
}

void trii_graph_keep(trii_served *s, trii_remote_graph *g)
{
    g->session->n_graphs++;
    g->next = s->graphs;
    s->graphs = g;
}

void trii_graph_drop(trii_served *s, const trii_session *session, trii_remote_graph *g, bool bad)
{
    trii_stays_drop(s, session->number, g->call);
    trii_graph_give(s, g, bad);
}

trii_remote_graph *trii_graph_find(trii_served *s, const trii_session *session, uint64_t call)
{
    trii_remote_graph **at = &s->graphs, *g;

    while (*at != NULL && ((*at)->session != session || (*at)->call != call))
        at = &(*at)->next;
    g = *at;
    if (g != NULL) {
        *at = g->next;
        g->session->n_graphs--;
    }
    return g;
}

void trii_served_drop_graphs(trii_served *s, const trii_session *session)
{
    trii_remote_graph **at = &s->graphs;

    while (*at != NULL) {
        trii_remote_graph *g = *at;

        if (session != NULL && g->session != session) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        g->session->n_graphs--;
        trii_graph_give(s, g, false);
    }
}

void trii_served_drop_all(trii_served *s)
{
    trii_served_drop_graphs(s, NULL);
    trii_stays_drop(s, 0, 0);
    while (s->idle != NULL) {
        trii_remote_graph *g = s->idle;

        s->idle = g->next;
        graph_free(g);
    }
    trii_accounts_destroy(s->accounts);
    s->accounts = NULL;
    for (int i = 0; i < s->n_params; i++)
        tri_tensor_unref(s->params[i]);
    s->n_params = 0;
    trii_free(s->params);
    s->params = NULL;
}
