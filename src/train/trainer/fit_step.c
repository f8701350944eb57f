/*
 * fit_step.c - calls of the task's steps, in the types that the precision asks for, and with
 * parameters that can be read.
 */
#include <trireme/ops.h>

#include "train/trainer/trainer_internal.h"

/* With "64-true" fields of f32 are f64. */
static const tri_batch *begin(tri_trainer *t, const tri_batch *batch, tri_batch *room)
{
    t->in_step = true;
    if (TRII_UNLIKELY(t->set.precision == TRII_PRECISION_64)) {
        *room = *batch;
        for (int f = 0; f < batch->n_fields; f++)
            if (tri_tensor_dtype(batch->fields[f]) == TRI_DTYPE_F32)
                room->fields[f] = tri_cast(batch->fields[f], TRI_DTYPE_F64);
        batch = room;
    }
    if (t->autocast)
        tri_autocast_begin(t->autocast_dtype);
    return batch;
}

/* What follows (the loss) may still be logged: the caller ends in_step. */
static void end(const tri_trainer *t)
{
    if (t->autocast)
        tri_autocast_end();
}

tri_tensor *trii_fit_training_step(tri_trainer *t, const tri_batch *batch)
{
    tri_batch room;
    tri_tensor *loss = t->task->training_step(t, begin(t, batch, &room), t->arg);

    end(t);
    return loss;
}

tri_tensor *trii_fit_predict_step(tri_trainer *t, const tri_batch *batch)
{
    tri_batch room;
    tri_tensor *result;

    batch = begin(t, batch, &room);
    t->in_step = false;
    result = t->task->predict_step != NULL ? t->task->predict_step(t, batch, t->arg)
                                           : tri_forward(t->model, batch->fields[0]);
    end(t);
    return result;
}

void trii_fit_evaluation_step(tri_trainer *t, const tri_batch *batch,
                              void (*step)(tri_trainer *t, const tri_batch *batch, void *arg))
{
    tri_batch room;

    step(t, begin(t, batch, &room), t->arg);
    end(t);
}

/* --- parameters ----------------------------------------------------------- */

tri_status trii_fit_whole_begin(tri_trainer *t, int64_t n_batches, bool *is_whole_out)
{
    double most[2] = {(double)n_batches, -(double)n_batches};
    tri_status status = TRI_OK;

    *is_whole_out = false;
    if (!trii_fit_is_sharded(t) || trii_strategy_stage(t->set.strategy) < 3)
        return TRI_OK;
    status = trii_fit_max(t, most, 2);
    if (status != TRI_OK || most[0] == -most[1])
        return status;
    *is_whole_out = true;
    return tri_unshard_begin(t->model);
}

tri_status trii_fit_whole_end(tri_trainer *t, bool is_whole)
{
    return is_whole ? tri_unshard_end(t->model) : TRI_OK;
}
