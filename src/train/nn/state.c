/*
 * state.c - the parameters and buffers of a whole tree, flat: PyTorch's names in state_dict's
 * order (a module's parameters, its buffers, then its children). Loading: load_state.c; hashing:
 * state_hash.c.
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
