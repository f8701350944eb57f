/*
 * event_encode.c - see event_encode.h.
 */
#include "train/records/event_encode.h"

#include <string.h>

#define EVENT_WALL_TIME 1
#define EVENT_STEP 2
#define EVENT_FILE_VERSION 3
#define EVENT_SUMMARY 5
#define EVENT_SESSION_LOG 7

#define VALUE_TAG 1
#define VALUE_SIMPLE 2
#define VALUE_IMAGE 4
#define VALUE_HISTO 5
#define VALUE_TENSOR 8
#define VALUE_METADATA 9

static void put_moment(trii_proto *out, double wall_time, int64_t step)
{
    trii_proto_double(out, EVENT_WALL_TIME, wall_time);
    trii_proto_int(out, EVENT_STEP, step);
}

void trii_event_version(trii_proto *out, double wall_time)
{
    put_moment(out, wall_time, 0);
    trii_proto_text(out, EVENT_FILE_VERSION, TRII_EVENT_VERSION);
}

void trii_event_start(trii_proto *out, double wall_time, int64_t step)
{
    size_t log;

    put_moment(out, wall_time, step);
    log = trii_proto_begin(out, EVENT_SESSION_LOG);
    trii_proto_int(out, 1, 1);
    trii_proto_end(out, log);
}

/* An event with one value: what is within it comes between begin and end. */
typedef struct summary {
    size_t summary, value;
} summary;

static summary begin_value(trii_proto *out, const trii_event_place *place)
{
    summary s;

    put_moment(out, place->wall_time, place->step);
    s.summary = trii_proto_begin(out, EVENT_SUMMARY);
    s.value = trii_proto_begin(out, 1);
    trii_proto_text(out, VALUE_TAG, place->tag);
    return s;
}

static void end_value(trii_proto *out, summary s)
{
    trii_proto_end(out, s.value);
    trii_proto_end(out, s.summary);
}

void trii_event_scalar(trii_proto *out, const trii_event_place *place, float value)
{
    summary s = begin_value(out, place);

    trii_proto_float(out, VALUE_SIMPLE, value);
    end_value(out, s);
}

void trii_event_histogram(trii_proto *out, const trii_event_place *place, const trii_histogram *h)
{
    summary s = begin_value(out, place);
    size_t histo = trii_proto_begin(out, VALUE_HISTO);

    trii_proto_double(out, 1, h->min);
    trii_proto_double(out, 2, h->max);
    trii_proto_double(out, 3, (double)h->n);
    trii_proto_double(out, 4, h->sum);
    trii_proto_double(out, 5, h->sum_squares);
    trii_proto_doubles(out, 6, h->limits + h->first, (size_t)h->buckets);
    trii_proto_doubles(out, 7, h->counts + h->first, (size_t)h->buckets);
    trii_proto_end(out, histo);
    end_value(out, s);
}

void trii_event_image(trii_proto *out, const trii_event_place *place, const trii_event_png *png)
{
    summary s = begin_value(out, place);
    size_t image = trii_proto_begin(out, VALUE_IMAGE);

    trii_proto_int(out, 1, png->height);
    trii_proto_int(out, 2, png->width);
    trii_proto_int(out, 3, png->channels);
    trii_proto_bytes(out, 4, png->file, png->bytes);
    trii_proto_end(out, image);
    end_value(out, s);
}

/* For the plug-in of that name; content: a message of its own, or nothing. */
static size_t begin_content(trii_proto *out, const char *plugin, size_t *metadata_out,
                            size_t *data_out)
{
    *metadata_out = trii_proto_begin(out, VALUE_METADATA);
    *data_out = trii_proto_begin(out, 1);
    trii_proto_text(out, 1, plugin);
    return trii_proto_begin(out, 2);
}

static void end_content(trii_proto *out, size_t metadata, size_t data, size_t content)
{
    trii_proto_end(out, content);
    trii_proto_end(out, data);
    trii_proto_end(out, metadata);
}

void trii_event_text(trii_proto *out, const trii_event_place *place, const char *text)
{
    enum { STRING = 7 };
    size_t metadata, data, content, tensor, shape, dim;
    summary s = begin_value(out, place);

    tensor = trii_proto_begin(out, VALUE_TENSOR);
    trii_proto_int(out, 1, STRING);
    shape = trii_proto_begin(out, 2);
    dim = trii_proto_begin(out, 2);
    trii_proto_int(out, 1, 1);
    trii_proto_end(out, dim);
    trii_proto_end(out, shape);
    trii_proto_text(out, 8, text);
    trii_proto_end(out, tensor);
    content = begin_content(out, "text", &metadata, &data);
    end_content(out, metadata, data, content);
    end_value(out, s);
}

/* --- the table of runs ---------------------------------------------------- */

#define CONTENT_EXPERIMENT 2
#define CONTENT_SESSION_START 3
#define CONTENT_SESSION_END 4

void trii_event_experiment(trii_proto *out, double wall_time, const tri_hparam *hparams,
                           int n_hparams, const tri_metric *metrics, int n_metrics)
{
    enum { STRING = 1, FLOAT64 = 3 };
    const trii_event_place place = {.wall_time = wall_time, .tag = "_hparams_/experiment"};
    size_t metadata, data, content, experiment;
    summary s = begin_value(out, &place);

    content = begin_content(out, "hparams", &metadata, &data);
    experiment = trii_proto_begin(out, CONTENT_EXPERIMENT);
    for (int i = 0; i < n_hparams; i++) {
        size_t info = trii_proto_begin(out, 4);

        trii_proto_text(out, 1, hparams[i].name);
        trii_proto_int(out, 4, hparams[i].text != NULL ? STRING : FLOAT64);
        trii_proto_end(out, info);
    }
    for (int i = 0; i < n_metrics; i++) {
        size_t info = trii_proto_begin(out, 5), name = trii_proto_begin(out, 1);

        trii_proto_text(out, 2, metrics[i].key);
        trii_proto_end(out, name);
        trii_proto_end(out, info);
    }
    trii_proto_end(out, experiment);
    end_content(out, metadata, data, content);
    end_value(out, s);
}

void trii_event_session_start(trii_proto *out, double wall_time, const tri_hparam *hparams, int n)
{
    const trii_event_place place = {.wall_time = wall_time, .tag = "_hparams_/session_start_info"};
    size_t metadata, data, content, start;
    summary s = begin_value(out, &place);

    content = begin_content(out, "hparams", &metadata, &data);
    start = trii_proto_begin(out, CONTENT_SESSION_START);
    for (int i = 0; i < n; i++) {
        size_t entry = trii_proto_begin(out, 1), value;

        trii_proto_text(out, 1, hparams[i].name);
        value = trii_proto_begin(out, 2);
        if (hparams[i].text != NULL)
            trii_proto_text(out, 3, hparams[i].text);
        else
            trii_proto_double(out, 2, hparams[i].value);
        trii_proto_end(out, value);
        trii_proto_end(out, entry);
    }
    trii_proto_end(out, start);
    end_content(out, metadata, data, content);
    end_value(out, s);
}

void trii_event_session_end(trii_proto *out, double wall_time)
{
    enum { SUCCESS = 1 };
    const trii_event_place place = {.wall_time = wall_time, .tag = "_hparams_/session_end_info"};
    size_t metadata, data, content, end;
    summary s = begin_value(out, &place);

    content = begin_content(out, "hparams", &metadata, &data);
    end = trii_proto_begin(out, CONTENT_SESSION_END);
    trii_proto_int(out, 1, SUCCESS);
    trii_proto_end(out, end);
    end_content(out, metadata, data, content);
    end_value(out, s);
}
