/*
 * wire.c - see wire.h. Called by the client (tcp_exchange.c, tcp_calls.c) and by the server
 * (tcp_server.c, tcp_requests.c); tests/fuzz calls it with every cut of a request.
 *
 * The fields of an op are a text that the parser walks: u = u32, i = i64, k = key, b = bytes, and K
 * = count, then that many k; M = count, then that many k b. The bytes of a request are stored as
 * they come, so a length that is announced but never sent costs nothing.
 */
/* build: leaf */
#include "store/wire.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

static const struct {
    const char *name;
    const char *fields;
} ops[TRII_WIRE_OP_COUNT] = {
    [TRII_WIRE_VALIDATE] = {"VALIDATE", "u"},
    [TRII_WIRE_SET] = {"SET", "kb"},
    [TRII_WIRE_COMPARE_SET] = {"COMPARE_SET", "kbb"},
    [TRII_WIRE_GET] = {"GET", "k"},
    [TRII_WIRE_ADD] = {"ADD", "ki"},
    [TRII_WIRE_CHECK] = {"CHECK", "K"},
    [TRII_WIRE_WAIT] = {"WAIT", "K"},
    [TRII_WIRE_GETNUMKEYS] = {"GETNUMKEYS", ""},
    [TRII_WIRE_DELETE_KEY] = {"DELETE_KEY", "k"},
    [TRII_WIRE_APPEND] = {"APPEND", "kb"},
    [TRII_WIRE_MULTI_GET] = {"MULTI_GET", "K"},
    [TRII_WIRE_MULTI_SET] = {"MULTI_SET", "M"},
    [TRII_WIRE_CANCEL_WAIT] = {"CANCEL_WAIT", ""},
    [TRII_WIRE_PING] = {"PING", "u"},
    [TRII_WIRE_QUEUE_PUSH] = {"QUEUE_PUSH", "kb"},
    [TRII_WIRE_QUEUE_POP] = {"QUEUE_POP", "k"},
    [TRII_WIRE_QUEUE_LEN] = {"QUEUE_LEN", "k"},
    [TRII_WIRE_LIST_KEYS] = {"LIST_KEYS", ""},
    [TRII_WIRE_BARRIER] = {"BARRIER", "ki"},
};

const char *trii_wire_op_name(unsigned op)
{
    return op < TRII_WIRE_OP_COUNT ? ops[op].name : "unknown op";
}

void trii_wire_parser_init(trii_wire_parser *parser)
{
    *parser = (trii_wire_parser){.finished = true};
}

void trii_wire_parser_fini(trii_wire_parser *parser)
{
    trii_free(parser->data);
    trii_free(parser->parts);
    trii_wire_parser_init(parser);
}

/* Room for `more` bytes after `used`, at least doubled; false = no memory. */
static bool reserve(char **data, size_t *room, size_t used, size_t more, const char *what)
{
    size_t want = used + more;
    char *grown;

    if (want <= *room)
        return true;
    if (want < 2 * *room)
        want = 2 * *room;
    if (want < 256)
        want = 256;
    grown = trii_realloc(*data, want, 1, what);
    if (grown == NULL)
        return false;
    *data = grown;
    *room = want;
    return true;
}

/* The bytes that the next item has before its payload: a number, a length or a count. */
static size_t head_bytes(char field)
{
    return field == 'u' ? 4 : 8;
}

static void next_item(trii_wire_parser *parser)
{
    parser->item_done = 0;
    parser->payload = false;
    if (*parser->fields == '\0' && parser->repeats > 0) {
        parser->repeats--;
        parser->fields = parser->again;
    }
    parser->item_bytes = *parser->fields != '\0' ? head_bytes(*parser->fields) : 0;
}

static tri_status start_request(trii_wire_parser *parser, unsigned op)
{
    if (op >= TRII_WIRE_OP_COUNT)
        return TRII_FAIL(TRI_ERR_FORMAT, "store request: unknown op %u", op);
    /* One large request must not keep its memory for the life of the connection. */
    if (parser->room > ((size_t)1 << 20))
        trii_wire_parser_fini(parser);
    parser->finished = false;
    parser->used = parser->n_parts = 0;
    parser->repeats = 0;
    parser->request = (trii_wire_request){.op = (trii_wire_op)op};
    parser->fields = ops[op].fields;
    next_item(parser);
    return TRI_OK;
}

static tri_status start_payload(trii_wire_parser *parser, uint64_t bytes, uint64_t max)
{
    const char *op = trii_wire_op_name(parser->request.op);

    if (bytes > max)
        return TRII_FAIL(TRI_ERR_FORMAT, "store request %s: length %llu is above %llu", op,
                         (unsigned long long)bytes, (unsigned long long)max);
    if (parser->used + bytes + parser->n_parts * sizeof(trii_slice) > TRII_WIRE_MAX_REQUEST)
        return TRII_FAIL(TRI_ERR_FORMAT, "store request %s: more than %zu bytes", op,
                         TRII_WIRE_MAX_REQUEST);
    if (parser->n_parts == parser->parts_room) {
        size_t room = parser->parts_room > 0 ? 2 * parser->parts_room : 4;
        trii_slice *parts = trii_realloc(parser->parts, room, sizeof(*parts), "store request");

        if (parts == NULL)
            return TRI_ERR_NO_MEMORY;
        parser->parts = parts;
        parser->parts_room = room;
    }
    parser->parts[parser->n_parts++] = (trii_slice){NULL, (size_t)bytes};
    parser->payload = true;
    parser->item_done = 0;
    parser->item_bytes = (size_t)bytes;
    return TRI_OK;
}

