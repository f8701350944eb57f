/*
 * fit_average.c - moving averages of the parameters while a fit runs.
 */
#include "trainer/trainer_policy.h"

tri_status trii_average_create(tri_trainer *t)
{
    if (t->opt->ema == NULL)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                     "tri_fit: ema is not there yet: call tri_ema_update from the batch_end of a "
                     "callback");
}

void trii_average_destroy(tri_trainer *t)
{
    (void)t;
}

tri_status trii_average_update(tri_trainer *t)
{
    (void)t;
    return TRI_OK;
}

tri_status trii_average_swap(tri_trainer *t)
{
    (void)t;
    return TRI_OK;
}
