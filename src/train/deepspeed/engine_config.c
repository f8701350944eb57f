/*
 * engine_config.c - see engine_config.h.
 */
#include "train/deepspeed/engine_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/file.h"

#define MAX_BYTES (16 << 20) /* of a configuration */

/* --- precision ------------------------------------------------------------ */

static tri_status take_fp16(trii_engine_config *c)
{
    const double fixed = trii_conf_get_number(c, "fp16.loss_scale", 0);

    c->precision = TRII_WANTS_F16;
    c->scaled = true;
    c->dynamic = fixed == 0;
    c->min_scale = trii_conf_get_number(c, "fp16.min_loss_scale", 1);
    c->loss_scale =
        c->dynamic ? exp2(trii_conf_get_number(c, "fp16.initial_scale_power", 16)) : fixed;
    c->scale_window = (int64_t)trii_conf_get_number(c, "fp16.loss_scale_window", 1000);
    c->hysteresis = (int)trii_conf_get_number(c, "fp16.hysteresis", 2);
    c->consecutive_hysteresis = trii_conf_get_bool(c, "fp16.consecutive_hysteresis", false);
    return TRI_OK;
}

static tri_status take_precision(trii_engine_config *c)
{
    const bool f16 = trii_conf_get_bool(c, "fp16.enabled", false);
    const bool bf16 = trii_conf_get_bool(c, "bf16.enabled", false);
    const bool cast = trii_conf_get_bool(c, "torch_autocast.enabled", false);
    const char *dtype = trii_conf_get_text(c, "torch_autocast.dtype", "bfloat16");

    c->loss_scale = 1;
    if (f16 + bf16 + cast > 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s:%d: %s and %s are both enabled: enable one precision", c->name,
                         trii_conf_find(c->root, f16 ? "fp16" : "bf16")->line,
                         f16 ? "fp16" : "bf16", bf16 && f16 ? "bf16" : "torch_autocast");
    if (f16)
        return take_fp16(c);
    if (cast)
        c->precision = strstr(dtype, "bf") != NULL ? TRII_WANTS_BF16 : TRII_WANTS_F16;
    if (cast && c->precision == TRII_WANTS_F16)
        return take_fp16(c);
    if (bf16) {
        c->precision = TRII_WANTS_BF16;
        c->scaled = trii_conf_get_bool(c, "bf16.check_grad_overflow", true);
    }
    return TRI_OK;
}

/* --- all of it ------------------------------------------------------------ */

static tri_status take_zero(trii_engine_config *c)
{
    const trii_conf *block = trii_conf_find(c->root, "zero_optimization");

    c->stage = (int)trii_conf_get_number(c, "zero_optimization.stage", 0);
    if (block != NULL && block->kind == TRII_CONF_BOOL)
        c->stage = (int)block->number;
    c->bucket_elements =
        trii_conf_get_number(c, "zero_optimization.reduce_bucket_size", (double)NAN);
    c->prefetch_elements =
        trii_conf_get_number(c, "zero_optimization.stage3_prefetch_bucket_size", (double)NAN);
    c->keep_below = trii_conf_get_number(c, "zero_optimization.stage3_param_persistence_threshold",
                                         (double)NAN);
    c->measure_norm = trii_conf_get_bool(c, "zero_optimization.compute_grad_norm", true);
    return TRI_OK;
}

static tri_status take(trii_engine_config *c, int world)
{
    tri_status status = trii_conf_check(c);

    if (status == TRI_OK)
        status = trii_conf_batches(c, world);
    if (status == TRI_OK)
        status = take_zero(c);
    if (status == TRI_OK)
        status = take_precision(c);
    if (status == TRI_OK)
        status = trii_conf_rate(c);
    c->managed = trii_conf_get_bool(c, "managed_gradient_accumulation", true);
    c->clip_given = trii_conf_find(c->root, "gradient_clipping") != NULL;
    c->clip = trii_conf_get_number(c, "gradient_clipping", 1);
    c->print_every = (int64_t)trii_conf_get_number(c, "steps_per_print", 0);
    c->times = trii_conf_get_bool(c, "wall_clock_breakdown", false);
    return status;
}

static bool is_text(const char *config)
{
    return config[strspn(config, " \t\r\n")] == '{';
}

static tri_status read(trii_engine_config *c, const char *config)
{
    void *memory = NULL;
    size_t room = 0, bytes = 0;
    tri_status status;

    if (is_text(config)) {
        snprintf(c->name, sizeof(c->name), "config");
        return trii_conf_parse(c->name, config, strlen(config), &c->root);
    }
    snprintf(c->name, sizeof(c->name), "%s", config);
    status = trii_file_load(config, MAX_BYTES, &memory, &room, &bytes);
    if (status == TRI_OK)
        status = trii_conf_parse(c->name, memory, bytes, &c->root);
    trii_free(memory);
    return status;
}

tri_status trii_engine_config_init(trii_engine_config *c, const char *config, int world)
{
    tri_status status;

    memset(c, 0, sizeof(*c));
    status = read(c, config);
    return status == TRI_OK ? take(c, world) : status;
}

tri_status trii_engine_config_check(trii_engine_config *c, const char *config)
{
    tri_status status;

    memset(c, 0, sizeof(*c));
    status = read(c, config);
    if (status == TRI_OK)
        status = trii_conf_check(c);
    if (status == TRI_OK)
        status = take_precision(c);
    if (status == TRI_OK)
        status = trii_conf_rate(c);
    if (status == TRI_OK && trii_conf_find(c->root, "optimizer") != NULL)
        status = trii_conf_optimizer(c);
    return status;
}

void trii_engine_config_fini(trii_engine_config *c)
{
    trii_conf_free(c->root);
    c->root = NULL;
}
