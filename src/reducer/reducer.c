/*
 * reducer.c - averages of plain buffers over the ranks: life, and a pass from begin to finish.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "group/world.h"
#include "reducer/bucket.h"
#include "reducer/inside.h"

/* --- failures ------------------------------------------------------------------------------- */

/* Every later call says what this one says, and the peers are told. */
static tri_status fail(tri_reducer *r, tri_status st)
{
    if (r->status == TRI_OK) { /* whatever it was, the group is to be replaced */
        r->status = st = st > TRI_ERR_PEER_LOST ? TRI_ERR_ABORTED : st;
        snprintf(r->why, sizeof(r->why), "%s", tri_last_error());
        tri_group_abort(r->group, r->why);
        trii_err_set("%s", r->why);
    }
    return st;
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

/* --- life ----------------------------------------------------------------------------------- */

static tri_status find_group(tri_reducer *r)
{
    tri_group *group = r->options.group;
    tri_status st = TRI_OK;

    if (group == NULL && !tri_is_initialized())
        st = tri_init(NULL);
    if (st != TRI_OK)
        return st;
    r->group = tri_group_ref(group != NULL ? group : trii_group_get_world());
    return TRI_OK;
}

tri_status tri_reducer_create(const tri_reducer_options *opt, tri_reducer **reducer_out)
{
    tri_status st = trii_need(reducer_out, "reducer_create", "reducer_out");
    tri_reducer *r;

    if (st != TRI_OK)
        return st;
    r = trii_alloc(1, sizeof(*r), "reducer");
    if (r == NULL)
        return TRI_ERR_NO_MEMORY;
    if (opt != NULL)
        r->options = *opt;
    if (r->options.bucket_cap_bytes == 0)
        r->options.bucket_cap_bytes = TRII_BUCKET_CAP_BYTES;
    if (r->options.first_bucket_bytes == 0)
        r->options.first_bucket_bytes = TRII_BUCKET_FIRST_BYTES;
    st = find_group(r);
    if (st != TRI_OK) {
        trii_free(r);
        return TRII_FAIL_CTX(st, "reducer_create");
    }
    *reducer_out = r;
    return TRI_OK;
}

/* Its buffers are ours: it has to be over, which after an abort it soon is. */
static void end_work(tri_work *work)
{
    tri_status dropped = work != NULL ? tri_work_wait(work, 0) : TRI_OK;

    (void)dropped; /* the reducer goes: nobody is left to tell */
    tri_work_destroy(work);
}

void tri_reducer_destroy(tri_reducer *r)
{
    if (r == NULL)
        return;
    if (r->in_pass)
        tri_group_abort(r->group, "its reducer was destroyed within a pass");
    end_work(r->header);
    end_work(r->map_work);
    for (int b = 0; b < r->n_buckets && r->buckets != NULL; b++)
        end_work(r->buckets[b].work);
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

static tri_status reserve(tri_reducer *r)
{
    int room = r->room > 0 ? 2 * r->room : 16;
    reducer_grad *grads;

    if (r->n_grads < r->room)
        return TRI_OK;
    grads = trii_realloc(r->grads, (size_t)room, sizeof(*grads), "reducer gradients");
    if (grads == NULL)
        return TRI_ERR_NO_MEMORY;
    r->grads = grads;
    r->room = room;
    return TRI_OK;
}

tri_status tri_reducer_add(tri_reducer *r, const tri_reducer_grad *grad, int *index_out)
{
    char number[16];
    char *name;
    tri_status st = check(r, "reducer_add");

    if (st == TRI_OK && grad == NULL)
        st = TRII_FAIL(TRI_ERR_INVALID_ARG, "reducer_add: the gradient is NULL");
    if (st == TRI_OK && r->committed)
        st = TRII_FAIL(TRI_ERR_STATE, "reducer_add: too late, the buckets are made");
    if (st == TRI_OK)
        st = check_grad(grad, r->n_grads);
    if (st == TRI_OK)
        st = reserve(r);
    if (st != TRI_OK)
        return st;
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
    tri_status st = check(r, "reducer_commit");
    tri_work *batch;

    if (st != TRI_OK || r->committed)
        return st;
    batch = trii_batch_set(NULL);
    st = trii_reducer_agree(r);
    trii_batch_set(batch);
    if (st == TRI_ERR_MISMATCH && r->status == TRI_OK) {
        r->status = st; /* all ranks say so: nobody has to be told */
        snprintf(r->why, sizeof(r->why), "%s", tri_last_error());
        return st;
    }
    if (st == TRI_OK)
        st = trii_reducer_make_buckets(r);
    if (st != TRI_OK)
        return fail(r, st);
    r->committed = true;
    return TRI_OK;
}

void *tri_reducer_data(tri_reducer *r, int index)
{
    return r != NULL && index >= 0 && index < r->n_grads ? r->grads[index].data : NULL;
}

void *tri_bucket_memory(tri_bucket *bucket, size_t bytes)
{
    reducer_bucket *b = bucket != NULL ? bucket->owner : NULL;

    if (b == NULL) {
        (void)TRII_FAIL(TRI_ERR_INVALID_ARG, "bucket_memory: bucket is %s",
                        bucket == NULL ? "NULL" : "not one that a reducer made");
        return NULL;
    }
    if (bytes > b->memory_bytes || b->memory == NULL) {
        void *memory = trii_alloc(1, bytes, "memory of a hook");

        if (memory == NULL)
            return NULL;
        trii_free(b->memory);
        b->memory = memory;
        b->memory_bytes = bytes;
    }
    return b->memory;
}

/* --- sending -------------------------------------------------------------------------------- */

/* Messages about what we call name the user's line. */
static void at_site(const tri_reducer *r)
{
    tri_site_set(r->site.file, r->site.line);
}

static tri_status wait_work(tri_work **work_io)
{
    tri_work *work = *work_io;
    tri_status st;

    if (work == NULL)
        return TRI_OK;
    st = tri_work_wait(work, 0);
    *work_io = NULL;
    tri_work_destroy(work);
    return st;
}

/* dst = src * weight; they may be the same. */
static void scale(tri_dtype dtype, const void *src, void *dst, size_t n, double weight)
{
    const float w = (float)weight;

    if (weight == 1.0) {
        if (src != dst)
            memcpy(dst, src, n * tri_dtype_size(dtype));
    } else if (dtype == TRI_DTYPE_F64) {
        for (size_t i = 0; i < n; i++)
            ((double *)dst)[i] = ((const double *)src)[i] * weight;
    } else if (dtype == TRI_DTYPE_F32) {
        for (size_t i = 0; i < n; i++)
            ((float *)dst)[i] = ((const float *)src)[i] * w;
    } else if (dtype == TRI_DTYPE_BF16) {
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] =
                trii_f32_to_bf16(trii_bf16_to_f32(((const uint16_t *)src)[i]) * w);
    } else {
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = trii_f32_to_f16(trii_f16_to_f32(((const uint16_t *)src)[i]) * w);
    }
}

static void fill(const tri_reducer *r, const tri_bucket *bucket)
{
    for (int i = 0; i < bucket->n_parts; i++) {
        const reducer_grad *grad = &r->grads[bucket->parts[i].index];

        if (grad->ready && r->count > 0)
            scale(grad->dtype, grad->data, grad->place, grad->count, bucket->weight);
        else if (grad->count > 0)
            memset(grad->place, 0, grad->count * tri_dtype_size(grad->dtype));
    }
}

static tri_status send(tri_reducer *r, reducer_bucket *b)
{
    tri_bucket *bucket = &b->bucket;

    bucket->weight = r->total > 0 ? (double)r->count / (double)r->total : 0.0;
    bucket->pass = r->pass - 1;
    fill(r, bucket);
    at_site(r);
    if (r->options.hook != NULL)
        return r->options.hook(r->options.hook_state, bucket, 0, &b->work);
    return (tri_all_reduce)(r->group, bucket->data, bucket->data, bucket->count, bucket->dtype,
                            TRI_REDOP_SUM, &b->work);
}

/* All buckets that are complete and next. */
static tri_status send_complete(tri_reducer *r)
{
    tri_status st = TRI_OK;

    while (st == TRI_OK && r->next < r->n_buckets && r->buckets[r->next].n_missing == 0) {
        if (r->header != NULL)
            st = wait_work(&r->header);
        if (st == TRI_OK)
            st = send(r, &r->buckets[r->next++]);
    }
    return st;
}

/* Helps the oldest that is under way; a failure comes out where it is waited for. */
static void help(const tri_reducer *r)
{
    for (int b = 0; b < r->next; b++) {
        tri_work *work = r->buckets[b].work;

        if (work != NULL && trii_work_poll(work) == TRI_INPROGRESS)
            return;
    }
}

/* --- a pass --------------------------------------------------------------------------------- */

tri_status(tri_reducer_begin)(tri_reducer *r, int64_t n_samples)
{
    tri_status st = check(r, "reducer_begin");

    if (st == TRI_OK && n_samples < 0)
        st = TRII_FAIL(TRI_ERR_INVALID_ARG, "reducer_begin: %lld samples", (long long)n_samples);
    if (st == TRI_OK && r->in_pass)
        st = TRII_FAIL(TRI_ERR_STATE, "reducer_begin: the last pass was not finished");
    if (st != TRI_OK)
        return st;
    r->site = trii_site_take();
    st = tri_reducer_commit(r);
    if (st != TRI_OK)
        return st;
    r->count = r->total = r->local_count + n_samples;
    at_site(r);
    st = (tri_all_reduce)(r->group, &r->total, &r->total, 1, TRI_DTYPE_I64, TRI_REDOP_SUM,
                          &r->header);
    if (st == TRI_OK && r->count == 0) {
        st = wait_work(&r->header);
        if (st == TRI_OK && r->total == 0)
            return TRI_END;
    }
    if (st != TRI_OK)
        return fail(r, st);
    for (int i = 0; i < r->n_grads; i++)
        r->grads[i].ready = false;
    for (int b = 0; b < r->n_buckets; b++)
        r->buckets[b].n_missing = r->buckets[b].bucket.n_parts;
    r->next = 0;
    r->pass++;
    r->in_pass = true;
    return TRI_OK;
}

tri_status(tri_reducer_ready)(tri_reducer *r, int index)
{
    reducer_grad *grad;
    tri_status st = check(r, "reducer_ready");

    if (st == TRI_OK && !r->in_pass)
        st = TRII_FAIL(TRI_ERR_STATE, "reducer_ready: no pass was begun");
    if (st == TRI_OK && (index < 0 || index >= r->n_grads))
        st = TRII_FAIL(TRI_ERR_INVALID_ARG, "reducer_ready: no gradient %d, there are %d", index,
                       r->n_grads);
    if (st != TRI_OK)
        return st;
    grad = &r->grads[index];
    if (grad->ready)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "reducer_ready: gradient %d (%s) was marked before in this pass", index,
                         grad->name);
    r->site = trii_site_take();
    grad->ready = true;
    r->buckets[grad->bucket].n_missing--;
    st = send_complete(r);
    if (st != TRI_OK)
        return fail(r, st);
    help(r);
    return TRI_OK;
}

