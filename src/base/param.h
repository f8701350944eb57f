/*
 * param.h - every setting from the environment, in one table: `trireme info` prints it.
 *
 * A room that needs a new setting adds a line to PARAMS in param.c and an enum value here.
 */
#ifndef TRII_PARAM_H
#define TRII_PARAM_H

#include <trireme/status.h>

typedef enum trii_param {
    TRII_PARAM_CHECK,       /* TRI_CHECK */
    TRII_PARAM_EAGER,       /* TRI_EAGER */
    TRII_PARAM_ENGINE,      /* TRI_ENGINE */
    TRII_PARAM_INIT,        /* TRI_INIT */
    TRII_PARAM_LOG,         /* TRI_LOG */
    TRII_PARAM_NUM_THREADS, /* TRI_NUM_THREADS */
    TRII_PARAM_RUN_DIR,     /* TRI_RUN_DIR */
    TRII_PARAM_SPIN_US,     /* TRI_SPIN_US */
    TRII_PARAM_TIMEOUT_MS,  /* TRI_TIMEOUT_MS */
    TRII_PARAM_ISA,         /* TRI_ISA */
    TRII_PARAM_COUNT
} trii_param;

typedef struct trii_param_info {
    const char *name;          /* environment variable */
    const char *default_value; /* as text; "" = unset */
    const char *help;
} trii_param_info;

const trii_param_info *trii_param_describe(trii_param param);
/* The environment's text, or NULL if unset or empty. Reads the environment each time. */
const char *trii_param_text(trii_param param);
/* INVALID_ARG names the variable and the value if it is no integer of [min, max]; `fallback`
 * if unset. */
tri_status trii_param_i64(trii_param param, int64_t fallback, int64_t min, int64_t max,
                          int64_t *value_out) TRI_MUST_CHECK;
/* The whole text must be a decimal integer of [min, max]; `what` names it in the message. */
tri_status trii_parse_i64(const char *text, const char *what, int64_t min, int64_t max,
                          int64_t *value_out) TRI_MUST_CHECK;

#endif
