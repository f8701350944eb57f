/*
 * rdzv_pickle.c - see rdzv_pickle.h. Called by rdzv_join.c for every state that it reads; the other
 * direction is rdzv_pickle_write.c.
 *
 * A pickle is a program for a small stack machine. Ours builds values (numbers, texts, tuples,
 * sets, dictionaries, objects as a name with arguments and attributes) in one array; lists are
 * chains of cells in another. Both grow by at most one element per byte read, so a limit on the
 * input limits them too. A value may contain itself: code that reads the values follows a path of
 * fixed length and never recurses.
 */
#include "launch/rendezvous/rdzv_pickle.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"

typedef enum kind {
    KIND_NONE,
    KIND_BOOL,
    KIND_INT,
    KIND_TEXT, /* bytes too */
    KIND_TUPLE,
    KIND_SET,  /* lists too */
    KIND_DICT, /* cells: key, value, key, value ... */
    KIND_NAME, /* of a class; text is "module\nname" as two texts: cells */
    KIND_OBJECT
} kind;

typedef struct value {
    kind kind;
    int64_t number;
    const char *text;
    size_t bytes;
    int first, last; /* cells; -1 = none */
    int name;        /* of an object: the value of its class */
    int state;       /* ... its attributes, a dictionary; -1 = none */
} value;

typedef struct cell {
    int value, next;
} cell;

typedef struct machine {
    const unsigned char *at, *end;
    value *values;
    int n_values, values_room;
    cell *cells;
    int n_cells, cells_room;
    int *stack; /* values; MARK stands for itself */
    int n_stack, stack_room;
    int *memo;
    int n_memo, memo_room;
} machine;

enum { MARK = -1 };

static tri_status bad(const char *what)
{
    return TRII_FAIL(TRI_ERR_FORMAT, "rendezvous state: %s", what);
}

/* --- the machine's memory ------------------------------------------------- */

