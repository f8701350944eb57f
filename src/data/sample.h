/*
 * sample.h - a sample whose fields have shapes of their own, and the memory behind them.
 */
#ifndef TRII_SAMPLE_H
#define TRII_SAMPLE_H

#include <trireme/data.h>

#include "base/compiler.h"

typedef struct tri_sample_memory {
    tri_status failed; /* of tri_sample_room, since the start: what whoever fills it must return */
    bool given[TRI_MAX_FIELDS];
    void *blocks[TRI_MAX_FIELDS];
    size_t bytes[TRI_MAX_FIELDS];
    /* Of a loader's batch: memory is that of tensors, one per field, which are used again while
     * their shapes stay. */
    bool as_tensors;
    tri_device device;
    tri_tensor *tensors[TRI_MAX_FIELDS];
} tri_sample_memory;

/* Empty, with the memory that it has; before it is filled. */
tri_status trii_sample_begin(tri_sample *sample) TRI_MUST_CHECK;
/* The sample's rooms are to be tensors on this device. */
tri_status trii_sample_init_tensors(tri_sample *sample, tri_device device) TRI_MUST_CHECK;
/* What filling it comes to: `status`, which `what` (such as "data set lines: its sample") returned,
 * with a line if it left none since trii_err_lines() was n_lines. */
tri_status trii_sample_end(const tri_sample *sample, tri_status status, const char *what,
                           const char *name, unsigned n_lines) TRI_MUST_CHECK;
/* INVALID_ARG unless the sample is what the data set says of itself. */
tri_status trii_sample_check(const tri_dataset *dataset, int64_t index,
                             const tri_sample *sample) TRI_MUST_CHECK;
/* Field fb of b, which is given, and field fa of a change places. */
void trii_sample_swap(tri_sample *a, int fa, tri_sample *b, int fb);
/* Whoever had the tensors is done with them: those that are still held are let go of. */
void trii_sample_give_back(tri_sample *sample);
/* Nobody but its owner holds the tensor, and it is plain: it may be written again. */
bool trii_tensor_is_free(tri_tensor *tensor);

#endif
