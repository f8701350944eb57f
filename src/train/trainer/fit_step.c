/*
 * fit_step.c - calls of the task's steps, in the types that the precision asks for.
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
