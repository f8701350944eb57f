/*
 * pickle_read.c - the machine of pickle.h. Called by torch_file.c and torch_legacy.c.
 *
 * Nothing in the file is trusted. Every opcode takes at least its own byte and makes at most one
 * value, so that memory is bounded by the size of the pickle; the machine does not recurse.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/torch/pickle.h"

#define MAX_PROTOCOL 5

/* --- bytes ---------------------------------------------------------------- */

/* The next n bytes. */
static tri_status take(trii_pickle *p, uint64_t n, const unsigned char **bytes_out)
{
    if (n > p->bytes - p->at)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT,
                                "the pickle ends %" PRIu64 " bytes too early: is the file cut "
                                "short?",
                                n - (p->bytes - p->at));
    *bytes_out = p->data + p->at;
    p->at += (size_t)n;
    return TRI_OK;
}

/* A little-endian number of 1 to 8 bytes. */
static tri_status take_number(trii_pickle *p, int bytes, uint64_t *value_out)
{
    const unsigned char *at;
    tri_status status = take(p, (uint64_t)bytes, &at);

    *value_out = 0;
    for (int i = bytes - 1; i >= 0 && status == TRI_OK; i--)
        *value_out = *value_out << 8 | at[i];
    return status;
}

/* A text up to the end of the line, which is dropped. */
static tri_status take_line(trii_pickle *p, const char **text_out, size_t *bytes_out)
{
    const unsigned char *from = p->data + p->at, *end = memchr(from, '\n', p->bytes - p->at);

    if (end == NULL)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "the pickle ends within a name");
    *text_out = (const char *)from;
    *bytes_out = (size_t)(end - from);
    p->at += *bytes_out + 1;
    return TRI_OK;
}

/* --- the stack ------------------------------------------------------------ */

static tri_status push(trii_pickle *p, trii_value *value)
{
    if (value == NULL)
        return TRI_ERR_NO_MEMORY;
    if (p->n_stack == p->stack_room) {
        size_t room = p->stack_room > 0 ? p->stack_room * 2 : 256;
        trii_value **stack = trii_realloc(p->stack, room, sizeof(*stack), "stack of a pickle");

        if (stack == NULL)
            return TRI_ERR_NO_MEMORY;
        p->stack = stack;
        p->stack_room = room;
    }
    p->stack[p->n_stack++] = value;
    return TRI_OK;
}

/* Where the stack may not be popped below: what lies under a mark belongs to somebody else. */
static size_t floor_of(const trii_pickle *p)
{
    return p->n_marks > 0 ? p->marks[p->n_marks - 1] : 0;
}

static tri_status need(const trii_pickle *p, size_t n)
{
    if (p->stack != NULL && p->n_stack - floor_of(p) >= n)
        return TRI_OK;
    return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "%zu values are on the stack, it takes %zu",
                            p->n_stack - floor_of(p), n);
}

static tri_status pop(trii_pickle *p, trii_value **value_out)
{
    tri_status status = need(p, 1);

    if (status != TRI_OK)
        return status;
    assert(p->stack != NULL); /* it has a value */
    *value_out = p->stack[--p->n_stack];
    return TRI_OK;
}

static tri_status push_mark(trii_pickle *p)
{
    if (p->n_marks == p->marks_room) {
        size_t room = p->marks_room > 0 ? p->marks_room * 2 : 64;
        size_t *marks = trii_realloc(p->marks, room, sizeof(*marks), "marks of a pickle");

        if (marks == NULL)
            return TRI_ERR_NO_MEMORY;
        p->marks = marks;
        p->marks_room = room;
    }
    p->marks[p->n_marks++] = p->n_stack;
    return TRI_OK;
}

/* Index of the first value above the last mark, which is taken away. */
static tri_status pop_mark(trii_pickle *p, size_t *first_out)
{
    if (p->n_marks == 0)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "there is no mark on the stack");
    *first_out = p->marks[--p->n_marks];
    return TRI_OK;
}

/* --- memo ----------------------------------------------------------------- */

static tri_status memo_put(trii_pickle *p, uint64_t index)
{
    tri_status status = need(p, 1);

    if (status != TRI_OK)
        return status;
    if (index >= p->at) /* each entry takes bytes, so no honest pickle counts that far */
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT,
                                "entry %" PRIu64 " of the memo, after %zu bytes of the pickle",
                                index, p->at);
    if (index >= p->memo_room) {
        size_t room = p->memo_room > 0 ? p->memo_room : 64;
        trii_value **memo;

        while (room <= index)
            room *= 2;
        memo = trii_realloc(p->memo, room, sizeof(*memo), "memo of a pickle");
        if (memo == NULL)
            return TRI_ERR_NO_MEMORY;
        memset(memo + p->memo_room, 0, (room - p->memo_room) * sizeof(*memo));
        p->memo = memo;
        p->memo_room = room;
    }
    if (p->memo[index] == NULL)
        p->n_memo++;
    p->memo[index] = p->stack[p->n_stack - 1];
    return TRI_OK;
}

