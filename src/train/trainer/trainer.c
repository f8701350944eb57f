/*
 * trainer.c - what steps and callbacks read of a fit, and how they end it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/option.h"
#include "train/trainer/log_book.h"

tri_module *tri_trainer_model(const tri_trainer *t)
{
    return t != NULL ? t->model : NULL;
}

tri_optimizer *tri_trainer_optimizer(const tri_trainer *t)
{
    return t != NULL ? t->optimizer : NULL;
}

int64_t tri_trainer_epoch(const tri_trainer *t)
{
    return t != NULL ? t->epoch : -1;
}

int64_t tri_trainer_step(const tri_trainer *t)
{
    return t != NULL ? t->step : -1;
}

int64_t tri_trainer_batch(const tri_trainer *t)
{
    return t != NULL ? t->batch : -1;
}

int64_t tri_trainer_total_steps(const tri_trainer *t)
{
    return t != NULL ? t->total_steps : -1;
}

int tri_trainer_rank(const tri_trainer *t)
{
    return t != NULL ? t->rank : -1;
}

int tri_trainer_world_size(const tri_trainer *t)
{
    return t != NULL ? t->size : -1;
}

bool tri_trainer_is_global_zero(const tri_trainer *t)
{
    return t != NULL && t->rank == 0;
}

bool tri_trainer_is_sanity_checking(const tri_trainer *t)
{
    return t != NULL && t->phase == TRII_PHASE_SANITY;
}

const char *tri_trainer_run_dir(const tri_trainer *t)
{
    return t != NULL ? t->run_dir : NULL;
}

double tri_trainer_value(const tri_trainer *t, const char *name)
{
    return t != NULL && name != NULL ? trii_book_value(t->book, name) : (double)NAN;
}

tri_tensorboard *tri_trainer_tensorboard(const tri_trainer *t)
{
    return t != NULL ? trii_book_board(t->book) : NULL;
}

void tri_trainer_stop(tri_trainer *t, const char *why)
{
    if (t == NULL || t->wish != TRI_STOP_NONE)
        return;
    t->wish = TRI_STOP_REQUEST;
    snprintf(t->wish_why, sizeof(t->wish_why), "%s", why != NULL ? why : "tri_trainer_stop");
}

double tri_fit_result_value(const tri_fit_result *result, const char *name)
{
    if (result == NULL || name == NULL || TRII_CHECK_RESERVED(tri_fit_result, result) != TRI_OK)
        return (double)NAN;
    for (int i = 0; i < result->n_values && i < TRI_FIT_MAX_VALUES; i++)
        if (strcmp(result->names[i], name) == 0)
            return result->values[i];
    return (double)NAN;
}
