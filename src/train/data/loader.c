/*
 * loader.c - batches of a data set, prepared by threads or by the caller, handed out in order.
 *
 * Batches lie in a ring of slots; batch k uses slot k % n_slots. A thread takes the next part of a
 * batch that nobody has taken, as soon as its slot is free, and fills it without the lock; the last
 * one marks the slot ready, and the caller waits for its number. The batch that the caller holds is
 * freed by its next call. So memory is limited by the ring, order is by number, and contents depend
 * on the samples alone.
 *
 * A batch of much data has several parts, so that the first one is there soon, and no thread is
 * idle while another one makes the last.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/data.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/err.h"
#include "base/option.h"
#include "train/data/collate.h"
#include "train/data/dataset.h"
#include "train/data/sampler.h"
#include "os/process.h"
#include "os/thread.h"
#include "train/tensor/device_memory.h"
#include "train/tensor/persistent.h"

#define MAX_THREADS 256
#define MAX_PREFETCH 65536
#define PART_BYTES (256 << 10) /* at least: to take a part costs about a microsecond */
#define MAX_PARTS 4096

typedef struct slot {
    tri_tensor *fields[TRI_MAX_FIELDS]; /* with memory for a full batch, and the rows of this one */
    int64_t *counted;                   /* [batch_size], without a sampler; else NULL */
    tri_sample *samples;                /* [batch_size], with a collate function; else NULL */
    tri_sample collated;                /* what the collate function made of them */
    int64_t batch;                      /* guarded: the batch that is ready in it; -1 = none */
    int n_filled;                       /* guarded: parts of the next one that are */
    tri_status status;                  /* guarded, like its error line: of the first part that */
    int failed_part;                    /* failed */
    char why[TRII_ERR_BYTES];
} slot;

struct tri_loader {
    tri_dataset *dataset; /* borrowed */
    tri_sampler *sampler; /* borrowed, or NULL */
    int64_t n_samples;    /* of an epoch */
    int64_t batch_size, n_batches;
    int64_t rest; /* rows of the last batch if it is shorter; else 0 */
    uint64_t seed;
    tri_collate collate; /* NULL: the data set writes into the batch's tensors */
    void *collate_arg;

    /* Of the running epoch; written while no thread works. */
    int64_t epoch;
    const int64_t *order; /* the sampler's; NULL: 0, 1, 2, ... */
    bool begun;           /* tri_loader_begin has succeeded */

    int64_t next;      /* the caller's: number of the batch that it gets next */
    tri_status failed; /* the caller's: the failure that ended the epoch */
    char why[TRII_ERR_BYTES];

    trii_mutex mutex;
    trii_cond work;  /* a slot became free, or the threads must end */
    trii_cond ready; /* a batch became ready, or a thread became idle */
    int64_t claimed; /* guarded: threads have taken all batches below, */
    int part;        /* guarded: and of this one all parts below */
    int64_t end;     /* guarded: nobody will ask for this batch and those after it */
    int64_t freed;   /* guarded: the caller has given back all batches below */
    int n_busy;      /* guarded: threads that fill a slot */
    bool running;    /* guarded: an epoch is running */
    bool ending;     /* guarded: threads must end */

    int n_slots, n_threads;
    int n_parts; /* of a full batch */
    slot *slots;
    trii_thread *threads;
    int process; /* the process that has the threads: a child of fork() has none of them */
};

/* --- filling -------------------------------------------------------------- */

static int64_t batch_rows(const tri_loader *l, int64_t batch)
{
    return l->rest > 0 && batch == l->n_batches - 1 ? l->rest : l->batch_size;
}

/* The batch's samples from one to another. */
static const int64_t *batch_indices(const tri_loader *l, slot *s, int64_t batch, int64_t first,
                                    int64_t end)
{
    if (l->sampler != NULL)
        return l->order + batch * l->batch_size + first;
    for (int64_t i = first; i < end; i++)
        s->counted[i] = batch * l->batch_size + i;
    return s->counted + first;
}

static int batch_parts(const tri_loader *l, int64_t batch)
{
    int64_t rows = batch_rows(l, batch);

    return rows < l->n_parts ? (int)rows : l->n_parts;
}

