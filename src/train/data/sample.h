/*
 * sample.h - a sample whose fields have shapes of their own, and their memory.
 */
#ifndef TRII_SAMPLE_H
#define TRII_SAMPLE_H

#include <trireme/data.h>

#include "base/compiler.h"

typedef struct tri_sample_memory {
    /* failure of tri_sample_room, if any: the function that fills the sample must return an error
     * then */
    tri_status failed;
    bool given[TRI_MAX_FIELDS];
    void *blocks[TRI_MAX_FIELDS];
    size_t bytes[TRI_MAX_FIELDS];
    /* For a loader's batch: memory is that of tensors, one per field, which are used again while
     * their shapes stay the same. */
    bool as_tensors;
    tri_device device;
    tri_tensor *tensors[TRI_MAX_FIELDS];
} tri_sample_memory;

/* Empties it and keeps its memory; before it is filled. */
tri_status trii_sample_begin(tri_sample *sample) TRI_MUST_CHECK;
/* From now on the sample's memory is tensors on this device. */
tri_status trii_sample_init_tensors(tri_sample *sample, tri_device device) TRI_MUST_CHECK;
/* The status of filling it: `status`, which `what` (such as "data set lines: its sample") returned,
 * with an error line if it has left none since trii_err_lines() was n_lines. */
tri_status trii_sample_end(const tri_sample *sample, tri_status status, const char *what,
                           const char *name, unsigned n_lines) TRI_MUST_CHECK;
/* INVALID_ARG unless the sample has the fields that the data set declares. */
tri_status trii_sample_check(const tri_dataset *dataset, int64_t index,
                             const tri_sample *sample) TRI_MUST_CHECK;
/* Exchanges field fb of b, which is given, with field fa of a. */
void trii_sample_swap(tri_sample *a, int fa, tri_sample *b, int fb);
/* The user of the tensors is done with them: releases those that are still held by others. */
void trii_sample_give_back(tri_sample *sample);
/* Only its owner holds the tensor, it is plain, and nobody has asked for its gradient: it may be
 * written again. */
bool trii_tensor_is_free(tri_tensor *tensor);

#endif
