/*
 * engine_create.c - tri_initialize: from a configuration to a model, an optimizer and a loader.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/parallel.h>
#include <trireme/reducer.h>
#include <trireme/zero.h>

#include "base/alloc.h"
#include "base/option.h"
#include "train/deepspeed/engine_internal.h"

#define BUCKET_BYTES (INT64_C(25) << 20) /* of tri_ddp: larger ones only come later */
#define KEEP_BELOW 100000                /* DeepSpeed's stage3_param_persistence_threshold */

/* --- the world ------------------------------------------------------------ */

tri_status tri_init_distributed(const tri_init_distributed_options *opt)
{
    tri_init_options init = {0};
    tri_status status = TRII_CHECK_RESERVED(tri_init_distributed_options, opt);

    if (status != TRI_OK || tri_is_initialized())
        return status;
    if (opt != NULL) {
        init.url = opt->init_method;
        init.rank = opt->rank;
        init.world_size = opt->world_size;
        init.group.engine = opt->dist_backend;
        init.group.timeout_ms = opt->timeout_ms;
    }
    return tri_init(&init);
}

static tri_status check_local_rank(const tri_deepspeed_args *args)
{
    const char *text = getenv("LOCAL_RANK");
    int given;

    if (args == NULL || args->local_rank.given == NULL || text == NULL)
        return TRI_OK;
    given = (int)args->local_rank.value;
    if (given == tri_local_rank())
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "args->local_rank is %d, but LOCAL_RANK is %s: leave --local_rank to the "
                     "launcher",
                     given, text);
}

/* --- the configuration ---------------------------------------------------- */

static tri_status choose_config(const tri_deepspeed_args *args, const tri_initialize_options *opt,
                                const char **config_out)
{
    const char *of_args = args != NULL ? args->deepspeed_config : NULL;

    if (of_args != NULL && opt->config != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "two configurations: --deepspeed_config %s, and opt->config: give one",
                         of_args);
    if (of_args == NULL && opt->config == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "no configuration: --deepspeed_config FILE (see "
                                              "tri_deepspeed_args_take), or opt->config");
    *config_out = of_args != NULL ? of_args : opt->config;
    return TRI_OK;
}

/* --- the model ------------------------------------------------------------ */

/* What gradients are sent as. */
static tri_bucket_hook choose_hook(const trii_engine_config *c)
{
    const char *dtype = trii_conf_get_text(c, "communication_data_type", "fp32");

    if (strcmp(dtype, "fp32") == 0)
        return NULL;
    return strcmp(dtype, "fp16") == 0 ? tri_bucket_hook_f16 : tri_bucket_hook_bf16;
}

static tri_module *wrap(const tri_engine *e, tri_module *own_model)
{
    const trii_engine_config *c = &e->config;
    double bytes = isnan(c->bucket_elements) ? 0 : c->bucket_elements * 4;
    tri_zero_options zero = {.group = e->group, .stage = c->stage, .hook = choose_hook(c)};

    if (bytes > BUCKET_BYTES)
        bytes = 0;
    if (c->stage == 0)
        return tri_ddp(own_model, &(tri_ddp_options){.group = e->group,
                                                     .bucket_cap_bytes = (size_t)bytes,
                                                     .hook = choose_hook(c)});
    zero.bucket_cap_bytes = (size_t)bytes;
    zero.keep_below = (int64_t)(isnan(c->keep_below) ? KEEP_BELOW : c->keep_below);
    if (c->prefetch_elements == 0)
        zero.prefetch = -1; /* none; 0 bytes would be the default */
    else if (!isnan(c->prefetch_elements))
        zero.prefetch_bytes = (size_t)fmin(c->prefetch_elements * 4, 1e15);
    return tri_zero(own_model, &zero);
}

static tri_status make_optimizer(tri_engine *e, const tri_initialize_options *opt)
{
    tri_status status = TRI_OK;

    if (opt->optimizer == NULL) {
        status = trii_engine_make_optimizer(e);
    } else {
        e->optimizer = opt->optimizer(e->model, opt->arg);
        if (e->optimizer == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "opt->optimizer returned NULL");
    }
    return status == TRI_OK ? tri_optimizer_status(e->optimizer) : status;
}

static tri_status make_scaler(tri_engine *e)
{
    const trii_engine_config *c = &e->config;
    const tri_grad_scaler_options options = {
        .init_scale = TRI_SET(c->loss_scale),
        .growth_interval = c->dynamic ? c->scale_window : INT64_MAX,
        .min_scale = c->dynamic ? c->min_scale : c->loss_scale,
        .hysteresis = c->dynamic ? c->hysteresis : 1,
        .consecutive_hysteresis = c->consecutive_hysteresis,
    };
    tri_status status;

    e->scale = c->loss_scale;
    if (!c->scaled)
        return TRI_OK;
    status = tri_grad_scaler_create(&options, &e->scaler);
    return status == TRI_OK ? trii_engine_read_scaler(e) : status;
}

