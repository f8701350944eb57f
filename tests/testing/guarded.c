/*
 * guarded.c - see guarded.h.
 */
#include "testing/guarded.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "train/device/cpu/cpu_ops.h"
#include "os/thread.h"
#include "train/tensor/device_list.h"
#include "train/tensor/device_memory.h"

#define DEVICES 2
#define BYTES ((size_t)64 << 20)
#define QUEUE 64

/* --- failures on purpose -------------------------------------------------- */

static atomic_int failing_call, fails_in;

static tri_status check_call(guarded_call call, int index)
{
    static const char *const names[] = {"a kernel", "compile", "queue_create", "begin", "run",
                                        "copy",     "record",  "wait",         "alloc"};

    if (atomic_load(&failing_call) != (int)call || atomic_load(&fails_in) <= 0 ||
        atomic_fetch_sub(&fails_in, 1) != 1)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INTERNAL, "%s failed on cuda:%d", names[call], index);
}

void guarded_fail(guarded_call call, int n)
{
    atomic_store(&failing_call, (int)call);
    atomic_store(&fails_in, n);
}

bool guarded_failed(void)
{
    return atomic_load(&fails_in) <= 0;
}

/* --- memory --------------------------------------------------------------- */

typedef struct block {
    size_t at, bytes;
    struct block *next; /* after it */
} block;

static struct {
    trii_mutex lock;
    char *base;
    int users; /* kernels and copies that run now */
    size_t used;
    block *blocks;
} memories[DEVICES] = {{.lock = TRII_MUTEX_INITIALIZER}, {.lock = TRII_MUTEX_INITIALIZER}};

static void protect(int index, int how)
{
    if (mprotect(memories[index].base, BYTES, how) != 0)
        abort();
}

static void open_memory(int index)
{
    trii_mutex_lock(&memories[index].lock);
    if (memories[index].users++ == 0)
        protect(index, PROT_READ | PROT_WRITE);
    trii_mutex_unlock(&memories[index].lock);
}

static void close_memory(int index)
{
    trii_mutex_lock(&memories[index].lock);
    if (--memories[index].users == 0)
        protect(index, PROT_NONE);
    trii_mutex_unlock(&memories[index].lock);
}

/* The first gap that is large enough; room at the end stays free, so that no end is a beginning. */
static block **find_gap(int index, size_t bytes, size_t *at_out)
{
    block **at = &memories[index].blocks;
    size_t end = 0;

    for (; *at != NULL && (*at)->at - end < bytes; at = &(*at)->next)
        end = (*at)->at + (*at)->bytes;
    *at_out = end;
    return *at == NULL && BYTES - end < bytes ? NULL : at;
}

static tri_status guarded_alloc(int index, size_t bytes, void **data_out)
{
    size_t room = (bytes + 64) / 64 * 64;
    tri_status status = check_call(GUARDED_ALLOC, index);
    block *own = status == TRI_OK ? malloc(sizeof(*own)) : NULL, **at;

    if (own == NULL)
        return status == TRI_OK ? TRI_ERR_NO_MEMORY : status;
    trii_mutex_lock(&memories[index].lock);
    at = find_gap(index, room, &own->at);
    if (at != NULL) {
        own->bytes = room;
        own->next = *at;
        *at = own;
        memories[index].used += room;
    }
    trii_mutex_unlock(&memories[index].lock);
    if (at == NULL) {
        free(own);
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "cuda:%d is out of memory: %zu bytes of %zu are taken",
                         index, guarded_bytes(index), BYTES);
    }
    *data_out = memories[index].base + own->at;
    open_memory(index);
    memset(*data_out, 0, bytes);
    close_memory(index);
    return TRI_OK;
}

static void guarded_free(int index, void *data, size_t bytes)
{
    block **at = &memories[index].blocks, *gone;

    (void)bytes;
    if (data == NULL)
        return;
    trii_mutex_lock(&memories[index].lock);
    while (memories[index].base + (*at)->at != (char *)data)
        at = &(*at)->next;
    gone = *at;
    *at = gone->next;
    memories[index].used -= gone->bytes;
    trii_mutex_unlock(&memories[index].lock);
    free(gone);
}

size_t guarded_bytes(int index)
{
    size_t used;

    trii_mutex_lock(&memories[index].lock);
    used = memories[index].used;
    trii_mutex_unlock(&memories[index].lock);
    return used;
}

/* --- kernels -------------------------------------------------------------- */

typedef struct guarded_kernel {
    trii_kernel base; /* first */
    trii_kernel *inner;
} guarded_kernel;

typedef enum action { RUN, COPY, RECORD, WAIT } action;