/* Behind the buckets, so that it has its place in the order. */
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

/* Waits for all buckets, stage by stage, so that hooks of all ranks go on in one order. */
static tri_status complete(tri_reducer *r)
{
    bool open = true;

    for (int stage = 1; open; stage++) {
        open = false;
        for (int b = 0; b < r->n_buckets; b++) {
            reducer_bucket *bucket = &r->buckets[b];
            tri_status st;

            if (bucket->work == NULL)
                continue;
            st = wait_work(&bucket->work);
            at_site(r);
            if (st == TRI_OK && r->options.hook != NULL)
                st = r->options.hook(r->options.hook_state, &bucket->bucket, stage, &bucket->work);
            if (st != TRI_OK)
                return st;
            open = open || bucket->work != NULL;
        }
    }
    return wait_work(&r->map_work);
}

static void take_averages(tri_reducer *r)
{
    for (int i = 0; i < r->n_grads; i++) {
        reducer_grad *grad = &r->grads[i];

        grad->used = !r->options.find_unused || r->map[i] != 0;
        if (grad->used && grad->data != grad->place && grad->count > 0)
            memcpy(grad->data, grad->place, grad->count * tri_dtype_size(grad->dtype));
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
    tri_status st = check(r, "reducer_finish");

    if (st == TRI_OK && !r->in_pass)
        st = TRII_FAIL(TRI_ERR_STATE, "reducer_finish: no pass was begun");
    if (st != TRI_OK)
        return st;
    r->site = trii_site_take();
    for (int b = 0; b < r->n_buckets; b++)
        r->buckets[b].n_missing = 0;
    st = send_complete(r);
    if (st == TRI_OK)
        st = wait_work(&r->header); /* without gradients nobody else did */
    if (st == TRI_OK)
        st = send_map(r);
    if (st == TRI_OK)
        st = complete(r);
    if (st != TRI_OK)
        return fail(r, st);
    take_averages(r);
    r->last_total = r->total;
    r->local_count = 0;
    r->in_pass = false;
    return r->options.find_unused || r->count == 0 ? TRI_OK : name_missing(r);
}

tri_status tri_reducer_no_sync(tri_reducer *r, int64_t n_samples)
{
    tri_status st = check(r, "reducer_no_sync");

    if (st == TRI_OK && n_samples < 0)
        st = TRII_FAIL(TRI_ERR_INVALID_ARG, "reducer_no_sync: %lld samples", (long long)n_samples);
    if (st == TRI_OK && r->in_pass)
        st = TRII_FAIL(TRI_ERR_STATE, "reducer_no_sync: within a pass");
    if (st == TRI_OK)
        r->local_count += n_samples;
    return st;
}

tri_status tri_reducer_join(tri_reducer *r, tri_status (*update)(void *arg), void *arg)
{
    for (;;) {
        tri_status st = (tri_reducer_begin)(r, 0);

        if (st == TRI_END)
            return TRI_OK;
        if (st == TRI_OK)
            st = (tri_reducer_finish)(r);
        if (st != TRI_OK)
            return st;
        st = update != NULL ? update(arg) : TRI_OK;
        if (st != TRI_OK)
            return fail(r, TRII_FAIL_CTX(st, "reducer_join: update: %s", tri_status_name(st)));
    }
}

/* --- facts ---------------------------------------------------------------------------------- */

bool tri_reducer_used(const tri_reducer *r, int index)
{
    return r != NULL && index >= 0 && index < r->n_grads && r->grads[index].used;
}

int64_t tri_reducer_samples(const tri_reducer *r)
{
    return r != NULL ? r->last_total : 0;
}

int tri_reducer_buckets(const tri_reducer *r)
{
    return r != NULL && r->committed ? r->n_buckets : 0;
}
