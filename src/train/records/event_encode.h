/*
 * event_encode.h - TensorBoard's events, each the data of one record of an event file.
 *
 *   Event    1 wall_time: double; 2 step: int64; 3 file_version: string; 5 summary: Summary;
 *            7 session_log {1 status: 1 is START}; 10 source_metadata {1 writer: string}
 *   Summary  1 value: Value, repeated
 *   Value    1 tag; 2 simple_value: float; 4 image; 5 histo; 8 tensor; 9 metadata {1 plugin_data
 *            {1 plugin_name, 2 content: bytes}}
 *   image    1 height; 2 width; 3 colorspace: 1 grey, 3 RGB, 4 RGBA; 4 encoded_image_string: PNG
 *   histo    1 min; 2 max; 3 num; 4 sum; 5 sum_squares: double; 6 bucket_limit; 7 bucket: packed
 *            doubles
 *   tensor   1 dtype: 1 float, 2 double, 7 string; 2 tensor_shape {2 dim {1 size}}; 4
 * tensor_content; 5 float_val; 6 double_val; 8 string_val
 *
 * The first event of a file has file_version "brain.Event:2". START says that the run begins again
 * at this step: what older files of the folder have of it and of later ones is void.
 */
#ifndef TRII_EVENT_ENCODE_H
#define TRII_EVENT_ENCODE_H

#include <trireme/records.h>

#include "train/records/histogram.h"
#include "train/records/protobuf.h"

#define TRII_EVENT_VERSION "brain.Event:2"

typedef struct trii_event_place {
    double wall_time;
    int64_t step;
    const char *tag;
} trii_event_place;

typedef struct trii_event_png {
    int64_t height, width;
    int channels;
    const void *file;
    size_t bytes;
} trii_event_png;

void trii_event_version(trii_proto *out, double wall_time);
void trii_event_start(trii_proto *out, double wall_time, int64_t step);
void trii_event_scalar(trii_proto *out, const trii_event_place *place, float value);
void trii_event_histogram(trii_proto *out, const trii_event_place *place,
                          const trii_histogram *histogram);
void trii_event_image(trii_proto *out, const trii_event_place *place, const trii_event_png *png);
void trii_event_text(trii_proto *out, const trii_event_place *place, const char *text);

/* The three values without data that the hparams plug-in reads:
 *
 *   content  1 version: 0; 2 experiment; 3 session_start_info; 4 session_end_info {1 status: 1}
 *   experiment          4 hparam_infos {1 name; 4 type: 1 string, 3 float64}; 5 metric_infos {1
 * name {2 tag}} session_start_info  1 hparams: map {1 key; 2 value {2 number_value: double; 3
 * string_value}} */
void trii_event_experiment(trii_proto *out, double wall_time, const tri_hparam *hparams,
                           int n_hparams, const tri_metric *metrics, int n_metrics);
void trii_event_session_start(trii_proto *out, double wall_time, const tri_hparam *hparams, int n);
void trii_event_session_end(trii_proto *out, double wall_time);

#endif
