/*
 * tensorboard.c - event files of TensorBoard: a folder, a file in it, and what goes there.
 *
 * A viewer reads the files of a folder in the order of their names, and does not come back to an
 * older one. So a new file's name must be the last: it begins with the time, and where a clock ran
 * ahead (another host's, or a run that began in this very second) with the second after the last.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <trireme/records.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "base/utf8.h"
#include "train/image/pixels.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/file.h"
#include "os/folder.h"
#include "os/host.h"
#include "os/process.h"
#include "train/records/event_encode.h"
#include "train/records/event_file.h"

#define MAX_FILES 100000 /* of a folder, that are looked at */
#define MAX_WAITING ((size_t)64 << 20)
#define MAX_WAIT_S 10
#define PREFIX "events.out.tfevents."

struct tri_tensorboard {
    char *folder;
    trii_event_file *file;
};

/* --- files ---------------------------------------------------------------- */

/* The second that a new file's name begins with. */
static tri_status next_second(const char *folder, long long *second_out)
{
    long long second = trii_wall_ns() / TRII_NS_PER_S;
    char **names = NULL;
    int n = 0;
    tri_status status = trii_folder_list(folder, MAX_FILES, &names, &n);

    for (int i = 0; i < n; i++) {
        long long other;

        if (sscanf(names[i], PREFIX "%12lld", &other) == 1 && other >= second)
            second = other + 1;
    }
    trii_folder_free_names(names, n);
    *second_out = second;
    return status;
}

/* FOLDER/events.out.tfevents.SECOND.HOST.PROCESS.NUMBER */
static tri_status new_path(const char *folder, char **path_out)
{
    static atomic_uint number;
    const size_t room = strlen(folder) + sizeof("/" PREFIX) + HOST_NAME_MAX + 64;
    char host[HOST_NAME_MAX + 1], *path = trii_alloc(room, 1, "path");
    long long second = 0;
    tri_status status;

    if (path == NULL)
        return TRI_ERR_NO_MEMORY;
    snprintf(path, room, "%s/x", folder);
    status = trii_folder_create_above(path);
    if (status == TRI_OK)
        status = next_second(folder, &second);
    if (status != TRI_OK) {
        trii_free(path);
        return status;
    }
    trii_host_name(host, sizeof(host));
    snprintf(path, room, "%s/" PREFIX "%010lld.%s.%d.%u", folder, second, host, trii_process_id(),
             atomic_fetch_add(&number, 1));
    *path_out = path;
    return TRI_OK;
}

static double wall_time(void)
{
    return (double)trii_wall_ns() / (double)TRII_NS_PER_S;
}

/* Releases the record. */
static tri_status put(tri_tensorboard *board, trii_proto *record)
{
    tri_status status = trii_proto_status(record);

    if (status == TRI_OK)
        status = trii_event_file_put(board->file, record->data, record->used);
    trii_proto_fini(record);
    return status;
}

static tri_status begin_file(tri_tensorboard *board, int64_t keep_steps)
{
    trii_proto record = {0};
    tri_status status;

    trii_event_version(&record, wall_time());
    status = put(board, &record);
    if (status != TRI_OK || keep_steps < 0)
        return status;
    trii_event_start(&record, wall_time(), keep_steps + 1);
    return put(board, &record);
}

static tri_status read_options(const tri_tensorboard_open_options *opt, int64_t *keep_steps_out,
                               int64_t *flush_ns_out)
{
    double seconds = opt != NULL ? trii_option(opt->flush_seconds, 5) : 5;
    tri_status status = TRII_CHECK_RESERVED(tri_tensorboard_open_options, opt);

    *keep_steps_out = -1;
    if (status == TRI_OK && opt != NULL)
        status =
            trii_option_whole(opt->keep_steps, "tensorboard_open: keep_steps", -1, keep_steps_out);
    if (status != TRI_OK)
        return status;
    if (!(seconds >= 0 && seconds <= 1e6))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tensorboard_open: flush_seconds %g is not within 0 and 1e6", seconds);
    *flush_ns_out = (int64_t)(seconds * (double)TRII_NS_PER_S);
    return TRI_OK;
}

