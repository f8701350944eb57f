/*
 * tcp_connection.c - what the server of a TCP store keeps for one connection: its memory, the
 * replies that it has to send, and what it waits for. Below tcp_server.c and tcp_requests.c, which
 * both use it.
 */
/* build: leaf */
#include "store/tcp_server_internal.h"

void trii_server_account(trii_connection *c)
{
    size_t held = c->parser.room + c->parser.parts_room * sizeof(trii_slice) + c->out.room +
                  (c->unread != NULL ? c->unread_bytes : 0);

    c->server->held = c->server->held - c->held + held;
    c->held = held;
}

/* Replies are sent once per batch of requests. */
void trii_server_mark_dirty(trii_connection *c)
{
    if (!c->dirty) {
        c->dirty = true;
        c->next_dirty = c->server->dirty;
        c->server->dirty = c;
    }
}

void trii_server_cancel_waits(trii_connection *c)
{
    while (c->n_waits > 0)
        trii_kv_cancel(c->server->kv, c->waits[--c->n_waits]);
}