typedef struct submitted {
    action what;
    /* RUN */
    const guarded_kernel *kernel;
    void *const *args;
    trii_run run;
    /* COPY */
    tri_device from;
    void *dst;
    const void *src;
    size_t bytes;
    /* RECORD, WAIT */
    int32_t event;
    struct guarded_queue *other;
} submitted;

typedef struct guarded_queue {
    trii_queue base; /* first */
    int n, next;     /* what is on it, and the first of that which has not run */
    submitted waiting[QUEUE];
    tri_status status; /* of this run: the first failure, and its line */
    char line[TRII_ERR_BYTES];
    int32_t n_events;
    bool *recorded, *reached; /* [event] in this run */
} guarded_queue;

/* Guards all queues: a thread that waits for something runs all that comes before it, on any of
 * them. */
static trii_mutex running = TRII_MUTEX_INITIALIZER;
static atomic_int n_kernels, n_waits;

static guarded_queue *queue_of(trii_queue *queue)
{
    return (guarded_queue *)(void *)queue;
}

static tri_status run_kernel(const submitted *s)
{
    const trii_kernel *inner = s->kernel->inner;
    int index = trii_device_index_of(s->run.queue->device);
    tri_status status;

    atomic_fetch_add(&n_kernels, 1);
    status = check_call(GUARDED_KERNEL, index);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", inner->name);
    open_memory(index);
    status = inner->run(inner, s->args, &s->run);
    close_memory(index);
    return status;
}

static void copy_bytes(int a, int b, void *dst, const void *src, size_t bytes)
{
    open_memory(a);
    open_memory(b);
    memcpy(dst, src, bytes);
    close_memory(b);
    close_memory(a);
}

static void drain(guarded_queue *own, int32_t until);

static tri_status run_one(guarded_queue *own, const submitted *s)
{
    int here = trii_device_index_of(own->base.device);

    switch (s->what) {
    case RUN:
        return run_kernel(s);
    case COPY:
        copy_bytes(here, trii_is_host(s->from) ? here : trii_device_index_of(s->from), s->dst,
                   s->src, s->bytes);
        return TRI_OK;
    case RECORD:
        return TRI_OK; /* by drain, even after a failure */
    case WAIT:
        atomic_fetch_add(&n_waits, 1);
        drain(s->other, s->event);
        if (s->other->status != TRI_OK)
            return TRII_FAIL(s->other->status, "%s", s->other->line);
        return TRI_OK;
    }
    return TRI_OK;
}

/* Runs what is on the queue until this event is reached; -1 = all of it. */
static void drain(guarded_queue *own, int32_t until)
{
    while (own->next < own->n && (until < 0 || !own->reached[until])) {
        const submitted *s = &own->waiting[own->next++];
        tri_status status = own->status == TRI_OK ? run_one(own, s) : TRI_OK;

        if (status != TRI_OK) {
            own->status = status;
            snprintf(own->line, sizeof(own->line), "%s", tri_last_error());
        }
        if (s->what == RECORD)
            own->reached[s->event] = true;
    }
    assert(until < 0 || own->reached[until]);
}

static tri_status synchronise_locked(guarded_queue *own)
{
    drain(own, -1);
    own->n = own->next = 0;
    return own->status == TRI_OK ? TRI_OK : TRII_FAIL(own->status, "%s", own->line);
}

static tri_status synchronise(trii_queue *queue)
{
    tri_status status;

    trii_mutex_lock(&running);
    status = synchronise_locked(queue_of(queue));
    trii_mutex_unlock(&running);
    return status;
}

static tri_status submit(guarded_call call, trii_queue *queue, submitted s)
{
    guarded_queue *own = queue_of(queue);
    tri_status status = check_call(call, trii_device_index_of(queue->device));

    if (status != TRI_OK)
        return status;
    trii_mutex_lock(&running);
    if (own->n == QUEUE)
        status = synchronise_locked(own);
    assert(s.what != RECORD || !own->recorded[s.event]);
    assert(s.what != WAIT || s.other->recorded[s.event]);
    if (s.what == RECORD)
        own->recorded[s.event] = true;
    own->waiting[own->n++] = s;
    trii_mutex_unlock(&running);
    return status;
}

static tri_status guarded_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    return submit(GUARDED_RUN, run->queue,
                  (submitted){.what = RUN,
                              .kernel = (const guarded_kernel *)(const void *)kernel,
                              .args = args,
                              .run = *run});
}

static tri_status copy(trii_queue *queue, void *dst, tri_device src_device, const void *src,
                       size_t bytes)
{
    return submit(
        GUARDED_COPY, queue,
        (submitted){.what = COPY, .from = src_device, .dst = dst, .src = src, .bytes = bytes});
}

static tri_status record(trii_queue *queue, int32_t event)
{
    return submit(GUARDED_RECORD, queue, (submitted){.what = RECORD, .event = event});
}