static tri_status push(machine *m, int index)
{
    if (trii_array_grow(&m->stack, &m->stack_room, m->n_stack, 64, sizeof(*m->stack),
                        "rendezvous state") != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    m->stack[m->n_stack++] = index;
    return TRI_OK;
}

static tri_status push_new(machine *m, value v)
{
    if (trii_array_grow(&m->values, &m->values_room, m->n_values, 64, sizeof(*m->values),
                        "rendezvous state") != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    m->values[m->n_values++] = v;
    return push(m, m->n_values - 1);
}

static tri_status append(machine *m, int list, int item)
{
    if (trii_array_grow(&m->cells, &m->cells_room, m->n_cells, 64, sizeof(*m->cells),
                        "rendezvous state") != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    m->cells[m->n_cells] = (cell){item, -1};
    if (m->values[list].last >= 0)
        m->cells[m->values[list].last].next = m->n_cells;
    else
        m->values[list].first = m->n_cells;
    m->values[list].last = m->n_cells++;
    return TRI_OK;
}

static tri_status remember(machine *m)
{
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == MARK)
        return bad("nothing to remember");
    if (trii_array_grow(&m->memo, &m->memo_room, m->n_memo, 64, sizeof(*m->memo),
                        "rendezvous state") != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    m->memo[m->n_memo++] = m->stack[m->n_stack - 1];
    return TRI_OK;
}

/* The top of the stack, which must be a value. */
static tri_status pop(machine *m, int *index_out)
{
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == MARK)
        return bad("the stack is empty");
    *index_out = m->stack[--m->n_stack];
    return TRI_OK;
}

static value plain(kind k)
{
    return (value){.kind = k, .first = -1, .last = -1, .name = -1, .state = -1};
}

/* --- its operations ------------------------------------------------------- */

/* A number of so many bytes, little end first. */
static tri_status number(machine *m, size_t bytes, uint64_t *number_out)
{
    uint64_t n = 0;

    if ((size_t)(m->end - m->at) < bytes)
        return bad("it is cut off");
    for (size_t i = 0; i < bytes; i++)
        n |= (uint64_t)m->at[i] << (8 * i);
    m->at += bytes;
    *number_out = n;
    return TRI_OK;
}

static tri_status take_int(machine *m, size_t bytes, bool is_signed)
{
    value v = plain(KIND_INT);
    uint64_t n;
    tri_status status = number(m, bytes, &n);

    if (status != TRI_OK)
        return status;
    if (is_signed && bytes > 0 && bytes < 8 && (n >> (8 * bytes - 1) & 1) != 0)
        n |= UINT64_MAX << (8 * bytes);
    v.number = (int64_t)n;
    return push_new(m, v);
}

static tri_status take_long(machine *m)
{
    uint64_t bytes;
    tri_status status = number(m, 1, &bytes);

    if (status == TRI_OK && bytes > 8)
        status = bad("a number of more than 8 bytes");
    return status == TRI_OK ? take_int(m, (size_t)bytes, true) : status;
}

static tri_status take_text(machine *m, size_t length_bytes)
{
    value v = plain(KIND_TEXT);
    uint64_t bytes;
    tri_status status = number(m, length_bytes, &bytes);

    if (status != TRI_OK)
        return status;
    if (bytes > (uint64_t)(m->end - m->at))
        return bad("it is cut off");
    v.text = (const char *)m->at;
    v.bytes = (size_t)bytes;
    m->at += bytes;
    return push_new(m, v);
}

static tri_status take_bool(machine *m, bool is)
{
    value v = plain(KIND_BOOL);

    v.number = is;
    return push_new(m, v);
}

/* The values above the last mark, or the topmost n, become a tuple. */
static tri_status make_tuple(machine *m, int n)
{
    int from = m->n_stack - n, index;
    value v = plain(KIND_TUPLE);
    tri_status status;

    if (n < 0) {
        for (from = m->n_stack; from > 0 && m->stack[from - 1] != MARK;)
            from--;
        if (from == 0)
            return bad("no mark");
    }
    if (from < 0)
        return bad("the stack is empty");
    status = push_new(m, v);
    if (status != TRI_OK)
        return status;
    index = m->stack[--m->n_stack];
    for (int i = from; i < m->n_stack && status == TRI_OK; i++)
        status = m->stack[i] == MARK ? bad("a mark in a tuple") : append(m, index, m->stack[i]);
    m->n_stack = n < 0 ? from - 1 : from;
    return status == TRI_OK ? push(m, index) : status;
}

/* What stands above the last mark goes into the container below it. */
static tri_status add_items(machine *m, kind wanted)
{
    tri_status status = make_tuple(m, -1);
    int items, count = 0;

    if (status == TRI_OK)
        status = pop(m, &items);
    if (status != TRI_OK)
        return status;
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == MARK ||
        m->values[m->stack[m->n_stack - 1]].kind != wanted)
        return bad("items for something else");
    for (int at = m->values[items].first; at >= 0 && status == TRI_OK; count++) {
        int item = m->cells[at].value, next = m->cells[at].next;

        status = append(m, m->stack[m->n_stack - 1], item);
        at = next;
    }
    if (status == TRI_OK && wanted == KIND_DICT && count % 2 != 0)
        status = bad("a key without a value");
    return status;
}

static tri_status set_item(machine *m, kind wanted)
{
    int key = 0, item;
    tri_status status = pop(m, &item);

    if (status == TRI_OK && wanted == KIND_DICT)
        status = pop(m, &key);
    if (status != TRI_OK)
        return status;
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == MARK ||
        m->values[m->stack[m->n_stack - 1]].kind != wanted)
        return bad("an item for something else");
    if (wanted == KIND_DICT)
        status = append(m, m->stack[m->n_stack - 1], key);
    return status == TRI_OK ? append(m, m->stack[m->n_stack - 1], item) : status;
}

