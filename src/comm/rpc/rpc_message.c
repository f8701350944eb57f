/*
 * rpc_message.c - from a message of the program to a frame, and back.
 *
 * Large parts, and large data, lie in arenas: where the program has them there already, else they
 * are copied once into a block that the receiver maps. Over tcp they are put into the frame when it
 * goes.
 */
/* build: hot */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "comm/rpc/rpc_arena.h"
#include "comm/rpc/rpc_internal.h"

#define EARLY_BYTES ((size_t)32 << 10) /* copies that take as long as a wake-up */
#define LAST_BYTES ((size_t)256 << 10)

rpc_limits rpc_limits_of(const tri_rpc *rpc, const tri_rpc_function *function, bool reply)
{
    size_t data = reply ? function->max_reply : function->max_request;

    return (rpc_limits){.data = data > 0 ? data : (size_t)64 << 10,
                        .part = function->max_part,
                        .message = rpc->options.max_message,
                        .reply = reply};
}

/* --- out ------------------------------------------------------------------ */

static tri_status check_list(const char *name, const void *list, int n, int most)
{
    if (n >= 0 && n <= most && (n == 0 || list != NULL))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "n_%s is %d, at most %d; %s is %p", name, n, most, name,
                     list);
}

static tri_status check(const tri_rpc *rpc, const tri_rpc_message *m, const rpc_limits *limits)
{
    size_t sum = m->bytes;
    tri_status status = TRII_CHECK_RESERVED(tri_rpc_message, m);

    if (status == TRI_OK)
        status = check_list("parts", m->parts, m->n_parts, TRI_RPC_MAX_PARTS);
    if (status == TRI_OK)
        status = check_list("refs", m->refs, m->n_refs, TRI_RPC_MAX_REFS);
    if (status != TRI_OK)
        return status;
    if (m->data == NULL && m->bytes > 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "data is NULL, and bytes is %zu", m->bytes);
    if (m->bytes > limits->data)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%zu bytes of data, at most %zu (%s)", m->bytes,
                         limits->data, limits->reply ? "max_reply" : "max_request");
    if (m->n_parts > 0 && limits->part == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, RPC_NO_PARTS, m->n_parts);
    for (int i = 0; i < m->n_parts; i++) {
        if (m->parts[i].bytes > limits->part || (m->parts[i].data == NULL && m->parts[i].bytes > 0))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "part %d has %zu bytes at %p, at most %zu (max_part)", i,
                             m->parts[i].bytes, m->parts[i].data, limits->part);
        sum = sum + m->parts[i].bytes < sum ? SIZE_MAX : sum + m->parts[i].bytes;
    }
    if (sum > limits->message)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%zu bytes, at most %zu (max_message)", sum,
                         limits->message);
    for (int i = 0; i < m->n_refs; i++) {
        if (m->refs[i] == NULL || m->refs[i]->rpc != rpc)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "reference %d is %s", i,
                             m->refs[i] == NULL ? "NULL" : "another worker's handle");
    }
    return TRI_OK;
}

/* A receiver that sleeps is woken so early that it is there when the copy is. */
static void copy_in(rpc_peer *to, void *dst, const void *src, size_t bytes)
{
    size_t before = bytes > LAST_BYTES ? (bytes - LAST_BYTES) / 64 * 64 : 0;

    if (bytes == 0)
        return; /* src may be NULL */
    trii_shmem_write(dst, src, before);
    if (to != NULL && bytes >= EARLY_BYTES) {
        trii_mutex_lock(&to->rpc->lock);
        rpc_wake_early(to);
        trii_mutex_unlock(&to->rpc->lock);
    }
    trii_shmem_write((char *)dst + before, (const char *)src + before, bytes - before);
}

