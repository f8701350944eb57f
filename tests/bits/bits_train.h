/*
 * bits_train.h - trains one case on ranks that are threads, and makes a line of hashes of what it
 * leaves. Tests only.
 */
#ifndef TEST_BITS_TRAIN_H
#define TEST_BITS_TRAIN_H

#include <inttypes.h>

#include "bits_cases.h"

/* What one rank has in the end. */
typedef struct bits {
    uint64_t weights, buffers, optimizer, gradients, losses;
} bits;

typedef struct bits_run {
    const bits_case *of;
    kind k;
    int ranks, zero, replicas;
    const char *engine; /* NULL = "auto" */
    bits had[MAX_RANKS];
} bits_run;

/* --- hashes --------------------------------------------------------------- */

/* FNV-1a. */
static void mix(uint64_t *hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *hash = (*hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
}

static tri_status mix_tensor(uint64_t *hash, tri_tensor *t)
{
    size_t bytes;
    void *data;
    tri_status st;

    if (t == NULL) {
        mix(hash, "none", 4);
        return TRI_OK;
    }
    bytes = (size_t)tri_tensor_numel(t) * tri_dtype_size(tri_tensor_dtype(t));
    data = malloc(bytes + 1);
    st = tri_tensor_copy_out(t, data, bytes);
    if (st == TRI_OK)
        mix(hash, data, bytes);
    free(data);
    return st;
}

static tri_status mix_gradients(uint64_t *hash, tri_module *model)
{
    tri_status st = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(model) && st == TRI_OK; i++) {
        tri_state_entry e = tri_module_state(model, i);

        if (e.parameter)
            st = mix_tensor(hash, tri_grad(e.tensor));
    }
    return st;
}

static tri_status mix_all(bits *b, const trainer *t)
{
    tri_status st = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(t->model) && st == TRI_OK; i++) {
        tri_state_entry e = tri_module_state(t->model, i);

        st = mix_tensor(e.parameter ? &b->weights : &b->buffers, e.tensor);
    }
    for (int64_t i = 0; i < tri_optimizer_state_count(t->opt) && st == TRI_OK; i++)
        st = mix_tensor(&b->optimizer, tri_optimizer_state(t->opt, i).tensor);
    for (int64_t i = 0; t->scaler != NULL && i < tri_grad_scaler_state_count(t->scaler); i++) {
        if (st == TRI_OK)
            st = mix_tensor(&b->optimizer, tri_grad_scaler_state(t->scaler, i).tensor);
    }
    return st == TRI_OK && t->j->c.zero == 0 ? mix_gradients(&b->gradients, t->model) : st;
}

/* --- a rank --------------------------------------------------------------- */

typedef struct bits_rank {
    trainer t; /* first: what `between` gets */
    job j;
    bits *to;
    tri_power_sgd *power_sgd;
} bits_rank;

static tri_status look(const trainer *t)
{
    return mix_gradients(&((const bits_rank *)t)->to->losses, t->model);
}

/* What changes from step to step. */
static void before_step(const bits_run *run, const trainer *t, int step)
{
    taken = (step + t->rank) % 5 == 0 ? 2 : (step / 2 + t->rank) % 3 == 0;
    if (run->of->freezes && step == UNFROZEN_AT)
        tri_module_requires_grad(tri_module_submodule(t->model, run->k.blocks[0]), true);
    if (run->of->freezes && step == FROZEN_AT)
        tri_module_requires_grad(tri_module_submodule(t->model, run->k.blocks[1]), false);
}

static const char *train_bits(rank_env *env, const bits_run *run, bits_rank *r)
{
    trainer *t = &r->t;

    for (int step = 0; step < steps_of(&r->j.c, env->rank); step++) {
        double loss = 0;
        int64_t samples = 0;

        before_step(run, t, step);
        JOB_TRY(env, &r->j, train_step(t, &loss));
        for (int i = 0; i < averaged_models(&r->j.c); i++)
            samples += tri_ddp_sample_count(averaged_model(&r->j.c, t->model, i));
        mix(&r->to->losses, &loss, sizeof(loss));
        mix(&r->to->losses, &samples, sizeof(samples));
    }
    if (r->j.c.join)
        JOB_TRY(env, &r->j, tri_ddp_join(t->model, loss_of_nothing, update_joined, t, NULL));
    for (int i = 0; i < averaged_models(&r->j.c); i++)
        JOB_TRY(env, &r->j, tri_ddp_verify(averaged_model(&r->j.c, t->model, i), false));
    JOB_TRY(env, &r->j, tri_unshard_begin(t->model));
    JOB_TRY(env, &r->j, mix_all(r->to, t));
    JOB_TRY(env, &r->j, tri_unshard_end(t->model));
    return NULL;
}

