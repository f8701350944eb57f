/*
 * log_local.c - values that belong to one rank, as NAME/rankR: not added up, but known to all, so
 * that rank 0 can write them, and all ranks decide alike by one.
 */
#include <stdio.h>
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "train/trainer/log_internal.h"

/* As the ranks send it. */
typedef struct local_value {
    char name[TRI_FIT_NAME_BYTES];
    double value;
    int64_t reduce; /* log_reduce: rank 0 saves it, and this rank goes on with it when resumed */
} local_value;

static bool is_due(const log_entry *e, log_kind kind)
{
    return e->local && e->touched && e->of_epoch == kind.of_epoch &&
           e->of_evaluation == kind.of_evaluation;
}

int log_count_local(const trii_book *book, log_kind kind)
{
    int n = 0;

    for (int i = 0; i < book->n; i++)
        n += is_due(&book->entries[i], kind);
    return n;
}

/* Of this rank; their sums begin again. */
static tri_status take_own(trii_book *book, log_kind kind, local_value *own)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < book->n && status == TRI_OK; i++) {
        log_entry *e = &book->entries[i];

        if (!is_due(e, kind))
            continue;
        status = log_take_meter(e);
        snprintf(own->name, sizeof(own->name), "%s", e->name);
        own->reduce = e->reduce;
        own->value = e->reduce == LOG_MEAN ? e->sum / e->weight : e->sum;
        own++;
        e->touched = false;
        e->sum = e->weight = 0;
    }
    return status;
}

static tri_status learn(trii_book *book, log_kind kind, const local_value *values, size_t n,
                        log_list *list)
{
    for (size_t i = 0; i < n; i++) {
        log_entry *e = log_entry_of(book, values[i].name, kind, (log_reduce)values[i].reduce);

        if (e == NULL)
            return TRII_FAIL(book->status, "%s", book->line);
        e->local = true;
        e->value = values[i].value;
        log_list_add(list, e);
    }
    return TRI_OK;
}

static tri_status gather(tri_trainer *t, const local_value *own, size_t n, log_kind kind,
                         log_list *list)
{
    size_t *bytes = trii_alloc((size_t)t->size, sizeof(*bytes), "local values"), all = 0;
    void *values = NULL;
    tri_status status;

    if (bytes == NULL)
        return TRI_ERR_NO_MEMORY;
    status = tri_all_gather_object(t->group, own, n * sizeof(*own), &values, bytes);
    for (int r = 0; r < t->size && status == TRI_OK; r++)
        all += bytes[r];
    if (status == TRI_OK)
        status = learn(t->book, kind, values, all / sizeof(local_value), list);
    tri_object_free(values);
    trii_free(bytes);
    return status;
}

tri_status log_gather_local(tri_trainer *t, log_kind kind, log_list *list)
{
    int n = log_count_local(t->book, kind);
    local_value *own = trii_alloc((size_t)n, sizeof(*own), "local values");
    tri_status status = own != NULL ? take_own(t->book, kind, own) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = t->size > 1 ? gather(t, own, (size_t)n, kind, list)
                             : learn(t->book, kind, own, (size_t)n, list);
    trii_free(own);
    return status;
}