tri_status tri_tensorboard_open(const char *folder, const tri_tensorboard_open_options *opt,
                                tri_tensorboard **board_out)
{
    trii_event_file_options file = {.max_waiting = MAX_WAITING,
                                    .max_ns = MAX_WAIT_S * TRII_NS_PER_S};
    tri_tensorboard *board;
    char *path = NULL;
    int64_t keep_steps;
    tri_status status = trii_need_text(folder, "tri_tensorboard_open", "folder");

    if (status == TRI_OK)
        status = trii_need(board_out, "tri_tensorboard_open", "board_out");
    if (status == TRI_OK)
        status = read_options(opt, &keep_steps, &file.flush_ns);
    if (status != TRI_OK)
        return status;
    board = trii_alloc(1, sizeof(*board), "board");
    if (board == NULL)
        return TRI_ERR_NO_MEMORY;
    board->folder = trii_strdup(folder, "path");
    status = board->folder != NULL ? new_path(folder, &path) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = trii_event_file_open(path, &file, &board->file);
    if (status == TRI_OK)
        status = begin_file(board, keep_steps);
    trii_free(path);
    if (status != TRI_OK) {
        (void)!tri_tensorboard_close(board);
        return status;
    }
    *board_out = board;
    return TRI_OK;
}

tri_status tri_tensorboard_flush(tri_tensorboard *board)
{
    tri_status status = trii_need(board, "tri_tensorboard_flush", "board");

    return status == TRI_OK ? trii_event_file_flush(board->file) : status;
}

tri_status tri_tensorboard_close(tri_tensorboard *board)
{
    tri_status status;

    if (board == NULL)
        return TRI_OK;
    status = trii_event_file_close(board->file);
    trii_free(board->folder);
    trii_free(board);
    return status;
}

/* --- what goes there ------------------------------------------------------ */

static tri_status check_utf8(const char *text, const char *call, const char *name)
{
    for (const char *at = text; *at != '\0';) {
        size_t n = trii_utf8_character(at);

        if (n == 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: %s \"%.60s\" is not UTF-8: byte %zu is 0x%02x", call, name, text,
                             (size_t)(at - text), (unsigned char)*at);
        at += n;
    }
    return TRI_OK;
}

static tri_status check(const tri_tensorboard *board, const char *tag, const char *call)
{
    tri_status status = trii_need(board, call, "board");

    if (status == TRI_OK)
        status = trii_need_text(tag, call, "tag");
    return status == TRI_OK ? check_utf8(tag, call, "tag") : status;
}

tri_status tri_tensorboard_scalar(tri_tensorboard *board, const char *tag, int64_t step,
                                  double value)
{
    const trii_event_place place = {.wall_time = wall_time(), .step = step, .tag = tag};
    trii_proto record = {0};
    tri_status status = check(board, tag, "tri_tensorboard_scalar");

    if (status != TRI_OK)
        return status;
    trii_event_scalar(&record, &place, (float)value);
    return put(board, &record);
}

static bool can_count(tri_dtype dtype)
{
    return dtype == TRI_DTYPE_F32 || dtype == TRI_DTYPE_F64 || dtype == TRI_DTYPE_I64 ||
           dtype == TRI_DTYPE_I32 || dtype == TRI_DTYPE_U8;
}

tri_status tri_tensorboard_histogram(tri_tensorboard *board, const char *tag, int64_t step,
                                     const void *values, int64_t n, tri_dtype dtype)
{
    const trii_event_place place = {.wall_time = wall_time(), .step = step, .tag = tag};
    trii_proto record = {0};
    trii_histogram *histogram;
    tri_status status = check(board, tag, "tri_tensorboard_histogram");

    if (status == TRI_OK && n > 0)
        status = trii_need(values, "tri_tensorboard_histogram", "values");
    if (status != TRI_OK)
        return status;
    if (n < 0 || !can_count(dtype))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_tensorboard_histogram: %s: %" PRId64 " values of %s; needs n >= 0 "
                         "and f32, f64, i64, i32 or u8",
                         tag, n, tri_dtype_name(dtype));
    histogram = trii_alloc(1, sizeof(*histogram), "histogram");
    if (histogram == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_histogram_make(values, n, dtype, histogram);
    trii_event_histogram(&record, &place, histogram);
    trii_free(histogram);
    return put(board, &record);
}

