/*
 * config_optimizers.c - the "optimizer" block: DeepSpeed's names and defaults, made of optim.h.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "train/deepspeed/config_check.h"
#include "train/deepspeed/engine_internal.h"

/* clang-format off */
#define NUMBER(name) {name, TRII_KEY_NUMBER, TRII_KEY_TAKEN, 0, INFINITY, NULL, NULL}
#define SWITCH(name) {name, TRII_KEY_SWITCH, TRII_KEY_TAKEN, 0, 0, NULL, NULL}
#define IDLE(name) {name, TRII_KEY_FREE, TRII_KEY_IDLE, 0, 0, NULL, NULL}
#define NORM {"max_grad_norm", TRII_KEY_FREE, TRII_KEY_REFUSED, 0, 0, NULL, "write \"gradient_clipping\" in the outermost block"}
/* How torch loops over the parameters. */
#define LOOPS IDLE("foreach"), IDLE("fused"), IDLE("differentiable"), IDLE("capturable")

static const trii_key adam_keys[] = {
    NUMBER("lr"), {"betas", TRII_KEY_FREE, TRII_KEY_TAKEN, 0, 0, NULL, NULL}, NUMBER("eps"),
    NUMBER("weight_decay"), SWITCH("adam_w_mode"), SWITCH("torch_adam"), SWITCH("amsgrad"), SWITCH("maximize"),
    {"bias_correction", TRII_KEY_SWITCH, TRII_KEY_TAKEN, 0, 0, NULL, NULL}, IDLE("set_grad_none"), LOOPS, NORM,
};
static const trii_key sgd_keys[] = {
    NUMBER("lr"), NUMBER("momentum"), NUMBER("dampening"), NUMBER("weight_decay"), SWITCH("nesterov"),
    SWITCH("maximize"), LOOPS, NORM,
};
static const trii_key rmsprop_keys[] = {
    NUMBER("lr"), NUMBER("alpha"), NUMBER("eps"), NUMBER("weight_decay"), NUMBER("momentum"), SWITCH("centered"),
    SWITCH("maximize"), LOOPS, NORM,
};
static const trii_key adagrad_keys[] = {
    NUMBER("lr"), NUMBER("lr_decay"), NUMBER("weight_decay"), NUMBER("initial_accumulator_value"), NUMBER("eps"),
    SWITCH("maximize"), IDLE("amsgrad"), LOOPS, NORM,
};
/* clang-format on */

#define AT(name) "optimizer.params." name

static tri_opt number(const trii_engine_config *c, const char *path, double fallback)
{
    return TRI_SET(trii_conf_get_number(c, path, fallback));
}

/* False: the file has other ones than two numbers from 0 to below 1. */
static bool read_betas(const trii_engine_config *c, double *betas)
{
    const trii_conf *list = trii_conf_find(c->root, AT("betas")), *second;

    betas[0] = 0.9;
    betas[1] = 0.999;
    if (list == NULL)
        return true;
    second = list->kind == TRII_CONF_LIST && list->child != NULL ? list->child->next : NULL;
    return second != NULL && second->next == NULL && trii_conf_number(list->child, &betas[0]) &&
           trii_conf_number(second, &betas[1]) && betas[0] >= 0 && betas[0] < 1 && betas[1] >= 0 &&
           betas[1] < 1;
}

static tri_status check_adam(const trii_engine_config *c)
{
    const trii_conf *correction = trii_conf_find(c->root, AT("bias_correction"));
    double betas[2];

    if (!read_betas(c, betas))
        return trii_conf_refuse(c, trii_conf_find(c->root, AT("betas")), AT("betas"),
                                "is not allowed: two numbers from 0 to below 1, [0.9, 0.999]");
    if (correction != NULL && correction->number == 0)
        return trii_conf_refuse(c, correction, AT("bias_correction"),
                                "is not supported: Adam corrects its averages, leave it out");
    return TRI_OK;
}

/* "Adam" is AdamW unless adam_w_mode is false. The default of weight_decay is 0, but torch's for
 * its AdamW. */
static void make_adam_of(tri_engine *e, bool always_w)
{
    const trii_engine_config *c = &e->config;
    const bool w = always_w || trii_conf_get_bool(c, AT("adam_w_mode"), true);
    const bool of_torch = trii_conf_get_bool(c, AT("torch_adam"), false);
    const double lr = trii_conf_get_number(c, AT("lr"), 1e-3);
    tri_adam_options options;
    double betas[2];

    read_betas(c, betas);
    options =
        (tri_adam_options){.beta1 = TRI_SET(betas[0]),
                           .beta2 = TRI_SET(betas[1]),
                           .eps = number(c, AT("eps"), 1e-8),
                           .weight_decay = number(c, AT("weight_decay"), w && of_torch ? 0.01 : 0),
                           .amsgrad = trii_conf_get_bool(c, AT("amsgrad"), false),
                           .maximize = trii_conf_get_bool(c, AT("maximize"), false)};
    e->optimizer = w ? tri_adamw(e->model, lr, &options) : tri_adam(e->model, lr, &options);
}

