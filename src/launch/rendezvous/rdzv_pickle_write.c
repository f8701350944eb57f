/*
 * rdzv_pickle_write.c - the state of a rendezvous as a pickle that Python loads (protocol 4,
 * without the parts that a writer may leave out: frames and the memory of what was said before),
 * and base64.
 */
#include "launch/rendezvous/rdzv_pickle.h"

#include <string.h>

#include "base/err.h"

static void put_text(trii_wire_buffer *out, const char *text)
{
    size_t bytes = strlen(text);

    trii_wire_put_u8(out, 0x8c); /* SHORT_BINUNICODE: addresses are shorter than 256 */
    trii_wire_put_u8(out, (unsigned)bytes);
    trii_wire_put(out, text, bytes);
}

static void put_name(trii_wire_buffer *out, const char *module, const char *name)
{
    put_text(out, module);
    put_text(out, name);
    trii_wire_put_u8(out, 0x93); /* STACK_GLOBAL */
}

static void put_int(trii_wire_buffer *out, int64_t number)
{
    trii_wire_put_u8(out, 0x8a); /* LONG1 */
    trii_wire_put_u8(out, 8);
    for (int i = 0; i < 8; i++)
        trii_wire_put_u8(out, (unsigned)((uint64_t)number >> (8 * i) & 255));
}

static void put_bool(trii_wire_buffer *out, bool is)
{
    trii_wire_put_u8(out, is ? 0x88 : 0x89);
}

static void put_node(trii_wire_buffer *out, const trii_rdzv_node *node)
{
    put_name(out, "torch.distributed.elastic.rendezvous.dynamic_rendezvous", "_NodeDesc");
    trii_wire_put(out, ")\x81}(", 4); /* EMPTY_TUPLE NEWOBJ EMPTY_DICT MARK */
    put_text(out, "addr");
    put_text(out, node->addr);
    put_text(out, "pid");
    put_int(out, node->pid);
    put_text(out, "local_id");
    put_int(out, node->local_id);
    trii_wire_put(out, "ub", 2); /* SETITEMS BUILD */
}

/* The day of a number of days since 1970; see days_of in rdzv_pickle.c. */
static void date_of(int64_t days, int64_t *year, int64_t *month, int64_t *day)
{
    int64_t z = days + 719468, era = z / 146097, of_era = z % 146097;
    int64_t y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * y + y / 4 - y / 100);
    int64_t m = (5 * of_year + 2) / 153;

    *day = of_year - (153 * m + 2) / 5 + 1;
    *month = m < 10 ? m + 3 : m - 9;
    *year = y + era * 400 + (*month <= 2);
}

static void put_time(trii_wire_buffer *out, int64_t us)
{
    int64_t seconds = us / 1000000, part = us % 1000000, year, month, day;

    date_of(seconds / 86400, &year, &month, &day);
    put_name(out, "datetime", "datetime");
    trii_wire_put(out, "C\x0a", 2); /* SHORT_BINBYTES */
    trii_wire_put_u8(out, (unsigned)(year >> 8 & 255));
    trii_wire_put_u8(out, (unsigned)(year & 255));
    trii_wire_put_u8(out, (unsigned)month);
    trii_wire_put_u8(out, (unsigned)day);
    trii_wire_put_u8(out, (unsigned)(seconds / 3600 % 24));
    trii_wire_put_u8(out, (unsigned)(seconds / 60 % 60));
    trii_wire_put_u8(out, (unsigned)(seconds % 60));
    trii_wire_put_u8(out, (unsigned)(part >> 16 & 255));
    trii_wire_put_u8(out, (unsigned)(part >> 8 & 255));
    trii_wire_put_u8(out, (unsigned)(part & 255));
    put_name(out, "datetime", "timezone");
    put_name(out, "datetime", "timedelta");
    /* three zeros, TUPLE3 REDUCE; TUPLE1 REDUCE; TUPLE2 REDUCE */
    trii_wire_put(out, "K\0K\0K\0\x87R\x85R\x86R", 12);
}

static void put_pairs(trii_wire_buffer *out, const trii_rdzv_state *state, const char *name,
                      bool beats)
{
    put_text(out, name);
    trii_wire_put(out, "}(", 2);
    for (int i = 0; i < state->n; i++) {
        const trii_rdzv_entry *e = &state->entries[i];

        if (beats ? !e->beats : !e->participant)
            continue;
        put_node(out, &e->node);
        if (beats)
            put_time(out, e->beat_us);
        else
            put_int(out, e->rank);
    }
    trii_wire_put_u8(out, 'u');
}

static void put_set(trii_wire_buffer *out, const trii_rdzv_state *state, const char *name,
                    bool redundant)
{
    put_text(out, name);
    trii_wire_put(out, "\x8f(", 2);
    for (int i = 0; i < state->n; i++) {
        if (redundant ? state->entries[i].redundant : state->entries[i].waiting)
            put_node(out, &state->entries[i].node);
    }
    trii_wire_put_u8(out, 0x90);
}

void trii_rdzv_pickle_write(const trii_rdzv_state *state, trii_wire_buffer *out)
{
    trii_wire_put(out, "\x80\x04", 2);
    put_name(out, "torch.distributed.elastic.rendezvous.dynamic_rendezvous", "_RendezvousState");
    trii_wire_put(out, ")\x81}(", 4);
    put_text(out, "round");
    put_int(out, state->round);
    put_text(out, "complete");
    put_bool(out, state->complete);
    put_text(out, "deadline");
    if (state->has_deadline)
        put_time(out, state->deadline_us);
    else
        trii_wire_put_u8(out, 'N');
    put_text(out, "closed");
    put_bool(out, state->closed);
    put_pairs(out, state, "participants", false);
    put_set(out, state, "wait_list", false);
    put_set(out, state, "redundancy_list", true);
    put_pairs(out, state, "last_heartbeats", true);
    trii_wire_put(out, "ub.", 3);
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