/* A class, by its module and its name: just remembered. */
static tri_status make_name(machine *m)
{
    tri_status status = make_tuple(m, 2);
    value *v;

    if (status != TRI_OK)
        return status;
    v = &m->values[m->stack[m->n_stack - 1]];
    v->kind = KIND_NAME;
    if (m->values[m->cells[v->first].value].kind != KIND_TEXT ||
        m->values[m->cells[v->last].value].kind != KIND_TEXT)
        return bad("a class without a name");
    return TRI_OK;
}

/* name, arguments -> an object that keeps both. */
static tri_status make_object(machine *m)
{
    value v = plain(KIND_OBJECT);
    int args;
    tri_status status = pop(m, &args);

    if (status == TRI_OK)
        status = pop(m, &v.name);
    if (status != TRI_OK)
        return status;
    if (m->values[args].kind != KIND_TUPLE || m->values[v.name].kind != KIND_NAME)
        return bad("an object of no class");
    v.first = m->values[args].first;
    v.last = m->values[args].last;
    return push_new(m, v);
}

static tri_status build(machine *m)
{
    int state;
    tri_status status = pop(m, &state);

    if (status != TRI_OK)
        return status;
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == MARK ||
        m->values[m->stack[m->n_stack - 1]].kind != KIND_OBJECT ||
        m->values[state].kind != KIND_DICT)
        return bad("attributes of something else");
    m->values[m->stack[m->n_stack - 1]].state = state;
    return TRI_OK;
}

static tri_status recall(machine *m, size_t bytes)
{
    uint64_t n;
    tri_status status = number(m, bytes, &n);

    if (status == TRI_OK && n >= (uint64_t)m->n_memo)
        status = bad("it refers to nothing");
    return status == TRI_OK ? push(m, m->memo[n]) : status;
}

/* The older spelling of remember says a number; writers count from 0. */
static tri_status remember_as(machine *m, size_t bytes)
{
    uint64_t n;
    tri_status status = number(m, bytes, &n);

    if (status == TRI_OK && n != (uint64_t)m->n_memo)
        status = bad("numbers out of order");
    return status == TRI_OK ? remember(m) : status;
}

static tri_status skip(machine *m, size_t bytes)
{
    uint64_t ignored;

    return number(m, bytes, &ignored);
}

static tri_status operate(machine *m, unsigned char op)
{
    switch (op) {
    case 0x80: /* PROTO */
        return skip(m, 1);
    case 0x95: /* FRAME */
        return skip(m, 8);
    case 0x93: /* STACK_GLOBAL */
        return make_name(m);
    case 0x81: /* NEWOBJ */
    case 'R':  /* REDUCE */
        return make_object(m);
    case 'b': /* BUILD */
        return build(m);
    case '(': /* MARK */
        return push(m, MARK);
    case ')': /* EMPTY_TUPLE */
        return make_tuple(m, 0);
    case 0x85: /* TUPLE1, 2, 3 */
    case 0x86:
    case 0x87:
        return make_tuple(m, op - 0x84);
    case 't': /* TUPLE */
        return make_tuple(m, -1);
    case '}': /* EMPTY_DICT */
        return push_new(m, plain(KIND_DICT));
    case 0x8f: /* EMPTY_SET */
    case ']':  /* EMPTY_LIST */
        return push_new(m, plain(KIND_SET));
    case 'u': /* SETITEMS */
        return add_items(m, KIND_DICT);
    case 0x90: /* ADDITEMS */
    case 'e':  /* APPENDS */
        return add_items(m, KIND_SET);
    case 's': /* SETITEM */
        return set_item(m, KIND_DICT);
    case 'a': /* APPEND */
        return set_item(m, KIND_SET);
    case 'N': /* NONE */
        return push_new(m, plain(KIND_NONE));
    case 0x88: /* NEWTRUE, NEWFALSE */
    case 0x89:
        return take_bool(m, op == 0x88);
    case 'K': /* BININT1, 2, BININT, LONG1 */
        return take_int(m, 1, false);
    case 'M':
        return take_int(m, 2, false);
    case 'J':
        return take_int(m, 4, true);
    case 0x8a:
        return take_long(m);
    case 0x8c: /* SHORT_BINUNICODE, SHORT_BINBYTES, BINUNICODE, BINBYTES */
    case 'C':
        return take_text(m, 1);
    case 'X':
    case 'B':
        return take_text(m, 4);
    case 0x94: /* MEMOIZE, BINPUT, LONG_BINPUT */
        return remember(m);
    case 'q':
        return remember_as(m, 1);
    case 'r':
        return remember_as(m, 4);
    case 'h': /* BINGET, LONG_BINGET */
        return recall(m, 1);
    case 'j':
        return recall(m, 4);
    default:
        return TRII_FAIL(TRI_ERR_FORMAT, "rendezvous state: operation 0x%02x", op);
    }
}

