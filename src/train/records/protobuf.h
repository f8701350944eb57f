/*
 * protobuf.h - messages of Protocol Buffers, written field by field into memory.
 *
 * A field is a varint (number << 3 | wire type), then its value: 0 a varint, 1 eight bytes, 2 a
 * varint of the length and so many bytes, 5 four bytes. Numbers are little-endian; a varint has 7
 * bits a byte, the lowest first, and the top bit says that another follows.
 */
#ifndef TRII_PROTOBUF_H
#define TRII_PROTOBUF_H

#include <trireme/status.h>

#define TRII_PROTO_VARINT 0
#define TRII_PROTO_EIGHT 1
#define TRII_PROTO_BYTES 2
#define TRII_PROTO_FOUR 5

/* Zeroed before its first use. One that ran out of memory takes nothing more and says so in the
 * end. */
typedef struct trii_proto {
    uint8_t *data;
    size_t used, room;
    bool failed;
} trii_proto;

/* Left out where the value is 0, as Protocol Buffers leave out defaults. */
void trii_proto_int(trii_proto *out, int field, int64_t value);
void trii_proto_double(trii_proto *out, int field, double value);
void trii_proto_float(trii_proto *out, int field, float value);
void trii_proto_bytes(trii_proto *out, int field, const void *data, size_t bytes);
void trii_proto_text(trii_proto *out, int field, const char *text);
/* n numbers, packed. */
void trii_proto_doubles(trii_proto *out, int field, const double *values, size_t n);
/* A message within: what is written from begin to end; begin's result is end's argument. */
size_t trii_proto_begin(trii_proto *out, int field);
void trii_proto_end(trii_proto *out, size_t begun);
/* NO_MEMORY if something did not fit. */
tri_status trii_proto_status(const trii_proto *out) TRI_MUST_CHECK;
void trii_proto_fini(trii_proto *out);

#endif
