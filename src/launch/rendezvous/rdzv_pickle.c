/*
 * rdzv_pickle.c - see rdzv_pickle.h. Called by rdzv_join.c for every state that it reads; the other
 * direction is rdzv_pickle_write.c.
 *
 * A pickle is a program for a stack machine, but of a state Python says the same operations in the
 * same order, so it is read like a text with a grammar, in protocols 4 and 5: the defaults of every
 * Python that PyTorch runs on. `?` and `*` as usual, texts in quotes; KEEP (MEMOIZE) remembers what
 * stands before it, GET is what was remembered.
 *
 *   pickle   PROTO (thing POP)* state STOP
 *   class    text text STACK_GLOBAL KEEP?         module and name; or GET
 *   object   class EMPTY_TUPLE NEWOBJ KEEP?       a node, or the state
 *            EMPTY_DICT KEEP? items BUILD KEEP?
 *   call     class thing* TUPLE KEEP?             a time, of ten bytes and a timezone
 *            REDUCE KEEP?
 *   list     (EMPTY_DICT | EMPTY_SET) KEEP?       of nodes; in a dictionary with what they have
 *            items
 *   items    (MARK (key value?)* (SETITEMS | ADDITEMS) | key value SETITEM)*
 */
#include "launch/rendezvous/rdzv_pickle.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"

enum {
    STOP = '.',
    POP = '0',
    MARK = '(',
    NONE = 'N',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    LONG1 = 0x8a,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    SHORT_BINUNICODE = 0x8c,
    SHORT_BINBYTES = 'C',
    BINGET = 'h',
    LONG_BINGET = 'j',
    KEEP = 0x94, /* MEMOIZE */
    STACK_GLOBAL = 0x93,
    EMPTY_TUPLE = ')',
    TUPLE1 = 0x85,
    TUPLE3 = 0x87,
    NEWOBJ = 0x81,
    REDUCE = 'R',
    BUILD = 'b',
    EMPTY_DICT = '}',
    EMPTY_SET = 0x8f,
    SETITEM = 's',
    SETITEMS = 'u',
    ADDITEMS = 0x90,
    PROTO = 0x80,
    FRAME = 0x95,
    FRAME_BYTES = 8
};

typedef enum kind {
    KIND_OTHER,  /* nothing that a state needs; None */
    KIND_NUMBER, /* bool too, and microseconds of a time */
    KIND_TEXT,
    KIND_BYTES,
    KIND_CLASS, /* text: its name, without the module */
    KIND_NODE,  /* number: its place in the state's table */
    KIND_STATE
} kind;

typedef struct value {
    kind kind;
    int64_t number;
    const char *text;
    size_t bytes;
} value;

typedef struct reader {
    const unsigned char *at, *end;
    value *memo; /* grows by at most one for each byte read */
    int n_memo, room;
    trii_rdzv_state *state;
    int *by_name, names_room; /* places in its table, in the order of the nodes */
} reader;

static tri_status bad(const char *what)
{
    return TRII_FAIL(TRI_ERR_FORMAT, "rendezvous state: %s", what);
}

/* --- operations ----------------------------------------------------------- */

/* -1: it is cut off. Frames, which only say how far to read ahead, begin anywhere. */
static int peek(reader *r)
{
    while (r->end - r->at > FRAME_BYTES && *r->at == FRAME)
        r->at += 1 + FRAME_BYTES;
    return r->at < r->end ? *r->at : -1;
}

static bool accept(reader *r, int op)
{
    bool is = peek(r) == op;

    r->at += is;
    return is;
}

static tri_status expect(reader *r, int op)
{
    if (accept(r, op))
        return TRI_OK;
    return peek(r) < 0
               ? bad("it is cut off")
               : TRII_FAIL(TRI_ERR_FORMAT, "rendezvous state: operation 0x%02x instead of 0x%02x",
                           peek(r), op);
}

static tri_status remember(reader *r, value v)
{
    if (!accept(r, KEEP))
        return TRI_OK;
    if (trii_array_grow(&r->memo, &r->room, r->n_memo, 64, sizeof(*r->memo), "rendezvous state") !=
        TRI_OK)
        return TRI_ERR_NO_MEMORY;
    r->memo[r->n_memo++] = v;
    return TRI_OK;
}

/* A number of so many bytes, little end first. */
static tri_status take(reader *r, size_t bytes, uint64_t *number_out)
{
    uint64_t n = 0;

    if ((size_t)(r->end - r->at) < bytes)
        return bad("it is cut off");
    for (size_t i = 0; i < bytes; i++)
        n |= (uint64_t)r->at[i] << (8 * i);
    r->at += bytes;
    *number_out = n;
    return TRI_OK;
}