/* --- values as a state ---------------------------------------------------- */

static bool text_is(const machine *m, int index, const char *text)
{
    const value *v = &m->values[index];

    return v->kind == KIND_TEXT && v->bytes == strlen(text) && memcmp(v->text, text, v->bytes) == 0;
}

static bool is_object(const machine *m, int index, const char *class)
{
    const value *v = &m->values[index];

    return v->kind == KIND_OBJECT && text_is(m, m->cells[m->values[v->name].last].value, class);
}

/* The attribute of an object; -1: none. The last one counts, as in a dictionary. */
static int attribute(const machine *m, int object, const char *name)
{
    int state = m->values[object].state, found = -1;

    for (int at = state >= 0 ? m->values[state].first : -1; at >= 0;) {
        int next = m->cells[at].next;

        if (next < 0)
            break;
        if (text_is(m, m->cells[at].value, name))
            found = m->cells[next].value;
        at = m->cells[next].next;
    }
    return found;
}

static tri_status as_number(const machine *m, int index, int64_t *number_out)
{
    if (index < 0 || (m->values[index].kind != KIND_INT && m->values[index].kind != KIND_BOOL))
        return bad("a number is missing");
    *number_out = m->values[index].number;
    return TRI_OK;
}

static tri_status as_node(const machine *m, int index, trii_rdzv_node *node_out)
{
    int addr;
    tri_status status;

    if (!is_object(m, index, "_NodeDesc"))
        return bad("a node is something else");
    addr = attribute(m, index, "addr");
    memset(node_out, 0, sizeof(*node_out));
    if (addr < 0 || m->values[addr].kind != KIND_TEXT ||
        m->values[addr].bytes >= sizeof(node_out->addr) ||
        memchr(m->values[addr].text, 0, m->values[addr].bytes) != NULL)
        return bad("a node without an address");
    memcpy(node_out->addr, m->values[addr].text, m->values[addr].bytes);
    status = as_number(m, attribute(m, index, "pid"), &node_out->pid);
    if (status == TRI_OK)
        status = as_number(m, attribute(m, index, "local_id"), &node_out->local_id);
    return status;
}

