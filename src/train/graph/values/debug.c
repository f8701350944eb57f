/*
 * debug.c - tri_tensor_set_name, and what a debugger shows of a tensor.
 */
#include <stdarg.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/graph/step/recorder.h"
#include "train/graph/values/contents.h"
#include "train/tensor/device_memory.h"

#define SHOWN 8 /* elements in a debugger */

/* Not a reason to fail a step: a name is for messages only. */
static tri_tensor *stays_as_it_was(tri_tensor *tensor, const char *name)
{
    TRII_LOG(TRII_LOG_WARN, "graph", "tri_tensor_set_name: %s was not set: %s", name,
             tri_last_error());
    return tensor;
}

tri_tensor *tri_tensor_set_name(tri_tensor *tensor, const char *name)
{
    trii_step *step;
    trii_vid value;
    char *own = name != NULL ? trii_strdup(name, "name") : NULL;

    if (tensor != NULL && name != NULL && own == NULL)
        return stays_as_it_was(tensor, name);
    if (tensor == NULL) {
        trii_free(own);
        return trii_handle_failed(
            trii_step_current(),
            trii_contents_fail(
                TRII_FAIL(TRI_ERR_INVALID_ARG, "the tensor is NULL" TRII_WHENCE_NULL),
                "tri_tensor_set_name"));
    }
    if (!trii_is_handle(tensor)) {
        if (tensor->status == TRI_OK) { /* failed ones may be shared */
            trii_free(tensor->name);
            tensor->name = own;
        } else {
            trii_free(own);
        }
        return tensor;
    }
    step = trii_step_current();
    value = step != NULL ? trii_handle_value(step, tensor) : TRII_NO_VALUE;
    if (value == TRII_NO_VALUE)
        trii_free(own); /* the first use of the handle gets the error */
    else if (trii_value_name_set(trii_recorder_of(step), value, own) != TRI_OK)
        return stays_as_it_was(tensor, name);
    return tensor;
}

const char *tri_tensor_name(const tri_tensor *tensor)
{
    const trii_recorder *r = trii_recorder_mine();
    trii_vid value;

    if (tensor == NULL)
        return NULL;
    if (!trii_is_handle(tensor))
        return tensor->name;
    value = r != NULL ? trii_handle_value(&r->step, tensor) : TRII_NO_VALUE;
    return value != TRII_NO_VALUE ? trii_value_name(r, value) : NULL;
}

/* --- for debuggers -------------------------------------------------------- */

typedef struct debug_text {
    char text[1024];
    size_t used;
} debug_text;

static TRI_PRINTF(2, 3) void add(debug_text *t, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(t->text + t->used, sizeof(t->text) - t->used, format, args);
    va_end(args);
    if (n > 0)
        t->used += (size_t)n;
    if (t->used >= sizeof(t->text))
        t->used = sizeof(t->text) - 1;
}

static void add_elements(debug_text *t, const trii_type *type, const void *data,
                         const trii_layout *layout)
{
    int64_t n = trii_type_numel(type);

    if (!trii_is_host(type->device)) {
        add(t, ", on %s", tri_device_text(type->device));
        return;
    }
    if (layout != NULL) {
        add(t, ", in the order %s", layout->name);
        return;
    }
    add(t, " = [");
    for (int64_t i = 0; i < n && i < SHOWN; i++)
        add(t, "%s%g", i > 0 ? ", " : "",
            trii_element_double(type->dtype,
                                (const char *)data + (size_t)i * tri_dtype_size(type->dtype)));
    add(t, n > SHOWN ? ", ...]" : "]");
}

static void add_name(debug_text *t, const char *name)
{
    if (name != NULL)
        add(t, "\"%s\" ", name);
}

static void debug_persistent(debug_text *t, const tri_tensor *tensor)
{
    trii_type type = {.dtype = tensor->dtype, .ndim = tensor->ndim, .device = tensor->device};
    char text[TRII_TYPE_TEXT];

    if (tensor->status != TRI_OK) {
        add(t, "failed: %s", trii_tensor_why(tensor));
        return;
    }
    memcpy(type.shape, tensor->shape, sizeof(type.shape));
    add_name(t, tensor->name);
    add(t, "%s%s%s", trii_type_text(&type, text), tensor->requires_grad ? ", requires grad" : "",
        trii_has_grad(tensor) ? ", has a gradient" : "");
    add_elements(t, &type, trii_tensor_data(tensor), tensor->layout);
}

static void debug_value(debug_text *t, const trii_recorder *r, trii_vid id)
{
    static const char *const states[] = {", pending", "", ", not kept", ""};
    const trii_value *value = &r->step.values[id];
    char text[TRII_TYPE_TEXT];

    add_name(t, trii_value_name(r, id));
    if (value->state == TRII_VALUE_FAILED) {
        const char *line = value->slot >= 0 ? r->failures.list[value->slot].line : NULL;

        add(t, "failed: %s", line != NULL ? line : "out of memory");
        return;
    }
    add(t, "%s", trii_type_text(&value->type, text));
    if (value->node >= 0) {
        const trii_node *node = &r->step.nodes[value->node];

        add(t, " by %s", node->op->name);
        if (node->site.file != NULL)
            add(t, " at %s:%d", node->site.file, node->site.line);
    }
    add(t, "%s%s", states[value->state], value->requires_grad ? ", requires grad" : "");
    if (value->state == TRII_VALUE_READY)
        add_elements(t, &value->type, trii_value_data(value), trii_value_layout(value));
}

const char *tri_tensor_debug(const tri_tensor *tensor)
{
    static _Thread_local debug_text shown;
    const trii_recorder *r = trii_recorder_mine();
    trii_vid value = TRII_NO_VALUE;

    shown.used = 0;
    shown.text[0] = '\0';
    if (tensor != NULL && trii_is_handle(tensor) && r != NULL)
        value = trii_handle_value(&r->step, tensor);
    if (tensor == NULL)
        add(&shown, "NULL");
    else if (!trii_is_handle(tensor))
        debug_persistent(&shown, tensor);
    else if (value != TRII_NO_VALUE)
        debug_value(&shown, r, value);
    else
        add(&shown, "a step tensor of a step that has ended, or of another thread's");
    return shown.text;
}
