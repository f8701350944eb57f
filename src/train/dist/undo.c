/*
 * undo.c - the steps in which a unit takes part: what a step that fails gives back of what was
 * counted, and that its peers, who wait in its collectives, get the reason instead.
 */
#include "base/alloc.h"
#include "train/dist/unit.h"

static void step_released(trii_unit_step *s)
{
    if (atomic_fetch_sub(&s->owners, 1) == 1)
        trii_free(s);
}

static void step_failed(trii_witness *witness, const trii_step *step, const char *why)
{
    trii_unit_step *s = (trii_unit_step *)(void *)witness;
    trii_unit *unit = s->unit;
    bool vote_stop;

    if (unit == NULL)
        return;
    unit->seeded = false; /* its header will not be there */
    if (s->first_node == step->first_pending) {
        vote_stop = unit->tally.vote_stop;
        unit->tally = s->before;
        unit->tally.vote_stop |= vote_stop;
        s->first_node = -1;
        trii_unit_forget_promises(unit); /* a backward begins without any */
    }
    if (s->n_open > 0)
        trii_unit_abort(unit, why);
}

static void step_ended(trii_witness *witness)
{
    step_released((trii_unit_step *)(void *)witness);
}

/* The step's entry; NULL without memory. */
static trii_unit_step *take(trii_unit *unit, trii_step *step)
{
    trii_unit_step *s, *free_one = NULL;

    for (s = unit->steps; s != NULL; s = s->next) {
        bool ended = atomic_load_explicit(&s->owners, memory_order_acquire) == 1;

        if (!ended && s->generation == step->generation)
            return s;
        free_one = ended ? s : free_one;
    }
    s = free_one;
    if (s == NULL) {
        s = trii_alloc(1, sizeof(*s), "step of a model");
        if (s == NULL)
            return NULL;
        s->witness = (trii_witness){.failed = step_failed, .ended = step_ended};
        s->unit = unit;
        s->next = unit->steps;
        unit->steps = s;
    }
    atomic_store_explicit(&s->owners, 2, memory_order_release);
    s->generation = step->generation;
    s->n_open = 0;
    s->first_node = -1;
    trii_step_add_witness(step, &s->witness);
    return s;
}

tri_status trii_unit_remember(trii_unit *unit, trii_step *step)
{
    trii_unit_step *s = take(unit, step);
    tri_status status = s != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (s == NULL || s->first_node == step->first_pending)
        return status;
    for (int i = 0; i < unit->n_params && status == TRI_OK; i++) {
        status = trii_grad_check(step, unit->params[i].tensor);
        if (status == TRI_OK && unit->stage > 0)
            status = trii_grad_check(step, unit->params[i].home);
    }
    if (status != TRI_OK)
        return status;
    s->first_node = step->first_pending;
    s->before = unit->tally;
    return TRI_OK;
}

tri_status trii_unit_open_pass(trii_unit *unit, trii_step *step)
{
    trii_unit_step *s = take(unit, step);

    if (s == NULL)
        return TRI_ERR_NO_MEMORY;
    s->n_open++;
    return TRI_OK;
}

void trii_unit_close_pass(trii_unit *unit, uint64_t generation)
{
    for (trii_unit_step *s = unit->steps; s != NULL; s = s->next) {
        if (s->generation == generation && s->n_open > 0) {
            s->n_open--;
            return;
        }
    }
}

void trii_unit_steps_free(trii_unit *unit)
{
    while (unit->steps != NULL) {
        trii_unit_step *s = unit->steps;

        unit->steps = s->next;
        s->unit = NULL;
        step_released(s);
    }
}