/* Part `part` of so many of a batch. */
static tri_status fill_part(tri_loader *l, slot *s, int64_t batch, int part, int n_parts)
{
    int64_t rows = batch_rows(l, batch);
    int64_t first = rows * part / n_parts, end = rows * (part + 1) / n_parts;
    tri_request request = {
        .indices = batch_indices(l, s, batch, first, end),
        .n = end - first,
        .seed = l->seed,
        .epoch = l->epoch,
    };
    void *data[TRI_MAX_FIELDS];
    tri_status status;

    for (int f = 0; f < l->dataset->n_fields && l->collate == NULL; f++)
        data[f] = (char *)trii_tensor_data(s->fields[f]) +
                  (size_t)first * trii_field_bytes(&l->dataset->fields[f]);
    status = l->collate == NULL ? tri_dataset_read(l->dataset, &request, data)
                                : trii_collate(l->dataset, &request, s->samples, l->collate,
                                               l->collate_arg, &s->collated);
    if (status < 0)
        return TRII_FAIL_CTX(status, "batch %" PRId64 " of epoch %" PRId64, batch, l->epoch);
    return TRI_OK;
}

/* Before the slot is filled, while nobody else has its tensors: the last batch may be shorter. */
static void begin_batch(const tri_loader *l, slot *s, int64_t batch)
{
    s->n_filled = 0;
    s->status = TRI_OK;
    for (int f = 0; f < l->dataset->n_fields && l->collate == NULL; f++)
        s->fields[f]->shape[0] = batch_rows(l, batch);
}

static bool can_claim(const tri_loader *l)
{
    return l->running && l->claimed < l->end && l->claimed < l->freed + l->n_slots;
}

/* Of several parts that fail the first one counts, not the one that failed first. */
static void note_failure(tri_loader *l, slot *s, int64_t batch, int part, tri_status status)
{
    if (s->status != TRI_OK && s->failed_part < part)
        return;
    s->status = status;
    s->failed_part = part;
    snprintf(s->why, sizeof(s->why), "%s", tri_last_error());
    l->end = batch + 1 < l->end ? batch + 1 : l->end; /* its other parts, and no later batch */
}

static void run_thread(void *arg)
{
    tri_loader *l = arg;

    trii_mutex_lock(&l->mutex);
    while (!l->ending) {
        int64_t batch;
        int part, n_parts;
        tri_status status;
        slot *s;

        if (!can_claim(l)) {
            trii_cond_wait(&l->work, &l->mutex);
            continue;
        }
        batch = l->claimed;
        part = l->part++;
        n_parts = batch_parts(l, batch);
        s = &l->slots[batch % l->n_slots];
        if (part == 0)
            begin_batch(l, s, batch);
        if (l->part == n_parts) {
            l->part = 0;
            l->claimed++;
        }
        l->n_busy++;
        trii_mutex_unlock(&l->mutex);
        status = fill_part(l, s, batch, part, n_parts);
        trii_mutex_lock(&l->mutex);
        if (status != TRI_OK)
            note_failure(l, s, batch, part, status);
        if (++s->n_filled == n_parts)
            s->batch = batch;
        if (--l->n_busy == 0 || s->n_filled == n_parts)
            trii_cond_broadcast(&l->ready);
    }
    trii_mutex_unlock(&l->mutex);
}

static bool has_lost_threads(const tri_loader *l)
{
    return l->n_threads > 0 && l->process != trii_process_id();
}

static tri_status check_threads(const tri_loader *l, const char *call)
{
    if (TRII_LIKELY(!has_lost_threads(l)))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_STATE,
                     "%s: this is a child of fork(), without the %d threads that the loader has in "
                     "the parent: make a loader here",
                     call, l->n_threads);
}

/* When it returns, no thread touches a slot. */
static void stop_epoch(tri_loader *l)
{
    trii_mutex_lock(&l->mutex);
    l->running = false;
    while (l->n_busy > 0)
        trii_cond_wait(&l->ready, &l->mutex);
    trii_mutex_unlock(&l->mutex);
}

/* --- slots ---------------------------------------------------------------- */

/* Samples are written on the host: from there tri_to copies them. */
static tri_device batch_device(void)
{
    return trii_is_host(tri_current_device()) ? tri_current_device() : TRI_CPU(0);
}

/* Rows of a full batch. */
static size_t most_rows(const tri_loader *l)
{
    return (size_t)(l->n_samples < l->batch_size ? l->n_samples : l->batch_size);
}

