/*
 * rdzv_pickle_write.c - the state of a rendezvous as a pickle that Python loads (protocol 4,
 * without frames), and base64. First comes what is referred to afterwards: the nodes, and what
 * nodes have in common. So a state of a thousand nodes takes a sixth of what it would otherwise,
 * and all agents read it.
 */
#include "launch/rendezvous/rdzv_pickle.h"

#include <string.h>
#include <time.h>

#include "base/err.h"

/* What is said first is remembered by these numbers; the state's nodes follow. */
enum { NODE_CLASS, ADDR, PID, LOCAL_ID, TIME_CLASS, UTC, NODES };

static const char module[] = "torch.distributed.elastic.rendezvous.dynamic_rendezvous";

static void put_text(trii_wire_buffer *out, const char *text)
{
    size_t bytes = strlen(text);

    trii_wire_put_u8(out, 0x8c); /* SHORT_BINUNICODE: addresses are shorter than 256 */
    trii_wire_put_u8(out, (unsigned)bytes);
    trii_wire_put(out, text, bytes);
}

static void put_class(trii_wire_buffer *out, const char *of, const char *name)
{
    put_text(out, of);
    put_text(out, name);
    trii_wire_put_u8(out, 0x93); /* STACK_GLOBAL */
}

/* What stands before is remembered for later. */
static void put_aside(trii_wire_buffer *out)
{
    trii_wire_put(out,
                  "\x94"
                  "0",
                  2); /* MEMOIZE POP */
}

static void put_number(trii_wire_buffer *out, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        trii_wire_put_u8(out, (unsigned)(number >> (8 * i) & 255));
}

static void put_int(trii_wire_buffer *out, int64_t number)
{
    if (number >= 0 && number < 1 << 8) {
        trii_wire_put_u8(out, 'K'); /* BININT1 */
        put_number(out, (uint64_t)number, 1);
    } else if (number >= 0 && number < 1 << 16) {
        trii_wire_put_u8(out, 'M'); /* BININT2 */
        put_number(out, (uint64_t)number, 2);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        trii_wire_put_u8(out, 'J'); /* BININT */
        put_number(out, (uint64_t)number, 4);
    } else {
        int bytes = number >> 47 == 0 ? 6 : 8; /* nodes' numbers are of 47 bits */

        trii_wire_put_u8(out, 0x8a); /* LONG1 */
        trii_wire_put_u8(out, (unsigned)bytes);
        put_number(out, (uint64_t)number, bytes);
    }
}

static void put_known(trii_wire_buffer *out, int which)
{
    trii_wire_put_u8(out, which < 256 ? 'h' : 'j'); /* BINGET, LONG_BINGET */
    put_number(out, (uint64_t)which, which < 256 ? 1 : 4);
}

static void put_time(trii_wire_buffer *out, int64_t us)
{
    time_t seconds = us / 1000000;
    int64_t part = us % 1000000;
    struct tm tm = {0};

    gmtime_r(&seconds, &tm);
    put_known(out, TIME_CLASS);
    trii_wire_put(out, "C\x0a", 2); /* SHORT_BINBYTES */
    trii_wire_put_u8(out, (unsigned)(tm.tm_year + 1900) >> 8 & 255);
    trii_wire_put_u8(out, (unsigned)(tm.tm_year + 1900) & 255);
    trii_wire_put_u8(out, (unsigned)tm.tm_mon + 1);
    trii_wire_put_u8(out, (unsigned)tm.tm_mday);
    trii_wire_put_u8(out, (unsigned)tm.tm_hour);
    trii_wire_put_u8(out, (unsigned)tm.tm_min);
    trii_wire_put_u8(out, (unsigned)tm.tm_sec);
    trii_wire_put_u8(out, (unsigned)(part >> 16 & 255));
    trii_wire_put_u8(out, (unsigned)(part >> 8 & 255));
    trii_wire_put_u8(out, (unsigned)(part & 255));
    put_known(out, UTC);
    trii_wire_put(out, "\x86R", 2); /* TUPLE2 REDUCE */
}

static void put_common(trii_wire_buffer *out)
{
    put_class(out, module, "_NodeDesc");
    put_aside(out);
    put_text(out, "addr");
    put_aside(out);
    put_text(out, "pid");
    put_aside(out);
    put_text(out, "local_id");
    put_aside(out);
    put_class(out, "datetime", "datetime");
    put_aside(out);
    put_class(out, "datetime", "timezone");
    put_class(out, "datetime", "timedelta");
    /* three times 0, TUPLE3 REDUCE; TUPLE1 REDUCE */
    trii_wire_put(out, "K\0K\0K\0\x87R\x85R", 10);
    put_aside(out);
}

static void put_node(trii_wire_buffer *out, const trii_rdzv_node *node)
{
    put_known(out, NODE_CLASS);
    trii_wire_put(out, ")\x81}(", 4); /* EMPTY_TUPLE NEWOBJ EMPTY_DICT MARK */
    put_known(out, ADDR);
    put_text(out, node->addr);
    put_known(out, PID);
    put_int(out, node->pid);
    put_known(out, LOCAL_ID);
    put_int(out, node->local_id);
    trii_wire_put(out, "ub", 2); /* SETITEMS BUILD */
    put_aside(out);
}