typedef struct picture {
    const uint8_t *first;
    int64_t height, width;
    int channels;
    bool planes; /* CHW */
} picture;

static tri_status check_image(const picture *image, const int64_t *shape, int ndim,
                              const char *layout)
{
    const int64_t most = INT64_C(1) << 24;

    if (image->height >= 1 && image->width >= 1 && image->height <= most && image->width <= most &&
        (image->channels == 1 || image->channels == 3 || image->channels == 4))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "tri_tensorboard_image: a shape of %d sizes, the first %" PRId64
                     ", as \"%.16s\": needs \"CHW\", \"HWC\" or \"HW\", 1, 3 or 4 channels and "
                     "1 to 2^24 rows and columns",
                     ndim, ndim > 0 ? shape[0] : 0, layout);
}

static tri_status read_shape(const uint8_t *first, const int64_t *shape, int ndim,
                             const char *layout, picture *out)
{
    int64_t channels = 1;

    *out = (picture){.first = first};
    if (ndim == 3 && strcmp(layout, "CHW") == 0) {
        channels = shape[0];
        out->height = shape[1];
        out->width = shape[2];
        out->planes = true;
    } else if (ndim == 3 && strcmp(layout, "HWC") == 0) {
        out->height = shape[0];
        out->width = shape[1];
        channels = shape[2];
    } else if (ndim == 2 && strcmp(layout, "HW") == 0) {
        out->height = shape[0];
        out->width = shape[1];
    }
    out->channels = channels >= 1 && channels <= 4 ? (int)channels : 0;
    return check_image(out, shape, ndim, layout);
}

/* Channels last, as files have them. */
static uint8_t *interleave(const picture *image)
{
    const size_t n = (size_t)image->height * (size_t)image->width;
    const size_t channels = (size_t)image->channels;
    uint8_t *out = trii_alloc(n, channels, "image");

    for (size_t c = 0; c < channels && out != NULL; c++) {
        for (size_t i = 0; i < n; i++)
            out[i * channels + c] = image->first[c * n + i];
    }
    return out;
}

