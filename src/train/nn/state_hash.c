/*
 * state_hash.c - hashes of a tree's state (tri_module_hash): what ranks have of it is collected on
 * the way, and what several have a copy of is compared.
 */
#include <assert.h>
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/graph/step/step.h"
#include "train/nn/module.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/pipeline_stages.h"
#include "train/tensor/rank_text.h"

/* --- of one tensor -------------------------------------------------------- */

uint64_t trii_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;

    hash = (hash ^ bytes) * UINT64_C(0x9e3779b97f4a7c15);
    for (; bytes > 0; p += 8) {
        size_t n = bytes < 8 ? bytes : 8;
        uint64_t word = 0;

        memcpy(&word, p, n);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
        bytes -= n;
    }
    return hash;
}

static uint64_t hash_plain(const tri_state_entry *entry, const int64_t *shape, const void *plain,
                           size_t bytes, uint64_t hash)
{
    int32_t kind[2] = {(int32_t)entry->tensor->dtype, entry->tensor->ndim};

    hash = trii_hash_bytes(hash, entry->name, strlen(entry->name));
    hash = trii_hash_bytes(hash, kind, sizeof(kind));
    hash = trii_hash_bytes(hash, shape, (size_t)entry->tensor->ndim * sizeof(int64_t));
    return trii_hash_bytes(hash, plain, bytes);
}

tri_status trii_hash_entry(const tri_state_entry *entry, uint64_t *hash_io)
{
    size_t bytes = trii_tensor_bytes(entry->tensor);
    void *plain = trii_alloc_aligned(64, bytes, "state hash");
    tri_status status;

    if (plain == NULL)
        return TRI_ERR_NO_MEMORY;
    status = tri_tensor_copy_out(entry->tensor, plain, bytes);
    if (status == TRI_OK)
        *hash_io = hash_plain(entry, entry->tensor->shape, plain, bytes, *hash_io);
    trii_free(plain);
    return status;
}

/* Of a tensor of which ranks have parts; collective. status: of this rank so far. */
static tri_status hash_whole(const tri_state_entry *entry, uint64_t *hash_io, tri_status status)
{
    size_t bytes = trii_whole_bytes(entry->tensor);
    void *plain = trii_alloc_aligned(64, bytes, "state hash");

    if (status == TRI_OK && plain == NULL)
        status = TRI_ERR_NO_MEMORY;
    status = trii_whole_collect(entry->tensor, plain, status);
    if (status == TRI_OK)
        *hash_io = hash_plain(entry, trii_whole_shape(entry->tensor), plain, bytes, *hash_io);
    trii_free(plain);
    return status;
}

/* status: of this rank so far; peers take part in an entry all the same. */
static tri_status hash_state(const tri_state_entry *entry, trii_opened *opened, uint64_t *hash_io,
                             tri_status status)
{
    status = trii_opened_next(opened, entry->tensor, status);
    if (trii_tensor_is_cut(entry->tensor))
        return hash_whole(entry, hash_io, status);
    return status == TRI_OK ? trii_hash_entry(entry, hash_io) : status;
}

/* The ranks over which tri_parallelize has cut some of it; NULL: none. */
static tri_group *cut_over(const tri_module *module)
{
    for (int64_t i = 0; i < module->n_state; i++) {
        const tri_tensor *tensor = module->state[i].tensor;

        if (tensor->elsewhere == NULL && trii_tensor_is_cut(tensor))
            return tensor->held->group;
    }
    return NULL;
}

/* --- what several ranks have ---------------------------------------------- */

static tri_status compare_hashes(const tri_module *module, const uint64_t *all, int size)
{
    for (int64_t i = 0; i < module->n_state; i++)
        for (int rank = 1; rank < size; rank++)
            if (all[rank * module->n_state + i] != all[i])
                return TRII_FAIL(TRI_ERR_MISMATCH,
                                 "module_hash: %s of rank %d differs from rank 0's in its bits; "
                                 "tri_parallelize has left it whole, and so all ranks of its group "
                                 "train with the same rows and seeds",
                                 module->state[i].name, rank);
    return TRI_OK;
}

