/*
 * engine_config.h - what a configuration file says, checked: the options of an engine.
 */
#ifndef TRII_ENGINE_CONFIG_H
#define TRII_ENGINE_CONFIG_H

#include <stdint.h>

#include "train/deepspeed/config_tree.h"

#define TRII_CONFIG_NAME_BYTES 256

/* --- schedules ------------------------------------------------------------ */

typedef enum trii_rate_kind {
    TRII_RATE_CONSTANT,
    TRII_RATE_RANGE_TEST,
    TRII_RATE_ONE_CYCLE,
    TRII_RATE_WARMUP,
    TRII_RATE_WARMUP_DECAY,
    TRII_RATE_WARMUP_COSINE
} trii_rate_kind;

/* A schedule of DeepSpeed's, with its parameters. Those of a cycle: rise and fall are its steps. */
typedef struct trii_rate {
    trii_rate_kind kind;
    double min, max; /* rates; max NaN: that of the optimizer */
    double step_size, step_rate;
    bool staircase;
    double rise, fall, rise_stairs, fall_stairs;
    double decay_rate, decay_steps;
    bool momentum; /* it moves, too */
    double min_momentum, max_momentum, momentum_decay;
    double warmup, total, min_ratio, end_ratio;
    bool linear;       /* the warm-up, else logarithmic */
    double count_from; /* 0: as DeepSpeed counts; 1: the first update is not at the minimum */
} trii_rate;

/* The rate of update `step` (0, 1, ..) of a group that was made with the rate `lr`. */
double trii_rate_at(const trii_rate *rate, double lr, int64_t step);
/* Momentum, or the first beta, of that update; NaN if the schedule does not move it. */
double trii_rate_momentum(const trii_rate *rate, int64_t step);

/* --- all ------------------------------------------------------------------ */

typedef enum trii_precision_wanted {
    TRII_WANTS_F32,
    TRII_WANTS_BF16,
    TRII_WANTS_F16
} trii_precision_wanted;

typedef struct trii_engine_config {
    char name[TRII_CONFIG_NAME_BYTES]; /* of the file, for messages */
    trii_conf *root;
    int64_t train_batch, micro_batch, accumulate;
    bool managed; /* else each step is a boundary (managed_gradient_accumulation) */
    double clip;
    bool clip_given, measure_norm;
    int stage;
    double bucket_elements, prefetch_elements, keep_below; /* NaN: not given */
    trii_precision_wanted precision;
    bool scaled, dynamic; /* there is a scaler: it skips what is not finite, and adapts its scale */
    double loss_scale, min_scale;
    int64_t scale_window;
    int hysteresis;
    bool consecutive_hysteresis;
    int64_t print_every;
    bool times;
    trii_rate rate;
} trii_engine_config;

/* Reads a file, or a text that begins with "{", and checks all but the optimizer's parameters.
 * Release with trii_engine_config_fini, after failure, too. Errors: those of tri_initialize. */
tri_status trii_engine_config_init(trii_engine_config *c, const char *config,
                                   int world) TRI_MUST_CHECK;
/* The same for all but what depends on the number of ranks, and for the optimizer that the file
 * has, if it has one. */
tri_status trii_engine_config_check(trii_engine_config *c, const char *config) TRI_MUST_CHECK;
void trii_engine_config_fini(trii_engine_config *c);

/* INVALID_ARG with the place, the key by its path and its value in front of the text. */
tri_status trii_conf_refuse(const trii_engine_config *c, const trii_conf *value, const char *path,
                            const char *format, ...) TRI_PRINTF(4, 5);
/* What the file has under a path, or the default. */
double trii_conf_get_number(const trii_engine_config *c, const char *path, double fallback);
bool trii_conf_get_bool(const trii_engine_config *c, const char *path, bool fallback);
const char *trii_conf_get_text(const trii_engine_config *c, const char *path, const char *fallback);

/* --- the parts of that ---------------------------------------------------- */

/* Each key is one that is known, and has a value that it may have. */
tri_status trii_conf_check(const trii_engine_config *c) TRI_MUST_CHECK;
/* T = m k N, of which some are given (files of DeepSpeed: train_batch_size and so on). */
tri_status trii_conf_batches(trii_engine_config *c, int world) TRI_MUST_CHECK;
tri_status trii_conf_rate(trii_engine_config *c) TRI_MUST_CHECK;
/* The optimizer of the file, which a program need not use. */
tri_status trii_conf_optimizer(const trii_engine_config *c) TRI_MUST_CHECK;

#endif