static tri_status encode(const picture *image, unsigned char **file_out, size_t *bytes_out)
{
    uint8_t *own = NULL;
    tri_status status;

    if (image->planes && image->channels > 1) {
        own = interleave(image);
        if (own == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    status = trii_png_encode(own != NULL ? own : image->first, image->height, image->width,
                             image->channels, file_out, bytes_out);
    trii_free(own);
    return status;
}

tri_status tri_tensorboard_image(tri_tensorboard *board, const char *tag, int64_t step,
                                 const uint8_t *pixels, const int64_t *shape, int ndim,
                                 const char *layout)
{
    static const char call[] = "tri_tensorboard_image";
    const trii_event_place place = {.wall_time = wall_time(), .step = step, .tag = tag};
    unsigned char *file = NULL;
    trii_proto record = {0};
    size_t bytes = 0;
    picture image;
    tri_status status = check(board, tag, call);

    if (status == TRI_OK)
        status = trii_need(pixels, call, "pixels");
    if (status == TRI_OK)
        status = trii_need(shape, call, "shape");
    if (status == TRI_OK)
        status = read_shape(pixels, shape, ndim, layout != NULL ? layout : "CHW", &image);
    if (status == TRI_OK)
        status = encode(&image, &file, &bytes);
    if (status != TRI_OK)
        return status;
    trii_event_image(&record, &place,
                     &(trii_event_png){.height = image.height,
                                       .width = image.width,
                                       .channels = image.channels,
                                       .file = file,
                                       .bytes = bytes});
    trii_free(file);
    return put(board, &record);
}

tri_status tri_tensorboard_text(tri_tensorboard *board, const char *tag, int64_t step,
                                const char *text)
{
    trii_event_place place = {.wall_time = wall_time(), .step = step};
    trii_proto record = {0};
    char *full = NULL;
    tri_status status = check(board, tag, "tri_tensorboard_text");

    if (status == TRI_OK)
        status = trii_need(text, "tri_tensorboard_text", "text");
    if (status == TRI_OK)
        status = check_utf8(text, "tri_tensorboard_text", "text");
    if (status != TRI_OK)
        return status;
    full = trii_alloc(strlen(tag) + sizeof("/text_summary"), 1, "tag");
    if (full == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(full, tag, strlen(tag));
    memcpy(full + strlen(tag), "/text_summary", sizeof("/text_summary"));
    place.tag = full;
    trii_event_text(&record, &place, text);
    trii_free(full);
    return put(board, &record);
}

/* --- the table of runs ---------------------------------------------------- */

static tri_status check_names(const tri_hparam *hparams, int n_hparams, const tri_metric *metrics,
                              int n_metrics)
{
    static const char call[] = "tri_tensorboard_hparams";
    tri_status status = TRI_OK;

    if (n_hparams < 0 || n_metrics < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %d hparams and %d metrics", call, n_hparams,
                         n_metrics);
    if (n_hparams > 0)
        status = trii_need(hparams, call, "hparams");
    if (status == TRI_OK && n_metrics > 0)
        status = trii_need(metrics, call, "metrics");
    for (int i = 0; i < n_hparams && status == TRI_OK; i++) {
        status = trii_need_text(hparams[i].name, call, "a name");
        if (status == TRI_OK)
            status = check_utf8(hparams[i].name, call, "the name");
        if (status == TRI_OK && hparams[i].text != NULL)
            status = check_utf8(hparams[i].text, call, hparams[i].name);
    }
    for (int i = 0; i < n_metrics && status == TRI_OK; i++) {
        status = trii_need_text(metrics[i].key, call, "a key");
        if (status == TRI_OK)
            status = check_utf8(metrics[i].key, call, "the key");
    }
    return status;
}

/* START: the table shows no values of an earlier call. */
static tri_status put_run(tri_tensorboard *run, const tri_hparam *hparams, int n_hparams,
                          const tri_metric *metrics, int n_metrics)
{
    trii_proto record = {0};
    double now = wall_time();
    tri_status status;

    trii_event_start(&record, now, 0);
    status = put(run, &record);
    trii_event_experiment(&record, now, hparams, n_hparams, metrics, n_metrics);
    if (status == TRI_OK)
        status = put(run, &record);
    trii_event_session_start(&record, now, hparams, n_hparams);
    if (status == TRI_OK)
        status = put(run, &record);
    trii_event_session_end(&record, now);
    if (status == TRI_OK)
        status = put(run, &record);
    for (int i = 0; i < n_metrics && status == TRI_OK; i++)
        status = tri_tensorboard_scalar(run, metrics[i].key, 0, metrics[i].value);
    trii_proto_fini(&record);
    return status;
}

tri_status tri_tensorboard_hparams(tri_tensorboard *board, const char *run_name,
                                   const tri_hparam *hparams, int n_hparams,
                                   const tri_metric *metrics, int n_metrics)
{
    const char *name = run_name != NULL ? run_name : "hparams";
    tri_tensorboard *run;
    size_t room;
    char *folder;
    tri_status status = trii_need(board, "tri_tensorboard_hparams", "board"), closed;

    if (status == TRI_OK)
        status = trii_need_text(name, "tri_tensorboard_hparams", "run_name");
    if (status == TRI_OK)
        status = check_names(hparams, n_hparams, metrics, n_metrics);
    if (status != TRI_OK)
        return status;
    room = strlen(board->folder) + strlen(name) + 2;
    folder = trii_alloc(room, 1, "path");
    if (folder == NULL)
        return TRI_ERR_NO_MEMORY;
    snprintf(folder, room, "%s/%s", board->folder, name);
    status = tri_tensorboard_open(folder, NULL, &run);
    trii_free(folder);
    if (status != TRI_OK)
        return status;
    status = put_run(run, hparams, n_hparams, metrics, n_metrics);
    closed = tri_tensorboard_close(run);
    return status != TRI_OK ? status : closed;
}
