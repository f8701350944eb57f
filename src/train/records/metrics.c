/*
 * metrics.c - metrics as JSON lines.
 *
 * A record is one write, which leaves nothing of itself if it fails, so a killed run leaves
 * complete lines, except perhaps the last. Opening the file to continue drops what cannot be read
 * and what comes after the step to continue from.
 */
#include "train/records/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include <trireme/records.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/descriptor.h"
#include "os/file.h"
#include "os/folder.h"

#define RECORD_BYTES 16384 /* more than all that a fit logs, under its longest names */

struct tri_metrics {
    char *path;
    int fd;
};

/* Whether a line is a record of "step" <= keep_steps. */
static bool is_kept(const char *line, size_t bytes, int64_t keep_steps)
{
    json_t *record = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
    const json_t *step = json_object_get(record, "step");
    bool kept = json_is_integer(step) && json_integer_value(step) <= keep_steps;

    json_decref(record);
    return kept;
}

static tri_status copy_kept(const trii_mapping *old, int64_t keep_steps, trii_writer *writer)
{
    const char *at = old->data, *end = at + old->bytes;
    tri_status status = TRI_OK;

    while (at < end && status == TRI_OK) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));

        if (newline == NULL)
            break; /* cut short */
        if (is_kept(at, (size_t)(newline - at), keep_steps))
            status = trii_writer_put(writer, at, (size_t)(newline + 1 - at));
        at = newline + 1;
    }
    return status;
}

/* The file anew, with what is kept of the old one. */
static tri_status rewrite(const char *path, int64_t keep_steps)
{
    trii_mapping old = {0};
    trii_writer writer;
    tri_status status = trii_writer_open(path, &writer);

    if (status != TRI_OK)
        return status;
    if (keep_steps >= 0) {
        status = trii_mapping_open(path, &old);
        if (status == TRI_OK)
            status = copy_kept(&old, keep_steps, &writer);
        else if (status == TRI_ERR_NOT_FOUND)
            status = TRI_OK;
        trii_mapping_close(&old);
    }
    if (status == TRI_OK)
        return trii_writer_commit(&writer);
    trii_writer_abort(&writer);
    return status;
}

tri_status tri_metrics_open(const char *path, int64_t keep_steps, tri_metrics **metrics_out)
{
    tri_status status = trii_need_text(path, "tri_metrics_open", "path");
    tri_metrics *m;

    if (status == TRI_OK)
        status = trii_need(metrics_out, "tri_metrics_open", "metrics_out");
    if (status != TRI_OK)
        return status;
    m = trii_alloc(1, sizeof(*m), "metrics");
    if (m == NULL)
        return TRI_ERR_NO_MEMORY;
    m->fd = -1;
    m->path = trii_strdup(path, "path");
    status = m->path != NULL ? trii_folder_create_above(path) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK && (!trii_path_exists(path) || trii_path_is_file(path)))
        status = rewrite(path, keep_steps); /* a pipe or /dev/stderr is only written to */
    if (status == TRI_OK)
        status = trii_append_open(path, &m->fd);
    if (status != TRI_OK) {
        tri_metrics_close(m);
        return status;
    }
    *metrics_out = m;
    return TRI_OK;
}

void tri_metrics_close(tri_metrics *metrics)
{
    if (metrics == NULL)
        return;
    trii_fd_close(metrics->fd);
    trii_free(metrics->path);
    trii_free(metrics);
}

int trii_decimal_point(char *text, int length)
{
    int at = (int)strspn(text, "+-0123456789");
    int end = at + (int)strcspn(text + at, "+-0123456789e");

    if (at == end)
        return length;
    text[at] = '.';
    memmove(text + at + 1, text + end, (size_t)(length - end) + 1);
    return length - (end - at - 1);
}

int trii_format_metric(double value, char *out, size_t bytes)
{
    if (value == floor(value) && fabs(value) < 9007199254740992.0)
        return snprintf(out, bytes, "%.0f", value);
    return trii_decimal_point(out, snprintf(out, bytes, "%.9g", value));
}

/* A text that JSON takes as it is, and no other before it has it. */
static bool key_is_good(const tri_metric *values, int index)
{
    const char *key = values[index].key;
    json_t *text = key != NULL && *key != '\0' ? json_string(key) : NULL; /* NULL: no UTF-8 */
    bool good = text != NULL;

    json_decref(text);
    for (const char *at = key; good && *at != '\0'; at++)
        good = (unsigned char)*at >= ' ' && *at != '"' && *at != '\\';
    for (int i = 0; i < index && good; i++)
        good = strcmp(values[i].key, key) != 0;
    return good;
}

tri_status tri_metrics_write(tri_metrics *metrics, const tri_metric *values, int n)
{
    char record[RECORD_BYTES];
    size_t at = 0;
    tri_status status = trii_need(metrics, "tri_metrics_write", "metrics");

    if (status == TRI_OK && n > 0)
        status = trii_need(values, "tri_metrics_write", "values");
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < n; i++) {
        if (!key_is_good(values, i))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: metric %d of %d has key \"%s\": keys are UTF-8 without quotes, "
                             "backslashes and control characters, each once",
                             metrics->path, i + 1, n,
                             values[i].key != NULL ? values[i].key : "(NULL)");
        if (at + strlen(values[i].key) + 48 > sizeof(record))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: a record of more than %d bytes",
                             metrics->path, RECORD_BYTES);
        at += (size_t)snprintf(record + at, sizeof(record) - at, "%s\"%s\":", i == 0 ? "{" : ",",
                               values[i].key);
        at += isfinite(values[i].value)
                  ? (size_t)trii_format_metric(values[i].value, record + at, sizeof(record) - at)
                  : (size_t)snprintf(record + at, sizeof(record) - at, "null");
    }
    if (n < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: a record without metrics: n is %d",
                         metrics->path, n);
    memcpy(record + at, "}\n", 2);
    return trii_append_whole(metrics->fd, metrics->path, record, at + 2);
}