/* Where a part lies until it goes. */
static tri_status place_part(tri_rpc *rpc, const void *data, size_t bytes, rpc_packet *packet,
                             rpc_wire_part *part)
{
    rpc_block *block;
    void *copy = NULL, *start = NULL;
    size_t fresh = 0;
    bool ours;

    trii_mutex_lock(&rpc->lock);
    block = rpc_block_of(rpc, data, bytes, &ours);
    if (block != NULL)
        rpc_block_use(block);
    else if (!ours)
        block = rpc_block_take(rpc, bytes, &copy);
    if (block != NULL && copy != NULL)
        fresh = rpc_block_claim(block, &start);
    trii_mutex_unlock(&rpc->lock);
    if (block == NULL && ours)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%zu bytes at %p: memory of tri_rpc_alloc that has been freed, or is "
                         "shorter",
                         bytes, data);
    if (block == NULL)
        return TRI_ERR_NO_MEMORY;
    packet->blocks[packet->n_blocks++] = block;
    if (fresh > 0 && trii_shmem_populate(start, fresh) != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    if (copy != NULL)
        copy_in(packet->to, copy, data, bytes);
    rpc_block_place(block, copy != NULL ? copy : data, &part->arena, &part->at);
    return TRI_OK;
}

/* Which parts lie in the frame; its length. */
static size_t choose_inline(const tri_rpc_message *m, const rpc_shape *shape, uint32_t first,
                            rpc_wire_part *parts)
{
    size_t end = shape->end, used = shape->end - shape->data_at, room;

    for (int i = 0; i < m->n_parts; i++) {
        rpc_wire_part *part = &parts[first + (uint32_t)i];

        part->bytes = m->parts[i].bytes;
        part->arena = 1;                       /* for now: somewhere else */
        room = rpc_round(part->bytes + 1, 64); /* with what aligns it */
        if (part->bytes > RPC_EAGER_PART || used + room > RPC_EAGER_BYTES)
            continue;
        part->arena = 0;
        part->at = rpc_round(end, 64);
        end = part->at + part->bytes;
        used += room;
    }
    return end;
}