static void make_adam(tri_engine *e)
{
    make_adam_of(e, false);
}

static void make_adamw(tri_engine *e)
{
    make_adam_of(e, true);
}

static void make_sgd(tri_engine *e)
{
    const trii_engine_config *c = &e->config;
    const tri_sgd_options options = {.momentum = trii_conf_get_number(c, AT("momentum"), 0),
                                     .dampening = trii_conf_get_number(c, AT("dampening"), 0),
                                     .weight_decay = trii_conf_get_number(c, AT("weight_decay"), 0),
                                     .nesterov = trii_conf_get_bool(c, AT("nesterov"), false),
                                     .maximize = trii_conf_get_bool(c, AT("maximize"), false)};

    e->optimizer = tri_sgd(e->model, trii_conf_get_number(c, AT("lr"), 1e-3), &options);
}

static void make_rmsprop(tri_engine *e)
{
    const trii_engine_config *c = &e->config;
    const tri_rmsprop_options options = {.alpha = number(c, AT("alpha"), 0.99),
                                         .eps = number(c, AT("eps"), 1e-8),
                                         .weight_decay =
                                             trii_conf_get_number(c, AT("weight_decay"), 0),
                                         .momentum = trii_conf_get_number(c, AT("momentum"), 0),
                                         .centered = trii_conf_get_bool(c, AT("centered"), false),
                                         .maximize = trii_conf_get_bool(c, AT("maximize"), false)};

    e->optimizer = tri_rmsprop(e->model, trii_conf_get_number(c, AT("lr"), 1e-2), &options);
}

static void make_adagrad(tri_engine *e)
{
    const trii_engine_config *c = &e->config;
    const tri_adagrad_options options = {
        .lr_decay = trii_conf_get_number(c, AT("lr_decay"), 0),
        .weight_decay = trii_conf_get_number(c, AT("weight_decay"), 0),
        .initial_accumulator_value = trii_conf_get_number(c, AT("initial_accumulator_value"), 0),
        .eps = number(c, AT("eps"), 1e-10),
        .maximize = trii_conf_get_bool(c, AT("maximize"), false)};

    e->optimizer = tri_adagrad(e->model, trii_conf_get_number(c, AT("lr"), 1e-2), &options);
}

/* Upper and lower case are one, as there. */
static bool is_named(const char *type, const char *name)
{
    for (; *type != '\0' && *name != '\0'; type++, name++)
        if (*type != *name && *type != *name - 'a' + 'A')
            return false;
    return *type == *name;
}

/* clang-format off */
static const struct kind {
    const char *name;
    const trii_key *keys;
    int n;
    void (*make)(tri_engine *e);
} kinds[] = {
    {"adam", adam_keys, (int)TRII_COUNT_OF(adam_keys), make_adam},
    {"adamw", adam_keys, (int)TRII_COUNT_OF(adam_keys), make_adamw},
    {"sgd", sgd_keys, (int)TRII_COUNT_OF(sgd_keys), make_sgd},
    {"rmsprop", rmsprop_keys, (int)TRII_COUNT_OF(rmsprop_keys), make_rmsprop},
    {"adagrad", adagrad_keys, (int)TRII_COUNT_OF(adagrad_keys), make_adagrad},
};
/* clang-format on */

static const struct kind *find_kind(const trii_conf *type)
{
    for (size_t i = 0; i < TRII_COUNT_OF(kinds); i++)
        if (is_named(type->text, kinds[i].name))
            return &kinds[i];
    return NULL;
}

tri_status trii_conf_optimizer(const trii_engine_config *c)
{
    const trii_conf *block = trii_conf_find(c->root, "optimizer");
    const trii_conf *type = trii_conf_find(c->root, "optimizer.type");
    const struct kind *kind;
    tri_status status;

    if (block == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: no optimizer: write \"optimizer\": {\"type\": \"AdamW\", \"params\": "
                         "{\"lr\": 1e-3}}, or give opt->optimizer",
                         c->name);
    if (type == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s:%d: optimizer: \"type\" is missing: Adam, AdamW, SGD, RMSprop or "
                         "Adagrad",
                         c->name, block->line);
    kind = find_kind(type);
    if (kind == NULL)
        return trii_conf_refuse(c, type, "optimizer.type",
                                "is not allowed: Adam, AdamW, SGD, RMSprop or Adagrad; others are "
                                "opt->optimizer of tri_initialize");
    status = trii_conf_check_block(c, "optimizer.params", kind->keys, kind->n);
    return status == TRI_OK && kind->keys == adam_keys ? check_adam(c) : status;
}

tri_status trii_engine_make_optimizer(tri_engine *e)
{
    const tri_status status = trii_conf_optimizer(&e->config);

    if (status == TRI_OK)
        find_kind(trii_conf_find(e->config.root, "optimizer.type"))->make(e);
    return status;
}