/* Parameters that are whole while others are cut are replicas, which a hash of the whole network
 * has once. status: of this rank so far. Collective in the group; all return the same. */
static tri_status compare_replicas(tri_module *module, tri_group *group, tri_status status)
{
    int size = tri_group_size(group);
    size_t n = (size_t)module->n_state;
    uint64_t *hashes = trii_alloc(n * ((size_t)size + 1), sizeof(*hashes), "state hash");

    if (status == TRI_OK && hashes == NULL)
        status = TRI_ERR_NO_MEMORY;
    for (size_t i = 0; i < n && status == TRI_OK; i++) {
        const tri_state_entry *entry = &module->state[i];

        hashes[i] = 1;
        if (entry->parameter && entry->tensor->elsewhere == NULL &&
            !trii_tensor_is_cut(entry->tensor))
            status = trii_hash_entry(entry, &hashes[i]);
    }
    status = trii_ranks_meet(group, "tri_module_hash", status);
    assert(status != TRI_OK || hashes != NULL); /* OK is what each rank has */
    if (status == TRI_OK)
        status = tri_all_gather(group, hashes, hashes + n, n * sizeof(*hashes), TRI_DTYPE_U8, NULL);
    if (status == TRI_OK)
        status = compare_hashes(module, hashes + n, size);
    trii_free(hashes);
    return status;
}

/* A parameter of several stages, as this rank has it; 0: it is not whole here. */
static tri_status hash_shared(const tri_state_entry *entry, uint64_t *hash_out)
{
    tri_state_entry unnamed = *entry;

    unnamed.name = ""; /* it has another one in each stage */
    *hash_out = 0;
    if (entry->tensor->elsewhere != NULL || trii_tensor_is_cut(entry->tensor))
        return TRI_OK;
    *hash_out = 1;
    return trii_hash_entry(&unnamed, hash_out);
}

/* shared: [of the whole network], for some rank has a copy of it. hashes: of those whose first one
 * is here. */
static tri_status hash_firsts(const tri_module *module, const int64_t *shared, uint64_t *hashes)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < module->n_state && status == TRI_OK; i++) {
        const trii_staged *staged = module->state[i].tensor->staged;

        if (staged != NULL && !staged->is_copy && shared[staged->place] != 0)
            status = hash_shared(&module->state[i], &hashes[staged->place]);
    }
    return status;
}

static tri_status compare_copies(const tri_module *module, const trii_stages *stages,
                                 const uint64_t *hashes)
{
    for (int64_t i = 0; i < module->n_state; i++) {
        const trii_staged *staged = module->state[i].tensor->staged;
        uint64_t own;
        tri_status status;

        if (staged == NULL || !staged->is_copy)
            continue;
        status = hash_shared(&module->state[i], &own);
        if (status != TRI_OK)
            return status;
        if (own != 0 && hashes[staged->place] != 0 && own != hashes[staged->place])
            return TRII_FAIL(
                TRI_ERR_MISMATCH,
                "module_hash: %s is %s of %s, a parameter of both stages, but differs in its bits: "
                "update it at the same rate on all ranks, and freeze it on all or on none",
                module->state[i].name, staged->name,
                trii_rank_text_of(stages->group, (int)stages->entries[staged->place].rank).text);
    }
    return TRI_OK;
}

