/*
 * rpc_frame.c - see rpc_frame.h: what must hold of a frame that came from outside.
 */
/* build: hot leaf */
#include "comm/rpc/rpc_frame.h"

#include <inttypes.h>
#include <string.h>

#include "base/compiler.h"
#include "base/err.h"

rpc_shape rpc_frame_shape(uint32_t n_refs, uint32_t n_parts, size_t data_bytes)
{
    rpc_shape shape = {0};

    shape.parts_at = n_refs * sizeof(rpc_wire_ref);
    shape.data_at = rpc_round(shape.parts_at + n_parts * sizeof(rpc_wire_part), 16);
    shape.end = shape.data_at + data_bytes;
    return shape;
}

/* Read where the call was made. */
TRII_NOINLINE static tri_status too_long(const rpc_limits *limits, const char *what, uint64_t bytes,
                                         size_t most, const char *name)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%" PRIu64 " bytes of %s, at most %zu %s (%s)", bytes,
                     what, most, limits->reply ? "here" : "there", name);
}

TRII_NOINLINE static tri_status too_much_data(const rpc_limits *limits, uint64_t bytes)
{
    return too_long(limits, "data", bytes, limits->data,
                    limits->reply ? "max_reply" : "max_request");
}

TRII_NOINLINE static tri_status too_large(const rpc_limits *limits, uint64_t bytes)
{
    return too_long(limits, "a message", bytes, limits->message, "max_message");
}

tri_status rpc_frame_check(const rpc_header *h, const rpc_limits *limits)
{
    bool apart = (h->flags & RPC_DATA_IS_PART) != 0;
    rpc_shape shape;

    if (h->magic != RPC_MAGIC || h->kind < RPC_REQUEST || h->kind > RPC_ALIVE ||
        (h->flags & ~(RPC_DATA_IS_PART | RPC_OF_PROMISE | RPC_KEEPS)) != 0 ||
        ((h->flags & RPC_OF_PROMISE) != 0 && h->kind > RPC_REPLY) ||
        ((h->flags & RPC_KEEPS) != 0 && h->kind != RPC_REQUEST))
        return TRII_FAIL(TRI_ERR_FORMAT, "what came is not a frame");
    if (h->n_refs > TRI_RPC_MAX_REFS || h->n_parts > TRI_RPC_MAX_PARTS + 1u ||
        (apart && (h->n_parts == 0 || h->data_bytes != 0)) || h->data_bytes > h->bytes)
        return TRII_FAIL(TRI_ERR_FORMAT, "a frame contradicts itself");
    shape = rpc_frame_shape(h->n_refs, h->n_parts, (size_t)h->data_bytes);
    if (shape.end > h->bytes)
        return TRII_FAIL(TRI_ERR_FORMAT, "a frame contradicts itself");
    if (h->kind > RPC_REPLY) {
        if (h->bytes > RPC_CONTROL_BYTES || h->n_refs > 1 || h->n_parts > 0)
            return TRII_FAIL(TRI_ERR_FORMAT, "a frame of kind %d with %" PRIu64 " bytes", h->kind,
                             h->bytes);
        return TRI_OK;
    }
    if (h->data_bytes > limits->data)
        return too_much_data(limits, h->data_bytes);
    if (h->n_parts > (apart ? 1u : 0u) && limits->part == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, RPC_NO_PARTS, (int)h->n_parts - (apart ? 1 : 0));
    if (h->bytes > limits->message)
        return too_large(limits, h->bytes);
    return TRI_OK;
}

tri_status rpc_frame_check_body(const rpc_header *h, const void *body, const rpc_limits *limits,
                                size_t (*arena_bytes)(void *arg, uint32_t arena), void *arg)
{
    rpc_shape shape = rpc_frame_shape(h->n_refs, h->n_parts, (size_t)h->data_bytes);
    const char *bytes = body;
    uint64_t sum = h->data_bytes;

    for (uint32_t i = 0; i < h->n_refs; i++) {
        const char *ref = bytes + i * sizeof(rpc_wire_ref);

        if (memchr(ref + offsetof(rpc_wire_ref, name), '\0', RPC_NAME) == NULL)
            return TRII_FAIL(TRI_ERR_FORMAT, "the name in a reference does not end");
    }
    for (uint32_t i = 0; i < h->n_parts; i++) {
        bool is_data = i == 0 && (h->flags & RPC_DATA_IS_PART) != 0;
        uint64_t room;
        rpc_wire_part part;

        memcpy(&part, bytes + shape.parts_at + i * sizeof(part), sizeof(part));
        room = part.arena == 0 ? h->bytes : arena_bytes(arg, part.arena);
        if (part.at > room || part.bytes > room - part.at ||
            (part.arena == 0 && part.bytes > 0 && part.at < shape.end))
            return TRII_FAIL(TRI_ERR_FORMAT, "part %u of a frame lies outside of it", i);
        if (part.bytes > (is_data ? limits->data : limits->part))
            return is_data ? too_much_data(limits, part.bytes)
                           : too_long(limits, "a part", part.bytes, limits->part, "max_part");
        sum += part.bytes;
    }
    if (sum > limits->message)
        return too_large(limits, sum);
    return TRI_OK;
}
