/*
 * wire.h - PyTorch 2.13's TCPStore protocol, as bytes in memory: no sockets here, so that
 * it can be tested and fuzzed byte by byte.
 *
 * Integers in host byte order. A request is one op byte and its fields; requests and
 * replies follow each other without further framing:
 *
 *   u32, i64   4 and 8 bytes
 *   key        u64 length (at most 8192), bytes
 *   bytes      u64 length (at most 64 MiB), bytes
 *   keys       u64 count (at most 131072), that many keys
 *   pairs      u64 count (at most 131072), that many (key, bytes)
 *
 *   op               request           reply
 *    0 VALIDATE      u32 magic         none; must be the first request
 *    1 SET           key bytes         none
 *    2 COMPARE_SET   key bytes bytes   bytes
 *    3 GET           key               bytes (empty if missing)
 *    4 ADD           key i64           i64 sum
 *    5 CHECK         keys              u8: 0 all present, 1 not
 *    6 WAIT          keys              u8 0 once all are present
 *    7 GETNUMKEYS                      i64
 *    8 DELETE_KEY    key               i64: 1 existed, 0 not
 *    9 APPEND        key bytes         none
 *   10 MULTI_GET     keys              count x bytes
 *   11 MULTI_SET     pairs             none
 *   12 CANCEL_WAIT                     u8 1
 *   13 PING          u32 nonce         u32 the same
 *   14 QUEUE_PUSH    key bytes         none
 *   15 QUEUE_POP     key               i64 length before, then bytes if it was not 0
 *   16 QUEUE_LEN     key               i64
 *   17 LIST_KEYS                       i64 count, count x key
 *   18 BARRIER       key i64 size      u8 0 once `size` arrived
 *
 * Clients put '/' in front of every key of the user; `init/` counts who joined.
 */
#ifndef TRII_WIRE_H
#define TRII_WIRE_H

#include "store/kv.h" /* trii_slice */

#define TRII_WIRE_MAGIC 0x3C85F7CEu
#define TRII_WIRE_MAX_KEY 8192u
#define TRII_WIRE_MAX_VALUE (64u << 20) /* PyTorch: 8 MiB under libuv, else none */
#define TRII_WIRE_MAX_KEYS 131072u
/* A whole request: bounds what a client can make the server hold for it. */
#define TRII_WIRE_MAX_REQUEST ((size_t)256 << 20)

typedef enum trii_wire_op {
    TRII_WIRE_VALIDATE = 0,
    TRII_WIRE_SET,
    TRII_WIRE_COMPARE_SET,
    TRII_WIRE_GET,
    TRII_WIRE_ADD,
    TRII_WIRE_CHECK,
    TRII_WIRE_WAIT,
    TRII_WIRE_GETNUMKEYS,
    TRII_WIRE_DELETE_KEY,
    TRII_WIRE_APPEND,
    TRII_WIRE_MULTI_GET,
    TRII_WIRE_MULTI_SET,
    TRII_WIRE_CANCEL_WAIT,
    TRII_WIRE_PING,
    TRII_WIRE_QUEUE_PUSH,
    TRII_WIRE_QUEUE_POP,
    TRII_WIRE_QUEUE_LEN,
    TRII_WIRE_LIST_KEYS,
    TRII_WIRE_BARRIER,
    TRII_WIRE_OP_COUNT
} trii_wire_op;

/* "SET", ...; static text, never NULL. */
const char *trii_wire_op_name(unsigned op);

/* --- reading requests ----------------------------------------------------- */

typedef struct trii_wire_request {
    trii_wire_op op;
    uint32_t word;           /* magic or nonce */
    int64_t number;          /* delta or size */
    const trii_slice *parts; /* keys and bytes in their order; in the parser until its next feed */
    size_t n_parts;
} trii_wire_request;

/* In its owner's memory; the fields are the parser's. */
typedef struct trii_wire_parser {
    char *data; /* the request so far, without lengths and counts */
    size_t used, room;
    trii_slice *parts; /* .data holds an offset until the request is complete */
    size_t n_parts, parts_room;
    const char *fields; /* what follows: see wire.c */
    uint64_t repeats;   /* of the group of fields that is being read */
    const char *again;  /* its first field */
    size_t item_bytes;  /* of the item that is being read: a length, a number, a payload */
    size_t item_done;   /* of these */
    char small[8];      /* an item that is a number */
    bool payload;       /* the item is a payload, not a number */
    bool finished;      /* the request was handed out; start over at the next feed */
    trii_wire_request request;
} trii_wire_parser;

void trii_wire_parser_init(trii_wire_parser *parser);
void trii_wire_parser_fini(trii_wire_parser *parser);
/**
 * Takes bytes up to the end of the current request.
 *
 *   used_out     how many were taken; written on TRI_OK and INPROGRESS
 *   request_out  written on TRI_OK; borrows from the parser until the next feed
 *
 * Returns OK (a request is complete), INPROGRESS (needs more), FORMAT (unknown op or a limit
 * broken; the line says which), NO_MEMORY. After a failure the connection must be closed.
 */
tri_status trii_wire_feed(trii_wire_parser *parser, const void *data, size_t bytes,
                          size_t *used_out, trii_wire_request *request_out) TRI_MUST_CHECK;

/* --- writing -------------------------------------------------------------- */

/* A growing byte buffer; a failed put is remembered and later puts do nothing. */
typedef struct trii_wire_buffer {
    char *data;
    size_t used, room;
    bool failed; /* no memory; the error line was written */
} trii_wire_buffer;

/* Room for so many bytes in all, and no more: what needs more grows again. False: no memory. */
bool trii_wire_buffer_keep(trii_wire_buffer *buffer, size_t bytes);
void trii_wire_buffer_fini(trii_wire_buffer *buffer);
void trii_wire_put(trii_wire_buffer *buffer, const void *data, size_t bytes);
void trii_wire_put_u8(trii_wire_buffer *buffer, unsigned value);
void trii_wire_put_u32(trii_wire_buffer *buffer, uint32_t value);
void trii_wire_put_u64(trii_wire_buffer *buffer, uint64_t value);
void trii_wire_put_i64(trii_wire_buffer *buffer, int64_t value);
/* u64 length, bytes. */
void trii_wire_put_slice(trii_wire_buffer *buffer, trii_slice slice);

#endif
