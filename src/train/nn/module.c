/*
 * module.c - the tree of modules: creation, names, ownership, running forward. Layers are in files
 * of their own (linear_layer.c); names and contents of the whole tree are in state.c.
 */
#include "train/nn/module.h"

#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/option.h"
#include "train/graph/values/contents.h"
#include "train/graph/step/step.h"

/* --- making and failing --------------------------------------------------- */

tri_module *tri_module_create(const tri_module_class *type)
{
    tri_status status = TRII_CHECK_RESERVED(tri_module_class, type);
    tri_module *module;

    if (status != TRI_OK)
        return trii_module_failed(status);
    if (type == NULL || type->name == NULL || type->forward == NULL)
        return trii_module_failed(
            TRII_FAIL(TRI_ERR_INVALID_ARG, "module_create: a class needs a name and a forward"));
    module = trii_alloc(1, sizeof(*module), type->name);
    if (module == NULL)
        return &trii_module_no_memory;
    module->type = type;
    module->training = true;
    module->n_state = -1;
    if (type->size > 0) {
        module->data = trii_alloc(1, type->size, type->name);
        if (module->data == NULL) {
            trii_free(module);
            return &trii_module_no_memory;
        }
    }
    return module;
}

static void one_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                        int n_out)
{
    if (trii_one_to_one(self, n_in, out, n_out))
        out[0] = self->own_type->forward(self, in[0]);
}

tri_module *tri_module_simple(const char *name, size_t size,
                              tri_tensor *(*forward)(tri_module *self, tri_tensor *x))
{
    trii_simple_class *own;
    tri_module *module;
    tri_status status = trii_need_text(name, "module_simple", "name");

    if (status == TRI_OK)
        status = trii_need(forward != NULL ? name : NULL, "module_simple", "forward");
    if (status != TRI_OK)
        return trii_module_failed(status);
    own = trii_alloc(1, sizeof(*own), "module class");
    if (own == NULL)
        return &trii_module_no_memory;
    own->name = trii_strdup(name, "module name");
    own->forward = forward;
    own->type = (tri_module_class){.name = own->name, .size = size, .forward = one_forward};
    module = own->name != NULL ? tri_module_create(&own->type) : &trii_module_no_memory;
    if (trii_module_is_shared(module)) {
        trii_free(own->name);
        trii_free(own);
        return module;
    }
    module->own_type = own;
    return module;
}

void *tri_module_data(tri_module *self)
{
    return self != NULL ? self->data : NULL;
}

/* --- destroying ----------------------------------------------------------- */

static void slots_fini(trii_slots *slots)
{
    for (int i = 0; i < slots->n; i++) {
        tri_tensor_unref(slots->items[i].tensor);
        trii_free(slots->items[i].name);
    }
    trii_free(slots->items);
}

static void drop_state(tri_module *module)
{
    for (int64_t i = 0; i < module->n_state; i++)
        trii_free((void *)(uintptr_t)module->state[i].name);
    trii_free(module->state);
    module->state = NULL;
    module->n_state = -1;
}

static void destroy_tree(tri_module *module)
{
    if (module == NULL || trii_module_is_shared(module))
        return;
    if (module->type->destroy != NULL)
        module->type->destroy(module);
    for (int i = 0; i < module->n_children; i++)
        destroy_tree(module->children[i]);
    if (module->cut != NULL)
        module->cut->release(module->cut);
    trii_free(module->children);
    slots_fini(&module->parameters);
    slots_fini(&module->buffers);
    trii_hooks_fini(&module->hooks);
    drop_state(module);
    tri_tensor_unref(module->failed_tensor);
    trii_free(module->why);
    trii_free(module->name);
    trii_free(module->data);
    if (module->own_type != NULL)
        trii_free(module->own_type->name);
    trii_free(module->own_type);
    trii_free(module);
}

void tri_module_destroy(tri_module *module)
{
    if (module != NULL && module->parent != NULL)
        return; /* in the parent */
    destroy_tree(module);
}

/* --- registering ---------------------------------------------------------- */

static bool name_taken(const tri_module *self, const char *name)
{
    for (int i = 0; i < self->n_children; i++)
        if (strcmp(self->children[i]->name, name) == 0)
            return true;
    for (int i = 0; i < self->parameters.n; i++)
        if (strcmp(self->parameters.items[i].name, name) == 0)
            return true;
    for (int i = 0; i < self->buffers.n; i++)
        if (strcmp(self->buffers.items[i].name, name) == 0)
            return true;
    return false;
}

static tri_status check_name(const tri_module *self, const char *name)
{
    if (name == NULL || strchr(name, '.') != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: \"%s\" cannot name a part of a module: a name has no dots",
                         self->type->name, name != NULL ? name : "NULL");
    if (name_taken(self, name))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: there is a \"%s\" already", self->type->name,
                         name);
    return TRI_OK;
}

