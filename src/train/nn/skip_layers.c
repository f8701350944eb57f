/*
 * skip_layers.c - connections past other modules: one layer saves its input under a name, later
 * ones take it.
 *
 * The context keeps what was saved, until the step ends. A pipeline, whose micro-batches are under
 * way at once, puts there what each of them has saved before it runs a stage that takes it
 * (train/parallel/pipeline/pipeline_skips.c).
 */
#include "train/nn/skips.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/graph/step/recorder.h"
#include "train/nn/module.h"

typedef struct saved {
    char name[TRII_SKIP_NAME];
    tri_tensor *tensor; /* borrowed: a value of the step, or a tensor of the caller's */
    uint64_t generation;
} saved;

typedef struct saved_list {
    saved *items;
    int32_t n, cap;
} saved_list;

typedef struct skip_layer {
    char name[TRII_SKIP_NAME];
    tri_skip_join join;
} skip_layer;

/* --- what is saved -------------------------------------------------------- */

static void list_release(void *state)
{
    trii_free(((saved_list *)state)->items);
}

static saved_list *list_of(trii_step *step)
{
    return step == NULL ? NULL
                        : trii_floor_state_of(trii_recorder_of(step), TRII_FLOOR_NN,
                                              sizeof(saved_list), list_release);
}

static saved *find(const saved_list *list, const char *name)
{
    for (int32_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
}

tri_tensor *trii_skip_find(const char *name)
{
    trii_step *step = trii_step_current();
    const saved_list *list = list_of(step);
    const saved *found = list != NULL ? find(list, name) : NULL;

    return found != NULL && found->generation == step->generation ? found->tensor : NULL;
}

/* Steps repeat their names, so the list grows in the first one. */
tri_status trii_skip_set(const char *name, tri_tensor *x)
{
    trii_step *step = trii_step_current();
    saved_list *list = list_of(step);
    saved *found = list != NULL ? find(list, name) : NULL;

    if (list == NULL)
        return TRI_ERR_NO_MEMORY;
    if (found == NULL) {
        void *items = list->items;
        tri_status status =
            trii_grow(&items, &list->cap, list->n + 1, sizeof(saved), "saved tensors");

        list->items = items;
        if (status != TRI_OK)
            return status;
        found = &list->items[list->n++];
        (void)snprintf(found->name, sizeof(found->name), "%s", name);
    }
    found->tensor = x;
    found->generation = step->generation;
    return TRI_OK;
}

/* --- the layers ----------------------------------------------------------- */

static void save_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    const skip_layer *layer = tri_module_data(self);
    tri_status status;

    if (!trii_one_to_one(self, n_in, out, n_out))
        return;
    status = trii_skip_set(layer->name, in[0]);
    out[0] = status == TRI_OK ? in[0] : trii_forward_failed(status);
}

static tri_tensor *joined(const skip_layer *layer, tri_tensor *x, tri_tensor *taken)
{
    tri_tensor *both[2] = {x, taken};

    switch (layer->join) {
    case TRI_SKIP_ADD:
        return tri_add(x, taken);
    case TRI_SKIP_CONCAT:
        return tri_concat(both, 2, 1);
    default:
        return taken;
    }
}

static void take_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    const skip_layer *layer = tri_module_data(self);
    tri_tensor *taken;

    if (!trii_one_to_one(self, n_in, out, n_out))
        return;
    taken = trii_skip_find(layer->name);
    out[0] = taken != NULL ? joined(layer, in[0], taken)
                           : trii_forward_failed(TRII_FAIL(
                                 TRI_ERR_STATE,
                                 "SkipTake: nothing is saved under \"%s\" in this step: a "
                                 "tri_nn_skip_save of that name has to come before",
                                 layer->name));
}

static int save_repr(tri_module *self, char *text, size_t bytes)
{
    const skip_layer *layer = tri_module_data(self);

    return snprintf(text, bytes, "'%s'", layer->name);
}

static int take_repr(tri_module *self, char *text, size_t bytes)
{
    static const char *const joins[] = {"add", "concat", "alone"};
    const skip_layer *layer = tri_module_data(self);

    return snprintf(text, bytes, "'%s', join='%s'", layer->name, joins[layer->join]);
}

static const tri_module_class save_class = {.name = "SkipSave",
                                            .size = sizeof(skip_layer),
                                            .forward = save_forward,
                                            .extra_repr = save_repr};
static const tri_module_class take_class = {.name = "SkipTake",
                                            .size = sizeof(skip_layer),
                                            .forward = take_forward,
                                            .extra_repr = take_repr};

static const char *name_of(const tri_module *module, const tri_module_class *type)
{
    return module->type == type ? ((const skip_layer *)module->data)->name : NULL;
}

const char *trii_skip_saved_by(const tri_module *module)
{
    return name_of(module, &save_class);
}

const char *trii_skip_taken_by(const tri_module *module)
{
    return name_of(module, &take_class);
}

static tri_module *make(const tri_module_class *type, const char *name, tri_skip_join join)
{
    tri_module *self;
    skip_layer *layer;

    if (name == NULL || name[0] == '\0' || strlen(name) >= TRII_SKIP_NAME)
        return trii_module_failed(TRII_FAIL(TRI_ERR_INVALID_ARG,
                                            "%s: a name has 1 to %d bytes, not %s", type->name,
                                            TRII_SKIP_NAME - 1, name == NULL ? "NULL" : name));
    self = tri_module_create(type);
    layer = tri_module_data(self);
    if (layer == NULL)
        return self;
    (void)snprintf(layer->name, sizeof(layer->name), "%s", name);
    layer->join = join;
    return self;
}

tri_module *tri_nn_skip_save(const char *name)
{
    return make(&save_class, name, TRI_SKIP_ALONE);
}

tri_module *tri_nn_skip_take(const char *name, tri_skip_join join)
{
    if ((int)join < TRI_SKIP_ADD || (int)join > TRI_SKIP_ALONE)
        return trii_module_failed(TRII_FAIL(TRI_ERR_INVALID_ARG,
                                            "nn_skip_take: join %d is not TRI_SKIP_ADD, "
                                            "TRI_SKIP_CONCAT or TRI_SKIP_ALONE",
                                            (int)join));
    return make(&take_class, name, join);
}