typedef enum list { PARTICIPANTS, WAIT_LIST, REDUNDANT, BEATS } list;

static bool is_in(const trii_rdzv_entry *e, list which)
{
    switch (which) {
    case PARTICIPANTS:
        return e->participant;
    case WAIT_LIST:
        return e->waiting;
    case REDUNDANT:
        return e->redundant;
    case BEATS:
        return e->beats;
    }
    return false;
}

static void put_list(trii_wire_buffer *out, const trii_rdzv_state *s, const char *name, list which)
{
    bool pairs = which == PARTICIPANTS || which == BEATS;
    int64_t last_us = INT64_MIN; /* a leader writes the same time for many */
    int n_times = 0;

    put_text(out, name);
    trii_wire_put(out, pairs ? "}(" : "\x8f(", 2); /* EMPTY_DICT, EMPTY_SET; MARK */
    for (int i = 0; i < s->n; i++) {
        const trii_rdzv_entry *e = &s->entries[i];

        if (!is_in(e, which))
            continue;
        put_known(out, NODES + i);
        if (which == PARTICIPANTS)
            put_int(out, e->rank);
        if (which != BEATS)
            continue;
        if (e->beat_us == last_us) {
            put_known(out, NODES + s->n + n_times - 1);
            continue;
        }
        put_time(out, e->beat_us);
        trii_wire_put_u8(out, 0x94); /* MEMOIZE */
        last_us = e->beat_us;
        n_times++;
    }
    trii_wire_put_u8(out, pairs ? 'u' : 0x90); /* SETITEMS, ADDITEMS */
}

static void put_bool(trii_wire_buffer *out, const char *name, bool is)
{
    put_text(out, name);
    trii_wire_put_u8(out, is ? 0x88 : 0x89); /* NEWTRUE, NEWFALSE */
}

void trii_rdzv_pickle_write(const trii_rdzv_state *s, trii_wire_buffer *out)
{
    trii_wire_put(out, "\x80\x04", 2); /* PROTO 4 */
    put_common(out);
    for (int i = 0; i < s->n; i++)
        put_node(out, &s->entries[i].node);
    put_class(out, module, "_RendezvousState");
    trii_wire_put(out, ")\x81}(", 4);
    put_text(out, "round");
    put_int(out, s->round);
    put_bool(out, "complete", s->complete);
    put_text(out, "deadline");
    if (s->has_deadline)
        put_time(out, s->deadline_us);
    else
        trii_wire_put_u8(out, 'N'); /* NONE */
    put_bool(out, "closed", s->closed);
    put_list(out, s, "participants", PARTICIPANTS);
    put_list(out, s, "wait_list", WAIT_LIST);
    put_list(out, s, "redundancy_list", REDUNDANT);
    put_list(out, s, "last_heartbeats", BEATS);
    trii_wire_put(out, "ub.", 3); /* SETITEMS BUILD STOP */
}

/* --- base64 --------------------------------------------------------------- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void trii_base64_write(const void *data, size_t bytes, trii_wire_buffer *out)
{
    const unsigned char *in = data;

    for (size_t at = 0; at < bytes; at += 3) {
        size_t n = bytes - at < 3 ? bytes - at : 3;
        unsigned word = (unsigned)in[at] << 16 | (n > 1 ? (unsigned)in[at + 1] << 8 : 0) |
                        (n > 2 ? (unsigned)in[at + 2] : 0);
        char four[4] = {digits[word >> 18], digits[word >> 12 & 63],
                        n > 1 ? digits[word >> 6 & 63] : '=', n > 2 ? digits[word & 63] : '='};

        trii_wire_put(out, four, 4);
    }
}

/* -1: it is not a digit. */
static int digit_of(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Agents read large states often, so bytes are handed on by the block. */
tri_status trii_base64_read(const char *text, size_t bytes, trii_wire_buffer *out)
{
    unsigned char block[3 * 256];
    size_t used = 0;

    if (bytes % 4 != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "base64 of %zu characters", bytes);
    for (size_t at = 0; at < bytes; at += 4) {
        unsigned word = 0;
        int n = 4;

        if (at + 4 == bytes && text[at + 3] == '=')
            n = text[at + 2] == '=' ? 2 : 3;
        for (int i = 0; i < n; i++) {
            int digit = digit_of((unsigned char)text[at + (size_t)i]);

            if (digit < 0)
                return TRII_FAIL(TRI_ERR_FORMAT, "character 0x%02x in base64",
                                 (unsigned char)text[at + (size_t)i]);
            word = word << 6 | (unsigned)digit;
        }
        word <<= 6 * (4 - n);
        for (int i = 0; i < n - 1; i++)
            block[used++] = (unsigned char)(word >> (16 - 8 * i));
        if (used > sizeof(block) - 3) {
            trii_wire_put(out, block, used);
            used = 0;
        }
    }
    trii_wire_put(out, block, used);
    return out->failed ? TRI_ERR_NO_MEMORY : TRI_OK;
}
