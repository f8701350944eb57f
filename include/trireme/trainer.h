/*
 * trainer.h - what a training loop counts: means over steps.
 */
#ifndef TRIREME_TRAINER_H
#define TRIREME_TRAINER_H

#include <trireme/status.h>
#include <trireme/tensor.h>

TRI_BEGIN_DECLS

/* --- running means -------------------------------------------------------- */

/* Mean of a scalar over steps. Adding records one addition into the step; the value is only
 * fetched when it is asked for. Sums are f64. */
typedef struct tri_meter tri_meter;

TRI_API TRI_MUST_CHECK tri_status tri_meter_create(tri_meter **meter_out);
TRI_API void tri_meter_destroy(tri_meter *meter); /* NULL allowed */
/* Both take a step tensor of one element. add_mean takes the mean of `weight` samples (a loss), and
 * adds it times the weight; add_count takes a sum over `weight` samples (tri_count_correct), and
 * adds it as it is. Call them before the step runs (tri_optimizer_step), so that they run as a part
 * of it; a step that fails adds neither the value nor the weight. */
TRI_API TRI_MUST_CHECK tri_status tri_meter_add_mean(tri_meter *meter, tri_tensor *mean,
                                                     int64_t weight);
TRI_API TRI_MUST_CHECK tri_status tri_meter_add_count(tri_meter *meter, tri_tensor *count,
                                                      int64_t weight);
/* Since the last reset: the sum divided by the weight, the sum, and the weight. They run what was
 * recorded. If nothing was added, the value is NaN; if the step has failed, value and sum are NaN
 * and the weight is 0. */
TRI_API double tri_meter_value(tri_meter *meter);
TRI_API double tri_meter_sum(tri_meter *meter);
TRI_API int64_t tri_meter_weight(tri_meter *meter);
TRI_API TRI_MUST_CHECK tri_status tri_meter_reset(tri_meter *meter);

TRI_END_DECLS

#endif
