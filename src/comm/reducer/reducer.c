/*
 * reducer.c - averages of plain buffers over the ranks: creation, and a pass from begin to finish.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/option.h"
#include "comm/group/call/premul.h"
#include "comm/group/join/world.h"
#include "comm/reducer/reducer_internal.h"

/* --- failures ------------------------------------------------------------- */

/* Every later call says what this one says, and the peers are told. */
static tri_status fail(tri_reducer *r, tri_status status)
{
    if (r->status == TRI_OK) { /* whatever it was, the group is to be replaced */
        r->status = status = status > TRI_ERR_PEER_LOST ? TRI_ERR_ABORTED : status;
        snprintf(r->why, sizeof(r->why), "%s", tri_last_error());
        tri_group_abort(r->group, r->why);
        trii_err_set("%s", r->why);
    }
    return status;
}

/* How every call begins. */
static tri_status check(const tri_reducer *r, const char *call)
{
    if (r == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the reducer is NULL", call);
    if (r->status != TRI_OK)
        return TRII_FAIL(r->status, "%s: the reducer has failed: %s", call, r->why);
    return TRI_OK;
}

/* --- life ----------------------------------------------------------------- */

static tri_status find_group(tri_reducer *r)
{
    tri_group *group = r->options.group;
    tri_status status = TRI_OK;

    if (group == NULL && !tri_is_initialized())
        status = tri_init(NULL);
    if (status != TRI_OK)
        return status;
    status = trii_group_resolve(&group, "options.group");
    if (status == TRI_OK)
        status = trii_group_takes_host_memory(group);
    if (status == TRI_OK)
        r->group = tri_group_ref(group);
    return status;
}

tri_status tri_reducer_create(const tri_reducer_options *opt, tri_reducer **reducer_out)
{
    tri_status status = trii_need(reducer_out, "reducer_create", "reducer_out");
    tri_reducer *r;

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_reducer_options, opt);
    if (status != TRI_OK)
        return status;
    r = trii_alloc(1, sizeof(*r), "reducer");
    if (r == NULL)
        return TRI_ERR_NO_MEMORY;
    if (opt != NULL)
        r->options = *opt;
    trii_bucket_defaults(&r->options.first_bucket_bytes, &r->options.bucket_cap_bytes);
    status = find_group(r);
    if (status != TRI_OK) {
        trii_free(r);
        return TRII_FAIL_CTX(status, "reducer_create");
    }
    r->averager = (trii_averager){.group = r->group,
                                  .hook = r->options.hook,
                                  .hook_state = r->options.hook_state,
                                  .pass = -1};
    *reducer_out = r;
    return TRI_OK;
}

static tri_status wait_work(tri_work **work_io)
{
    tri_work *work = *work_io;
    tri_status status;

    if (work == NULL)
        return TRI_OK;
    status = tri_work_wait(work, 0);
    *work_io = NULL;
    tri_work_destroy(work);
    return status;
}

/* Its buffers are ours: it has to be over, which after an abort it soon is. */
static void drop(tri_work **work_io)
{
    tri_status dropped = wait_work(work_io);

    (void)dropped; /* the reducer goes: nobody is left to tell */
}

void tri_reducer_destroy(tri_reducer *r)
{
    if (r == NULL)
        return;
    if (r->in_pass)
        tri_group_abort(r->group, "reducer destroyed within a pass");
    drop(&r->header);
    drop(&r->map_work);
    trii_averager_drain(&r->averager);
    trii_reducer_free_buckets(r);
    for (int i = 0; i < r->n_grads; i++)
        trii_free(r->grads[i].name);
    trii_free(r->grads);
    tri_group_unref(r->group);
    trii_free(r);
}

