/*
 * fit_average.c - moving averages of the parameters while a fit runs.
 */
#include "base/alloc.h"
#include "base/option.h"
#include "train/trainer/trainer_policy.h"

struct trii_average {
    tri_ema *ema;
    int64_t every, start;
    bool any;                 /* updated at least once, so that it may be swapped */
    tri_state_entry *entries; /* [n] */
    int64_t n;
};

static tri_status list_entries(trii_average *a)
{
    a->n = tri_ema_state_count(a->ema);
    a->entries = trii_alloc((size_t)a->n, sizeof(*a->entries), "averages");
    if (a->entries == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < a->n; i++)
        a->entries[i] = tri_ema_state(a->ema, i);
    return TRI_OK;
}

/* Of an evaluation, too, which takes them from a checkpoint. */
static tri_status create(tri_trainer *t, double decay)
{
    tri_status status;

    t->average = trii_alloc(1, sizeof(*t->average), "averages");
    if (t->average == NULL)
        return TRI_ERR_NO_MEMORY;
    status = tri_ema_create(t->model, decay, &t->average->ema);
    return status == TRI_OK ? list_entries(t->average) : TRII_FAIL_CTX(status, "tri_fit: ema");
}

tri_status trii_average_create(tri_trainer *t)
{
    const tri_fit_ema_options *opt = t->opt->ema;
    tri_status status;

    if (opt == NULL)
        return TRI_OK;
    status = TRII_CHECK_RESERVED(tri_fit_ema_options, opt);
    if (status == TRI_OK && (opt->every_n_steps < 0 || opt->start_step < 0))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "tri_fit: ema->every_n_steps %lld, start_step %lld: neither is negative",
                           (long long)opt->every_n_steps, (long long)opt->start_step);
    if (status == TRI_OK)
        status = create(t, trii_option(opt->decay, 0.999));
    if (status != TRI_OK)
        return status;
    t->average->every = opt->every_n_steps > 0 ? opt->every_n_steps : 1;
    t->average->start = opt->start_step;
    return TRI_OK;
}

void trii_average_destroy(tri_trainer *t)
{
    if (t->average == NULL)
        return;
    tri_ema_destroy(t->average->ema);
    trii_free(t->average->entries);
    trii_free(t->average);
    t->average = NULL;
}

tri_status trii_average_update(tri_trainer *t)
{
    trii_average *a = t->average;

    if (t->step <= a->start || (t->step - a->start) % a->every != 0)
        return TRI_OK;
    a->any = true;
    return tri_ema_update(a->ema);
}

tri_status trii_average_swap(tri_trainer *t)
{
    return t->average->any ? tri_ema_swap(t->average->ema) : TRI_OK;
}

tri_checkpoint_extra trii_average_extra(const tri_trainer *t)
{
    const trii_average *a = t->average;

    return (tri_checkpoint_extra){.name = "ema",
                                  .entries = a != NULL && a->any ? a->entries : NULL,
                                  .n = a != NULL && a->any ? a->n : 0};
}

tri_status trii_average_load(tri_trainer *t, const tri_checkpoint *from)
{
    tri_status status = TRI_OK;

    if (!tri_checkpoint_has(from, "ema"))
        return TRI_OK;
    if (t->average == NULL && t->call == TRII_FIT) {
        trii_fit_say(t, "the checkpoint has averages of the parameters, and ema is not set: they "
                        "are left out");
        return TRI_OK;
    }
    if (t->average == NULL)
        status = create(t, 0.999);
    if (status == TRI_OK)
        status = tri_checkpoint_restore_extra(from, "ema", t->average->entries, t->average->n);
    if (status == TRI_OK)
        t->average->any = true;
    return status;
}
