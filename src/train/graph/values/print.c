/*
 * print.c - tri_tensor_print and tri_tensor_text: prints values as torch does: four digits, one
 * width for all, and only the corners of a tensor with more than 1,000 elements
 * (torch/_tensor_str.py, the profile "default").
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#include "base/dtype.h"
#include "train/graph/step/recorder.h"
#include "train/graph/values/contents.h"
#include "train/tensor/piece.h"

#define SUMMARY_FROM 1000 /* with more elements only the corners are shown */
#define EDGE 3            /* elements of each end of a dimension */
#define LINE_COLUMNS 80
#define NUMBER_TEXT 48
#define PREFIX "tensor("

/* Writes into a file, or into a buffer as far as there is room. */
typedef struct sink {
    FILE *file;
    char *text;
    size_t room, used;
    int column;
} sink;

static TRI_PRINTF(2, 3) void put(sink *s, const char *format, ...)
{
    char piece[TRII_ERR_BYTES + 64];
    const char *line;
    size_t n, fits;
    va_list args;

    va_start(args, format);
    vsnprintf(piece, sizeof(piece), format, args);
    va_end(args);
    n = strlen(piece);
    line = strrchr(piece, '\n');
    s->column = line != NULL ? (int)strlen(line + 1) : s->column + (int)n;
    if (s->file != NULL) {
        fputs(piece, s->file);
    } else if (s->used + 1 < s->room) {
        fits = s->room - s->used - 1;
        fits = n < fits ? n : fits;
        memcpy(s->text + s->used, piece, fits);
        s->text[s->used + fits] = '\0';
    }
    s->used += n;
}

/* How the numbers of one tensor are formatted. */
typedef struct style {
    const trii_type *type;
    const char *data;
    bool summary;
    bool floating, whole, exponent;
    int width;
    double least, most; /* magnitudes of finite numbers other than zero */
} style;

static void number_text(const style *st, const char *element, char text[NUMBER_TEXT])
{
    double value;

    if (st->type->dtype == TRI_DTYPE_BOOL) {
        snprintf(text, NUMBER_TEXT, "%s", *element != 0 ? "True" : "False");
        return;
    }
    if (!st->floating) {
        snprintf(text, NUMBER_TEXT, "%" PRId64, trii_element_int(st->type->dtype, element));
        return;
    }
    value = trii_element_double(st->type->dtype, element);
    if (isnan(value)) /* without the sign, which libc prints for NaN */
        snprintf(text, NUMBER_TEXT, "nan");
    else if (isinf(value))
        snprintf(text, NUMBER_TEXT, value < 0 ? "-inf" : "inf");
    else if (st->exponent)
        snprintf(text, NUMBER_TEXT, "%.4e", value);
    else if (st->whole)
        snprintf(text, NUMBER_TEXT, "%.0f.", value);
    else
        snprintf(text, NUMBER_TEXT, "%.4f", value);
}

/* --- which elements are shown --------------------------------------------- */

/* The index after `i` among those shown of n. */
static int64_t next_shown(const style *st, int64_t i, int64_t n)
{
    return st->summary && i == EDGE - 1 && n > 2 * EDGE ? n - EDGE : i + 1;
}

static void visit(const style *st, int dim, int64_t at, void (*see)(style *st, const char *element),
                  style *out)
{
    const trii_type *type = st->type;

    if (dim == type->ndim) {
        see(out, st->data + (size_t)at * tri_dtype_size(type->dtype));
        return;
    }
    for (int64_t i = 0; i < type->shape[dim]; i = next_shown(st, i, type->shape[dim]))
        visit(st, dim + 1, at * type->shape[dim] + i, see, out);
}

static void see_magnitude(style *st, const char *element)
{
    double value = trii_element_double(st->type->dtype, element);
    double magnitude = fabs(value);

    if (!isfinite(value) || value == 0)
        return;
    st->least = fmin(st->least, magnitude);
    st->most = fmax(st->most, magnitude);
    st->whole = st->whole && value == ceil(value);
}

static void see_width(style *st, const char *element)
{
    double value = st->floating ? trii_element_double(st->type->dtype, element) : 1;
    char text[NUMBER_TEXT];
    int width;

    if (!isfinite(value) || value == 0)
        return;
    number_text(st, element, text);
    width = (int)strlen(text);
    st->width = width > st->width ? width : st->width;
}

static void choose_style(style *st)
{
    st->floating = trii_dtype_is_float(st->type->dtype);
    st->summary = trii_type_numel(st->type) > SUMMARY_FROM;
    st->width = 1;
    if (st->floating) {
        st->whole = true;
        st->least = HUGE_VAL;
        visit(st, 0, 0, see_magnitude, st);
        st->exponent = st->most > 0 && (st->most / st->least > 1000 || st->most > 1e8 ||
                                        (!st->whole && st->least < 1e-4));
    }
    visit(st, 0, 0, see_width, st);
}

/* --- brackets ------------------------------------------------------------- */

/* Before item `k` of a row: a comma, and a new line if the line is full. */
static void put_between(sink *s, int64_t k, int per_line, int indent)
{
    if (k == 0)
        return;
    if (k % per_line == 0)
        put(s, ",\n%*s", indent, "");
    else
        put(s, ", ");
}

static void put_row(sink *s, const style *st, int64_t at, int indent)
{
    int64_t n = st->type->shape[st->type->ndim - 1], k = 0;
    int per_line = (LINE_COLUMNS - indent) / (st->width + 2);
    char text[NUMBER_TEXT];

    per_line = per_line > 0 ? per_line : 1;
    put(s, "[");
    for (int64_t i = 0, next; i < n; i = next) {
        next = next_shown(st, i, n);
        number_text(st, st->data + (size_t)(at + i) * tri_dtype_size(st->type->dtype), text);
        put_between(s, k++, per_line, indent + 1);
        put(s, "%*s", st->width, text);
        if (next > i + 1 && next < n) {
            put_between(s, k++, per_line, indent + 1);
            put(s, " ...");
        }
    }
    put(s, "]");
}