static tri_status take_signed(reader *r, size_t bytes, value *v)
{
    uint64_t n = 0;
    tri_status status = bytes <= 8 ? take(r, bytes, &n) : bad("a number of more than 8 bytes");

    if (bytes > 0 && bytes < 8 && (n >> (8 * bytes - 1) & 1) != 0)
        n |= UINT64_MAX << (8 * bytes);
    *v = (value){.kind = KIND_NUMBER, .number = (int64_t)n};
    return status;
}

static tri_status take_text(reader *r, kind k, value *v)
{
    uint64_t bytes = 0;
    tri_status status = take(r, 1, &bytes);

    if (status == TRI_OK && bytes > (uint64_t)(r->end - r->at))
        status = bad("it is cut off");
    if (status != TRI_OK)
        return status;
    *v = (value){.kind = k, .text = (const char *)r->at, .bytes = (size_t)bytes};
    r->at += bytes;
    return remember(r, *v);
}

static tri_status recall(reader *r, size_t bytes, value *v)
{
    uint64_t n = 0;
    tri_status status = take(r, bytes, &n);

    if (status == TRI_OK && n >= (uint64_t)r->n_memo)
        status = bad("it refers to nothing");
    if (status == TRI_OK)
        *v = r->memo[n];
    return status;
}

/* What one operation says. */
static tri_status read_plain(reader *r, value *v)
{
    int op = peek(r);
    uint64_t n = 0;
    tri_status status = TRI_OK;

    *v = (value){.kind = KIND_OTHER};
    r->at += op >= 0;
    switch (op) {
    case NONE:
        return TRI_OK;
    case NEWTRUE:
    case NEWFALSE:
        *v = (value){.kind = KIND_NUMBER, .number = op == NEWTRUE};
        return TRI_OK;
    case BININT1:
    case BININT2:
        status = take(r, op == BININT1 ? 1 : 2, &n);
        *v = (value){.kind = KIND_NUMBER, .number = (int64_t)n};
        return status;
    case BININT:
        return take_signed(r, 4, v);
    case LONG1:
        status = take(r, 1, &n);
        return status == TRI_OK ? take_signed(r, (size_t)n, v) : status;
    case SHORT_BINUNICODE:
        return take_text(r, KIND_TEXT, v);
    case SHORT_BINBYTES:
        return take_text(r, KIND_BYTES, v);
    case BINGET:
        return recall(r, 1, v);
    case LONG_BINGET:
        return recall(r, 4, v);
    case -1:
        return bad("it is cut off");
    default:
        return TRII_FAIL(TRI_ERR_FORMAT, "rendezvous state: operation 0x%02x", op);
    }
}

/* --- nodes and times ------------------------------------------------------ */

static bool text_is(const value *v, const char *text)
{
    return v->bytes == strlen(text) && memcmp(v->text, text, v->bytes) == 0;
}

/* Up to the items of its attributes, of which it has `*slot_out` in the memo; -1: none. */
static tri_status begin_object(reader *r, int *slot_out)
{
    const value other = {.kind = KIND_OTHER};
    int before = r->n_memo;
    tri_status status = expect(r, EMPTY_TUPLE);

    if (status == TRI_OK)
        status = expect(r, NEWOBJ);
    if (status == TRI_OK)
        status = remember(r, other);
    *slot_out = r->n_memo > before ? before : -1;
    if (status == TRI_OK)
        status = expect(r, EMPTY_DICT);
    return status == TRI_OK ? remember(r, other) : status;
}

static tri_status set_attribute(trii_rdzv_node *node, unsigned *known, const value *key,
                                const value *v)
{
    bool is_addr = text_is(key, "addr"), is_pid = text_is(key, "pid");

    if (is_addr) {
        if (v->kind != KIND_TEXT || v->bytes == 0 || v->bytes >= sizeof(node->addr) ||
            memchr(v->text, 0, v->bytes) != NULL)
            return bad("a node without an address");
        memset(node->addr, 0, sizeof(node->addr));
        memcpy(node->addr, v->text, v->bytes);
        *known |= 1;
    } else if (is_pid || text_is(key, "local_id")) {
        if (v->kind != KIND_NUMBER)
            return bad("a number is missing");
        *(is_pid ? &node->pid : &node->local_id) = v->number;
        *known |= is_pid ? 2 : 4;
    }
    return TRI_OK;
}

/* Where the node is in the state's table. Python says some nodes twice; somebody else might say
 * very many again and again. */
