/*
 * choose.h - which engine serves a group: the text of tri_group_options.engine or TRI_ENGINE.
 *
 *     ENGINE        a built-in engine or a plug-in; "auto", or nothing: by where the ranks are
 *     cpu:ENGINE    the same, as torch.distributed spells it: buffers are in the host's memory
 *     cuda:ENGINE   for buffers in a GPU's memory
 *
 * A group has one engine. Where torch.distributed has one for each type of device
 * ("cpu:gloo,cuda:nccl"), here each has a group of its own.
 */
#ifndef TRII_CHOOSE_H
#define TRII_CHOOSE_H

#include "comm/group/engine.h"

#define TRII_ENGINE_NAME 16

typedef enum trii_buffers { TRII_BUFFERS_ANY, TRII_BUFFERS_CPU, TRII_BUFFERS_CUDA } trii_buffers;

typedef struct trii_choice {
    char engine[TRII_ENGINE_NAME]; /* "" = by layout */
    trii_buffers buffers;
} trii_choice;

/* text: NULL allowed. Errors: INVALID_ARG says what is allowed. */
tri_status trii_choice_parse(const char *text, trii_choice *choice_out) TRI_MUST_CHECK;
/* Whether the engine serves the buffers that the choice names. Errors: INVALID_ARG. */
tri_status trii_choice_fits(const trii_choice *choice, const trii_engine *engine) TRI_MUST_CHECK;

#endif