/* A comma, and n new lines. */
static void put_break(sink *s, int n, int indent)
{
    if (n == 0)
        return;
    put(s, ",");
    for (; n > 0; n--)
        put(s, "\n");
    put(s, "%*s", indent, "");
}

static void put_block(sink *s, const style *st, int dim, int64_t at, int indent)
{
    const trii_type *type = st->type;
    int rest = type->ndim - dim;
    char text[NUMBER_TEXT];

    if (rest == 0) {
        number_text(st, st->data, text);
        put(s, "%*s", st->width, text);
        return;
    }
    if (rest == 1) {
        put_row(s, st, at * type->shape[dim], indent);
        return;
    }
    put(s, "[");
    for (int64_t i = 0, n = type->shape[dim], next; i < n; i = next) {
        next = next_shown(st, i, n);
        put_block(s, st, dim + 1, at * n + i, indent + 1);
        put_break(s, next < n ? rest - 1 : 0, indent + 1);
        if (next > i + 1 && next < n) {
            put(s, "...");
            put_break(s, rest - 1, indent + 1);
        }
    }
    put(s, "]");
}

/* --- the whole ------------------------------------------------------------ */

typedef struct job {
    sink *s;
    bool requires_grad;
    const char *made_by; /* operation; NULL = a leaf */
} job;

static const char *sizes_text(const trii_type *type, char text[TRII_TYPE_TEXT])
{
    int n = snprintf(text, TRII_TYPE_TEXT, "(");

    for (int d = 0; d < type->ndim && n < TRII_TYPE_TEXT; d++)
        n += snprintf(text + n, (size_t)(TRII_TYPE_TEXT - n), "%s%" PRId64, d > 0 ? ", " : "",
                      type->shape[d]);
    if (n < TRII_TYPE_TEXT)
        snprintf(text + n, (size_t)(TRII_TYPE_TEXT - n), ")");
    return text;
}

/* A fact after the numbers, on a line of its own if the last has no room for it. */
static void put_fact(sink *s, const char *name, const char *value)
{
    int length = (int)(strlen(name) + strlen(value));

    /* torch counts two columns too many in the first line of facts */
    if (s->column + 2 + length + 2 > LINE_COLUMNS)
        put(s, ",\n%*s%s%s", (int)strlen(PREFIX), "", name, value);
    else
        put(s, ", %s%s", name, value);
}

static void put_tensor(void *arg, const trii_type *type, const void *data)
{
    const job *j = arg;
    style st = {.type = type, .data = data};
    tri_dtype dtype = type->dtype;
    bool empty = trii_type_numel(type) == 0;
    char text[TRII_TYPE_TEXT];

    put(j->s, PREFIX);
    if (empty) {
        put(j->s, "[]");
    } else {
        choose_style(&st);
        put_block(j->s, &st, 0, 0, (int)strlen(PREFIX));
    }
    if (empty && type->ndim != 1)
        put_fact(j->s, "size=", sizes_text(type, text));
    /* integers and truth values need no dtype after them */
    if (dtype != TRI_DTYPE_F32 && (empty || (dtype != TRI_DTYPE_I64 && dtype != TRI_DTYPE_BOOL)))
        put_fact(j->s, "dtype=", tri_dtype_name(dtype));
    if (j->requires_grad && j->made_by != NULL) {
        snprintf(text, sizeof(text), "<%s>", j->made_by);
        put_fact(j->s, "grad_fn=", text);
    } else if (j->requires_grad) {
        put_fact(j->s, "requires_grad=", "True");
    }
    put(j->s, ")");
}

/* Of a tensor that is divided over ranks each prints what it has. */
static void put_whole(sink *s, const tri_tensor *x)
{
    const trii_held *held = x->held;
    int64_t first = held->shared_by != NULL ? held->from : held->piece.offset[0];
    int64_t count = tri_tensor_numel(held->tensor);
    char text[TRII_TYPE_TEXT];
    trii_type type;

    trii_type_of_tensor(x, &type);
    put(s, "%s, of which this rank has ", trii_type_text(&type, text));
    if (count > 0)
        put(s, "elements %" PRId64 " to %" PRId64, first, first + count - 1);
    else
        put(s, "none");
    put(s, " (tri_unshard_begin makes it whole): ");
}

static void put_any(sink *s, tri_tensor *x, const char *call)
{
    job j = {.s = s};
    tri_status status;

    if (x != NULL && !trii_is_handle(x) && x->elsewhere != NULL && x->held != NULL) {
        put_whole(s, x);
        x = x->held->tensor;
    }
    trii_contents_origin(x, &j.requires_grad, &j.made_by);
    status = trii_contents_visit(x, put_tensor, &j);
    if (status != TRI_OK) {
        (void)trii_contents_fail(status, call);
        put(s, "tensor(failed: %s)", tri_last_error());
    }
}

void tri_tensor_print(tri_tensor *x, FILE *file)
{
    sink s = {.file = file != NULL ? file : stderr};

    put_any(&s, x, "tri_tensor_print");
    put(&s, "\n");
}

size_t tri_tensor_text(tri_tensor *x, char *text, size_t bytes)
{
    sink s = {.text = text, .room = text != NULL ? bytes : 0};

    if (s.room > 0)
        text[0] = '\0';
    put_any(&s, x, "tri_tensor_text");
    return s.used;
}
