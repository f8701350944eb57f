/*
 * retired.h - values that stand for a tensor whose contents are elsewhere
 * (train/tensor/elsewhere.h), for a while.
 *
 * Such a value has an owner, the tensor, whose gradient its gradient is. While it is pending the
 * strategy may say that nothing more reads it: then its memory is free after its last reader, and
 * what would read it later, such as a gradient, gets a new one.
 */
#ifndef TRII_RETIRED_H
#define TRII_RETIRED_H

#include "train/graph/step/step.h"
#include "train/tensor/elsewhere.h"

/* Where contents were made again, the first value that had them: gradients of all of these values
 * add up in the order of their readers, as if they were one. */
static inline trii_vid trii_value_first(const trii_step *step, trii_vid value)
{
    const trii_value *v = &step->values[value];

    if (v->owner != NULL)
        return v->replaces != TRII_NO_VALUE ? v->replaces : value;
    return v->bound == NULL && v->replaces != TRII_NO_VALUE && v->replaces < value ? v->replaces
                                                                                   : value;
}
/* The value, which some node makes, stands for the tensor from now on. */
tri_status trii_value_own(trii_step *step, trii_vid value, tri_tensor *tensor) TRI_MUST_CHECK;
/* What is recorded from now on does not read it, but for the operation whose operands are looked up
 * now. No effect on a value that has run. */
void trii_value_retire(trii_step *step, trii_vid value);
/* Whether its contents can be made again. */
static inline bool trii_value_is_renewable(const trii_value *value)
{
    return value->state == TRII_VALUE_DROPPED && (value->retired || value->owner != NULL);
}
/* *id_io becomes a value of the same contents that can be read; one that is not renewable stays. */
tri_status trii_value_renew(trii_step *step, trii_vid *id_io) TRI_MUST_CHECK;

#endif
