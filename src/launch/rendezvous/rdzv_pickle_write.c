/*
 * rdzv_pickle_write.c - the state of a rendezvous as a pickle that Python loads (protocol 4,
 * without frames), and base64. A node and the name of its class are said once and referred to
 * afterwards: the state of a thousand nodes takes a sixth of what it would otherwise, and all
 * agents read it.
 */
#include "launch/rendezvous/rdzv_pickle.h"

#include <string.h>

#include "base/err.h"

/* What is said once and referred to afterwards. */
typedef enum phrase {
    WORD_NODE,
    WORD_ADDR,
    WORD_PID,
    WORD_LOCAL_ID,
    WORD_DATETIME,
    WORD_UTC,
    N_WORDS
} phrase;

typedef struct writer {
    trii_wire_buffer *out;
    int n_memo;
    int memo[N_WORDS]; /* where it is remembered, from 1; 0 = it was not said yet */
    int first_node;    /* ... and the first participant; the others follow */
} writer;

static const char module[] = "torch.distributed.elastic.rendezvous.dynamic_rendezvous";

static void put_op(writer *w, unsigned op)
{
    trii_wire_put_u8(w->out, op);
}

static void put_text(writer *w, const char *text)
{
    size_t bytes = strlen(text);

    put_op(w, 0x8c); /* SHORT_BINUNICODE: addresses are shorter than 256 */
    put_op(w, (unsigned)bytes);
    trii_wire_put(w->out, text, bytes);
}

static void put_name(writer *w, const char *of, const char *name)
{
    put_text(w, of);
    put_text(w, name);
    put_op(w, 0x93); /* STACK_GLOBAL */
}

static void put_number(writer *w, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put_op(w, (unsigned)(number >> (8 * i) & 255));
}

static void put_int(writer *w, int64_t number)
{
    if (number >= 0 && number < 1 << 16) {
        put_op(w, 'M'); /* BININT2 */
        put_number(w, (uint64_t)number, 2);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        put_op(w, 'J'); /* BININT */
        put_number(w, (uint64_t)number, 4);
    } else {
        put_op(w, 0x8a); /* LONG1 */
        put_op(w, 8);
        put_number(w, (uint64_t)number, 8);
    }
}

static void put_bool(writer *w, bool is)
{
    put_op(w, is ? 0x88 : 0x89);
}

static int remember(writer *w)
{
    put_op(w, 0x94); /* MEMOIZE */
    return w->n_memo++;
}

static void put_memo(writer *w, int at)
{
    put_op(w, at < 256 ? 'h' : 'j'); /* BINGET, LONG_BINGET */
    put_number(w, (uint64_t)at, at < 256 ? 1 : 4);
}

/* Refers to it; false: it has to be said, and then remembered. */
static bool put_known(writer *w, phrase known)
{
    if (w->memo[known] == 0)
        return false;
    put_memo(w, w->memo[known] - 1);
    return true;
}

static void put_attribute(writer *w, phrase known, const char *name)
{
    if (put_known(w, known))
        return;
    put_text(w, name);
    w->memo[known] = remember(w) + 1;
}

