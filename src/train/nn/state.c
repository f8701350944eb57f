/*
 * state.c - the parameters and buffers of a whole tree, flat: PyTorch's names in state_dict's
 * order (a module's parameters, its buffers, then its children), hashing. Loading: load_state.c.
 */
#include <stdio.h>
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/graph/step/step.h"
#include "train/nn/module.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/pipeline_stages.h"

/* --- flattening ----------------------------------------------------------- */

static int64_t count_entries(const tri_module *module)
{
    int64_t n = module->parameters.n + module->buffers.n;

    for (int i = 0; i < module->n_children; i++)
        n += count_entries(module->children[i]);
    return n;
}

/* "a", "b", "c" in one text; release with trii_free. */
static char *join(const char *a, const char *b, const char *c)
{
    size_t bytes = strlen(a) + strlen(b) + strlen(c) + 1;
    char *text = trii_alloc(bytes, 1, "state name");

    if (text != NULL)
        snprintf(text, bytes, "%s%s%s", a, b, c);
    return text;
}

static tri_status add_slots(tri_module *root, const trii_slots *slots, bool parameter,
                            const char *path)
{
    for (int i = 0; i < slots->n; i++) {
        tri_state_entry *entry = &root->state[root->n_state];

        entry->name = join(path, slots->items[i].name, "");
        if (entry->name == NULL)
            return TRI_ERR_NO_MEMORY;
        entry->tensor = slots->items[i].tensor;
        entry->parameter = parameter;
        root->n_state++;
    }
    return TRI_OK;
}

static tri_status add_module(tri_module *root, const tri_module *module, const char *path)
{
    tri_status status = add_slots(root, &module->parameters, true, path);

    if (status == TRI_OK)
        status = add_slots(root, &module->buffers, false, path);
    for (int i = 0; i < module->n_children && status == TRI_OK; i++) {
        const tri_module *child = module->children[i];
        char *below = join(path, child->name, child->name[0] != '\0' ? "." : "");

        status = below != NULL ? add_module(root, child, below) : TRI_ERR_NO_MEMORY;
        trii_free(below);
    }
    return status;
}

tri_status trii_module_flatten(tri_module *module)
{
    tri_status status = tri_module_status(module);

    if (status != TRI_OK || module->n_state >= 0)
        return status;
    module->state = trii_alloc((size_t)count_entries(module), sizeof(*module->state), "state");
    if (module->state == NULL)
        return TRI_ERR_NO_MEMORY;
    module->n_state = 0;
    status = add_module(module, module, "");
    if (status != TRI_OK) {
        for (int64_t i = 0; i < module->n_state; i++)
            trii_free((void *)(uintptr_t)module->state[i].name);
        trii_free(module->state);
        module->state = NULL;
        module->n_state = -1;
    }
    return status;
}

int64_t tri_module_state_count(tri_module *module)
{
    return trii_module_flatten(module) == TRI_OK ? module->n_state : 0;
}

tri_state_entry tri_module_state(tri_module *module, int64_t index)
{
    if (trii_module_flatten(module) != TRI_OK || index < 0 || index >= module->n_state)
        return (tri_state_entry){0};
    return module->state[index];
}

/* A tensor that stands under several names is counted at the first. */
static bool is_first(const tri_module *module, int64_t index)
{
    for (int64_t i = 0; i < index; i++)
        if (module->state[i].tensor == module->state[index].tensor)
            return false;
    return true;
}

int64_t tri_module_parameter_count(tri_module *module)
{
    int64_t n = 0;

    for (int64_t i = 0; i < tri_module_state_count(module); i++)
        if (module->state[i].parameter && module->state[i].tensor->requires_grad &&
            is_first(module, i))
            n += tri_tensor_numel(module->state[i].tensor);
    return n;
}

/* The index of the entry in the state of `module`, which begins at `first`; the names of wrapped
 * networks may be in `name` or not. -1: there is none. */