static void changed(tri_module *module)
{
    for (; module != NULL; module = module->parent)
        drop_state(module);
}

/* Whether `module` is `above` or stands below it. */
static bool stands_below(const tri_module *module, const tri_module *above)
{
    for (; module != NULL; module = module->parent)
        if (module == above)
            return true;
    return false;
}

static tri_status check_place(const tri_module *self, const char *name, const tri_module *child)
{
    int levels = child->height + 2; /* self and the child are one each */

    if (stands_below(self, child))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: child \"%s\" contains this module already",
                         self->type->name, name);
    if (child->parent != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: %s%s%s is a part of %s already: a module has one parent",
                         self->type->name, name, name[0] != '\0' ? ": " : "", child->type->name,
                         child->parent->type->name);
    for (const tri_module *m = self->parent; m != NULL; m = m->parent)
        levels++;
    if (levels > TRII_MODULE_LEVELS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: modules nested %d deep with child \"%s\": %d levels are allowed",
                         self->type->name, levels, name, TRII_MODULE_LEVELS);
    return TRI_OK;
}

static void grow_higher(tri_module *module, int height)
{
    for (; module != NULL && module->height < height; module = module->parent)
        module->height = height++;
}

static tri_status link_child(tri_module *self, const char *name, tri_module *child)
{
    tri_status status;

    if (name == NULL)
        return check_name(self, NULL);
    if (child == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: child \"%s\" is NULL", self->type->name, name);
    status = tri_module_status(child);
    if (status != TRI_OK) /* a wrapper's has no name */
        return name[0] != '\0' ? TRII_FAIL_CTX(status, "%s", name) : status;
    status = check_place(self, name, child);
    if (status == TRI_OK)
        status = check_name(self, name);
    if (status != TRI_OK)
        return status;
    status = trii_array_grow(&self->children, &self->children_capacity, self->n_children, 4,
                             sizeof(*self->children), "module parts");
    if (status != TRI_OK)
        return status;
    child->name = trii_strdup(name, "module name");
    if (child->name == NULL)
        return TRI_ERR_NO_MEMORY;
    self->children[self->n_children++] = child;
    child->parent = self;
    grow_higher(self, child->height + 1);
    changed(self);
    return TRI_OK;
}

tri_module *trii_module_adopt(tri_module *self, const char *name, tri_module *own_child)
{
    tri_status status = tri_module_status(self);

    if (status == TRI_OK) {
        status = link_child(self, name, own_child);
        if (status == TRI_OK)
            return own_child;
        trii_module_fail(self, status);
    }
    if (!stands_below(self, own_child))
        tri_module_destroy(own_child); /* unless another parent has it */
    return self != NULL ? self : &trii_module_null;
}

tri_module *tri_module_add_child(tri_module *self, const char *name, tri_module *own_child)
{
    return trii_module_adopt(self, name != NULL && name[0] == '\0' ? "." : name, own_child);
}

static tri_status link_tensor(tri_module *self, bool parameter, const char *name,
                              tri_tensor *tensor)
{
    trii_slots *slots = parameter ? &self->parameters : &self->buffers;
    char *copy;
    tri_status status = tri_tensor_status(tensor);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s: %s", self->type->name, name);
    if (name != NULL && *name == '\0')
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the name of a tensor is empty",
                         self->type->name);
    if (trii_is_handle(tensor))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: \"%s\" is a value of a step; it must persist",
                         self->type->name, name);
    if (parameter && !trii_dtype_is_float(tensor->dtype))
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "%s: \"%s\" is %s: a parameter is floating-point (tri_module_add_buffer takes "
            "what is not)",
            self->type->name, name, tri_dtype_name(tensor->dtype));
    status = check_name(self, name);
    if (status != TRI_OK)
        return status;
    status = trii_array_grow(&slots->items, &slots->capacity, slots->n, 4, sizeof(*slots->items),
                             "module parts");
    if (status != TRI_OK)
        return status;
    copy = trii_strdup(name, "tensor name");
    if (copy == NULL)
        return TRI_ERR_NO_MEMORY;
    slots->items[slots->n++] = (trii_slot){.name = copy, .tensor = tensor};
    tensor->is_parameter = tensor->is_parameter || parameter;
    changed(self);
    return TRI_OK;
}

static tri_tensor *add_tensor(tri_module *self, bool parameter, const char *name,
                              tri_tensor *own_tensor)
{
    tri_status status = tri_module_status(self);

    if (status == TRI_OK) {
        status = link_tensor(self, parameter, name, own_tensor);
        if (status == TRI_OK) {
            if (parameter)
                tri_requires_grad(own_tensor, true);
            return own_tensor;
        }
        trii_module_fail(self, status);
    }
    tri_tensor_unref(own_tensor);
    if (self == NULL || self == &trii_module_null)
        return &trii_module_null_tensor;
    if (self == &trii_module_no_memory)
        return trii_tensor_no_memory();
    if (self->failed_tensor == NULL)
        self->failed_tensor = trii_tensor_failed(status);
    return self->failed_tensor;
}