static tri_status check_grad(const tri_reducer_grad *grad, int index)
{
    tri_dtype dtype = grad->dtype != TRI_DTYPE_NONE ? grad->dtype : TRI_DTYPE_F32;
    size_t bytes;
    tri_status status = TRII_CHECK_RESERVED(tri_reducer_grad, grad);

    if (status != TRI_OK)
        return status;
    if (dtype != TRI_DTYPE_F16 && dtype != TRI_DTYPE_BF16 && dtype != TRI_DTYPE_F32 &&
        dtype != TRI_DTYPE_F64)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "reducer_add: gradient %d is %s, not f16, bf16, f32 or f64", index,
                         tri_dtype_name(dtype));
    if (__builtin_mul_overflow(grad->count, tri_dtype_size(dtype), &bytes) || bytes > SIZE_MAX / 4)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "reducer_add: gradient %d: count %zu is more than memory can hold", index,
                         grad->count);
    if (grad->rows > 0 && grad->count % grad->rows != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "reducer_add: gradient %d: count %zu is not a multiple of rows %zu", index,
                         grad->count, grad->rows);
    return TRI_OK;
}

tri_status tri_reducer_add(tri_reducer *r, const tri_reducer_grad *grad, int *index_out)
{
    char number[16];
    char *name;
    tri_status status = check(r, "reducer_add");

    if (status == TRI_OK && grad == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "reducer_add: the gradient is NULL");
    if (status == TRI_OK && r->committed)
        status = TRII_FAIL(TRI_ERR_STATE, "reducer_add: too late, the buckets are made");
    if (status == TRI_OK)
        status = check_grad(grad, r->n_grads);
    if (status == TRI_OK)
        status = trii_array_grow(&r->grads, &r->room, r->n_grads, 16, sizeof(*r->grads),
                                 "reducer gradients");
    if (status != TRI_OK)
        return status;
    snprintf(number, sizeof(number), "%d", r->n_grads);
    name = trii_strdup(grad->name != NULL ? grad->name : number, "gradient name");
    if (name == NULL)
        return TRI_ERR_NO_MEMORY;
    r->grads[r->n_grads] =
        (reducer_grad){.name = name,
                       .data = grad->data,
                       .count = grad->count,
                       .rows = grad->rows,
                       .dtype = grad->dtype != TRI_DTYPE_NONE ? grad->dtype : TRI_DTYPE_F32};
    if (index_out != NULL)
        *index_out = r->n_grads;
    r->n_grads++;
    return TRI_OK;
}

tri_status tri_reducer_commit(tri_reducer *r)
{
    tri_status status = check(r, "reducer_commit");

    if (status != TRI_OK || r->committed)
        return status;
    status = trii_reducer_agree(r);
    if (status == TRI_ERR_MISMATCH && r->status == TRI_OK) {
        r->status = status; /* all ranks say so: nobody has to be told */
        snprintf(r->why, sizeof(r->why), "%s", tri_last_error());
        return status;
    }
    if (status == TRI_OK)
        status = trii_reducer_make_buckets(r);
    if (status != TRI_OK)
        return fail(r, status);
    r->committed = true;
    return TRI_OK;
}

void *tri_reducer_data(tri_reducer *r, int index)
{
    return r != NULL && index >= 0 && index < r->n_grads ? r->grads[index].data : NULL;
}

/* --- sending -------------------------------------------------------------- */

/* Messages about what we call name the user's line. */
static void at_site(const tri_reducer *r)
{
    tri_site_set(r->averager.site.file, r->averager.site.line);
}

static void fill(const tri_reducer *r, const tri_bucket *bucket, double weight)
{
    for (int i = 0; i < bucket->n_parts; i++) {
        const reducer_grad *grad = &r->grads[bucket->parts[i].index];

        if (!grad->ready || r->count == 0)
            memset(grad->bucket_view, 0, grad->count * tri_dtype_size(grad->dtype));
        else if (weight != 1.0 || grad->data != grad->bucket_view)
            trii_scale(grad->data, grad->bucket_view, grad->count, grad->dtype, weight);
    }
}