static tri_status memo_get(trii_pickle *p, uint64_t index)
{
    if (index >= p->memo_room || p->memo[index] == NULL)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "the memo has no entry %" PRIu64, index);
    return push(p, p->memo[index]);
}

/* --- opcodes -------------------------------------------------------------- */

static tri_status push_bytes(trii_pickle *p, tri_torch_kind kind, uint64_t n)
{
    const unsigned char *bytes;
    tri_status status = take(p, n, &bytes);
    trii_value *value;
    char *text;

    if (status != TRI_OK)
        return status;
    value = trii_value_new(p, kind);
    text = trii_arena_take(p->arena, (size_t)n + 1, 1); /* with a 0 after it */
    if (value == NULL || text == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(text, bytes, (size_t)n);
    value->v.text = text;
    value->v.bytes = (size_t)n;
    return push(p, value);
}

/* A length of so many bytes, and the bytes. */
static tri_status push_counted(trii_pickle *p, tri_torch_kind kind, int length_bytes)
{
    uint64_t n;
    tri_status status = take_number(p, length_bytes, &n);

    return status == TRI_OK ? push_bytes(p, kind, n) : status;
}

static tri_status push_int(trii_pickle *p, int64_t integer)
{
    trii_value *value = trii_value_new(p, TRI_TORCH_INT);

    if (value != NULL)
        value->v.integer = integer;
    return push(p, value);
}

/* Two's complement, little-endian. What 64 bits do not hold stays an object of class int. */
static tri_status push_long(trii_pickle *p, int length_bytes)
{
    uint64_t n, word = 0;
    const unsigned char *at;
    tri_status status = take_number(p, length_bytes, &n);

    if (status == TRI_OK && n > 8) {
        status = push_bytes(p, TRI_TORCH_BYTES, n);
        if (status == TRI_OK)
            p->stack[p->n_stack - 1]->is_long = true;
        return status;
    }
    if (status == TRI_OK)
        status = take(p, n, &at);
    if (status != TRI_OK)
        return status;
    for (int i = 7; i >= 0; i--)
        word = word << 8 | ((uint64_t)i < n ? at[i] : n > 0 && (at[n - 1] & 0x80) != 0 ? 0xff : 0);
    return push_int(p, (int64_t)word);
}

static tri_status push_float(trii_pickle *p)
{
    const unsigned char *at;
    uint64_t word = 0;
    tri_status status = take(p, 8, &at);
    trii_value *value;

    if (status != TRI_OK)
        return status;
    for (int i = 0; i < 8; i++)
        word = word << 8 | at[i];
    value = trii_value_new(p, TRI_TORCH_FLOAT);
    if (value != NULL)
        memcpy(&value->v.real, &word, sizeof(word));
    return push(p, value);
}

static tri_status push_class(trii_pickle *p, const char *module, size_t module_bytes,
                             const char *name, size_t name_bytes)
{
    trii_value *value = trii_value_new(p, TRI_TORCH_OBJECT);
    char *text = trii_arena_take(p->arena, module_bytes + name_bytes + 2, 1);

    if (value == NULL || text == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(text, module, module_bytes);
    text[module_bytes] = '.';
    memcpy(text + module_bytes + 1, name, name_bytes);
    value->v.text = text;
    value->v.bytes = module_bytes + 1 + name_bytes;
    value->is_class = true;
    return push(p, value);
}

static tri_status global(trii_pickle *p)
{
    const char *module, *name;
    size_t module_bytes, name_bytes;
    tri_status status = take_line(p, &module, &module_bytes);

    if (status == TRI_OK)
        status = take_line(p, &name, &name_bytes);
    return status == TRI_OK ? push_class(p, module, module_bytes, name, name_bytes) : status;
}

static tri_status stack_global(trii_pickle *p)
{
    trii_value *name = NULL, *module = NULL;
    tri_status status = pop(p, &name);

    if (status == TRI_OK)
        status = pop(p, &module);
    if (status == TRI_OK && (name->v.kind != TRI_TORCH_TEXT || module->v.kind != TRI_TORCH_TEXT))
        status = TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "module and class are not texts");
    return status == TRI_OK
               ? push_class(p, module->v.text, module->v.bytes, name->v.text, name->v.bytes)
               : status;
}

/* The values above index `first` become items of one. */
static tri_status collect(trii_pickle *p, trii_value *to, size_t first)
{
    tri_status status = to != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (size_t i = first; i < p->n_stack && status == TRI_OK; i++)
        status = trii_value_add(p, to, p->stack[i]);
    p->n_stack = first;
    return status;
}

static tri_status tuple(trii_pickle *p, size_t n)
{
    trii_value *made;
    tri_status status = need(p, n);

    if (status != TRI_OK)
        return status;
    made = trii_value_new(p, TRI_TORCH_TUPLE);
    status = collect(p, made, p->n_stack - n);
    return status == TRI_OK ? push(p, made) : status;
}

static tri_status from_mark(trii_pickle *p, tri_torch_kind kind)
{
    size_t first = 0;
    trii_value *made;
    tri_status status = pop_mark(p, &first);

    if (status != TRI_OK)
        return status;
    made = trii_value_new(p, kind);
    status = collect(p, made, first);
    return status == TRI_OK ? push(p, made) : status;
}

/* Items from index `first` on into what lies under them. */
static tri_status extend(trii_pickle *p, size_t first, tri_torch_kind kind)
{
    trii_value *to;

    if (p->stack == NULL || first == floor_of(p))
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "nothing on the stack takes these items");
    to = p->stack[first - 1];
    /* What a class makes that is derived from dict, list or set takes them, too. */
    if (to->v.kind == TRI_TORCH_OBJECT && !to->is_class)
        to->v.kind = kind;
    if (to->v.kind != kind)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "what lies on the stack takes no such items");
    if (kind == TRI_TORCH_DICT && (p->n_stack - first) % 2 != 0)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a key without a value");
    return collect(p, to, first);
}