static tri_status take_lists(const tri_rpc_message *m, bool apart, rpc_packet *packet)
{
    if (m->n_refs > 0) {
        packet->refs = trii_alloc((size_t)m->n_refs, sizeof(tri_rpc_ref *), "message");
        if (packet->refs == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    if (m->n_parts > 0 || apart) {
        packet->blocks = trii_alloc((size_t)m->n_parts + 1, sizeof(rpc_block *), "message");
        if (packet->blocks == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    return TRI_OK;
}

static tri_status pack_parts(tri_rpc *rpc, const tri_rpc_message *m, rpc_header *h,
                             rpc_packet *packet)
{
    bool apart = (h->flags & RPC_DATA_IS_PART) != 0;
    rpc_shape shape = rpc_frame_shape(h->n_refs, h->n_parts, (size_t)h->data_bytes);
    rpc_wire_part *parts = trii_alloc(h->n_parts, sizeof(*parts), "message");
    tri_status status = parts != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    size_t end = 0;

    if (status == TRI_OK) {
        end = choose_inline(m, &shape, apart ? 1 : 0, parts);
        parts[0].bytes = apart ? m->bytes : parts[0].bytes;
        packet->bytes = sizeof(*h) + end;
        packet->frame = packet->bytes <= sizeof(packet->room)
                            ? packet->room
                            : trii_alloc(1, packet->bytes, "message");
        status = packet->frame != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (apart && status == TRI_OK)
        status = place_part(rpc, m->data, m->bytes, packet, &parts[0]);
    for (int i = 0; i < m->n_parts && status == TRI_OK; i++) {
        rpc_wire_part *part = &parts[i + (apart ? 1 : 0)];

        packet->weight += part->bytes;
        if (part->arena == 0 && part->bytes > 0)
            memcpy(packet->frame + sizeof(*h) + part->at, m->parts[i].data, part->bytes);
        else if (part->arena != 0)
            status = place_part(rpc, m->parts[i].data, part->bytes, packet, part);
    }
    if (status == TRI_OK)
        memcpy(packet->frame + sizeof(*h) + shape.parts_at, parts, h->n_parts * sizeof(*parts));
    h->bytes = end;
    trii_free(parts);
    return status;
}

tri_status rpc_pack(tri_rpc *rpc, const tri_rpc_message *m, const rpc_header *head,
                    const rpc_limits *limits, const char *what, rpc_packet *packet)
{
    static const tri_rpc_message empty = {0};
    rpc_header h = *head;
    rpc_shape shape;
    bool apart;
    tri_status status;

    packet->frame = NULL;
    packet->refs = NULL;
    packet->blocks = NULL;
    packet->n_refs = packet->n_blocks = 0;
    m = m != NULL ? m : &empty;
    status = check(rpc, m, limits);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", what);
    apart = m->bytes > RPC_EAGER_BYTES;
    h.magic = RPC_MAGIC;
    h.flags = apart ? RPC_DATA_IS_PART : 0;
    h.n_refs = (uint16_t)m->n_refs;
    h.n_parts = (uint32_t)m->n_parts + (apart ? 1 : 0);
    h.data_bytes = apart ? 0 : m->bytes;
    packet->weight = sizeof(h) + m->bytes;
    status = take_lists(m, apart, packet);
    shape = rpc_frame_shape(h.n_refs, h.n_parts, (size_t)h.data_bytes);
    if (status == TRI_OK && h.n_parts > 0) {
        status = pack_parts(rpc, m, &h, packet);
    } else if (status == TRI_OK) {
        h.bytes = shape.end;
        packet->bytes = sizeof(h) + shape.end;
        packet->frame = packet->bytes <= sizeof(packet->room)
                            ? packet->room
                            : trii_alloc(1, packet->bytes, "message");
        status = packet->frame != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (status != TRI_OK) {
        trii_mutex_lock(&rpc->lock);
        rpc_packet_fini(rpc, packet);
        rpc_unlock(rpc);
        return TRII_FAIL_CTX(status, "%s", what);
    }
    memcpy(packet->frame, &h, sizeof(h));
    if (h.data_bytes > 0)
        memcpy(packet->frame + sizeof(h) + shape.data_at, m->data, m->bytes);
    if (m->n_refs > 0) {
        trii_mutex_lock(&rpc->lock);
        for (int i = 0; i < m->n_refs; i++) {
            packet->refs[i] = m->refs[i];
            packet->refs[i]->users++;
        }
        packet->n_refs = m->n_refs;
        trii_mutex_unlock(&rpc->lock);
    }
    return TRI_OK;
}

void rpc_packet_fini(tri_rpc *rpc, rpc_packet *packet)
{
    for (int i = 0; i < packet->n_refs; i++)
        rpc_ref_unuse(packet->refs[i]);
    for (int i = 0; i < packet->n_blocks; i++)
        rpc_block_unuse(rpc, packet->blocks[i]);
    trii_free(packet->refs);
    trii_free(packet->blocks);
    if (packet->frame != packet->room)
        trii_free(packet->frame);
    packet->frame = NULL;
    packet->refs = NULL;
    packet->blocks = NULL;
    packet->n_refs = packet->n_blocks = 0;
}

/* The same frame with all parts in it. NULL: no memory. */
RPC_COLD static unsigned char *whole_frame(const tri_rpc *rpc, const rpc_packet *packet,
                                           size_t *bytes_out)
{
    rpc_header h;
    rpc_shape shape;
    rpc_wire_part part;
    unsigned char *whole;
    size_t end;

    memcpy(&h, packet->frame, sizeof(h));
    shape = rpc_frame_shape(h.n_refs, h.n_parts, (size_t)h.data_bytes);
    end = (size_t)h.bytes;
    for (int pass = 0;; pass++) {
        whole = pass == 0 ? NULL : trii_alloc_aligned(64, sizeof(h) + end, "message");
        if (pass == 1 && whole == NULL)
            return NULL;
        if (pass == 1)
            memcpy(whole, packet->frame, packet->bytes);
        end = (size_t)h.bytes;
        for (uint32_t i = 0; i < h.n_parts; i++) {
            const unsigned char *from =
                packet->frame + sizeof(h) + shape.parts_at + i * sizeof(part);

            memcpy(&part, from, sizeof(part));
            if (part.arena == 0)
                continue;
            if (pass == 1)
                memcpy(whole + sizeof(h) + rpc_round(end, 64),
                       rpc_arena_base(rpc, part.arena) + part.at, part.bytes);
            part.arena = 0;
            part.at = rpc_round(end, 64);
            end = part.at + part.bytes;
            if (pass == 1)
                memcpy(whole + (from - packet->frame), &part, sizeof(part));
        }
        if (pass == 1)
            break;
    }
    h.bytes = end;
    memcpy(whole, &h, sizeof(h));
    *bytes_out = sizeof(h) + end;
    return whole;
}

tri_status rpc_send_packet(rpc_peer *peer, rpc_packet *packet, bool is_request)
{
    rpc_header h;

    if (peer->state == RPC_PEER_LOST)
        return TRI_OK; /* nobody is told that it holds something */
    for (int i = 0; i < packet->n_refs; i++) {
        rpc_wire_ref wire = {0};

        rpc_ref_write(peer, packet->refs[i], &wire);
        memcpy(packet->frame + sizeof(h) + (size_t)i * sizeof(wire), &wire, sizeof(wire));
    }
    memcpy(&h, packet->frame, sizeof(h));
    if (packet->n_blocks > 0 && peer->out_ring == NULL) {
        size_t bytes = 0;
        unsigned char *whole = whole_frame(peer->rpc, packet, &bytes);

        if (whole == NULL)
            return TRI_ERR_NO_MEMORY;
        rpc_send(peer, whole, bytes, is_request ? h.call : 0);
        trii_free(whole);
        return TRI_OK;
    }
    for (int i = 0; i < packet->n_blocks; i++)
        rpc_send_arena(peer, rpc_block_arena(packet->blocks[i]));
    rpc_send(peer, packet->frame, packet->bytes, is_request ? h.call : 0);
    return TRI_OK;
}

/* --- in ------------------------------------------------------------------- */

static size_t view_bytes(void *arg, uint32_t arena)
{
    rpc_peer *peer = arg;

    if (arena >= RPC_MAX_ARENAS)
        return 0;
    if (peer->views[arena].bytes == 0 && peer->is_unix)
        rpc_take_records(peer); /* its file has been sent before the frame */
    return peer->views[arena].bytes;
}

static tri_status fill_lists(rpc_peer *peer, const rpc_header *h, rpc_received *r)
{
    rpc_shape shape = rpc_frame_shape(h->n_refs, h->n_parts, (size_t)h->data_bytes);
    unsigned char *body = r->body != NULL ? r->body : r->small;
    uint32_t apart = (h->flags & RPC_DATA_IS_PART) != 0 ? 1 : 0;
    tri_rpc_part *parts = r->few_parts;
    tri_rpc_ref **refs = r->few_refs;

    if (h->n_parts > TRII_COUNT_OF(r->few_parts) || h->n_refs > TRII_COUNT_OF(r->few_refs)) {
        r->lists =
            trii_alloc(1, h->n_parts * sizeof(*parts) + h->n_refs * sizeof(*refs), "message");
        if (r->lists == NULL)
            return TRI_ERR_NO_MEMORY;
        parts = r->lists;
        refs = (tri_rpc_ref **)(void *)(parts + h->n_parts);
    }
    for (uint32_t i = 0; i < h->n_parts; i++) {
        rpc_wire_part part;
        tri_rpc_part to;

        memcpy(&part, body + shape.parts_at + i * sizeof(part), sizeof(part));
        to = (tri_rpc_part){(part.arena == 0 ? body : peer->views[part.arena].base) + part.at,
                            part.bytes};
        if (part.arena != 0 && r->peer == NULL) {
            r->peer = peer;
            rpc_peer_use(peer);
        }
        if (apart == 1 && i == 0) {
            r->message.data = to.data;
            r->message.bytes = to.bytes;
        } else {
            parts[i - apart] = to;
        }
    }
    if (apart == 0) {
        r->message.data = body + shape.data_at;
        r->message.bytes = h->data_bytes;
    }
    r->message.parts = parts;
    r->message.n_parts = (int)(h->n_parts - apart);
    r->message.refs = refs;
    for (int i = 0; i < h->n_refs; i++) {
        rpc_wire_ref wire;
        tri_status status;

        memcpy(&wire, body + (size_t)i * sizeof(wire), sizeof(wire));
        status = rpc_ref_read(peer, &wire, &refs[i]);
        if (status != TRI_OK)
            return status;
        r->message.n_refs = i + 1;
    }
    return TRI_OK;
}

/* Its sender has counted them. */
RPC_COLD static void drop_refs(rpc_peer *peer, const unsigned char *wires, int from, int to)
{
    for (int i = from; i < to; i++) {
        rpc_wire_ref wire;
        tri_rpc_ref *ref;

        memcpy(&wire, wires + (size_t)i * sizeof(wire), sizeof(wire));
        wire.name[RPC_NAME - 1] = '\0';
        if (rpc_ref_read(peer, &wire, &ref) == TRI_OK) {
            trii_free(ref->error); /* nobody asks */
            ref->error = NULL;
            rpc_ref_unuse(ref);
        }
    }
}

RPC_COLD void rpc_receive_nothing(rpc_peer *peer, const rpc_header *h, rpc_source *source)
{
    size_t bytes = h->n_refs * sizeof(rpc_wire_ref);
    unsigned char *wires = source->owned;

    if (bytes == 0)
        return;
    if (wires == NULL) {
        wires = trii_alloc(1, bytes, "message");
        if (wires == NULL)
            return;
        rpc_source_copy(source, wires, bytes);
    }
    drop_refs(peer, wires, 0, h->n_refs);
    if (source->owned == NULL)
        trii_free(wires);
}

tri_status rpc_receive(rpc_peer *peer, const rpc_header *h, rpc_source *source,
                       const rpc_limits *limits, rpc_received *r)
{
    tri_status status = rpc_frame_check(h, limits);
    unsigned char *body = r->small;

    r->message = (tri_rpc_message){0};
    r->peer = NULL;
    r->body = r->lists = NULL;
    if (status == TRI_OK && source->is_cut)
        status = TRII_FAIL(TRI_ERR_NOT_FOUND,
                           "its %" PRIu64 " bytes came before the function was served: call again",
                           h->bytes);
    if (status != TRI_OK) {
        rpc_receive_nothing(peer, h, source);
        return status;
    }
    if (source->owned != NULL) {
        body = r->body = source->owned;
        source->owned = NULL;
    } else if (h->bytes > sizeof(r->small)) {
        body = r->body = trii_alloc_aligned(64, (size_t)h->bytes, "message");
        if (body == NULL) {
            rpc_receive_nothing(peer, h, source);
            return TRI_ERR_NO_MEMORY;
        }
    }
    if (source->first != NULL)
        rpc_source_copy(source, body, (size_t)h->bytes);
    if (h->n_parts > 0 || h->n_refs > 0) {
        status = rpc_frame_check_body(h, body, limits, view_bytes, peer);
        if (status == TRI_OK)
            status = fill_lists(peer, h, r);
        if (status != TRI_OK && status != TRI_ERR_FORMAT)
            drop_refs(peer, body, r->message.n_refs, h->n_refs);
    } else {
        r->message.data = body;
        r->message.bytes = h->data_bytes;
    }
    if (status != TRI_OK)
        rpc_received_fini(r);
    return status;
}

void rpc_received_fini(rpc_received *r)
{
    for (int i = 0; i < r->message.n_refs; i++)
        rpc_ref_unuse(r->message.refs[i]);
    trii_free(r->body);
    trii_free(r->lists);
    if (r->peer != NULL)
        rpc_peer_unuse(r->peer);
    r->message = (tri_rpc_message){0};
    r->body = r->lists = NULL;
    r->peer = NULL;
}
