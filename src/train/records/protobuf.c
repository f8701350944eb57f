/*
 * protobuf.c - see protobuf.h.
 */
#include "train/records/protobuf.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

#define VARINT_BYTES 10

static bool reserve(trii_proto *out, size_t bytes)
{
    size_t room = out->room > 0 ? out->room : 256;
    uint8_t *data;

    if (out->failed)
        return false;
    if (bytes <= out->room - out->used)
        return true;
    while (room - out->used < bytes && room < SIZE_MAX / 2)
        room *= 2;
    data = trii_realloc(out->data, room, 1, "record");
    if (data == NULL) {
        out->failed = true;
        return false;
    }
    out->data = data;
    out->room = room;
    return true;
}

static void put(trii_proto *out, const void *data, size_t bytes)
{
    if (bytes > 0 && reserve(out, bytes)) {
        memcpy(out->data + out->used, data, bytes);
        out->used += bytes;
    }
}

static size_t encode_varint(uint64_t value, uint8_t text[VARINT_BYTES])
{
    size_t n = 0;

    for (; value >= 0x80; value >>= 7)
        text[n++] = (uint8_t)(value | 0x80);
    text[n++] = (uint8_t)value;
    return n;
}

static void put_varint(trii_proto *out, uint64_t value)
{
    uint8_t text[VARINT_BYTES];

    put(out, text, encode_varint(value, text));
}

static void put_key(trii_proto *out, int field, unsigned wire)
{
    put_varint(out, (uint64_t)field << 3 | wire);
}

void trii_proto_int(trii_proto *out, int field, int64_t value)
{
    if (value == 0)
        return;
    put_key(out, field, TRII_PROTO_VARINT);
    put_varint(out, (uint64_t)value);
}

/* Of this machine's order of bytes: all that we build for are little-endian. */
void trii_proto_double(trii_proto *out, int field, double value)
{
    put_key(out, field, TRII_PROTO_EIGHT);
    put(out, &value, sizeof(value));
}

void trii_proto_float(trii_proto *out, int field, float value)
{
    put_key(out, field, TRII_PROTO_FOUR);
    put(out, &value, sizeof(value));
}

void trii_proto_bytes(trii_proto *out, int field, const void *data, size_t bytes)
{
    put_key(out, field, TRII_PROTO_BYTES);
    put_varint(out, bytes);
    put(out, data, bytes);
}

void trii_proto_text(trii_proto *out, int field, const char *text)
{
    trii_proto_bytes(out, field, text, strlen(text));
}

void trii_proto_doubles(trii_proto *out, int field, const double *values, size_t n)
{
    trii_proto_bytes(out, field, values, n * sizeof(*values));
}

size_t trii_proto_begin(trii_proto *out, int field)
{
    put_key(out, field, TRII_PROTO_BYTES);
    return out->used;
}

/* The length goes before what is there already. */
void trii_proto_end(trii_proto *out, size_t begun)
{
    uint8_t text[VARINT_BYTES];
    size_t n;

    if (out->failed)
        return;
    n = encode_varint(out->used - begun, text);
    if (!reserve(out, n))
        return;
    memmove(out->data + begun + n, out->data + begun, out->used - begun);
    memcpy(out->data + begun, text, n);
    out->used += n;
}

tri_status trii_proto_status(const trii_proto *out)
{
    return out->failed
               ? TRII_FAIL(TRI_ERR_NO_MEMORY, "out of memory: a record of %zu bytes", out->used)
               : TRI_OK;
}

void trii_proto_fini(trii_proto *out)
{
    trii_free(out->data);
    *out = (trii_proto){0};
}
