/*
 * module_status.c - failed modules, and forwards that cannot run: a module keeps its first failure,
 * and tri_module_status returns it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <trireme/function.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/graph/values/contents.h"
#include "train/graph/step/step.h"
#include "train/nn/module.h"

tri_module trii_module_no_memory = {.status = TRI_ERR_NO_MEMORY, .n_state = -1};

tri_module trii_module_null = {
    .status = TRI_ERR_INVALID_ARG, .why = (char[]){"the module is NULL"}, .n_state = -1};
tri_tensor trii_module_null_tensor = {.refs = INT32_MAX / 2,
                                      .status = TRI_ERR_INVALID_ARG,
                                      .why = (char[]){"the module is NULL"},
                                      .ndim = -1};

static const tri_module_class failed_class = {.name = "failed"};

bool trii_module_is_shared(const tri_module *module)
{
    return module == &trii_module_no_memory || module == &trii_module_null;
}

void trii_module_fail(tri_module *module, tri_status status)
{
    if (trii_module_is_shared(module) || module->status != TRI_OK)
        return;
    module->status = status;
    module->why = trii_strdup(tri_last_error(), "module error");
}

tri_module *trii_module_failed(tri_status status)
{
    tri_module *module = trii_alloc(1, sizeof(*module), "module");

    if (module == NULL)
        return &trii_module_no_memory;
    module->type = &failed_class;
    module->n_state = -1;
    trii_module_fail(module, status);
    return module;
}

tri_module *tri_module_fail(tri_module *self, tri_status status, const char *format, ...)
{
    char line[TRII_ERR_BYTES] = "";
    va_list args;

    if (format != NULL) {
        va_start(args, format);
        vsnprintf(line, sizeof(line), format, args);
        va_end(args);
    }
    status = tri_status_fail(status, "%s",
                             line[0] != '\0' ? line : "tri_module_fail: no reason is given");
    if (self == NULL)
        return trii_module_failed(status);
    trii_module_fail(self, status);
    return self;
}

void trii_module_refused(const char *call)
{
    trii_step *step = trii_step_current();

    if (step != NULL)
        trii_step_fail(step, TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the module is NULL", call));
}

tri_status tri_module_status(const tri_module *module)
{
    if (module == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the module is NULL");
    if (module->status != TRI_OK)
        return TRII_FAIL(module->status, "%s", module->why != NULL ? module->why : "no memory");
    return TRI_OK;
}

tri_tensor *trii_forward_failed(tri_status status)
{
    trii_step *step = trii_step_current();

    return step != NULL ? trii_handle_failed(step, status) : trii_tensor_failed(status);
}

void trii_forward_refused(tri_status status, tri_tensor **out, int n_out)
{
    status = trii_contents_fail(status, "tri_forward");
    for (int i = 0; i < n_out; i++)
        out[i] = trii_forward_failed(status);
}

/* The number of inputs and outputs of a layer's forward. */
bool trii_one_to_one(tri_module *self, int n_in, tri_tensor **out, int n_out)
{
    tri_status status;

    if (n_in == 1 && n_out == 1)
        return true;
    status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s takes 1 input to 1 output, not %d to %d",
                       self->type->name, n_in, n_out);
    trii_forward_refused(status, out, n_out);
    return false;
}
