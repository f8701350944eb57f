/*
 * config_rates.c - the "scheduler" block: which of DeepSpeed's schedules, and its parameters.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/err.h"
#include "train/deepspeed/config_check.h"

/* clang-format off */
#define MANY 9007199254740992.0 /* 2^53 */
#define NUMBER(name, least, most) {name, TRII_KEY_NUMBER, TRII_KEY_TAKEN, least, most, NULL, NULL}
#define WHOLE(name, least) {name, TRII_KEY_WHOLE, TRII_KEY_TAKEN, least, MANY, NULL, NULL}
#define SWITCH(name) {name, TRII_KEY_SWITCH, TRII_KEY_TAKEN, 0, 0, NULL, NULL}
#define CHOICE(name, choices) {name, TRII_KEY_CHOICE, TRII_KEY_TAKEN, 0, 0, choices, NULL}
/* It counts updates by itself, from those that the checkpoint has. */
#define COUNTS {"last_batch_iteration", TRII_KEY_WHOLE, TRII_KEY_IDLE, -1, MANY, NULL, NULL}, CHOICE_FROM
#define CHOICE_FROM {"count_from", TRII_KEY_WHOLE, TRII_KEY_TAKEN, 0, 1, NULL, NULL}

static const trii_key range_keys[] = {
    NUMBER("lr_range_test_min_lr", 0, INFINITY),
    WHOLE("lr_range_test_step_size", 1),
    NUMBER("lr_range_test_step_rate", 0, INFINITY),
    SWITCH("lr_range_test_staircase"),
    COUNTS,
};
static const trii_key cycle_keys[] = {
    NUMBER("cycle_min_lr", 0, INFINITY),
    NUMBER("cycle_max_lr", 0, INFINITY),
    NUMBER("decay_lr_rate", 0, INFINITY),
    WHOLE("cycle_first_step_size", 1),
    WHOLE("cycle_second_step_size", 0),
    WHOLE("cycle_first_stair_count", 0),
    WHOLE("cycle_second_stair_count", 0),
    WHOLE("decay_step_size", 0),
    SWITCH("cycle_momentum"),
    NUMBER("cycle_min_mom", 0, 1),
    NUMBER("cycle_max_mom", 0, 1),
    NUMBER("decay_mom_rate", 0, INFINITY),
    COUNTS,
};
static const trii_key warmup_keys[] = {
    NUMBER("warmup_min_lr", 0, INFINITY),
    NUMBER("warmup_max_lr", 0, INFINITY),
    WHOLE("warmup_num_steps", 1),
    CHOICE("warmup_type", "log|linear"),
    COUNTS,
};
static const trii_key decay_keys[] = {
    WHOLE("total_num_steps", 1),
    NUMBER("warmup_min_lr", 0, INFINITY),
    NUMBER("warmup_max_lr", 0, INFINITY),
    WHOLE("warmup_num_steps", 1),
    CHOICE("warmup_type", "log|linear"),
    COUNTS,
};
static const trii_key cosine_keys[] = {
    WHOLE("total_num_steps", 1),
    NUMBER("warmup_min_ratio", 0, INFINITY),
    WHOLE("warmup_num_steps", 1),
    NUMBER("cos_min_ratio", 0, INFINITY),
    CHOICE("warmup_type", "log|linear"),
    COUNTS,
};
/* clang-format on */

static const struct {
    const char *name;
    trii_rate_kind kind;
    const trii_key *keys;
    int n;
    const char *required[2];
} kinds[] = {
    {"LRRangeTest", TRII_RATE_RANGE_TEST, range_keys, (int)TRII_COUNT_OF(range_keys), {NULL}},
    {"OneCycle",
     TRII_RATE_ONE_CYCLE,
     cycle_keys,
     (int)TRII_COUNT_OF(cycle_keys),
     {"cycle_min_lr", "cycle_max_lr"}},
    {"WarmupLR", TRII_RATE_WARMUP, warmup_keys, (int)TRII_COUNT_OF(warmup_keys), {NULL}},
    {"WarmupDecayLR",
     TRII_RATE_WARMUP_DECAY,
     decay_keys,
     (int)TRII_COUNT_OF(decay_keys),
     {"total_num_steps", NULL}},
    {"WarmupCosineLR",
     TRII_RATE_WARMUP_COSINE,
     cosine_keys,
     (int)TRII_COUNT_OF(cosine_keys),
     {"total_num_steps", NULL}},
};

