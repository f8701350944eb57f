/*
 * engine_facts.c - what an engine knows of itself.
 */
#include <math.h>

#include "train/deepspeed/engine_internal.h"

int64_t tri_engine_train_batch_size(const tri_engine *e)
{
    return e != NULL ? e->config.train_batch : 0;
}

int64_t tri_engine_train_micro_batch_size_per_gpu(const tri_engine *e)
{
    return e != NULL ? e->config.micro_batch : 0;
}

int64_t tri_engine_gradient_accumulation_steps(const tri_engine *e)
{
    return e != NULL ? e->config.accumulate : 0;
}

bool tri_engine_is_gradient_accumulation_boundary(const tri_engine *e)
{
    return e != NULL && trii_engine_at_boundary(e);
}

bool tri_engine_was_step_applied(const tri_engine *e)
{
    return e != NULL && e->applied;
}

double tri_engine_lr(const tri_engine *e)
{
    return e != NULL ? tri_optimizer_lr(e->optimizer) : (double)NAN;
}

double tri_engine_loss_scale(const tri_engine *e)
{
    return e != NULL ? e->scale : (double)NAN;
}

double tri_engine_global_grad_norm(const tri_engine *e)
{
    return e != NULL ? e->norm : (double)NAN;
}

int64_t tri_engine_global_steps(const tri_engine *e)
{
    return e != NULL ? e->global_steps : 0;
}

int64_t tri_engine_skipped_steps(const tri_engine *e)
{
    return e != NULL ? e->skipped_steps : 0;
}

int64_t tri_engine_global_samples(const tri_engine *e)
{
    return e != NULL ? e->global_samples : 0;
}

int64_t tri_engine_micro_steps(const tri_engine *e)
{
    return e != NULL ? e->micro_steps : 0;
}

tri_module *tri_engine_module(const tri_engine *e)
{
    return e != NULL ? e->model : NULL;
}

tri_optimizer *tri_engine_optimizer(const tri_engine *e)
{
    return e != NULL ? e->optimizer : NULL;
}

tri_loader *tri_engine_training_dataloader(const tri_engine *e)
{
    return e != NULL ? e->loader : NULL;
}
