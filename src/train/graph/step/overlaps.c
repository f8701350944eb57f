/*
 * overlaps.c - see overlaps.h. Called by record/ (bind.c, handle.c), run/segment.c and
 * values/contents.c.
 */
#include "train/graph/step/overlaps.h"

#include "train/tensor/packed.h"
#include "train/tensor/sharing.h"

/* A release of a tensor must wait until a visit is over, so what is done about many values is done
 * one by one. */
typedef struct search {
    trii_step *step;
    const tri_tensor *tensor;
    trii_vid (*which)(trii_step *step, const tri_tensor *tensor, const tri_tensor *other);
    trii_vid found;
} search;

static void see_first(void *arg, tri_tensor *other)
{
    search *s = arg;

    if (s->found == TRII_NO_VALUE)
        s->found = s->which(s->step, s->tensor, other);
}

trii_vid trii_overlaps_first(trii_step *step, const tri_tensor *tensor,
                             trii_vid (*which)(trii_step *step, const tri_tensor *tensor,
                                               const tri_tensor *other))
{
    search s = {step, tensor, which, TRII_NO_VALUE};

    trii_overlaps_visit(tensor, see_first, &s);
    return s.found;
}

/* --- what was read -------------------------------------------------------- */

static void see_known(void *arg, tri_tensor *other)
{
    trii_known *known = trii_known_find(arg, other);

    if (known == NULL || known->value == TRII_NO_VALUE)
        return;
    known->overwritten = known->value;
    known->value = TRII_NO_VALUE;
}

void trii_overlaps_forget(trii_step *step, const tri_tensor *tensor)
{
    trii_overlaps_visit(tensor, see_known, step);
}

/* The value that lies in the tensor, and will until somebody writes it; NULL. */
static trii_value *overwritten(trii_step *step, const tri_tensor *tensor)
{
    const trii_known *known = trii_known_find(step, tensor);
    trii_value *value = known != NULL && known->overwritten != TRII_NO_VALUE
                            ? &step->values[known->overwritten]
                            : NULL;

    return value != NULL && value->state == TRII_VALUE_READY && value->storage == NULL ? value
                                                                                       : NULL;
}

trii_vid trii_overlaps_still(trii_step *step, const tri_tensor *tensor)
{
    const trii_value *value = overwritten(step, tensor);

    return value != NULL ? (trii_vid)(value - step->values) : TRII_NO_VALUE;
}

typedef struct numbers {
    trii_step *step;
    uint64_t *inputs;
    int32_t n;
} numbers;

static void see_input(void *arg, tri_tensor *other)
{
    numbers *all = arg;
    const trii_recorder *r = trii_recorder_of(all->step);
    const trii_value *value = overwritten(all->step, other);

    if (value != NULL && value->slot_segment == r->pending.number && all->n < r->pending.n_inputs)
        all->inputs[all->n++] = (uint64_t)(uint32_t)value->slot;
}

int32_t trii_overlaps_inputs(trii_step *step, const tri_tensor *tensor, uint64_t *inputs)
{
    numbers all = {step, inputs, 0};

    trii_overlaps_visit(tensor, see_input, &all);
    return all.n;
}

static void see_written(void *arg, tri_tensor *other)
{
    trii_value *value = overwritten(arg, other);

    if (value != NULL)
        value->state = TRII_VALUE_DROPPED;
}

void trii_overlaps_written(trii_step *step, const tri_tensor *tensor)
{
    trii_overlaps_visit(tensor, see_written, step);
}

typedef struct drop {
    bool lent;
    trii_storage *list; /* references to be released */
} drop;

static void see_copies(void *arg, tri_tensor *other)
{
    drop *d = arg;
    trii_packed_dropped dropped = trii_packed_written(other);

    other->address_lent |= d->lent;
    for (int i = 0; i < TRII_PACKED_COPIES; i++) {
        if (dropped.storage[i] == NULL)
            continue;
        dropped.storage[i]->next = d->list;
        d->list = dropped.storage[i];
    }
}

void trii_overlaps_drop(const tri_tensor *tensor, bool lent)
{
    drop d = {.lent = lent, .list = NULL};

    trii_step_lock();
    trii_overlaps_visit(tensor, see_copies, &d);
    trii_step_unlock();
    while (d.list != NULL) {
        trii_storage *next = d.list->next;

        trii_storage_unref(d.list);
        d.list = next;
    }
}

/* --- the program writes --------------------------------------------------- */

/* What lies in the other one and is still wanted. */
static trii_vid wanted(trii_step *step, const tri_tensor *tensor, const tri_tensor *other)
{
    const trii_value *value = overwritten(step, other);

    (void)tensor;
    return value != NULL && (value->leaf == NULL || value->used) ? (trii_vid)(value - step->values)
                                                                 : TRII_NO_VALUE;
}

tri_status trii_overlaps_move_out(trii_step *step, const tri_tensor *tensor)
{
    tri_status status = TRI_OK;
    trii_vid id = wanted(step, NULL, tensor);

    trii_overlaps_forget(step, tensor);
    if (id == TRII_NO_VALUE)
        id = trii_overlaps_first(step, tensor, wanted);
    while (status == TRI_OK && id != TRII_NO_VALUE) {
        status = trii_value_move_out(&step->values[id]);
        id = trii_overlaps_first(step, tensor, wanted);
    }
    return status;
}