static int64_t entry_below(const tri_module *module, const char *name, int64_t first)
{
    int64_t found = -1;

    for (int i = 0; i < module->parameters.n; i++)
        if (strcmp(module->parameters.items[i].name, name) == 0)
            return first + i;
    first += module->parameters.n;
    for (int i = 0; i < module->buffers.n; i++)
        if (strcmp(module->buffers.items[i].name, name) == 0)
            return first + i;
    first += module->buffers.n;
    for (int i = 0; i < module->n_children && found < 0; i++) {
        const tri_module *child = module->children[i];
        const char *rest = trii_path_after(name, tri_module_name(child));

        if (child->name[0] == '\0')
            found = entry_below(child, name, first);
        if (found < 0 && rest != NULL)
            found = entry_below(child, rest, first);
        first += count_entries(child);
    }
    return found;
}

/* A name without what torch.compile, FullyShardedDataParallel and checkpoint_wrapper put into it.
 */
static const char *without_wrappers(const char *name, char room[TRI_STATE_NAME_MAX])
{
    static const char *const wrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.",
                                           "_checkpoint_wrapped_module."};
    size_t used = 0;

    while (*name != '\0') {
        const char *dot = strchr(name, '.');
        size_t n = dot != NULL ? (size_t)(dot - name) + 1 : strlen(name);
        bool is_wrapper = false;

        for (size_t k = 0; k < TRII_COUNT_OF(wrappers); k++)
            is_wrapper |= strncmp(name, wrappers[k], n) == 0 && wrappers[k][n] == '\0';
        if (!is_wrapper) {
            if (n >= TRI_STATE_NAME_MAX - used)
                return "";
            memcpy(room + used, name, n);
            used += n;
        }
        name += n;
    }
    room[used] = '\0';
    return room;
}

/* What was saved with a wrapper of torch's data parallelism is loaded without one. */
static int64_t entry_of(const tri_module *module, const char *name)
{
    int64_t found = entry_below(module, name, 0);
    const char *bare = trii_path_after(name, TRII_WRAPPED);

    return found < 0 && bare != NULL ? entry_below(module, bare, 0) : found;
}

int64_t trii_module_entry(const tri_module *module, const char *name)
{
    char room[TRI_STATE_NAME_MAX];
    int64_t found = entry_of(module, name);

    return found < 0 && strchr(name, '_') != NULL ? entry_of(module, without_wrappers(name, room))
                                                  : found;
}

static bool is_in_stages(const trii_stages *stages, const char *name)
{
    const char *bare = trii_path_after(name, TRII_WRAPPED);

    return trii_stages_has(stages, name) || (bare != NULL && trii_stages_has(stages, bare));
}

bool trii_module_others_have(const tri_module *module, const char *name)
{
    const trii_stages *stages = tri_module_unwrapped((tri_module *)(uintptr_t)module)->stages;
    char room[TRI_STATE_NAME_MAX];

    return stages != NULL &&
           (is_in_stages(stages, name) ||
            (strchr(name, '_') != NULL && is_in_stages(stages, without_wrappers(name, room))));
}

tri_tensor *tri_module_find(tri_module *module, const char *name)
{
    int64_t at;

    if (name == NULL || trii_module_flatten(module) != TRI_OK)
        return NULL;
    at = trii_module_entry(module, name);
    return at >= 0 ? module->state[at].tensor : NULL;
}

/* --- hashing -------------------------------------------------------------- */

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
            return TRII_FAIL(TRI_ERR_MISMATCH,
                             "module_hash: %s is %s of rank %d, a parameter of both stages, but "
                             "differs in its bits: update it at the same rate on all ranks, and "
                             "freeze it on all or on none",
                             module->state[i].name, staged->name,
                             (int)stages->entries[staged->place].rank);
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
    if (status == TRI_OK)
        *hash_out = hash;
    return status;
}