/* Returns where it is remembered. */
static int put_node(writer *w, const trii_rdzv_node *node)
{
    if (!put_known(w, WORD_NODE)) {
        put_name(w, module, "_NodeDesc");
        w->memo[WORD_NODE] = remember(w) + 1;
    }
    trii_wire_put(w->out, ")\x81}(", 4); /* EMPTY_TUPLE NEWOBJ EMPTY_DICT MARK */
    put_attribute(w, WORD_ADDR, "addr");
    put_text(w, node->addr);
    put_attribute(w, WORD_PID, "pid");
    put_int(w, node->pid);
    put_attribute(w, WORD_LOCAL_ID, "local_id");
    put_int(w, node->local_id);
    trii_wire_put(w->out, "ub", 2); /* SETITEMS BUILD */
    return remember(w);
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

static void put_utc(writer *w)
{
    if (put_known(w, WORD_UTC))
        return;
    put_name(w, "datetime", "timezone");
    put_name(w, "datetime", "timedelta");
    /* three zeros, TUPLE3 REDUCE; TUPLE1 REDUCE */
    trii_wire_put(w->out, "K\0K\0K\0\x87R\x85R", 10);
    w->memo[WORD_UTC] = remember(w) + 1;
}

static void put_time(writer *w, int64_t us)
{
    int64_t seconds = us / 1000000, part = us % 1000000, year, month, day;

    date_of(seconds / 86400, &year, &month, &day);
    if (!put_known(w, WORD_DATETIME)) {
        put_name(w, "datetime", "datetime");
        w->memo[WORD_DATETIME] = remember(w) + 1;
    }
    trii_wire_put(w->out, "C\x0a", 2); /* SHORT_BINBYTES */
    put_op(w, (unsigned)(year >> 8 & 255));
    put_op(w, (unsigned)(year & 255));
    put_op(w, (unsigned)month);
    put_op(w, (unsigned)day);
    put_op(w, (unsigned)(seconds / 3600 % 24));
    put_op(w, (unsigned)(seconds / 60 % 60));
    put_op(w, (unsigned)(seconds % 60));
    put_op(w, (unsigned)(part >> 16 & 255));
    put_op(w, (unsigned)(part >> 8 & 255));
    put_op(w, (unsigned)(part & 255));
    put_utc(w);
    trii_wire_put(w->out, "\x86R", 2); /* TUPLE2 REDUCE */
}

static void put_participants(writer *w, const trii_rdzv_state *state)
{
    int at;

    put_text(w, "participants");
    trii_wire_put(w->out, "}(", 2);
    w->first_node = -1;
    for (int i = 0; i < state->n; i++) {
        if (!state->entries[i].participant)
            continue;
        at = put_node(w, &state->entries[i].node);
        w->first_node = w->first_node < 0 ? at : w->first_node;
        put_int(w, state->entries[i].rank);
    }
    put_op(w, 'u'); /* SETITEMS */
}

/* After the participants, which are referred to. */
static void put_beats(writer *w, const trii_rdzv_state *state)
{
    int at = w->first_node;

    put_text(w, "last_heartbeats");
    trii_wire_put(w->out, "}(", 2);
    for (int i = 0; i < state->n; i++) {
        const trii_rdzv_entry *e = &state->entries[i];

        if (e->beats) {
            if (e->participant)
                put_memo(w, at);
            else
                put_node(w, &e->node);
            put_time(w, e->beat_us);
        }
        at += e->participant;
    }
    put_op(w, 'u');
}

static void put_set(writer *w, const trii_rdzv_state *state, const char *name, bool redundant)
{
    put_text(w, name);
    trii_wire_put(w->out, "\x8f(", 2);
    for (int i = 0; i < state->n; i++) {
        if (redundant ? state->entries[i].redundant : state->entries[i].waiting)
            put_node(w, &state->entries[i].node);
    }
    put_op(w, 0x90);
}

void trii_rdzv_pickle_write(const trii_rdzv_state *state, trii_wire_buffer *out)
{
    writer w = {.out = out};

    trii_wire_put(out, "\x80\x04", 2);
    put_name(&w, module, "_RendezvousState");
    trii_wire_put(out, ")\x81}(", 4);
    put_text(&w, "round");
    put_int(&w, state->round);
    put_text(&w, "complete");
    put_bool(&w, state->complete);
    put_text(&w, "deadline");
    if (state->has_deadline)
        put_time(&w, state->deadline_us);
    else
        put_op(&w, 'N');
    put_text(&w, "closed");
    put_bool(&w, state->closed);
    put_participants(&w, state);
    put_set(&w, state, "wait_list", false);
    put_set(&w, state, "redundancy_list", true);
    put_beats(&w, state);
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