static tri_status new_tensor(const tri_loader *l, int f, tri_tensor **tensor_out)
{
    const tri_field *field = &l->dataset->fields[f];
    int64_t shape[TRI_MAX_DIMS];
    tri_status status;

    shape[0] = (int64_t)most_rows(l);
    for (int d = 0; d < field->ndim; d++)
        shape[d + 1] = field->shape[d];
    status = trii_tensor_create(field->dtype, shape, field->ndim + 1, batch_device(), tensor_out);
    if (status == TRI_OK)
        atomic_store_explicit(&(*tensor_out)->lent, true, memory_order_relaxed);
    return status;
}

static tri_status make_slot(tri_loader *l, slot *s)
{
    tri_status status = TRI_OK;

    s->batch = -1;
    if (l->collate != NULL) {
        s->samples = trii_alloc(most_rows(l), sizeof(*s->samples), "loader's samples");
        status = s->samples != NULL ? trii_sample_init_tensors(&s->collated, batch_device())
                                    : TRI_ERR_NO_MEMORY;
    }
    for (int f = 0; f < l->dataset->n_fields && status == TRI_OK && l->collate == NULL; f++)
        status = new_tensor(l, f, &s->fields[f]);
    if (status != TRI_OK || l->sampler != NULL)
        return status;
    s->counted = trii_alloc(most_rows(l), sizeof(*s->counted), "loader's order");
    return s->counted != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

/* The caller is done with the batch: its tensors are filled again, unless recorded work or the
 * program still holds one, or a device has changed its layout: then a new tensor takes its place,
 * and the old one lives as long as its holders. */
static tri_status recycle(tri_loader *l, int64_t batch)
{
    slot *s = &l->slots[batch % l->n_slots];

    if (l->collate != NULL) {
        trii_sample_give_back(&s->collated);
        return TRI_OK;
    }
    for (int f = 0; f < l->dataset->n_fields; f++) {
        tri_tensor *old = s->fields[f];
        tri_status status;

        if (trii_tensor_is_free(old))
            continue;
        status = new_tensor(l, f, &s->fields[f]);
        if (status != TRI_OK)
            return status;
        trii_tensor_release(old);
    }
    return TRI_OK;
}

/* --- the caller's side ---------------------------------------------------- */

static tri_status check(const tri_dataset *dataset, const tri_sampler *sampler, int64_t batch_size,
                        const tri_loader_options *opt)
{
    if (batch_size < 1 || batch_size > INT64_MAX / 4096)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_loader_create: batch_size is %" PRId64
                         ": at least 1, at most %" PRId64,
                         batch_size, INT64_MAX / 4096);
    if (opt->n_threads < 0 || opt->n_threads > MAX_THREADS || opt->n_prefetch < 0 ||
        opt->n_prefetch > MAX_PREFETCH)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "loader: %d threads (0 to %d), %d batches ahead (0 to %d)", opt->n_threads,
                         MAX_THREADS, opt->n_prefetch, MAX_PREFETCH);
    if (sampler == NULL && dataset->length < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "loader: data set %s is empty", dataset->cls->name);
    return TRI_OK;
}

/* Down to single samples, where these take long. A collate function needs the batch whole. */
static int part_count(const tri_loader *l, int n_threads)
{
    size_t bytes = 0, rows = most_rows(l), n;

    if (n_threads < 2 || l->collate != NULL)
        return 1;
    for (int f = 0; f < l->dataset->n_fields; f++)
        bytes += trii_field_bytes(&l->dataset->fields[f]);
    n = bytes * rows / PART_BYTES;
    n = n < rows ? n : rows;
    return n < 1 ? 1 : n < MAX_PARTS ? (int)n : MAX_PARTS;
}

static tri_status make_ring(tri_loader *l)
{
    tri_status status = TRI_OK;

    l->slots = trii_alloc((size_t)l->n_slots, sizeof(*l->slots), "loader's slots");
    if (l->slots == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < l->n_slots && status == TRI_OK; i++)
        status = make_slot(l, &l->slots[i]);
    return status;
}

static tri_status start_threads(tri_loader *l, int n_threads)
{
    if (n_threads == 0)
        return TRI_OK;
    l->threads = trii_alloc((size_t)n_threads, sizeof(*l->threads), "loader's threads");
    if (l->threads == NULL)
        return TRI_ERR_NO_MEMORY;
    while (l->n_threads < n_threads) {
        tri_status status =
            trii_thread_start(&l->threads[l->n_threads], "tri-loader", run_thread, l);

        if (status != TRI_OK)
            return status;
        l->n_threads++;
    }
    return TRI_OK;
}