/* Collective in the pipeline; all return the same. */
static tri_status compare_shared(const tri_module *module, const trii_stages *stages)
{
    size_t n = (size_t)stages->count;
    int64_t *shared = trii_alloc(n + 1, sizeof(*shared), "state hash"), any = 0;
    uint64_t *hashes = trii_alloc(n + 1, sizeof(*hashes), "state hash");
    tri_status status = shared != NULL && hashes != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int64_t i = 0; i < module->n_state && status == TRI_OK; i++) {
        const trii_staged *staged = module->state[i].tensor->staged;

        if (staged != NULL && staged->is_copy)
            shared[staged->place] = 1;
    }
    status = trii_ranks_agree(stages->group, status);
    assert(status != TRI_OK || (shared != NULL && hashes != NULL)); /* OK is what each rank has */
    if (status == TRI_OK)
        status =
            tri_all_reduce(stages->group, shared, shared, n, TRI_DTYPE_I64, TRI_REDOP_MAX, NULL);
    for (size_t i = 0; i < n && status == TRI_OK; i++)
        any |= shared[i];
    if (status == TRI_OK && any != 0) {
        status = trii_ranks_agree(stages->group, hash_firsts(module, shared, hashes));
        if (status == TRI_OK)
            status = tri_all_reduce(stages->group, hashes, hashes, n, TRI_DTYPE_I64, TRI_REDOP_SUM,
                                    NULL);
        if (status == TRI_OK)
            status = compare_copies(module, stages, hashes);
        status = trii_ranks_agree(stages->group, status);
    }
    trii_free(shared);
    trii_free(hashes);
    return status;
}

/* --- of all --------------------------------------------------------------- */

/* Ranks of other pipelines have parts of the same layers. */
static tri_status agree_with_all(tri_module *module, tri_status status)
{
    tri_group *ranks = tri_module_unwrapped(module)->stages->group;

    /* first here: a stage of which others have no part meets this pipeline alone */
    status = trii_module_agree(module, trii_ranks_agree(ranks, status));
    return trii_ranks_agree(ranks, status);
}

/* Each entry by the rank that has it, which tells the others how far the hash is. status: of this
 * rank's arguments. */
static tri_status hash_stages(tri_module *module, trii_opened *opened, uint64_t *hash_io,
                              tri_status status)
{
    const trii_stages *stages = tri_module_unwrapped(module)->stages;
    int rank = tri_group_rank(stages->group);
    int64_t next = 0;

    status = agree_with_all(module, trii_ranks_meet(stages->group, "tri_module_hash", status));
    if (status == TRI_OK) /* what pends, on all ranks alike */
        status = agree_with_all(module, tri_run());
    if (status == TRI_OK)
        status = agree_with_all(module, compare_shared(module, stages));
    if (status != TRI_OK)
        return status;
    if (cut_over(module) != NULL)
        status = compare_replicas(module, cut_over(module), status);
    for (int64_t i = 0; i < stages->count; i++) {
        int from = (int)stages->entries[i].rank;
        tri_status told;

        if (from == rank)
            status = hash_state(&module->state[next++], opened, hash_io, status);
        told = tri_broadcast(stages->group, hash_io, sizeof(*hash_io), TRI_DTYPE_U8, from, NULL);
        status = status == TRI_OK ? told : status;
    }
    return trii_ranks_agree(stages->group, status);
}

tri_status(tri_module_hash)(tri_module *module, uint64_t *hash_out)
{
    trii_opened opened = {NULL, NULL, NULL};
    uint64_t hash = 1;
    tri_status status = trii_module_flatten(module);

    if (status != TRI_OK)
        return status;
    if (hash_out == NULL) /* the others hear it */
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "module_hash: hash_out is NULL");
    if (tri_module_unwrapped(module)->stages != NULL) {
        status = hash_stages(module, &opened, &hash, status);
    } else {
        if (cut_over(module) != NULL)
            status = compare_replicas(module, cut_over(module), status);
        for (int64_t i = 0; i < module->n_state; i++)
            status = hash_state(&module->state[i], &opened, &hash, status);
    }
    status = trii_opened_end(&opened, status);
    assert(status != TRI_OK || hash_out != NULL);
    if (status == TRI_OK)
        *hash_out = hash;
    return status;
}
