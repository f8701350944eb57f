/*
 * primitives.c - primitives that kernels of all plans share: equal ones are compiled once.
 */
#include <string.h>

#include "base/alloc.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/onednn/handles.h"
#include "train/device/cpu/variety.h"
#include "os/thread.h"

#define BUCKETS 256
#define NAME_BYTES 48

/* What a primitive was compiled for. */
typedef struct key {
    char name[NAME_BYTES]; /* owned by the implementation */
    int n, threads;
    int arg[TRII_ONEDNN_ARGS];
    dnnl_memory_desc_t md[TRII_ONEDNN_ARGS];
    dnnl_convolution_desc_t conv; /* of a convolution: how the window moves */
} key;

struct trii_onednn_primitive {
    trii_onednn_primitive *next;
    uint64_t hash;
    int refs;
    key key;
    dnnl_primitive_t primitive;
};

static trii_onednn_primitive *buckets[BUCKETS]; /* guarded by mutex */
static trii_mutex mutex = TRII_MUTEX_INITIALIZER;

static uint64_t fill_key(const_dnnl_primitive_desc_t pd, const trii_onednn_arg *args, int n, key *k)
{
    const dnnl_convolution_desc_t *conv = NULL;
    const char *name = "";
    uint64_t hash = 0;

    k->n = n;
    k->threads = trii_parallel_threads();
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) == dnnl_success)
        strncpy(k->name, name, NAME_BYTES - 1);
    if (dnnl_primitive_desc_query(pd, dnnl_query_convolution_d, 0, (void *)&conv) == dnnl_success &&
        conv != NULL)
        k->conv = *conv;
    for (int i = 0; i < n; i++) {
        k->arg[i] = args[i].arg;
        k->md[i] = *args[i].md;
        hash = trii_kind_add(hash, args[i].arg);
        for (int d = 0; d < args[i].md->ndims; d++)
            hash = trii_kind_add(hash, args[i].md->dims[d]);
    }
    return hash;
}

static bool same_window(const dnnl_convolution_desc_t *a, const dnnl_convolution_desc_t *b)
{
    return a->primitive_kind == b->primitive_kind && a->prop_kind == b->prop_kind &&
           a->alg_kind == b->alg_kind && memcmp(a->strides, b->strides, sizeof(a->strides)) == 0 &&
           memcmp(a->dilates, b->dilates, sizeof(a->dilates)) == 0 &&
           memcmp(a->padding, b->padding, sizeof(a->padding)) == 0;
}

static bool same_key(const key *a, const key *b)
{
    if (a->n != b->n || a->threads != b->threads || strcmp(a->name, b->name) != 0 ||
        !same_window(&a->conv, &b->conv))
        return false;
    for (int i = 0; i < a->n; i++) {
        if (a->arg[i] != b->arg[i] || !dnnl_memory_desc_equal(&a->md[i], &b->md[i]))
            return false;
    }
    return true;
}

/* The library's plain loops, which serve all sizes. */
static bool is_loop(const char *name)
{
    return strncmp(name, "ref", 3) == 0 || strncmp(name, "simple", 6) == 0;
}

static dnnl_status_t create(const_dnnl_primitive_desc_t pd, trii_onednn_primitive *fresh,
                            trii_onednn_primitive **out)
{
    dnnl_status_t status = dnnl_primitive_create(&fresh->primitive, pd);

    if (!is_loop(fresh->key.name))
        trii_count_compiled();
    if (status != dnnl_success)
        return status;
    fresh->refs = 1;
    fresh->next = buckets[fresh->hash % BUCKETS];
    buckets[fresh->hash % BUCKETS] = fresh;
    *out = fresh;
    return dnnl_success;
}

dnnl_status_t trii_onednn_primitive_get(const_dnnl_primitive_desc_t pd, const trii_onednn_arg *args,
                                        int n, trii_onednn_primitive **primitive_out)
{
    trii_onednn_primitive *fresh = trii_alloc(1, sizeof(*fresh), "primitive"), *p;
    dnnl_status_t status = dnnl_success;

    if (fresh == NULL)
        return dnnl_out_of_memory;
    fresh->hash = fill_key(pd, args, n, &fresh->key);
    trii_mutex_lock(&mutex);
    p = buckets[fresh->hash % BUCKETS];
    while (p != NULL && (p->hash != fresh->hash || !same_key(&p->key, &fresh->key)))
        p = p->next;
    if (p != NULL) {
        p->refs++;
        *primitive_out = p;
    } else {
        status = create(pd, fresh, primitive_out);
    }
    trii_mutex_unlock(&mutex);
    if (p != NULL || status != dnnl_success)
        trii_free(fresh);
    return status;
}

dnnl_primitive_t trii_onednn_primitive_of(const trii_onednn_primitive *p)
{
    return p->primitive;
}

void trii_onednn_primitive_unref(trii_onednn_primitive *p)
{
    trii_onednn_primitive **at;
    bool last;

    if (p == NULL)
        return;
    trii_mutex_lock(&mutex);
    last = --p->refs == 0;
    for (at = &buckets[p->hash % BUCKETS]; last && *at != p; at = &(*at)->next)
        ;
    if (last)
        *at = p->next;
    trii_mutex_unlock(&mutex);
    if (!last)
        return;
    dnnl_primitive_destroy(p->primitive);
    trii_free(p);
}
