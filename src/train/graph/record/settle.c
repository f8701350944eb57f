/*
 * settle.c - runs what pends where a tensor is read or written that shares memory with another one
 * (step/overlaps.h): contents pass from one to the other from run to run.
 */
#include "train/graph/record/record.h"
#include "train/graph/step/overlaps.h"
#include "train/tensor/sharing.h"

/* Values that will be left in others, so many at a time: releasing a tensor, as unbind() may, must
 * wait until the visit is over. */
#define AT_ONCE 16

typedef struct search {
    trii_step *step;
    trii_vid found[AT_ONCE];
    int n;
} search;

static void see_pending(void *arg, tri_tensor *other)
{
    search *s = arg;
    trii_vid id = trii_known_value(s->step, other);

    if (s->n < AT_ONCE && id != TRII_NO_VALUE && s->step->values[id].bound == other &&
        s->step->values[id].state == TRII_VALUE_PENDING)
        s->found[s->n++] = id;
}

/* In a step that has failed nothing pends. */
static search find_pending(trii_step *step, const tri_tensor *tensor)
{
    search s = {.step = step, .n = 0};

    if (step->failed == TRI_OK)
        trii_overlaps_visit(tensor, see_pending, &s);
    return s;
}

tri_status trii_overlaps_settle(trii_step *step, const tri_tensor *tensor)
{
    return find_pending(step, tensor).n > 0 ? trii_step_run_and_keep(step) : TRI_OK;
}

/* The contents that the tensor had before belong to their readers only. */
static void unbind(trii_step *step, trii_vid id)
{
    trii_value *value = &step->values[id];
    tri_tensor *tensor = value->bound;
    trii_known *known = trii_known_find(step, tensor);

    known->value = TRII_NO_VALUE;
    if (value->replaces != TRII_NO_VALUE)
        known->overwritten = value->replaces;
    value->replaces = TRII_NO_VALUE;
    value->bound = NULL;
    tri_tensor_unref(tensor);
}

tri_status trii_overlaps_cover(trii_step *step, const tri_tensor *tensor)
{
    search s = find_pending(step, tensor);

    while (s.n > 0) {
        for (int i = 0; i < s.n; i++) {
            if (!trii_tensor_covers(tensor, step->values[s.found[i]].bound))
                return trii_step_run_and_keep(step);
        }
        for (int i = 0; i < s.n; i++)
            unbind(step, s.found[i]);
        s = find_pending(step, tensor);
    }
    return TRI_OK;
}