tri_status tri_loader_create(tri_dataset *dataset, tri_sampler *sampler, int64_t batch_size,
                             const tri_loader_options *opt, tri_loader **loader_out)
{
    static const tri_loader_options defaults;
    tri_status status;
    tri_loader *l;

    if (opt == NULL)
        opt = &defaults;
    status = trii_dataset_check(dataset, "tri_loader_create");
    if (status == TRI_OK)
        status = trii_need(loader_out, "tri_loader_create", "loader_out");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_loader_options, opt);
    if (status == TRI_OK)
        status = check(dataset, sampler, batch_size, opt);
    if (status == TRI_OK && sampler != NULL)
        status = trii_sampler_check(sampler, "tri_loader_create");
    if (status != TRI_OK)
        return status;
    l = trii_alloc(1, sizeof(*l), "loader");
    if (l == NULL)
        return TRI_ERR_NO_MEMORY;
    l->dataset = dataset;
    l->sampler = sampler;
    l->n_samples = sampler != NULL ? tri_sampler_length(sampler) : dataset->length;
    l->batch_size = batch_size;
    l->rest = opt->drop_last ? 0 : l->n_samples % batch_size;
    l->n_batches = l->n_samples / batch_size + (l->rest > 0 ? 1 : 0);
    l->seed = opt->seed;
    l->collate = opt->collate;
    if (l->collate == NULL && dataset->cls->sample != NULL)
        l->collate = tri_collate_default;
    l->collate_arg = opt->collate_arg;
    l->process = trii_process_id();
    l->next = l->n_batches; /* nothing to do before the first begin */
    l->n_slots = 1;
    if (opt->n_threads > 0)
        l->n_slots += opt->n_prefetch > 0 ? opt->n_prefetch : 2 * opt->n_threads;
    l->n_parts = part_count(l, opt->n_threads);
    trii_mutex_init(&l->mutex);
    trii_cond_init(&l->work);
    trii_cond_init(&l->ready);
    status = make_ring(l);
    if (status == TRI_OK)
        status = start_threads(l, opt->n_threads);
    if (status != TRI_OK) {
        tri_loader_destroy(l);
        return status;
    }
    *loader_out = l;
    return TRI_OK;
}

void tri_loader_destroy(tri_loader *loader)
{
    tri_loader *l = loader;

    /* batches that the parent held when it forked stay held */
    if (l == NULL || has_lost_threads(l))
        return;
    trii_mutex_lock(&l->mutex);
    l->ending = true;
    trii_cond_broadcast(&l->work);
    trii_mutex_unlock(&l->mutex);
    for (int i = 0; i < l->n_threads; i++)
        trii_thread_join(&l->threads[i]);
    trii_free(l->threads);
    for (int i = 0; i < l->n_slots && l->slots != NULL; i++) {
        for (int f = 0; f < TRI_MAX_FIELDS; f++)
            trii_tensor_release(l->slots[i].fields[f]);
        for (size_t k = 0; k < most_rows(l) && l->slots[i].samples != NULL; k++)
            tri_sample_clear(&l->slots[i].samples[k]);
        trii_free(l->slots[i].samples);
        tri_sample_clear(&l->slots[i].collated);
        trii_free(l->slots[i].counted);
    }
    trii_free(l->slots);
    trii_cond_fini(&l->ready);
    trii_cond_fini(&l->work);
    trii_mutex_fini(&l->mutex);
    trii_free(l);
}

int64_t tri_loader_length(const tri_loader *loader)
{
    return loader != NULL ? loader->n_batches : 0;
}

/* Batches that the caller has seen and not given back yet: the last one that it got. */
static tri_status give_back(tri_loader *l)
{
    tri_status status;

    if (l->next == 0 || l->freed == l->next)
        return TRI_OK;
    status = recycle(l, l->next - 1);
    if (status != TRI_OK)
        return status;
    trii_mutex_lock(&l->mutex);
    l->freed = l->next;
    trii_cond_broadcast(&l->work);
    trii_mutex_unlock(&l->mutex);
    return TRI_OK;
}

/* Fails this and all later calls of tri_loader_next. */
static void fail_epoch(tri_loader *l, tri_status status)
{
    l->failed = status;
    snprintf(l->why, sizeof(l->why), "%s", tri_last_error());
}