#define AT(name) "scheduler.params." name

static void take(const trii_engine_config *c, trii_rate *r)
{
    const bool decays = r->kind == TRII_RATE_WARMUP_DECAY;

    r->count_from = trii_conf_get_number(c, AT("count_from"), 0);
    r->min = trii_conf_get_number(c, AT("warmup_min_lr"), 0);
    r->max = trii_conf_get_number(c, AT("warmup_max_lr"), decays ? 0.001 : (double)NAN);
    r->warmup = fmax(2, trii_conf_get_number(c, AT("warmup_num_steps"), 1000));
    r->linear = strcmp(trii_conf_get_text(c, AT("warmup_type"), "log"), "linear") == 0;
    r->total = trii_conf_get_number(c, AT("total_num_steps"), 0);
    r->min_ratio = trii_conf_get_number(c, AT("warmup_min_ratio"), 0);
    r->end_ratio = trii_conf_get_number(c, AT("cos_min_ratio"), 1e-4);
    if (r->kind == TRII_RATE_RANGE_TEST) {
        r->min = trii_conf_get_number(c, AT("lr_range_test_min_lr"), 1e-3);
        r->step_size = trii_conf_get_number(c, AT("lr_range_test_step_size"), 2000);
        r->step_rate = trii_conf_get_number(c, AT("lr_range_test_step_rate"), 1);
        r->staircase = trii_conf_get_bool(c, AT("lr_range_test_staircase"), false);
    }
    if (r->kind != TRII_RATE_ONE_CYCLE)
        return;
    r->min = trii_conf_get_number(c, AT("cycle_min_lr"), 0);
    r->max = trii_conf_get_number(c, AT("cycle_max_lr"), 0);
    r->rise = trii_conf_get_number(c, AT("cycle_first_step_size"), 2000);
    r->fall = trii_conf_get_number(c, AT("cycle_second_step_size"), r->rise);
    r->rise_stairs = trii_conf_get_number(c, AT("cycle_first_stair_count"), 0);
    r->fall_stairs = trii_conf_get_number(c, AT("cycle_second_stair_count"), r->rise_stairs);
    r->decay_rate = trii_conf_get_number(c, AT("decay_lr_rate"), 0);
    r->decay_steps = trii_conf_get_number(c, AT("decay_step_size"), 0);
    r->momentum = trii_conf_get_bool(c, AT("cycle_momentum"), true);
    r->min_momentum = trii_conf_get_number(c, AT("cycle_min_mom"), 0.8);
    r->max_momentum = trii_conf_get_number(c, AT("cycle_max_mom"), 0.9);
    r->momentum_decay = trii_conf_get_number(c, AT("decay_mom_rate"), 0);
}

static tri_status check_required(const trii_engine_config *c, const char *type,
                                 const char *const *required)
{
    char path[96];

    for (int i = 0; i < 2 && required[i] != NULL; i++) {
        snprintf(path, sizeof(path), "scheduler.params.%s", required[i]);
        if (trii_conf_find(c->root, path) == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s:%d: scheduler: %s needs params.%s", c->name,
                             trii_conf_find(c->root, "scheduler")->line, type, required[i]);
    }
    return TRI_OK;
}

tri_status trii_conf_rate(trii_engine_config *c)
{
    const trii_conf *block = trii_conf_find(c->root, "scheduler");
    const trii_conf *type = trii_conf_find(c->root, "scheduler.type");
    tri_status status;

    if (block == NULL)
        return TRI_OK;
    if (type == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s:%d: scheduler: \"type\" is missing: LRRangeTest, "
                         "OneCycle, WarmupLR, WarmupDecayLR or WarmupCosineLR",
                         c->name, block->line);
    for (size_t i = 0; i < TRII_COUNT_OF(kinds); i++) {
        if (strcmp(type->text, kinds[i].name) != 0)
            continue;
        status = trii_conf_check_block(c, "scheduler.params", kinds[i].keys, kinds[i].n);
        if (status == TRI_OK)
            status = check_required(c, kinds[i].name, kinds[i].required);
        c->rate.kind = kinds[i].kind;
        take(c, &c->rate);
        return status;
    }
    return trii_conf_refuse(c, type, "scheduler.type",
                            "is not allowed: LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR or "
                            "WarmupCosineLR; torch's are lr_scheduler of tri_initialize_options "
                            "(tri_schedule_cosine and its kin)");
}