static tri_status wait(trii_queue *queue, trii_queue *other, int32_t event)
{
    return submit(GUARDED_WAIT, queue,
                  (submitted){.what = WAIT, .other = queue_of(other), .event = event});
}

/* Kernels are the host's and run on the calling thread. */
static tri_status begin(trii_queue *queue)
{
    guarded_queue *own = queue_of(queue);
    trii_queue host = {TRI_CPU(0)};
    tri_status status = check_call(GUARDED_BEGIN, trii_device_index_of(queue->device));

    assert(own->n == 0);
    own->status = TRI_OK;
    memset(own->recorded, 0, (size_t)own->n_events * sizeof(*own->recorded));
    memset(own->reached, 0, (size_t)own->n_events * sizeof(*own->reached));
    return status == TRI_OK ? trii_device_cpu.begin(&host) : status;
}

static tri_status queue_create(tri_device device, int32_t n_events, trii_queue **queue_out)
{
    tri_status status = check_call(GUARDED_QUEUE_CREATE, trii_device_index_of(device));
    guarded_queue *own = status == TRI_OK ? calloc(1, sizeof(*own)) : NULL;

    if (own == NULL)
        return status == TRI_OK ? TRI_ERR_NO_MEMORY : status;
    own->recorded = calloc(2 * (size_t)n_events + 1, sizeof(*own->recorded));
    if (own->recorded == NULL) {
        free(own);
        return TRI_ERR_NO_MEMORY;
    }
    own->reached = own->recorded + n_events;
    own->n_events = n_events;
    own->base.device = device;
    *queue_out = &own->base;
    return TRI_OK;
}

static void queue_destroy(trii_queue *queue)
{
    assert(queue_of(queue)->n == 0);
    free(queue_of(queue)->recorded);
    free(queue_of(queue));
}

static void guarded_destroy(trii_kernel *kernel)
{
    guarded_kernel *own = (guarded_kernel *)(void *)kernel;

    own->inner->destroy(own->inner);
    free(own);
}

/* Takes the kernel. */
static tri_status wrap(tri_status status, trii_kernel *inner, trii_kernel **kernel_out)
{
    guarded_kernel *own;

    if (status != TRI_OK)
        return status;
    own = malloc(sizeof(*own));
    if (own == NULL) {
        inner->destroy(inner);
        return TRI_ERR_NO_MEMORY;
    }
    own->base = *inner;
    own->base.run = guarded_run;
    own->base.destroy = guarded_destroy;
    own->inner = inner;
    *kernel_out = &own->base;
    return TRI_OK;
}

static tri_status compile(tri_device device, const trii_ir *ir, const trii_group *group,
                          trii_kernel **kernel_out)
{
    trii_kernel *inner = NULL;
    tri_status status = check_call(GUARDED_COMPILE, trii_device_index_of(device));

    if (status == TRI_OK)
        status = trii_device_cpu.compile(TRI_CPU(0), ir, group, &inner);
    return wrap(status, inner, kernel_out);
}

/* --- copies --------------------------------------------------------------- */

static tri_status guarded_write(int index, void *dst, const void *host, size_t bytes)
{
    copy_bytes(index, index, dst, host, bytes);
    return TRI_OK;
}

static tri_status guarded_read(int index, void *host, const void *src, size_t bytes)
{
    copy_bytes(index, index, host, src, bytes);
    return TRI_OK;
}

static tri_status guarded_copy(int dst_index, void *dst, int src_index, const void *src,
                               size_t bytes)
{
    copy_bytes(dst_index, src_index, dst, src, bytes);
    return TRI_OK;
}

/* --- the kind ------------------------------------------------------------- */

static int count(void)
{
    return DEVICES;
}

void guarded_register(void)
{
    static const trii_memory memory = {
        guarded_alloc, guarded_free, guarded_write, guarded_read, guarded_copy,
    };
    static trii_device_ops ops;
    static trii_device_kind kind = {count, &memory, &ops};

    for (int i = 0; i < DEVICES; i++) {
        memories[i].base =
            mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memories[i].base == MAP_FAILED)
            abort();
    }
    ops = trii_device_cpu;
    ops.name = "guarded";
    ops.compile = compile;
    ops.queue_create = queue_create;
    ops.queue_destroy = queue_destroy;
    ops.begin = begin;
    ops.copy = copy;
    ops.record = record;
    ops.wait = wait;
    ops.synchronise = synchronise;
    trii_device_kinds[TRI_DEVICE_CUDA] = &kind;
}

int guarded_kernels(void)
{
    return atomic_load(&n_kernels);
}

int guarded_waits(void)
{
    return atomic_load(&n_waits);
}
