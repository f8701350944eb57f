/*
 * plot_table.c - CSV files as series of points: the first record has the keys.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "plot_read.h"
#include "train/records/csv_read.h"

typedef struct table {
    const char *path;
    char **keys;
    int n, room;
    int x; /* the column under the x axis; -1 = none */
    double *row;
    bool *has;
} table;

static tri_status read_keys(table *t, trii_csv_record record, const char *x_key)
{
    tri_status status = TRI_OK;

    t->x = -1;
    while (record.start != NULL && status == TRI_OK) {
        trii_csv_record probe = record;
        size_t bytes = trii_csv_cell(&probe, NULL, 0) + 1;

        status = trii_array_grow(&t->keys, &t->room, t->n, 16, sizeof(*t->keys), "keys");
        if (status != TRI_OK)
            break;
        t->keys[t->n] = trii_alloc(bytes, 1, "key");
        if (t->keys[t->n] == NULL)
            return TRI_ERR_NO_MEMORY;
        trii_csv_cell(&record, t->keys[t->n], bytes);
        if (strcmp(t->keys[t->n], x_key) == 0 && t->x < 0)
            t->x = t->n;
        t->n++;
    }
    if (status != TRI_OK)
        return status;
    t->row = trii_alloc((size_t)t->n, sizeof(*t->row), "row");
    t->has = trii_alloc((size_t)t->n, sizeof(*t->has), "row");
    return t->row != NULL && t->has != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

static tri_status add_row(table *t, trii_csv_record record, int line, plot_data *data)
{
    tri_status status = TRI_OK;
    char cell[64];

    memset(t->has, 0, (size_t)t->n * sizeof(*t->has));
    for (int i = 0; record.start != NULL; i++) {
        size_t bytes = trii_csv_cell(&record, cell, sizeof(cell));

        if (i == t->n)
            return TRII_FAIL(TRI_ERR_FORMAT, "%s, line %d: more cells than the %d names in line 1",
                             t->path, line, t->n);
        t->has[i] = bytes < sizeof(cell) && trii_csv_number(cell, &t->row[i]);
    }
    if (t->x < 0 || !t->has[t->x])
        return TRI_OK;
    for (int i = 0; i < t->n && status == TRI_OK; i++) {
        if (t->has[i] && i != t->x)
            status = plot_add(data, t->keys[i], t->row[t->x], t->row[i]);
    }
    return status;
}

static int lines_of(const char *from, const char *to)
{
    int n = 0;

    for (; from < to; from++)
        n += *from == '\n';
    return n;
}

tri_status plot_read_table(const char *path, const char *text, size_t bytes, const char *x_key,
                           plot_data *data)
{
    const char *at = text, *end = text + bytes;
    table t = {.path = path};
    trii_csv_record record;
    tri_status status = TRI_OK;
    int line = 1;

    while (status == TRI_OK && trii_csv_next(&at, end, &record)) {
        status = line == 1 ? read_keys(&t, record, x_key) : add_row(&t, record, line, data);
        line += lines_of(record.start, at);
    }
    /* the rest is cut short, unless it has lines */
    if (status == TRI_OK && at < end && end[-1] == '\n')
        status = TRII_FAIL(TRI_ERR_FORMAT,
                           "%s, line %d: a cell that begins with a quote has no end", path, line);
    for (int i = 0; i < t.n; i++)
        trii_free(t.keys[i]);
    trii_free(t.keys);
    trii_free(t.row);
    trii_free(t.has);
    return status;
}