static tri_status make_loader(tri_engine *e, const tri_initialize_options *opt)
{
    const bool drop_last = trii_conf_get_bool(&e->config, "dataloader_drop_last", false);
    const tri_loader_options options = {.n_threads = 1,
                                        .drop_last = drop_last,
                                        .collate = opt->collate,
                                        .collate_arg = opt->collate_arg};
    tri_status status;

    if (opt->training_data == NULL)
        return TRI_OK;
    status =
        tri_sampler_distributed(tri_dataset_length(opt->training_data),
                                &(tri_sampler_distributed_options){
                                    .n_replicas = e->size, .rank = e->rank, .drop_last = drop_last},
                                &e->sampler);
    if (status == TRI_OK)
        status = tri_loader_create(opt->training_data, e->sampler, e->config.micro_batch, &options,
                                   &e->loader);
    return status == TRI_OK ? tri_loader_begin(e->loader, 0, 0) : status;
}

/* --- all of it ------------------------------------------------------------ */

static tri_status set_up(tri_engine *e, tri_module *own_model, const char *config,
                         const tri_initialize_options *opt)
{
    tri_status status = trii_engine_agree(e, trii_engine_config_init(&e->config, config, e->size));

    if (status != TRI_OK) {
        tri_module_destroy(own_model);
        return status;
    }
    e->model = wrap(e, own_model);
    status = tri_module_status(e->model);
    if (status == TRI_OK)
        status = make_optimizer(e, opt);
    if (status == TRI_OK)
        status = make_scaler(e);
    if (status == TRI_OK)
        status = make_loader(e, opt);
    if (status == TRI_OK) {
        trii_engine_set_rate(e);
        status = trii_engine_report_begin(e);
    }
    return trii_engine_agree(e, status);
}

/* The ranks of an engine that is being made; one where there is no world yet. */
static tri_engine ranks_of(tri_group *group)
{
    tri_engine e = {.group = group, .size = 1, .norm = (double)NAN, .scale = 1};

    if (group != NULL || tri_is_initialized()) {
        e.rank = group != NULL ? tri_group_rank(group) : tri_rank();
        e.size = group != NULL ? tri_group_size(group) : tri_world_size();
    }
    return e;
}

static tri_status make(const tri_deepspeed_args *args, tri_module *own_model,
                       const tri_initialize_options *opt, tri_engine **engine_out)
{
    const char *config = NULL;
    tri_engine *e = NULL, ranks;
    tri_status status = TRII_CHECK_RESERVED(tri_initialize_options, opt);

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_deepspeed_args, args);
    if (status == TRI_OK)
        status = choose_config(args, opt, &config);
    if (status == TRI_OK && opt->group == NULL)
        status = tri_init_distributed(NULL);
    if (status == TRI_OK)
        status = check_local_rank(args);
    if (status == TRI_OK && (e = trii_alloc(1, sizeof(*e), "engine")) == NULL)
        status = TRI_ERR_NO_MEMORY;
    ranks = ranks_of(opt->group);
    status = trii_engine_agree(&ranks, status);
    if (status != TRI_OK) {
        tri_module_destroy(own_model);
        trii_free(e);
        return status;
    }
    assert(e != NULL); /* this rank has succeeded, too */
    *e = ranks;
    e->group = tri_group_ref(opt->group);
    e->schedule = opt->lr_scheduler;
    e->arg = opt->arg;
    status = set_up(e, own_model, config, opt);
    if (status != TRI_OK)
        tri_engine_destroy(e);
    else
        *engine_out = e;
    return status;
}

tri_status tri_initialize(const tri_deepspeed_args *args, tri_module *own_model,
                          const tri_initialize_options *opt, tri_engine **engine_out)
{
    static const tri_initialize_options defaults;
    tri_status status = trii_need(own_model, "tri_initialize", "own_model");

    if (status != TRI_OK)
        return status;
    status = trii_need(engine_out, "tri_initialize", "engine_out");
    if (status != TRI_OK) {
        tri_module_destroy(own_model);
        return status;
    }
    *engine_out = NULL;
    status = make(args, own_model, opt != NULL ? opt : &defaults, engine_out);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "tri_initialize");
}

void tri_engine_destroy(tri_engine *e)
{
    if (e == NULL)
        return;
    trii_engine_report_end(e);
    tri_checkpoint_close(e->loaded);
    tri_loader_destroy(e->loader);
    tri_sampler_destroy(e->sampler);
    tri_grad_scaler_destroy(e->scaler);
    tri_optimizer_destroy(e->optimizer);
    tri_module_destroy(e->model);
    tri_group_unref(e->group);
    trii_engine_config_fini(&e->config);
    trii_free(e);
}