static const char *start_bits(rank_env *env, const bits_run *run, tri_group *group, bits_rank *r)
{
    const tri_power_sgd_options options = {.rank = 2, .start_pass = TRI_SET(2)};
    const tri_grad_scaler_options scaling = {.growth_interval = 3};

    if (run->of->power_sgd)
        JOB_TRY(env, &r->j, tri_power_sgd_create(&options, &r->power_sgd));
    if (run->of->scaler)
        JOB_TRY(env, &r->j, tri_grad_scaler_create(&scaling, &r->t.scaler));
    r->j.c.hook_state = r->power_sgd;
    JOB_TRY(env, &r->j, compose(&r->j, group, &r->t.model));
    r->t.opt = optimizer_of(&r->j.c, r->t.model);
    return NULL;
}

static const char *bits_rank_main(rank_env *env)
{
    bits_run *run = env->arg;
    bits_rank *r = calloc(1, sizeof(*r));
    tri_group *group = NULL;
    const char *failure;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    r->j = (job){.k = &run->k, .c = run->of->c};
    r->j.c.ranks = run->ranks;
    r->j.c.zero = run->zero;
    r->j.c.replicas = run->replicas;
    snprintf(r->j.name, sizeof(r->j.name), "%s", run->of->name);
    r->to = &run->had[env->rank];
    *r->to = (bits){1, 1, 1, 1, 1};
    r->t = (trainer){
        .j = &r->j, .rank = env->rank, .between = run->of->looks && run->zero == 0 ? look : NULL};
    failure = start_bits(env, run, group, r);
    if (failure == NULL)
        failure = train_bits(env, run, r);
    if (failure != NULL)
        tri_group_abort(group, failure);
    tri_step_end();
    tri_optimizer_destroy(r->t.opt);
    tri_module_destroy(r->t.model);
    tri_grad_scaler_destroy(r->t.scaler);
    tri_power_sgd_destroy(r->power_sgd);
    tri_group_unref(group);
    free(r);
    return failure;
}

/* --- all ranks ------------------------------------------------------------ */

static uint64_t of_all_ranks(const bits_run *run, size_t field)
{
    uint64_t hash = 1;

    for (int r = 0; r < run->ranks; r++)
        mix(&hash, (const char *)&run->had[r] + field, sizeof(hash));
    return hash;
}

/* Writes the hashes, or what went wrong: false. Once a process. */
static bool bits_line(bits_run *run, char *line, size_t bytes)
{
    const tri_group_options options = {.engine = run->engine, .timeout_ms = 60000};
    char failure[RANKS_TEXT] = "no devices";

    run->k = *run->of->k;
    run->k.f32 = !run->of->f64;
    run->k.ignored = run->of->ignored;
    run->k.never_empty = run->k.never_empty || run->of->some;
    /* With one device all threads are its own. */
    if (tri_cpu_devices_set(run->of->c.place == ONE_DEVICE ? 1 : MAX_DEVICES) != TRI_OK ||
        !ranks_run(run->ranks, &options, bits_rank_main, run, failure)) {
        snprintf(line, bytes, "failed: %s", failure);
        return false;
    }
    snprintf(line, bytes,
             "weights %016" PRIx64 " buffers %016" PRIx64 " optimizer %016" PRIx64
             " gradients %016" PRIx64 " losses %016" PRIx64,
             of_all_ranks(run, offsetof(bits, weights)), of_all_ranks(run, offsetof(bits, buffers)),
             of_all_ranks(run, offsetof(bits, optimizer)),
             of_all_ranks(run, offsetof(bits, gradients)),
             of_all_ranks(run, offsetof(bits, losses)));
    return true;
}

#endif