static tri_status place_of(reader *r, const trii_rdzv_node *node, int *place_out)
{
    trii_rdzv_state *s = r->state;
    trii_rdzv_entry *entry;
    int low = 0, high = s->n, new = s->n;
    tri_status status;

    while (low < high) {
        int middle = (low + high) / 2;
        int order = trii_rdzv_node_compare(&s->entries[r->by_name[middle]].node, node);

        if (order == 0) {
            *place_out = r->by_name[middle];
            return TRI_OK;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    status = trii_array_grow(&r->by_name, &r->names_room, new, 64, sizeof(*r->by_name),
                             "rendezvous state");
    if (status == TRI_OK)
        status = trii_rdzv_add(s, node, &entry);
    if (status != TRI_OK)
        return status;
    memmove(r->by_name + low + 1, r->by_name + low, (size_t)(new - low) * sizeof(*r->by_name));
    *place_out = r->by_name[low] = new;
    return TRI_OK;
}

static tri_status read_node(reader *r, value *v)
{
    trii_rdzv_node node = {0};
    int place = 0;
    unsigned known = 0;
    int slot = -1;
    tri_status status = begin_object(r, &slot);

    if (status == TRI_OK)
        status = expect(r, MARK);
    while (status == TRI_OK && !accept(r, SETITEMS)) {
        value key, item;

        status = read_plain(r, &key);
        if (status == TRI_OK)
            status = read_plain(r, &item);
        if (status == TRI_OK && key.kind == KIND_TEXT)
            status = set_attribute(&node, &known, &key, &item);
    }
    if (status == TRI_OK)
        status = expect(r, BUILD);
    if (status == TRI_OK && known != 7)
        status = bad("a node without all its attributes");
    if (status == TRI_OK)
        status = place_of(r, &node, &place);
    if (status != TRI_OK)
        return status;
    *v = (value){.kind = KIND_NODE, .number = place};
    if (slot >= 0)
        r->memo[slot] = *v;
    return remember(r, *v);
}

/* Microseconds since 1970 of a datetime's ten bytes. */
static int64_t time_of(const unsigned char *b)
{
    struct tm tm = {.tm_year = b[0] * 256 + b[1] - 1900,
                    .tm_mon = b[2] - 1,
                    .tm_mday = b[3],
                    .tm_hour = b[4],
                    .tm_min = b[5],
                    .tm_sec = b[6]};

    return (int64_t)timegm(&tm) * 1000000 + (b[7] * 65536 + b[8] * 256 + b[9]);
}

/* A class, or something that has one. calls: into how many we are. */
static tri_status read_thing(reader *r, int calls, value *v);

/* What is made by calling `class`: only times matter. */
static tri_status read_call(reader *r, int calls, const value *class, value *v)
{
    value first = {.kind = KIND_OTHER}, arg;
    tri_status status =
        calls < 3 ? TRI_OK : bad("calls in calls"); /* datetime, timezone, timedelta */

    *v = (value){.kind = KIND_OTHER};
    for (int i = 0; status == TRI_OK && (peek(r) < TUPLE1 || peek(r) > TUPLE3); i++) {
        status = read_thing(r, calls + 1, &arg);
        first = i == 0 ? arg : first;
    }
    r->at += status == TRI_OK;
    if (status == TRI_OK)
        status = remember(r, *v);
    if (status == TRI_OK)
        status = expect(r, REDUCE);
    if (status == TRI_OK && text_is(class, "datetime")) {
        if (first.kind != KIND_BYTES || first.bytes != 10)
            return bad("a time of another length");
        *v = (value){.kind = KIND_NUMBER, .number = time_of((const unsigned char *)first.text)};
    }
    return status == TRI_OK ? remember(r, *v) : status;
}

static tri_status read_class(reader *r, value *v)
{
    tri_status status = read_plain(r, v); /* the name: the module was read */

    if (status == TRI_OK && v->kind != KIND_TEXT)
        status = bad("a class without a name");
    if (status == TRI_OK)
        status = expect(r, STACK_GLOBAL);
    v->kind = KIND_CLASS;
    return status == TRI_OK ? remember(r, *v) : status;
}

static tri_status read_thing(reader *r, int calls, value *v)
{
    value class;
    tri_status status = read_plain(r, v);

    if (status == TRI_OK && v->kind == KIND_TEXT && peek(r) != POP)
        status = read_class(r, v);
    if (status != TRI_OK || v->kind != KIND_CLASS || peek(r) == POP)
        return status;
    class = *v;
    if (text_is(&class, "_RendezvousState")) {
        v->kind = KIND_STATE; /* what follows is read by the caller */
        return TRI_OK;
    }
    return text_is(&class, "_NodeDesc") ? read_node(r, v) : read_call(r, calls, &class, v);
}

/* --- the state ------------------------------------------------------------ */

enum { ROUND, COMPLETE, DEADLINE, CLOSED, PARTICIPANTS, WAIT_LIST, BEATS, REDUNDANT, N_NAMES };

/* Its attributes. The last one is new, and may be missing. */
static const char *const names[] = {"round",           "complete",       "deadline",
                                    "closed",          "participants",   "wait_list",
                                    "last_heartbeats", "redundancy_list"};

/* The next item of a list is here; *marked: in a row of items. */
static bool has_item(reader *r, bool *marked)
{
    const unsigned char *at;
    int n_memo = r->n_memo;
    value v;
    bool is;

    while (*marked ? accept(r, SETITEMS) || accept(r, ADDITEMS) : accept(r, MARK))
        *marked = !*marked;
    if (*marked)
        return true;
    at = r->at; /* a single one begins with a node, as the state's next attribute does not */
    is = read_plain(r, &v) == TRI_OK && (v.kind == KIND_NODE || v.kind == KIND_CLASS ||
                                         (v.kind == KIND_TEXT && read_class(r, &v) == TRI_OK));
    r->at = at;
    r->n_memo = n_memo;
    return is;
}

static tri_status read_list(reader *r, int name)
{
    bool pairs = name == PARTICIPANTS || name == BEATS, marked = false;
    tri_status status = expect(r, pairs ? EMPTY_DICT : EMPTY_SET);

    if (status == TRI_OK)
        status = remember(r, (value){.kind = KIND_OTHER});
    while (status == TRI_OK && has_item(r, &marked)) {
        value node, with = {.kind = KIND_NUMBER};
        trii_rdzv_entry *e;

        status = read_thing(r, 0, &node);
        if (status == TRI_OK && pairs)
            status = read_thing(r, 0, &with);
        if (status == TRI_OK && (node.kind != KIND_NODE || with.kind != KIND_NUMBER))
            status = bad("a node without its value, or something else");
        if (status == TRI_OK && !marked)
            status = expect(r, SETITEM);
        if (status != TRI_OK)
            break;
        e = &r->state->entries[node.number];
        if (name == PARTICIPANTS)
            e->rank = with.number;
        if (name == BEATS)
            e->beat_us = with.number;
        e->participant |= name == PARTICIPANTS;
        e->waiting |= name == WAIT_LIST;
        e->redundant |= name == REDUNDANT;
        e->beats |= name == BEATS;
    }
    return status;
}

static tri_status read_number(reader *r, int name)
{
    trii_rdzv_state *s = r->state;
    value v;
    tri_status status = read_thing(r, 0, &v);

    if (status != TRI_OK)
        return status;
    if (v.kind != KIND_NUMBER && !(name == DEADLINE && v.kind == KIND_OTHER))
        return bad("a number is missing");
    if (name == ROUND)
        s->round = v.number;
    if (name == COMPLETE)
        s->complete = v.number != 0;
    if (name == CLOSED)
        s->closed = v.number != 0;
    if (name == DEADLINE) {
        s->has_deadline = v.kind == KIND_NUMBER;
        s->deadline_us = v.number;
    }
    return TRI_OK;
}

/* After its class. */
static tri_status read_state(reader *r)
{
    unsigned known = 0;
    int slot;
    tri_status status = begin_object(r, &slot);

    if (status == TRI_OK)
        status = expect(r, MARK);
    while (status == TRI_OK && !accept(r, SETITEMS)) {
        value key;
        int name = 0;

        status = read_plain(r, &key);
        if (status != TRI_OK)
            break;
        while (name < N_NAMES && !text_is(&key, names[name]))
            name++;
        if (name == N_NAMES)
            status = bad("an attribute of another name");
        else
            status = name < PARTICIPANTS ? read_number(r, name) : read_list(r, name);
        known |= 1u << name;
    }
    if (status == TRI_OK)
        status = expect(r, BUILD);
    if (status == TRI_OK && (known | 1u << REDUNDANT) != (1u << N_NAMES) - 1)
        status = bad("an attribute is missing");
    return status == TRI_OK ? expect(r, STOP) : status;
}

static tri_status read_pickle(reader *r)
{
    uint64_t ignored;
    value v = {.kind = KIND_OTHER};
    tri_status status = expect(r, PROTO);

    if (status == TRI_OK)
        status = take(r, 1, &ignored);
    while (status == TRI_OK && v.kind != KIND_STATE) {
        status = read_thing(r, 0, &v);
        if (status == TRI_OK && v.kind != KIND_STATE && !accept(r, POP))
            status = bad("it is something else");
    }
    return status == TRI_OK ? read_state(r) : status;
}

tri_status trii_rdzv_pickle_read(const void *data, size_t bytes, trii_rdzv_state *state_out)
{
    trii_rdzv_state state;
    reader r = {.at = data, .end = (const unsigned char *)data + bytes, .state = &state};
    tri_status status;

    trii_rdzv_state_init(&state);
    status = bytes <= TRII_RDZV_MAX_PICKLE ? read_pickle(&r) : bad("it is too large");
    trii_free(r.memo);
    trii_free(r.by_name);
    if (status == TRI_OK)
        *state_out = state;
    else
        trii_rdzv_state_fini(&state);
    return status;
}
