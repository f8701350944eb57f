/*
 * memory_stats.c - tri_memory: bytes of what a network is trained with. Storages are counted, since
 * these are what is allocated: parameters, gradients and their pieces lie in one together
 * (train/dist/unit.h), and whatever a strategy leaves elsewhere has none here.
 */
#include <trireme/memory_stats.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "train/dist/unit.h"
#include "train/nn/module.h"
#include "train/optim/optimizer.h"

/* What has been counted: storages, units and what else has an address. */
typedef struct counted {
    const void **list;
    int n, room;
    tri_status status;
} counted;

static bool is_new(counted *c, const void *thing)
{
    if (thing == NULL || c->status != TRI_OK)
        return false;
    for (int i = c->n - 1; i >= 0; i--) /* neighbours share one */
        if (c->list[i] == thing)
            return false;
    c->status = trii_array_grow(&c->list, &c->room, c->n, 256, sizeof(*c->list), "memory");
    if (c->status == TRI_OK)
        c->list[c->n++] = thing;
    return c->status == TRI_OK;
}

/* NULL: it has no memory of its own. */
static void add_tensor(counted *c, size_t *bytes_io, const tri_tensor *tensor)
{
    if (tensor != NULL && is_new(c, tensor->storage))
        *bytes_io += tensor->storage->bytes;
}

/* --- a network ------------------------------------------------------------ */

static void add_parameter(counted *c, tri_memory_stats *s, tri_tensor *tensor)
{
    if (tensor->elsewhere == NULL) /* else its memory is addresses alone */
        add_tensor(c, &s->parameters, tensor);
    add_tensor(c, &s->parameters, trii_home(tensor));
    if (!is_new(c, tensor)) /* under several names */
        return;
    s->whole_parameters += trii_tensor_bytes(tensor);
    s->with_ddp += trii_tensor_bytes(tensor) * (tensor->requires_grad ? 2 : 1);
}

static void add_gradient(counted *c, tri_memory_stats *s, tri_tensor *tensor)
{
    const tri_tensor *home = trii_home(tensor);

    add_tensor(c, &s->gradients, tensor->grad);
    if (home != tensor)
        add_tensor(c, &s->gradients, home->grad);
    if (tensor->requires_grad && home->grad == NULL && is_new(c, &tensor->grad))
        s->gradients += trii_tensor_bytes(home);
}

static void add_unit(counted *c, tri_memory_stats *s, const trii_unit *unit)
{
    const trii_averager *averager;

    if (!is_new(c, unit))
        return;
    averager = &unit->averager;
    for (int b = 0; b < averager->n_buckets && unit->buckets != NULL; b++) {
        const trii_storage *storage = unit->buckets[b].storage;

        s->messages += is_new(c, storage) ? storage->bytes : 0;
        s->messages += averager->buckets[b].memory.bytes;
    }
    for (int i = 0; i < averager->n_items && averager->kept != NULL; i++)
        s->messages += averager->kept[i].bytes;
}

static void add_model(counted *c, tri_memory_stats *s, tri_module *model)
{
    const int64_t n = tri_module_state_count(model);

    for (int64_t i = 0; i < n; i++)
        if (tri_module_state(model, i).parameter)
            add_parameter(c, s, tri_module_state(model, i).tensor);
    for (int64_t i = 0; i < n; i++)
        if (tri_module_state(model, i).parameter)
            add_gradient(c, s, tri_module_state(model, i).tensor);
        else
            add_tensor(c, &s->buffers, tri_module_state(model, i).tensor);
    /* After gradients, which lie in buckets. */
    for (int64_t i = 0; i < n; i++)
        add_unit(c, s, trii_unit_of(tri_module_state(model, i).tensor));
    s->with_ddp += s->buffers;
}

/* --- its optimizer and averages ------------------------------------------- */

/* What all ranks have of it together. */
static size_t whole_bytes(const tri_tensor *tensor)
{
    size_t bytes = tri_dtype_size(tensor->dtype);

    if (tensor->held == NULL)
        return trii_tensor_bytes(tensor);
    for (int d = 0; d < tensor->held->ndim; d++)
        bytes *= (size_t)tensor->held->shape[d];
    return bytes;
}

static void add_state(counted *c, tri_memory_stats *s, size_t *bytes_io, tri_state_entry entry)
{
    add_tensor(c, bytes_io, entry.tensor);
    s->with_ddp += whole_bytes(entry.tensor);
}

/* --- memory_stats.h ------------------------------------------------------- */

static tri_status check(tri_module *model, const tri_optimizer *optimizer,
                        const tri_memory_stats *stats_out)
{
    tri_status status = trii_need(stats_out, "memory", "stats_out");

    if (status == TRI_OK)
        status = trii_need(model, "memory", "model");
    if (status == TRI_OK)
        status = trii_module_flatten(model);
    return status == TRI_OK && optimizer != NULL ? tri_optimizer_status(optimizer) : status;
}

tri_status tri_memory(tri_module *model, const tri_optimizer *optimizer, const tri_ema *ema,
                      tri_memory_stats *stats_out)
{
    tri_memory_stats s = {0};
    counted c = {.status = check(model, optimizer, stats_out)};

    if (c.status != TRI_OK)
        return c.status;
    add_model(&c, &s, model);
    for (int i = 0; optimizer != NULL && i < optimizer->n_state; i++)
        add_state(&c, &s, &s.states, optimizer->state[i]);
    for (int64_t i = 0; i < tri_ema_state_count(ema); i++)
        add_state(&c, &s, &s.averages, tri_ema_state(ema, i));
    trii_free(c.list);
    if (c.status != TRI_OK)
        return c.status;
    if (trii_executor_default->bytes != NULL)
        s.values = trii_executor_default->bytes();
    s.total =
        s.parameters + s.gradients + s.states + s.averages + s.buffers + s.messages + s.values;
    *stats_out = s;
    return TRI_OK;
}

void tri_memory_print(tri_module *model, const tri_optimizer *optimizer, const tri_ema *ema,
                      FILE *file)
{
    FILE *to = file != NULL ? file : stderr;
    tri_memory_stats s;
    double unit;
    bool small;

    if (tri_memory(model, optimizer, ema, &s) != TRI_OK) {
        fprintf(to, "%s\n", tri_last_error());
        return;
    }
    small = s.with_ddp < 4 << 20; /* of which tenths of MiB would say little */
    unit = small ? 1 << 10 : 1 << 20;
    fprintf(to,
            "%s here: parameters %.1f of %.1f, gradients %.1f, states %.1f, averages %.1f, "
            "buffers %.1f, messages %.1f\n",
            small ? "KiB" : "MiB", (double)s.parameters / unit, (double)s.whole_parameters / unit,
            (double)s.gradients / unit, (double)s.states / unit, (double)s.averages / unit,
            (double)s.buffers / unit, (double)s.messages / unit);
    fprintf(to, "in all %.1f (under tri_ddp %.1f), and %.1f for the values of steps\n",
            (double)(s.total - s.values) / unit, (double)s.with_ddp / unit,
            (double)s.values / unit);
}