static tri_status extend_from_mark(trii_pickle *p, tri_torch_kind kind)
{
    size_t first = 0;
    tri_status status = pop_mark(p, &first);

    return status == TRI_OK ? extend(p, first, kind) : status;
}

static tri_status extend_by(trii_pickle *p, size_t n, tri_torch_kind kind)
{
    tri_status status = need(p, n + 1);

    return status == TRI_OK ? extend(p, p->n_stack - n, kind) : status;
}

/* keywords: under the arguments lies the class, above them a dictionary. */
static tri_status call(trii_pickle *p, bool keywords)
{
    trii_value *named = NULL, *args = NULL, *callee = NULL, *made = NULL;
    tri_status status = keywords ? pop(p, &named) : TRI_OK;

    if (status == TRI_OK)
        status = pop(p, &args);
    if (status == TRI_OK)
        status = pop(p, &callee);
    if (status == TRI_OK && args->v.kind != TRI_TORCH_TUPLE)
        status = TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "the arguments are not a tuple");
    if (status == TRI_OK)
        status = trii_pickle_call(p, callee, args, &made);
    if (status == TRI_OK && named != NULL && made->v.kind == TRI_TORCH_OBJECT)
        made->v.state = &named->v;
    return status == TRI_OK ? push(p, made) : status;
}

static tri_status build(trii_pickle *p)
{
    trii_value *state = NULL;
    tri_status status = pop(p, &state);

    if (status == TRI_OK)
        status = need(p, 1);
    if (status == TRI_OK)
        p->stack[p->n_stack - 1]->v.state = &state->v;
    return status;
}

static tri_status persistent(trii_pickle *p)
{
    trii_value *id = NULL, *made = NULL;
    tri_status status = pop(p, &id);

    if (status == TRI_OK)
        status = trii_pickle_persistent(p, id, &made);
    return status == TRI_OK ? push(p, made) : status;
}

/* POP takes a mark away where there is nothing above it, as CPython does. */
static tri_status pop_any(trii_pickle *p)
{
    trii_value *dropped;

    if (p->n_marks > 0 && p->n_stack == floor_of(p)) {
        p->n_marks--;
        return TRI_OK;
    }
    return pop(p, &dropped);
}

static tri_status protocol(trii_pickle *p)
{
    uint64_t version;
    tri_status status = take_number(p, 1, &version);

    if (status == TRI_OK && version > MAX_PROTOCOL)
        status = TRII_PICKLE_FAIL(p, TRI_ERR_UNSUPPORTED,
                                  "protocol %" PRIu64 " of pickle; up to %d are read", version,
                                  MAX_PROTOCOL);
    return status;
}

/* A number that follows the opcode. */
static tri_status with_number(trii_pickle *p, unsigned char opcode, int bytes)
{
    uint64_t n;
    tri_status status = take_number(p, bytes, &n);

    if (status != TRI_OK)
        return status;
    switch (opcode) {
    case 'J':
        return push_int(p, (int32_t)(uint32_t)n);
    case 'K':
    case 'M':
        return push_int(p, (int64_t)n);
    case 'h':
    case 'j':
        return memo_get(p, n);
    case 'q':
    case 'r':
        return memo_put(p, n);
    default: /* FRAME: how many bytes a reader may fetch at once */
        return TRI_OK;
    }
}

