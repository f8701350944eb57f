/*
 * csv.c - metrics as a table.
 *
 * A record is one write, which leaves nothing of itself if it fails. A new column rewrites the file
 * under another name, with an empty cell more in each of the records before, so that the table is
 * one at any moment. In a file of another program lines may end in CRLF, and cells have quotes:
 * they stay as they are.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <trireme/records.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/utf8.h"
#include "os/descriptor.h"
#include "os/file.h"
#include "os/folder.h"
#include "train/records/csv_read.h"
#include "train/records/metrics.h"

#define CELL_BYTES 32 /* of a number, with its comma */
#define MAX_COLUMNS 100000

struct tri_csv {
    char *path;
    int fd; /* -1: to be opened for the next record */
    char **columns;
    int n, room;
};

/* --- the file, written again ---------------------------------------------- */

static bool needs_quotes(const char *text)
{
    return strpbrk(text, ",\"\r\n") != NULL || *text == ' ' || *text == '\0' ||
           text[strlen(text) - 1] == ' ';
}

static tri_status put_name(trii_writer *writer, const char *name)
{
    tri_status status;

    if (!needs_quotes(name))
        return trii_writer_put(writer, name, strlen(name));
    status = trii_writer_put(writer, "\"", 1);
    for (const char *at = name; *at != '\0' && status == TRI_OK; at++) {
        status = trii_writer_put(writer, at, 1);
        if (status == TRI_OK && *at == '"')
            status = trii_writer_put(writer, at, 1);
    }
    return status == TRI_OK ? trii_writer_put(writer, "\"", 1) : status;
}

static tri_status put_header(trii_writer *writer, const tri_csv *csv)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < csv->n && status == TRI_OK; i++) {
        if (i > 0)
            status = trii_writer_put(writer, ",", 1);
        if (status == TRI_OK)
            status = put_name(writer, csv->columns[i]);
    }
    return status == TRI_OK && csv->n > 0 ? trii_writer_put(writer, "\n", 1) : status;
}

static int count_cells(trii_csv_record record)
{
    int n = 0;

    while (record.start != NULL) {
        trii_csv_cell(&record, NULL, 0);
        n++;
    }
    return n;
}

/* Whether the record's step is there and not above keep_steps; column: of "step", -1 = none. */
static bool is_kept(trii_csv_record record, int column, int64_t keep_steps)
{
    char cell[64] = "";
    double step;

    if (column < 0)
        return false;
    for (int i = 0; i <= column && record.start != NULL; i++) {
        if (trii_csv_cell(&record, cell, sizeof(cell)) >= sizeof(cell))
            cell[0] = '\0';
        if (i == column)
            return trii_csv_number(cell, &step) && step <= (double)keep_steps;
    }
    return false;
}

static int find_column(const tri_csv *csv, const char *name)
{
    for (int i = 0; i < csv->n; i++) {
        if (strcmp(csv->columns[i], name) == 0)
            return i;
    }
    return -1;
}

/* A mark before the first name would be a part of it. */
static const char *begin_of(const trii_mapping *old)
{
    const char *text = old->data;

    return old->bytes > 0 ? text + trii_utf8_mark(text, old->bytes) : text;
}

/* Of the old file what is kept, a cell for each column; its header is passed over. */
static tri_status copy_records(const trii_mapping *old, const tri_csv *csv, int64_t keep_steps,
                               trii_writer *writer)
{
    const char *at = begin_of(old), *end = (const char *)old->data + old->bytes;
    const int column = find_column(csv, "step");
    trii_csv_record record;
    tri_status status = TRI_OK;

    if (!trii_csv_next(&at, end, &record))
        return TRI_OK;
    while (status == TRI_OK && trii_csv_next(&at, end, &record)) {
        if (keep_steps != INT64_MAX && !is_kept(record, column, keep_steps))
            continue;
        status = trii_writer_put(writer, record.start, (size_t)(record.end - record.start));
        for (int n = count_cells(record); n < csv->n && status == TRI_OK; n++)
            status = trii_writer_put(writer, ",", 1);
        if (status == TRI_OK)
            status = trii_writer_put(writer, "\n", 1);
    }
    return status;
}

/* With the columns that are known now. keep_steps: < 0 nothing, INT64_MAX everything. */
static tri_status rewrite(tri_csv *csv, const trii_mapping *old, int64_t keep_steps)
{
    trii_writer writer;
    tri_status status = trii_writer_open(csv->path, &writer);

    if (status != TRI_OK)
        return status;
    status = put_header(&writer, csv);
    if (status == TRI_OK && keep_steps >= 0)
        status = copy_records(old, csv, keep_steps, &writer);
    if (status == TRI_OK)
        return trii_writer_publish(&writer);
    trii_writer_abort(&writer);
    return status;
}

/* --- opening -------------------------------------------------------------- */

static tri_status add_column(tri_csv *csv, const char *name)
{
    tri_status status =
        trii_array_grow(&csv->columns, &csv->room, csv->n, 16, sizeof(*csv->columns), "columns");

    if (status != TRI_OK)
        return status;
    csv->columns[csv->n] = trii_strdup(name, "column");
    if (csv->columns[csv->n] == NULL)
        return TRI_ERR_NO_MEMORY;
    csv->n++;
    return TRI_OK;
}