/* Days since 1970 of a day of the Gregorian calendar: the year begins in March, so that the day
 * that may be missing is its last. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400, of_era = y % 400;
    int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;

    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static tri_status as_time(const machine *m, int index, int64_t *us_out)
{
    const unsigned char *b;
    int64_t days;
    int first;

    if (!is_object(m, index, "datetime") || m->values[index].first < 0)
        return bad("a time is something else");
    first = m->cells[m->values[index].first].value;
    if (m->values[first].kind != KIND_TEXT || m->values[first].bytes != 10)
        return bad("a time of another length");
    b = (const unsigned char *)m->values[first].text;
    days = days_of(b[0] * 256 + b[1], b[2], b[3]);
    *us_out = ((days * 24 + b[4]) * 60 + b[5]) * 60000000 + b[6] * INT64_C(1000000) +
              (b[7] * 65536 + b[8] * 256 + b[9]);
    return TRI_OK;
}

typedef enum list_kind { LIST_PARTICIPANTS, LIST_WAITING, LIST_REDUNDANT, LIST_BEATS } list_kind;

static tri_status read_list(const machine *m, int root, const char *name, list_kind list,
                            trii_rdzv_state *state)
{
    bool pairs = list == LIST_PARTICIPANTS || list == LIST_BEATS;
    int index = attribute(m, root, name);
    tri_status status = TRI_OK;

    if (index < 0 && list == LIST_REDUNDANT)
        return TRI_OK; /* older versions have none */
    if (index < 0 || m->values[index].kind != (pairs ? KIND_DICT : KIND_SET))
        return bad("a list of nodes is missing");
    for (int at = m->values[index].first; at >= 0 && status == TRI_OK;) {
        trii_rdzv_entry *entry = NULL;
        trii_rdzv_node node;
        int item = pairs ? m->cells[at].next : at;

        status = item < 0 ? bad("a node without its value") : as_node(m, m->cells[at].value, &node);
        if (status == TRI_OK)
            status = trii_rdzv_entry_of(state, &node, &entry);
        if (status != TRI_OK)
            break;
        if (list == LIST_PARTICIPANTS)
            status = as_number(m, m->cells[item].value, &entry->rank);
        if (list == LIST_BEATS)
            status = as_time(m, m->cells[item].value, &entry->beat_us);
        entry->participant |= list == LIST_PARTICIPANTS;
        entry->waiting |= list == LIST_WAITING;
        entry->redundant |= list == LIST_REDUNDANT;
        entry->beats |= list == LIST_BEATS;
        at = m->cells[item].next;
    }
    return status;
}

static tri_status read_state(const machine *m, int root, trii_rdzv_state *state)
{
    int64_t complete, closed;
    int deadline;
    tri_status status = TRI_OK;

    if (!is_object(m, root, "_RendezvousState"))
        return bad("it is something else");
    status = as_number(m, attribute(m, root, "round"), &state->round);
    if (status == TRI_OK)
        status = as_number(m, attribute(m, root, "complete"), &complete);
    if (status == TRI_OK)
        status = as_number(m, attribute(m, root, "closed"), &closed);
    if (status != TRI_OK)
        return status;
    state->complete = complete != 0;
    state->closed = closed != 0;
    deadline = attribute(m, root, "deadline");
    state->has_deadline = deadline >= 0 && m->values[deadline].kind != KIND_NONE;
    if (state->has_deadline)
        status = as_time(m, deadline, &state->deadline_us);
    if (status == TRI_OK)
        status = read_list(m, root, "participants", LIST_PARTICIPANTS, state);
    if (status == TRI_OK)
        status = read_list(m, root, "wait_list", LIST_WAITING, state);
    if (status == TRI_OK)
        status = read_list(m, root, "redundancy_list", LIST_REDUNDANT, state);
    if (status == TRI_OK)
        status = read_list(m, root, "last_heartbeats", LIST_BEATS, state);
    return status;
}

tri_status trii_rdzv_pickle_read(const void *data, size_t bytes, trii_rdzv_state *state_out)
{
    machine m = {.at = data, .end = (const unsigned char *)data + bytes};
    trii_rdzv_state state;
    tri_status status = TRI_OK;
    int root = -1;

    trii_rdzv_state_init(&state);
    if (bytes > TRII_RDZV_MAX_PICKLE)
        return bad("it is too large");
    while (status == TRI_OK && root < 0) {
        unsigned char op;

        if (m.at == m.end) {
            status = bad("it is cut off");
            break;
        }
        op = *m.at++;
        status = op == '.' ? pop(&m, &root) : operate(&m, op);
    }
    if (status == TRI_OK)
        status = read_state(&m, root, &state);
    trii_free(m.values);
    trii_free(m.cells);
    trii_free(m.stack);
    trii_free(m.memo);
    if (status == TRI_OK)
        *state_out = state;
    else
        trii_rdzv_state_fini(&state);
    return status;
}
