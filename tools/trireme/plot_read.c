/*
 * plot_read.c - see plot_read.h.
 */
#include "plot_read.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/utf8.h"
#include "os/file.h"
#include "os/folder.h"
#include "tool_json.h"

#define ANY_NUMBER JSON_DECODE_INT_AS_REAL /* one beyond 64 bits is no error then */
#define MAX_VALUE 1e300
#define MIN_VALUE 1e-300

static tri_status find_series(plot_data *data, const char *key, plot_series **series_out)
{
    plot_series *s;

    for (int i = data->n - 1; i >= 0; i--) {
        s = &data->series[i];
        if (s->file == data->n_files && strcmp(s->key, key) == 0) {
            *series_out = s;
            return TRI_OK;
        }
    }
    if (trii_array_grow(&data->series, &data->room, data->n, 16, sizeof(*s), "series") != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    s = &data->series[data->n];
    *s = (plot_series){.file = data->n_files, .key = trii_strdup(key, "series")};
    if (s->key == NULL)
        return TRI_ERR_NO_MEMORY;
    data->n++;
    *series_out = s;
    return TRI_OK;
}

/* Those of no picture are left out. */
static tri_status add_point(plot_series *s, double x, double y)
{
    if (!(fabs(x) <= MAX_VALUE && fabs(y) <= MAX_VALUE))
        return TRI_OK;
    if (trii_array_grow(&s->points, &s->room, s->n, 256, sizeof(*s->points), "points") != TRI_OK)
        return TRI_ERR_NO_MEMORY;
    s->points[s->n++] = (plot_point){fabs(x) < MIN_VALUE ? 0 : x, fabs(y) < MIN_VALUE ? 0 : y};
    return TRI_OK;
}

tri_status plot_add(plot_data *data, const char *key, double x, double y)
{
    plot_series *series;
    tri_status status = find_series(data, key, &series);

    return status == TRI_OK ? add_point(series, x, y) : status;
}

void plot_drop_from(plot_data *data, double x)
{
    for (int i = 0; i < data->n; i++) {
        plot_series *s = &data->series[i];
        int kept = 0;

        if (s->file != data->n_files)
            continue;
        for (int k = 0; k < s->n; k++) {
            if (s->points[k].x < x)
                s->points[kept++] = s->points[k];
        }
        s->n = kept;
    }
}

/* --- JSON lines ----------------------------------------------------------- */

static tri_status add_record(plot_data *data, const char *x_key, json_t *record)
{
    const json_t *x = json_object_get(record, x_key);
    tri_status status = TRI_OK;
    const char *key;
    json_t *value;

    if (!json_is_number(x) || !(fabs(json_number_value(x)) <= MAX_VALUE))
        return TRI_OK;
    json_object_foreach(record, key, value)
    {
        if (!json_is_number(value) || strcmp(key, x_key) == 0 ||
            !(fabs(json_number_value(value)) <= MAX_VALUE))
            continue;
        status = plot_add(data, key, json_number_value(x), json_number_value(value));
        if (status != TRI_OK)
            break;
    }
    return status;
}

/* What is no JSON but common in such files: NaN, Infinity and -Infinity, each of which is left out
 * as null is. The copy is as long as the line at most, but for NaN: 4 bytes for 3. */
static char *without_nan(const char *line, size_t bytes)
{
    static const char *const words[] = {"NaN", "-Infinity", "Infinity"};
    char *copy = trii_alloc(bytes + bytes / 3 + 2, 1, "line");
    bool in_text = false;
    size_t n = 0;

    for (size_t i = 0; copy != NULL && i < bytes;) {
        size_t word = 0;

        for (size_t w = 0; !in_text && word == 0 && w < TRII_COUNT_OF(words); w++) {
            size_t length = strlen(words[w]);

            if (length <= bytes - i && memcmp(line + i, words[w], length) == 0)
                word = length;
        }
        if (word > 0) {
            memcpy(copy + n, "null", 4);
            n += 4;
            i += word;
            continue;
        }
        if (line[i] == '\\' && in_text && i + 1 < bytes)
            copy[n++] = line[i++];
        else if (line[i] == '"')
            in_text = !in_text;
        copy[n++] = line[i++];
    }
    return copy;
}

static json_t *read_record(const char *line, size_t bytes)
{
    json_t *record = json_loadb(line, bytes, ANY_NUMBER, NULL);
    char *clean = record == NULL ? without_nan(line, bytes) : NULL;

    if (clean != NULL)
        record = json_loads(clean, ANY_NUMBER, NULL);
    trii_free(clean);
    return record;
}

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    }
    return true;
}