tri_tensor *tri_module_add_parameter(tri_module *self, const char *name, tri_tensor *own_tensor)
{
    return add_tensor(self, true, name, own_tensor);
}

tri_tensor *tri_module_add_buffer(tri_module *self, const char *name, tri_tensor *own_tensor)
{
    return add_tensor(self, false, name, own_tensor);
}

/* --- forward -------------------------------------------------------------- */

/* Twice the levels of a tree of modules: its modules may call others in between. */
#define FORWARDS_WITHIN (2 * TRII_MODULE_LEVELS)

static bool failed(const tri_tensor *tensor)
{
    return tensor == NULL || tri_tensor_status(tensor) < 0;
}

/* A failure that arose here gets the module's name in front; one that came in with an input has
 * been named already. */
static void name_failures(const tri_module *module, tri_tensor *const *in, int n_in,
                          tri_tensor **out, int n_out)
{
    for (int i = 0; i < n_in; i++)
        if (in[i] != NULL && failed(in[i]))
            return;
    for (int i = 0; i < n_out; i++) {
        tri_status status;

        if (!failed(out[i]))
            continue;
        if (out[i] == NULL)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "forward of %s left output %d of %d unset",
                               module->type->name, i, n_out);
        else
            status = tri_tensor_status(out[i]);
        if (module->name != NULL && module->name[0] != '\0')
            trii_err_prepend("%s", module->name);
        out[i] = trii_forward_failed(status);
    }
}

/* Without a limit, a forward that calls itself would end with the stack. */
static tri_status check_depth(const tri_module *module, int depth)
{
    if (TRII_LIKELY(depth <= FORWARDS_WITHIN))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "forward of %s: at most %d nested calls of tri_forward are allowed: does a "
                     "module call itself?",
                     module->type->name, FORWARDS_WITHIN);
}

static void run_forward(tri_module *module, tri_tensor *const *in, int n_in, tri_tensor **out,
                        int n_out)
{
    if (module->recompute)
        tri_recompute_begin();
    if (module->hooks.n > 0)
        trii_forward_hooked(module, in, n_in, out, n_out);
    else
        trii_forward_plain(module, in, n_in, out, n_out);
    if (module->recompute)
        tri_recompute_end();
}

static void fail_outputs(tri_status status, tri_tensor **out, int n_out)
{
    for (int i = 0; i < n_out; i++)
        out[i] = trii_forward_failed(status);
}

void tri_forward_n(tri_module *module, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out)
{
    static _Thread_local int forwards;
    int *depth = &forwards;
    tri_status status = tri_module_status(module);
    bool any = false;

    if (out == NULL || n_out < 0)
        return; /* there is nowhere to report it */
    if (module == NULL) {
        fail_outputs(trii_contents_fail(status, "tri_forward"), out, n_out);
        return;
    }
    if (status == TRI_OK && n_in < 0)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG, "forward of %s: %d inputs", module->type->name, n_in);
    else if (status == TRI_OK && n_in > 0 && in == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "forward of %s: the inputs are NULL",
                           module->type->name);
    for (int i = 0; i < n_out; i++)
        out[i] = NULL;
    ++*depth;
    if (status == TRI_OK)
        status = check_depth(module, *depth);
    if (*depth == 1)
        (void)trii_set_whole_only(true);
    if (status == TRI_OK)
        run_forward(module, in, n_in, out, n_out);
    if (--*depth == 0)
        (void)trii_set_whole_only(false);
    if (status != TRI_OK) {
        fail_outputs(status, out, n_out);
        return;
    }
    for (int i = 0; i < n_out; i++)
        any = any || failed(out[i]);
    if (any)
        name_failures(module, in, n_in, out, n_out);
}

tri_tensor *tri_forward(tri_module *module, tri_tensor *x)
{
    tri_tensor *y;

    tri_forward_n(module, &x, 1, &y, 1);
    return y;
}

void tri_module_train(tri_module *module, bool training)
{
    if (module == NULL)
        trii_module_refused("tri_module_train");
    if (module == NULL || trii_module_is_shared(module))
        return;
    module->training = training;
    for (int i = 0; i < module->n_children; i++)
        tri_module_train(module->children[i], training);
}

void tri_module_set_recompute(tri_module *module, bool on)
{
    if (module == NULL)
        trii_module_refused("tri_module_set_recompute");
    else if (!trii_module_is_shared(module))
        module->recompute = on;
}

bool tri_module_is_training(const tri_module *self)
{
    return self != NULL && self->training;
}
