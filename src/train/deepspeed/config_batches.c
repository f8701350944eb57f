/*
 * config_batches.c - batch sizes by DeepSpeed's sums: T = m k N, with T train_batch_size, m
 * train_micro_batch_size_per_gpu, k gradient_accumulation_steps and N ranks.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/err.h"
#include "train/deepspeed/engine_config.h"

#define BATCH "train_batch_size"
#define MICRO "train_micro_batch_size_per_gpu"
#define STEPS "gradient_accumulation_steps"
#define MOST_SAMPLES 9007199254740992.0 /* 2^53, as of a number in the file */

typedef struct sizes {
    int64_t batch, micro, steps; /* 0: not given */
    int world;
} sizes;

/* What would fit: the micro-batch size stays where it is given. */
static void suggest(const sizes *s, char *text, size_t bytes)
{
    int64_t micro = s->micro > 0 ? s->micro : 1, steps = s->steps > 0 ? s->steps : 1, batch;

    if (s->batch > 0 && s->steps == 0 && s->micro > 0)
        steps = s->batch / (micro * s->world);
    if (s->batch > 0 && s->micro == 0)
        micro = s->batch / (steps * s->world);
    micro = micro > 0 ? micro : 1;
    steps = steps > 0 ? steps : 1;
    batch = micro * steps * s->world;
    snprintf(text, bytes, "%" PRId64 " = %" PRId64 " * %" PRId64 " * %d", batch, micro, steps,
             s->world);
}

static tri_status refuse(const trii_engine_config *c, const sizes *s)
{
    const trii_conf *at = trii_conf_find(c->root, s->batch > 0 ? BATCH : MICRO);
    char fits[128], micro[32] = "?", steps[32] = "?";

    suggest(s, fits, sizeof(fits));
    if (s->micro > 0)
        snprintf(micro, sizeof(micro), "%" PRId64, s->micro);
    if (s->steps > 0)
        snprintf(steps, sizeof(steps), "%" PRId64, s->steps);
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%s:%d: " BATCH " is " MICRO " * " STEPS " * ranks, but %" PRId64
                     " is not %s * %s * %d; this would fit: %s",
                     c->name, at != NULL ? at->line : 1, s->batch, micro, steps, s->world, fits);
}

tri_status trii_conf_batches(trii_engine_config *c, int world)
{
    sizes s = {.batch = (int64_t)trii_conf_get_number(c, BATCH, 0),
               .micro = (int64_t)trii_conf_get_number(c, MICRO, 0),
               .steps = (int64_t)trii_conf_get_number(c, STEPS, 0),
               .world = world};

    if (s.batch == 0 && s.micro == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: neither " BATCH " nor " MICRO " is given: write one of them, such as "
                         "\"" MICRO "\": 8",
                         c->name);
    c->micro_batch = s.micro;
    c->accumulate = s.steps;
    if (s.micro == 0) {
        c->accumulate = s.steps > 0 ? s.steps : 1;
        c->micro_batch = s.batch / c->accumulate / world;
    } else if (s.steps == 0) {
        c->accumulate = s.batch > 0 ? s.batch / s.micro / world : 1;
    }
    if (c->micro_batch > INT32_MAX || c->accumulate > INT32_MAX ||
        (double)c->micro_batch * (double)c->accumulate * world > MOST_SAMPLES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: " MICRO " %" PRId64 " and " STEPS " %" PRId64
                         ": at most %d each, and %.0f samples of all ranks",
                         c->name, c->micro_batch, c->accumulate, INT32_MAX, MOST_SAMPLES);
    c->train_batch = s.batch > 0 ? s.batch : c->micro_batch * c->accumulate * world;
    if (c->train_batch != c->micro_batch * c->accumulate * world)
        return refuse(c, &s);
    return TRI_OK;
}
