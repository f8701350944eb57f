/*
 * state.c - the parameters and buffers of a whole tree, flat: PyTorch's names in state_dict's
 * order (a module's parameters, its buffers, then its children), strict loading, hashing.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "graph/step.h"
#include "nn/module.h"

#define LOAD_NAMES 4 /* so many names of each kind of mistake are listed */

/* --- flattening ----------------------------------------------------------------------------- */

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
    tri_status st = add_slots(root, &module->parameters, true, path);

    if (st == TRI_OK)
        st = add_slots(root, &module->buffers, false, path);
    for (int i = 0; i < module->n_children && st == TRI_OK; i++) {
        const tri_module *child = module->children[i];
        char *below = join(path, child->name, child->name[0] != '\0' ? "." : "");

        st = below != NULL ? add_module(root, child, below) : TRI_ERR_NO_MEMORY;
        trii_free(below);
    }
    return st;
}

tri_status trii_module_flatten(tri_module *module)
{
    tri_status st = tri_module_status(module);

    if (st < 0 || module->n_state >= 0)
        return st;
    module->state = trii_alloc((size_t)count_entries(module), sizeof(*module->state), "state");
    if (module->state == NULL)
        return TRI_ERR_NO_MEMORY;
    module->n_state = 0;
    st = add_module(module, module, "");
    if (st < 0) {
        for (int64_t i = 0; i < module->n_state; i++)
            trii_free((void *)(uintptr_t)module->state[i].name);
        trii_free(module->state);
        module->state = NULL;
        module->n_state = -1;
    }
    return st;
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

int64_t tri_module_num_parameters(tri_module *module)
{
    int64_t n = 0;

    for (int64_t i = 0; i < tri_module_state_count(module); i++)
        if (module->state[i].parameter && module->state[i].tensor->requires_grad &&
            is_first(module, i))
            n += tri_tensor_numel(module->state[i].tensor);
    return n;
}

/* DDP of other frameworks puts this in front. */
static const char *bare_name(const char *name)
{
    return strncmp(name, "module.", 7) == 0 ? name + 7 : name;
}

static int64_t find_entry(const tri_module *module, const char *name)
{
    for (int pass = 0; pass < 2; pass++) {
        const char *wanted = pass == 0 ? name : bare_name(name);

        for (int64_t i = 0; i < module->n_state; i++)
            if (strcmp(module->state[i].name, wanted) == 0)
                return i;
    }
    return -1;
}

tri_tensor *tri_module_find(tri_module *module, const char *name)
{
    int64_t at;

    if (name == NULL || trii_module_flatten(module) != TRI_OK)
        return NULL;
    at = find_entry(module, name);
    return at >= 0 ? module->state[at].tensor : NULL;
}

/* --- loading -------------------------------------------------------------------------------- */

/* A growing "a, b, c and 7 more". */
typedef struct names {
    char text[192];
    size_t used;
    int n;
} names;

static void names_add(names *list, const char *name)
{
    if (list->n < LOAD_NAMES && list->used < sizeof(list->text)) {
        int n = snprintf(list->text + list->used, sizeof(list->text) - list->used, "%s%s",
                         list->n > 0 ? ", " : "", name);

        list->used += n > 0 ? (size_t)n : 0;
    }
    list->n++;
}

static void names_end(names *list)
{
    if (list->n > LOAD_NAMES && list->used < sizeof(list->text))
        snprintf(list->text + list->used, sizeof(list->text) - list->used, " and %d more",
                 list->n - LOAD_NAMES);
}

static void shape_text(char *text, size_t bytes, tri_dtype dtype, const int64_t *shape, int ndim)
{
    size_t used = (size_t)snprintf(text, bytes, "%s[", tri_dtype_name(dtype));

    for (int d = 0; d < ndim && d < TRI_MAX_DIMS && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, d > 0 ? ", %lld" : "%lld",
                                 (long long)shape[d]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "]");
}

static bool fits(const tri_tensor *tensor, const tri_state_source *source)
{
    if (tensor->dtype != source->dtype || tensor->ndim != source->ndim)
        return false;
    for (int d = 0; d < tensor->ndim; d++)
        if (tensor->shape[d] != source->shape[d])
            return false;
    return true;
}

static void add_misfit(names *list, const char *name, const tri_tensor *tensor,
                       const tri_state_source *source)
{
    char ours[64], theirs[64], line[256];

    shape_text(ours, sizeof(ours), tensor->dtype, tensor->shape, tensor->ndim);
    shape_text(theirs, sizeof(theirs), source->dtype, source->shape, source->ndim);
    snprintf(line, sizeof(line), "%s is %s, not %s", name, ours, theirs);
    names_add(list, line);
}

/* entry -> index of its source, or what is wrong with the sources. */
static tri_status match(tri_module *module, const tri_state_source *sources, int64_t n,
                        int64_t *source_of)
{
    names missing = {0}, unexpected = {0}, misfit = {0};

    for (int64_t i = 0; i < module->n_state; i++)
        source_of[i] = -1;
    for (int64_t s = 0; s < n; s++) {
        int64_t at = find_entry(module, sources[s].name);

        if (at < 0 || source_of[at] >= 0)
            names_add(&unexpected, sources[s].name);
        else if (sources[s].data == NULL && trii_tensor_bytes(module->state[at].tensor) > 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "module_load: the data of %s is NULL",
                             sources[s].name);
        else if (!fits(module->state[at].tensor, &sources[s]))
            add_misfit(&misfit, module->state[at].name, module->state[at].tensor, &sources[s]);
        if (at >= 0)
            source_of[at] = s;
    }
    for (int64_t i = 0; i < module->n_state; i++)
        if (source_of[i] < 0)
            names_add(&missing, module->state[i].name);
    if (missing.n + unexpected.n + misfit.n == 0)
        return TRI_OK;
    names_end(&missing);
    names_end(&unexpected);
    names_end(&misfit);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "state does not fit %s:%s%s%s%s%s%s", module->type->name,
                     missing.n > 0 ? " missing: " : "", missing.text,
                     unexpected.n > 0 ? " unexpected: " : "", unexpected.text,
                     misfit.n > 0 ? " of another kind: " : "", misfit.text);
}