/* Checks before the running epoch is stopped. */
static tri_status check_begin(const tri_loader *l, int64_t first_batch)
{
    tri_status status = trii_need(l, "tri_loader_begin", "loader");

    if (status == TRI_OK)
        status = check_threads(l, "tri_loader_begin");
    if (status != TRI_OK)
        return status;
    if (first_batch < 0 || first_batch > l->n_batches)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "loader: an epoch of %" PRId64 " batches cannot begin with batch %" PRId64
                         " (first_batch)",
                         l->n_batches, first_batch);
    if (l->sampler != NULL && l->sampler->length != l->n_samples)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "loader: the length of sampler %s was %" PRId64 " and is %" PRId64
                         " now: it is the same for all epochs",
                         l->sampler->cls->name, l->n_samples, l->sampler->length);
    return TRI_OK;
}

/* Checks now, not when a thread reaches the batch: the sampler may be of another data set. */
static tri_status check_order(const tri_loader *l)
{
    const int64_t *order = tri_sampler_indices(l->sampler);

    for (int64_t i = 0; i < l->n_samples; i++) {
        if (TRII_LIKELY(order[i] >= 0 && order[i] < l->dataset->length))
            continue;
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_loader_begin: sampler %s (%" PRId64 " samples) draws sample %" PRId64
                         ", but data set %s has %" PRId64 ": was it made for another one?",
                         l->sampler->cls->name, l->n_samples, order[i], l->dataset->cls->name,
                         l->dataset->length);
    }
    return TRI_OK;
}

tri_status tri_loader_begin(tri_loader *loader, int64_t epoch, int64_t first_batch)
{
    tri_loader *l = loader;
    tri_status status = check_begin(l, first_batch);

    if (status != TRI_OK)
        return status;
    stop_epoch(l);
    if (l->begun) /* not the first epoch */
        status = give_back(l);
    if (status == TRI_OK && l->sampler != NULL)
        status = tri_sampler_set_epoch(l->sampler, epoch);
    if (status == TRI_OK && l->sampler != NULL)
        status = check_order(l);
    if (status != TRI_OK) {
        fail_epoch(l, status);
        return status;
    }
    l->order = tri_sampler_indices(l->sampler);
    l->epoch = epoch;
    l->next = first_batch;
    l->failed = TRI_OK;
    l->begun = true;
    trii_mutex_lock(&l->mutex);
    for (int i = 0; i < l->n_slots; i++)
        l->slots[i].batch = -1;
    l->claimed = l->freed = first_batch;
    l->part = 0;
    l->end = l->n_batches;
    l->running = true;
    trii_cond_broadcast(&l->work);
    trii_mutex_unlock(&l->mutex);
    return TRI_OK;
}

/* The status of batch l->next, when it is ready. */
static tri_status await_batch(tri_loader *l, slot *s)
{
    tri_status status;

    if (l->n_threads == 0) {
        begin_batch(l, s, l->next);
        return fill_part(l, s, l->next, 0, 1);
    }
    trii_mutex_lock(&l->mutex);
    while (s->batch != l->next)
        trii_cond_wait(&l->ready, &l->mutex);
    status = s->status;
    trii_mutex_unlock(&l->mutex);
    if (status != TRI_OK)
        trii_err_set("%s", s->why);
    return status;
}

tri_status tri_loader_next(tri_loader *loader, tri_batch *batch_out)
{
    tri_loader *l = loader;
    tri_status status = trii_need(loader, "tri_loader_next", "loader");
    slot *s;

    if (status == TRI_OK)
        status = trii_need(batch_out, "tri_loader_next", "batch_out");
    if (status == TRI_OK)
        status = check_threads(l, "tri_loader_next");
    if (status != TRI_OK)
        return status;
    if (!l->begun)
        return TRII_FAIL(TRI_ERR_STATE, "loader: next before tri_loader_begin");
    if (l->failed != TRI_OK)
        return TRII_FAIL(l->failed, "%s", l->why);
    status = give_back(l);
    if (status != TRI_OK)
        return status;
    if (l->next == l->n_batches)
        return TRI_END;
    s = &l->slots[l->next % l->n_slots];
    status = await_batch(l, s);
    if (status != TRI_OK) {
        fail_epoch(l, status);
        return status;
    }
    *batch_out = (tri_batch){
        .index = l->next,
        .size = batch_rows(l, l->next),
        .n_fields = l->collate != NULL ? s->collated.n_fields : l->dataset->n_fields,
    };
    memcpy(batch_out->fields, l->collate != NULL ? s->collated.memory->tensors : s->fields,
           sizeof(batch_out->fields));
    l->next++;
    return TRI_OK;
}
