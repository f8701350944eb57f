/*
 * rpc_reply.c - the answers to requests. One that has a promise goes when that is there.
 */
/* build: hot */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "comm/rpc/rpc_internal.h"

/* Calls of it may be on their way, or come. */
static void keep_result(tri_rpc_request *r, const tri_rpc_ref *ref)
{
    r->outcome = ref->peer == NULL ? RPC_OUTCOME_HERE : RPC_OUTCOME_ELSEWHERE;
    r->made = ref->local;
    if (r->made != NULL)
        r->made->users++;
}

/* Locked. It goes, or waits for a promise; or fails as that did. */
static tri_status go(tri_rpc_request *r)
{
    rpc_packet *packet = &r->packet;
    tri_status status;

    for (int i = 0; i < packet->n_refs; i++) {
        tri_rpc_ref *ref = packet->refs[i];
        tri_rpc_request **at = &ref->replies;

        if (ref->maker != NULL) {
            while (*at != NULL)
                at = &(*at)->next;
            r->next = NULL;
            *at = r;
            r->postponed = true;
            return TRI_OK;
        }
        if (ref->status < 0) {
            ref->told = true;
            rpc_request_status(r, ref->status, ref->error != NULL ? ref->error : "no memory");
            rpc_packet_fini(r->rpc, packet);
            trii_free(r->kept);
            r->kept = NULL;
            rpc_request_retire(r);
            return TRI_OK;
        }
    }
    status = rpc_send_packet(r->peer, packet, false);
    if (status == TRI_OK && r->keeps && packet->n_refs > 0)
        keep_result(r, packet->refs[0]);
    if (status == TRI_OK && r->kept != NULL && r->peer->state == RPC_PEER_UP &&
        r->peer->out_ring != NULL) {
        *r->kept = (rpc_kept){r->peer->kept, r->call, packet->blocks, packet->n_blocks};
        r->peer->kept = r->kept;
        r->kept = NULL;
        packet->blocks = NULL;
        packet->n_blocks = 0;
    }
    rpc_packet_fini(r->rpc, packet);
    trii_free(r->kept);
    r->kept = NULL;
    if (status == TRI_OK)
        rpc_request_retire(r);
    return status;
}

RPC_COLD void rpc_submit_replies(tri_rpc_ref *promise)
{
    tri_rpc_request *r = promise->replies, *next;

    promise->replies = NULL;
    for (; r != NULL; r = next) {
        next = r->next;
        r->next = NULL;
        r->postponed = false;
        if (go(r) != TRI_OK)
            rpc_request_fail_line(r, TRI_ERR_NO_MEMORY, tri_last_error());
    }
}

static tri_status reply(tri_rpc_request *r, const tri_rpc_message *out)
{
    tri_rpc *rpc;
    rpc_limits limits;
    rpc_header h = {.kind = RPC_REPLY};
    tri_status status = TRII_CHECK_RESERVED(tri_rpc_message, out);

    if (status == TRI_OK)
        status = trii_need(r, "rpc_reply", "request");
    if (status == TRI_OK)
        status = rpc_check_process(r->rpc, "rpc_reply");
    if (status != TRI_OK)
        return status;
    if (r->answered || r->postponed)
        return TRII_FAIL(TRI_ERR_STATE, "rpc_reply: %s has been answered", r->function->name);
    rpc = r->rpc;
    h.call = r->call;
    limits = rpc_limits_of(rpc, r->function, true);
    status = rpc_pack(rpc, out, &h, &limits, "rpc_reply", &r->packet);
    if (status != TRI_OK)
        return status;
    rpc_use(rpc);
    if (r->packet.n_blocks > 0) {
        r->kept = trii_alloc(1, sizeof(*r->kept), "reply");
        status = r->kept != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    rpc_lock(rpc);
    if (status == TRI_OK)
        status = go(r);
    else
        rpc_packet_fini(rpc, &r->packet);
    rpc_unlock(rpc);
    rpc_unuse(rpc);
    return status;
}

tri_status tri_rpc_reply(tri_rpc_request *r, const tri_rpc_message *out)
{
    trii_site site = trii_site_take();
    tri_status status = reply(r, out);

    if (status == TRI_OK || site.file == NULL)
        return status;
    return TRII_FAIL(status, "%s (%s:%d)", tri_last_error(), site.file, site.line);
}

RPC_COLD void tri_rpc_fail(tri_rpc_request *r, tri_status status)
{
    char line[RPC_ERROR];
    tri_rpc *rpc;

    if (r == NULL || rpc_is_parents(r->rpc) || r->answered || r->postponed)
        return;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    rpc = r->rpc;
    rpc_use(rpc);
    rpc_lock(rpc);
    rpc_request_status(r, status < 0 ? status : TRI_ERR_INTERNAL, line);
    rpc_request_retire(r);
    rpc_unlock(rpc);
    rpc_unuse(rpc);
}

RPC_COLD void rpc_answer_with(tri_rpc_request *r, tri_rpc_ref *ref)
{
    unsigned char frame[sizeof(rpc_header) + sizeof(rpc_wire_ref)];
    const rpc_header h = {.magic = RPC_MAGIC,
                          .kind = RPC_REPLY,
                          .call = r->call,
                          .n_refs = 1,
                          .bytes = sizeof(rpc_wire_ref)};
    rpc_wire_ref wire = {0};

    rpc_ref_write(r->peer, ref, &wire);
    memcpy(frame, &h, sizeof(h));
    memcpy(frame + sizeof(h), &wire, sizeof(wire));
    rpc_send(r->peer, frame, sizeof(frame), 0);
    rpc_request_retire(r);
}