/* All buckets that are complete and next. */
static tri_status send_complete(tri_reducer *r)
{
    tri_status status = TRI_OK;

    while (status == TRI_OK && r->next < r->averager.n_buckets && r->n_missing[r->next] == 0) {
        trii_bucket *bucket = &r->averager.buckets[r->next++];
        double weight;

        if (r->header != NULL)
            status = wait_work(&r->header);
        if (status != TRI_OK)
            break;
        weight = r->total > 0 ? (double)r->count / (double)r->total : 0.0;
        fill(r, &bucket->bucket, weight);
        status = trii_bucket_send(&r->averager, bucket, weight, false);
    }
    return status;
}

/* Helps the oldest that is under way; a failure comes out where it is waited for. */
static void help(const tri_reducer *r)
{
    for (int b = 0; b < r->next; b++) {
        tri_work *work = r->averager.buckets[b].work;

        if (work != NULL && trii_work_poll(work) == TRI_INPROGRESS)
            return;
    }
}

/* --- a pass --------------------------------------------------------------- */

tri_status(tri_reducer_begin)(tri_reducer *r, int64_t n_samples)
{
    tri_status status = check(r, "reducer_begin");

    if (status == TRI_OK && n_samples < 0)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "reducer_begin: %lld samples: must not be negative",
                           (long long)n_samples);
    if (status == TRI_OK && r->in_pass)
        status = TRII_FAIL(TRI_ERR_STATE, "reducer_begin: the last pass was not finished");
    if (status != TRI_OK)
        return status;
    r->averager.site = trii_site_take();
    status = tri_reducer_commit(r);
    if (status != TRI_OK)
        return status;
    r->count = r->total = r->local_count + n_samples;
    at_site(r);
    status = (tri_all_reduce)(r->group, &r->total, &r->total, 1, TRI_DTYPE_I64, TRI_REDOP_SUM,
                              &r->header);
    if (status == TRI_OK && r->count == 0) {
        status = wait_work(&r->header);
        if (status == TRI_OK && r->total == 0)
            return TRI_END;
    }
    if (status != TRI_OK)
        return fail(r, status);
    for (int i = 0; i < r->n_grads; i++)
        r->grads[i].ready = false;
    for (int b = 0; b < r->averager.n_buckets; b++)
        r->n_missing[b] = r->averager.buckets[b].bucket.n_parts;
    r->next = 0;
    r->averager.pass++;
    r->in_pass = true;
    return TRI_OK;
}

tri_status(tri_reducer_ready)(tri_reducer *r, int index)
{
    reducer_grad *grad;
    tri_status status = check(r, "reducer_ready");

    if (status == TRI_OK && !r->in_pass)
        status = TRII_FAIL(TRI_ERR_STATE, "reducer_ready: no pass was begun");
    if (status == TRI_OK && (index < 0 || index >= r->n_grads))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "reducer_ready: gradient %d is out of range (there are %d)", index,
                           r->n_grads);
    if (status != TRI_OK)
        return status;
    grad = &r->grads[index];
    if (grad->ready)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "reducer_ready: gradient %d (%s) was marked before in this pass", index,
                         grad->name);
    r->averager.site = trii_site_take();
    grad->ready = true;
    r->n_missing[grad->bucket]--;
    status = send_complete(r);
    if (status != TRI_OK)
        return fail(r, status);
    help(r);
    return TRI_OK;
}

/* After the buckets, so that it has its place in the order. */
static tri_status send_map(tri_reducer *r)
{
    for (int i = 0; i < r->n_grads; i++)
        r->map[i] = r->grads[i].ready && r->count > 0;
    if (!r->options.find_unused)
        return TRI_OK;
    at_site(r);
    return (tri_all_reduce)(r->group, r->map, r->map, (size_t)r->n_grads, TRI_DTYPE_U8,
                            TRI_REDOP_BOR, &r->map_work);
}

static tri_status complete(tri_reducer *r)
{
    for (int b = 0; b < r->averager.n_buckets; b++) {
        tri_status status = trii_bucket_advance(&r->averager, &r->averager.buckets[b], INT64_MAX);

        if (status != TRI_OK)
            return status;
    }
    return wait_work(&r->map_work);
}