static tri_status step(trii_pickle *p, unsigned char opcode)
{
    size_t first;

    switch (opcode) {
    case 0x80:
        return protocol(p);
    case 0x95:
        return with_number(p, opcode, 8);
    case 'J':
    case 'j':
    case 'r':
        return with_number(p, opcode, 4);
    case 'M':
        return with_number(p, opcode, 2);
    case 'K':
    case 'h':
    case 'q':
        return with_number(p, opcode, 1);
    case 0x94:
        return memo_put(p, p->n_memo);
    case 'N':
        return push(p, trii_value_new(p, TRI_TORCH_NONE));
    case 0x88:
    case 0x89: {
        trii_value *value = trii_value_new(p, TRI_TORCH_BOOL);

        if (value != NULL)
            value->v.integer = opcode == 0x88;
        return push(p, value);
    }
    case 0x8a:
        return push_long(p, 1);
    case 0x8b:
        return push_long(p, 4);
    case 'G':
        return push_float(p);
    case 0x8c:
        return push_counted(p, TRI_TORCH_TEXT, 1);
    case 'X':
        return push_counted(p, TRI_TORCH_TEXT, 4);
    case 0x8d:
        return push_counted(p, TRI_TORCH_TEXT, 8);
    case 'U': /* of Python 2, whose texts were these */
        return push_counted(p, TRI_TORCH_TEXT, 1);
    case 'T':
        return push_counted(p, TRI_TORCH_TEXT, 4);
    case 'C':
        return push_counted(p, TRI_TORCH_BYTES, 1);
    case 'B':
        return push_counted(p, TRI_TORCH_BYTES, 4);
    case 0x8e:
    case 0x96:
        return push_counted(p, TRI_TORCH_BYTES, 8);
    case 'c':
        return global(p);
    case 0x93:
        return stack_global(p);
    case '(':
        return push_mark(p);
    case '1':
        if (pop_mark(p, &first) != TRI_OK)
            return TRI_ERR_FORMAT;
        p->n_stack = first;
        return TRI_OK;
    case '0':
        return pop_any(p);
    case '2':
        return need(p, 1) == TRI_OK ? push(p, p->stack[p->n_stack - 1]) : TRI_ERR_FORMAT;
    case ')':
        return push(p, trii_value_new(p, TRI_TORCH_TUPLE));
    case 0x85:
    case 0x86:
    case 0x87:
        return tuple(p, (size_t)opcode - 0x84);
    case 't':
        return from_mark(p, TRI_TORCH_TUPLE);
    case 0x91:
        return from_mark(p, TRI_TORCH_SET);
    case '}':
        return push(p, trii_value_new(p, TRI_TORCH_DICT));
    case ']':
        return push(p, trii_value_new(p, TRI_TORCH_LIST));
    case 0x8f:
        return push(p, trii_value_new(p, TRI_TORCH_SET));
    case 's':
        return extend_by(p, 2, TRI_TORCH_DICT);
    case 'u':
        return extend_from_mark(p, TRI_TORCH_DICT);
    case 'a':
        return extend_by(p, 1, TRI_TORCH_LIST);
    case 'e':
        return extend_from_mark(p, TRI_TORCH_LIST);
    case 0x90:
        return extend_from_mark(p, TRI_TORCH_SET);
    case 'R':
    case 0x81:
        return call(p, false);
    case 0x92:
        return call(p, true);
    case 'b':
        return build(p);
    case 'Q':
        return persistent(p);
    default:
        if (trii_opcode_name(opcode) == NULL)
            return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "byte 0x%02x is not an opcode of pickle",
                                    opcode);
        return TRII_PICKLE_FAIL(p, TRI_ERR_UNSUPPORTED,
                                "an opcode that torch.save never writes, and that is not read");
    }
}

static tri_status run(trii_pickle *p)
{
    while (p->at < p->bytes) {
        unsigned char opcode = p->data[p->at];
        tri_status status;

        p->opcode_at = p->at++;
        if (opcode == '.')
            return need(p, 1);
        status = step(p, opcode);
        if (status != TRI_OK)
            return status;
    }
    p->opcode_at = p->bytes;
    return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT,
                            "the pickle ends without STOP: is the file cut "
                            "short?");
}

tri_status trii_pickle_read(const char *path, uint64_t base, const unsigned char *data,
                            size_t bytes, trii_arena *arena, trii_pickled *pickled_out)
{
    trii_pickle p = {.path = path, .base = base, .arena = arena, .data = data, .bytes = bytes};
    tri_status status = run(&p);

    if (status == TRI_OK)
        *pickled_out =
            (trii_pickled){.root = p.stack[p.n_stack - 1], .storages = p.storages, .bytes = p.at};
    trii_free(p.stack);
    trii_free(p.marks);
    trii_free(p.memo);
    return status;
}