static tri_status read_header(tri_csv *csv, const trii_mapping *old)
{
    const char *at = begin_of(old), *end = (const char *)old->data + old->bytes;
    trii_csv_record record;
    tri_status status = TRI_OK;

    if (!trii_csv_next(&at, end, &record))
        return TRI_OK;
    while (record.start != NULL && status == TRI_OK) {
        trii_csv_record probe = record;
        size_t bytes = trii_csv_cell(&probe, NULL, 0) + 1;
        char *name = trii_alloc(bytes, 1, "column");

        if (name == NULL)
            return TRI_ERR_NO_MEMORY;
        trii_csv_cell(&record, name, bytes);
        status = csv->n < MAX_COLUMNS
                     ? add_column(csv, name)
                     : TRII_FAIL(TRI_ERR_FORMAT, "%s: more than %d columns: is it a CSV file?",
                                 csv->path, MAX_COLUMNS);
        trii_free(name);
    }
    return status;
}

/* What a run that goes on finds, or an empty file. */
static tri_status begin(tri_csv *csv, int64_t keep_steps)
{
    trii_mapping old = {0};
    tri_status status = TRI_OK;

    if (keep_steps >= 0) {
        status = trii_mapping_open(csv->path, &old);
        if (status == TRI_ERR_NOT_FOUND) {
            keep_steps = -1;
            status = TRI_OK;
        } else if (status == TRI_OK) {
            status = read_header(csv, &old);
        }
    }
    if (status == TRI_OK)
        status = rewrite(csv, &old, keep_steps);
    trii_mapping_close(&old);
    return status;
}

tri_status tri_csv_open(const char *path, int64_t keep_steps, tri_csv **csv_out)
{
    tri_status status = trii_need_text(path, "tri_csv_open", "path");
    tri_csv *csv;

    if (status == TRI_OK)
        status = trii_need(csv_out, "tri_csv_open", "csv_out");
    if (status != TRI_OK)
        return status;
    csv = trii_alloc(1, sizeof(*csv), "csv");
    if (csv == NULL)
        return TRI_ERR_NO_MEMORY;
    csv->fd = -1;
    csv->path = trii_strdup(path, "path");
    status = csv->path != NULL ? trii_folder_create_above(path) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = begin(csv, keep_steps);
    if (status != TRI_OK) {
        tri_csv_close(csv);
        return status;
    }
    *csv_out = csv;
    return TRI_OK;
}

void tri_csv_close(tri_csv *csv)
{
    if (csv == NULL)
        return;
    trii_fd_close(csv->fd);
    for (int i = 0; i < csv->n; i++)
        trii_free(csv->columns[i]);
    trii_free(csv->columns);
    trii_free(csv->path);
    trii_free(csv);
}

/* --- records -------------------------------------------------------------- */

static tri_status check_key(const tri_csv *csv, const tri_metric *values, int index)
{
    const char *key = values[index].key;
    bool good = key != NULL && *key != '\0';

    for (const char *at = key; good && *at != '\0';) {
        size_t n = trii_utf8_character(at);

        good = n > 0 && (unsigned char)*at >= ' ' && *at != 0x7f;
        at += n;
    }
    for (int i = 0; i < index && good; i++)
        good = strcmp(values[i].key, key) != 0;
    return good ? TRI_OK
                : TRII_FAIL(TRI_ERR_INVALID_ARG,
                            "%s: metric %d has key \"%s\": keys are UTF-8 without control "
                            "characters, each once",
                            csv->path, index + 1, key != NULL ? key : "(NULL)");
}

/* Columns for all keys, in the file too; what is new goes again if the file cannot be written. */
static tri_status make_columns(tri_csv *csv, const tri_metric *values, int n)
{
    const int before = csv->n;
    trii_mapping old = {0};
    tri_status status = TRI_OK;

    for (int i = 0; i < n && status == TRI_OK; i++) {
        if (find_column(csv, values[i].key) < 0)
            status = add_column(csv, values[i].key);
    }
    if (status == TRI_OK && csv->n == before)
        return TRI_OK;
    if (status == TRI_OK)
        status = trii_mapping_open(csv->path, &old);
    if (status == TRI_OK)
        status = rewrite(csv, &old, INT64_MAX);
    trii_mapping_close(&old);
    if (status != TRI_OK) {
        while (csv->n > before)
            trii_free(csv->columns[--csv->n]);
        return status;
    }
    trii_fd_close(csv->fd); /* of the file that was replaced */
    csv->fd = -1;
    return TRI_OK;
}

static size_t format_cell(double value, char *out, size_t bytes)
{
    if (isfinite(value))
        return (size_t)trii_format_metric(value, out, bytes);
    return (size_t)snprintf(out, bytes, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

tri_status tri_csv_write(tri_csv *csv, const tri_metric *values, int n)
{
    tri_status status = trii_need(csv, "tri_csv_write", "csv");
    size_t at = 0;
    char *record;

    if (status == TRI_OK && n > 0)
        status = trii_need(values, "tri_csv_write", "values");
    if (status == TRI_OK && n < 1)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: a record without metrics: n is %d", csv->path, n);
    for (int i = 0; i < n && status == TRI_OK; i++)
        status = check_key(csv, values, i);
    if (status == TRI_OK)
        status = make_columns(csv, values, n);
    if (status == TRI_OK && csv->fd < 0)
        status = trii_append_open(csv->path, &csv->fd);
    if (status != TRI_OK)
        return status;
    record = trii_alloc((size_t)csv->n, CELL_BYTES, "record");
    if (record == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int c = 0; c < csv->n; c++) {
        for (int i = 0; i < n; i++) {
            if (strcmp(values[i].key, csv->columns[c]) == 0)
                at += format_cell(values[i].value, record + at, CELL_BYTES);
        }
        record[at++] = c + 1 < csv->n ? ',' : '\n';
    }
    status = trii_append_whole(csv->fd, csv->path, record, at);
    trii_free(record);
    return status;
}