static tri_status read_lines(const char *path, const char *text, size_t n, const char *x_key,
                             plot_data *data)
{
    const char *at = text, *end = text + n;

    for (int line = 1; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((newline != NULL ? newline : end) - at);
        bool blank = is_blank(at, bytes);
        json_t *record = blank ? NULL : read_record(at, bytes);
        tri_status status;

        if (record == NULL && newline == NULL)
            return TRI_OK; /* cut short: the run goes on, or was killed */
        if (!blank && !json_is_object(record)) {
            json_decref(record);
            return TRII_FAIL(TRI_ERR_FORMAT, "%s, line %d: not a JSON object", path, line);
        }
        status = blank ? TRI_OK : add_record(data, x_key, record);
        json_decref(record);
        if (status != TRI_OK)
            return status;
        at += bytes + 1;
    }
    return TRI_OK;
}

/* --- files of any kind ---------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcasecmp(text + n - m, end) == 0;
}

static tri_status read_file(const char *path, const char *x_key, plot_data *data)
{
    trii_mapping map;
    tri_status status = trii_mapping_open(path, &map);
    const char *text;
    size_t mark;

    if (status != TRI_OK)
        return status;
    text = map.data;
    mark = map.bytes > 0 ? trii_utf8_mark(text, map.bytes) : 0;
    if (ends_with(path, ".csv"))
        status = plot_read_table(path, text + mark, map.bytes - mark, x_key, data);
    else if (plot_has_events(path, map.data, map.bytes))
        status = plot_read_events(path, map.data, map.bytes, x_key, data);
    else
        status = read_lines(path, text + mark, map.bytes - mark, x_key, data);
    trii_mapping_close(&map);
    return status;
}

/* Event files in the order of their names, each of which goes on with the run of those before. */
static tri_status read_folder(const char *folder, const char *x_key, plot_data *data)
{
    enum { MOST = 100000 };
    char path[PATH_MAX], **names = NULL;
    int n = 0, found = 0;
    tri_status status = trii_folder_list(folder, MOST, &names, &n);

    for (int i = 0; i < n && status == TRI_OK; i++) {
        if (strstr(names[i], "tfevents") == NULL)
            continue;
        found++;
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        status = read_file(path, x_key, data);
    }
    trii_folder_free_names(names, n);
    if (status == TRI_OK && found == 0)
        status = TRII_FAIL(TRI_ERR_NOT_FOUND,
                           "%s: no event file (*tfevents*) lies in this folder: name a file of "
                           "another kind itself",
                           folder);
    return status;
}

tri_status plot_read(const char *path, const char *x_key, plot_data *data)
{
    bool folder;
    tri_status status = trii_path_leads_to_folder(path, &folder);

    if (status == TRI_OK)
        status = folder ? read_folder(path, x_key, data) : read_file(path, x_key, data);
    if (status == TRI_OK)
        data->n_files++;
    return status;
}

void plot_data_fini(plot_data *data)
{
    for (int i = 0; i < data->n; i++) {
        trii_free(data->series[i].key);
        trii_free(data->series[i].points);
    }
    trii_free(data->series);
    *data = (plot_data){0};
}