static tri_status start_repeats(trii_wire_parser *parser, uint64_t count, const char *fields)
{
    if (count > TRII_WIRE_MAX_KEYS)
        return TRII_FAIL(TRI_ERR_FORMAT, "store request %s: %llu keys, at most %u",
                         trii_wire_op_name(parser->request.op), (unsigned long long)count,
                         TRII_WIRE_MAX_KEYS);
    parser->repeats = count;
    parser->again = fields;
    parser->fields = "";
    next_item(parser);
    return TRI_OK;
}

/* The current item is complete: act on it and go to the next one. */
static tri_status end_item(trii_wire_parser *parser)
{
    uint64_t number;

    if (parser->payload) {
        parser->fields++;
        next_item(parser);
        return TRI_OK;
    }
    memcpy(&number, parser->small, sizeof(number));
    switch (*parser->fields) {
    case 'k':
        return start_payload(parser, number, TRII_WIRE_MAX_KEY);
    case 'b':
        return start_payload(parser, number, TRII_WIRE_MAX_VALUE);
    case 'K':
        return start_repeats(parser, number, "k");
    case 'M':
        return start_repeats(parser, number, "kb");
    case 'u':
        memcpy(&parser->request.word, parser->small, sizeof(parser->request.word));
        break;
    default:
        parser->request.number = (int64_t)number;
        break;
    }
    parser->fields++;
    next_item(parser);
    return TRI_OK;
}

/* Moves bytes into the current item; returns how many, or SIZE_MAX without memory. */
static size_t take(trii_wire_parser *parser, const char *data, size_t bytes)
{
    size_t n = parser->item_bytes - parser->item_done;

    n = n < bytes ? n : bytes;
    if (n == 0)
        return 0;
    if (!parser->payload) {
        memcpy(parser->small + parser->item_done, data, n);
    } else {
        if (!reserve(&parser->data, &parser->room, parser->used, n, "store request"))
            return SIZE_MAX;
        memcpy(parser->data + parser->used, data, n);
        parser->used += n;
    }
    parser->item_done += n;
    return n;
}

static void finish(trii_wire_parser *parser, trii_wire_request *request_out)
{
    /* an empty buffer still needs an address that memcpy and memcmp accept */
    const char *next = parser->data != NULL ? parser->data : "";

    for (size_t i = 0; i < parser->n_parts; i++) {
        parser->parts[i].data = next;
        next += parser->parts[i].bytes;
    }
    parser->finished = true;
    parser->request.parts = parser->parts;
    parser->request.n_parts = parser->n_parts;
    *request_out = parser->request;
}

tri_status trii_wire_feed(trii_wire_parser *parser, const void *data, size_t bytes,
                          size_t *used_out, trii_wire_request *request_out)
{
    const char *p = data;
    size_t used = 0;
    tri_status status;

    if (parser->finished) {
        if (bytes == 0) {
            *used_out = 0;
            return TRI_INPROGRESS;
        }
        status = start_request(parser, (unsigned char)p[used++]);
        if (status != TRI_OK)
            return status;
    }
    while (*parser->fields != '\0') {
        size_t n = take(parser, p + used, bytes - used);

        if (n == SIZE_MAX)
            return TRI_ERR_NO_MEMORY;
        used += n;
        if (parser->item_done < parser->item_bytes) {
            *used_out = used;
            return TRI_INPROGRESS;
        }
        status = end_item(parser);
        if (status != TRI_OK)
            return status;
    }
    finish(parser, request_out);
    *used_out = used;
    return TRI_OK;
}

/* --- writing -------------------------------------------------------------- */

bool trii_wire_buffer_keep(trii_wire_buffer *buffer, size_t bytes)
{
    char *data = trii_realloc(buffer->data, bytes, 1, "store message");

    if (data == NULL)
        return false;
    buffer->data = data;
    buffer->room = bytes;
    buffer->used = 0;
    return true;
}

void trii_wire_buffer_fini(trii_wire_buffer *buffer)
{
    trii_free(buffer->data);
    *buffer = (trii_wire_buffer){0};
}

void trii_wire_put(trii_wire_buffer *buffer, const void *data, size_t bytes)
{
    if (buffer->failed || bytes == 0)
        return;
    if (!reserve(&buffer->data, &buffer->room, buffer->used, bytes, "store message")) {
        buffer->failed = true;
        return;
    }
    memcpy(buffer->data + buffer->used, data, bytes);
    buffer->used += bytes;
}

void trii_wire_put_u8(trii_wire_buffer *buffer, unsigned value)
{
    const uint8_t byte = (uint8_t)value;

    trii_wire_put(buffer, &byte, sizeof(byte));
}

void trii_wire_put_u32(trii_wire_buffer *buffer, uint32_t value)
{
    trii_wire_put(buffer, &value, sizeof(value));
}

void trii_wire_put_u64(trii_wire_buffer *buffer, uint64_t value)
{
    trii_wire_put(buffer, &value, sizeof(value));
}

void trii_wire_put_i64(trii_wire_buffer *buffer, int64_t value)
{
    trii_wire_put(buffer, &value, sizeof(value));
}

void trii_wire_put_slice(trii_wire_buffer *buffer, trii_slice slice)
{
    trii_wire_put_u64(buffer, slice.bytes);
    trii_wire_put(buffer, slice.data, slice.bytes);
}
