/*
 * collate.h - how a loader makes a batch of samples that may vary in size.
 */
#ifndef TRII_COLLATE_H
#define TRII_COLLATE_H

#include "train/data/sample.h"

/* The request's samples, one after the other, into samples[request->n], and those into `batch`. */
tri_status trii_collate(tri_dataset *dataset, const tri_request *request, tri_sample *samples,
                        tri_collate collate, void *arg, tri_sample *batch) TRI_MUST_CHECK;

#endif