/* Which source belongs to each entry; release with trii_free. Nothing is written. */
static tri_status match_sources(tri_module *module, const tri_state_source *sources, int64_t n,
                                int64_t **source_of_out)
{
    int64_t *source_of;
    tri_status st = trii_module_flatten(module);

    if (st < 0)
        return st;
    if (n < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "module_load: %lld sources", (long long)n);
    if (n > 0 && sources == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "module_load: sources are NULL");
    for (int64_t i = 0; i < n; i++) {
        if (sources[i].name == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "module_load: source %lld has no name",
                             (long long)i);
        if (sources[i].ndim < 0 || sources[i].ndim > TRI_MAX_DIMS)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "module_load: %s has %d dimensions, 0 to %d are "
                             "allowed",
                             sources[i].name, sources[i].ndim, TRI_MAX_DIMS);
    }
    source_of = trii_alloc((size_t)module->n_state, sizeof(*source_of), "state match");
    if (source_of == NULL)
        return TRI_ERR_NO_MEMORY;
    st = match(module, sources, n, source_of);
    if (st == TRI_OK)
        *source_of_out = source_of;
    else
        trii_free(source_of);
    return st;
}

tri_status trii_module_fits(tri_module *module, const tri_state_source *sources, int64_t n)
{
    int64_t *source_of;
    tri_status st = match_sources(module, sources, n, &source_of);

    if (st == TRI_OK)
        trii_free(source_of);
    return st;
}

tri_status tri_module_load(tri_module *module, const tri_state_source *sources, int64_t n)
{
    int64_t *source_of;
    tri_status st = match_sources(module, sources, n, &source_of);

    if (st < 0)
        return st;
    for (int64_t i = 0; i < module->n_state && st == TRI_OK; i++) {
        tri_tensor *tensor = module->state[i].tensor;

        st = tri_copy_in(tensor, sources[source_of[i]].data, trii_tensor_bytes(tensor));
        if (st < 0)
            trii_err_prepend("%s", module->state[i].name);
    }
    trii_free(source_of);
    return st;
}

/* --- hashing -------------------------------------------------------------------------------- */

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

tri_status trii_hash_entry(const tri_state_entry *entry, uint64_t *hash_io)
{
    size_t bytes = trii_tensor_bytes(entry->tensor);
    void *plain = trii_alloc_aligned(64, bytes, "state hash");
    uint64_t hash = *hash_io;
    int32_t kind[2] = {(int32_t)entry->tensor->dtype, entry->tensor->ndim};
    tri_status st;

    if (plain == NULL)
        return TRI_ERR_NO_MEMORY;
    st = tri_copy_out(entry->tensor, plain, bytes);
    if (st == TRI_OK) {
        hash = trii_hash_bytes(hash, entry->name, strlen(entry->name));
        hash = trii_hash_bytes(hash, kind, sizeof(kind));
        hash = trii_hash_bytes(hash, entry->tensor->shape,
                               (size_t)entry->tensor->ndim * sizeof(int64_t));
        *hash_io = trii_hash_bytes(hash, plain, bytes);
    }
    trii_free(plain);
    return st;
}

tri_status tri_module_hash(tri_module *module, uint64_t *hash_out)
{
    uint64_t hash = 1;
    tri_status st = trii_module_flatten(module);

    if (st == TRI_OK && hash_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "module_hash: hash_out is NULL");
    for (int64_t i = 0; st == TRI_OK && i < module->n_state; i++)
        st = trii_hash_entry(&module->state[i], &hash);
    if (st == TRI_OK)
        *hash_out = hash;
    return st;
}