static void take_averages(tri_reducer *r)
{
    for (int i = 0; i < r->n_grads; i++) {
        reducer_grad *grad = &r->grads[i];

        grad->used = !r->options.find_unused || r->map[i] != 0;
        if (grad->used && grad->data != grad->bucket_view && grad->count > 0)
            memcpy(grad->data, grad->bucket_view, grad->count * tri_dtype_size(grad->dtype));
    }
}

/* What was forgotten, by name. */
static tri_status name_missing(const tri_reducer *r)
{
    char names[TRII_ERR_BYTES / 2] = "";
    size_t used = 0;

    for (int i = 0; i < r->n_grads && used < sizeof(names); i++)
        if (!r->grads[i].ready)
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%d (%s)",
                                     used > 0 ? ", " : "", i, r->grads[i].name);
    return used == 0 ? TRI_OK
                     : TRII_FAIL(TRI_ERR_INVALID_ARG,
                                 "reducer_finish: not marked ready, so they counted as zeros (the "
                                 "option find_unused allows it): gradients %s",
                                 names);
}

tri_status(tri_reducer_finish)(tri_reducer *r)
{
    tri_status status = check(r, "reducer_finish");

    if (status == TRI_OK && !r->in_pass)
        status = TRII_FAIL(TRI_ERR_STATE, "reducer_finish: no pass was begun");
    if (status != TRI_OK)
        return status;
    r->averager.site = trii_site_take();
    for (int b = 0; b < r->averager.n_buckets; b++)
        r->n_missing[b] = 0;
    status = send_complete(r);
    if (status == TRI_OK)
        status = wait_work(&r->header); /* without gradients nobody else did */
    if (status == TRI_OK)
        status = send_map(r);
    if (status == TRI_OK)
        status = complete(r);
    if (status != TRI_OK)
        return fail(r, status);
    take_averages(r);
    r->last_total = r->total;
    r->local_count = 0;
    r->in_pass = false;
    return r->options.find_unused || r->count == 0 ? TRI_OK : name_missing(r);
}

tri_status tri_reducer_no_sync(tri_reducer *r, int64_t n_samples)
{
    tri_status status = check(r, "reducer_no_sync");

    if (status == TRI_OK && n_samples < 0)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG, "reducer_no_sync: %lld samples: must not be negative",
                      (long long)n_samples);
    if (status == TRI_OK && r->in_pass)
        status = TRII_FAIL(TRI_ERR_STATE, "reducer_no_sync: within a pass");
    if (status == TRI_OK)
        r->local_count += n_samples;
    return status;
}

tri_status tri_reducer_join(tri_reducer *r, tri_status (*update)(void *arg), void *arg)
{
    for (;;) {
        tri_status status = (tri_reducer_begin)(r, 0);

        if (status == TRI_END)
            return TRI_OK;
        /* of tri_reducer_no_sync, in all buffers */
        for (int i = status == TRI_OK && r->count > 0 ? r->n_grads - 1 : -1;
             i >= 0 && status == TRI_OK; i--)
            status = (tri_reducer_ready)(r, i);
        if (status == TRI_OK)
            status = (tri_reducer_finish)(r);
        if (status != TRI_OK)
            return status;
        status = update != NULL ? update(arg) : TRI_OK;
        if (status != TRI_OK)
            return fail(r,
                        TRII_FAIL_CTX(status, "reducer_join: update: %s", tri_status_name(status)));
    }
}

/* --- facts ---------------------------------------------------------------- */

bool tri_reducer_is_used(const tri_reducer *r, int index)
{
    return r != NULL && index >= 0 && index < r->n_grads && r->grads[index].used;
}

int64_t tri_reducer_sample_count(const tri_reducer *r)
{
    return r != NULL ? r->last_total : 0;
}

int tri_reducer_bucket_count(const tri_reducer *r)
{
    return r != NULL && r->committed ? r->averager.n_buckets : 0;
}
