/*
 * sampler.h - what the samplers of this room share.
 */
#ifndef TRII_SAMPLER_H
#define TRII_SAMPLER_H

#include <trireme/data.h>

#include "base/compiler.h"

/* Most samples that a sampler may have or be asked for. */
#define TRII_MAX_SAMPLES (INT64_MAX / 16)

/* INVALID_ARG unless it is a sampler that can draw; the message begins with `call`. */
tri_status trii_sampler_check(const tri_sampler *sampler, const char *call) TRI_MUST_CHECK;
/* Draws one epoch into the caller's memory, indices[sampler->length]. */
tri_status trii_sampler_draw(tri_sampler *sampler, int64_t epoch, int64_t *indices) TRI_MUST_CHECK;

#endif
