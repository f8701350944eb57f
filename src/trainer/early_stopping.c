/*
 * early_stopping.c - ends a fit when a value does not get better any more.
 */
#include "trainer/trainer_policy.h"

tri_status trii_early_create(tri_trainer *t)
{
    if (t->opt->early_stopping == NULL)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                     "tri_fit: early_stopping is not there yet: call tri_trainer_stop from the "
                     "validation_end of a callback");
}

void trii_early_destroy(tri_trainer *t)
{
    (void)t;
}

tri_status trii_early_look(tri_trainer *t)
{
    (void)t;
    return TRI_OK;
}
