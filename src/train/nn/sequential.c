/*
 * sequential.c - modules one after the other.
 */
#include <stdio.h>

#include "base/err.h"
#include "train/nn/module.h"

static void sequential_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                               int n_out)
{
    tri_tensor *x;

    if (n_in != 1 || n_out != 1) {
        trii_forward_refused(TRII_FAIL(TRI_ERR_INVALID_ARG,
                                       "Sequential takes 1 input to 1 output, not %d to %d", n_in,
                                       n_out),
                             out, n_out);
        return;
    }
    x = in[0];
    for (int i = 0; i < self->n_children; i++)
        x = tri_forward(self->children[i], x);
    out[0] = x;
}

static tri_module *sequential_new(void)
{
    static const tri_module_class type = {.name = "Sequential", .forward = sequential_forward};

    return tri_module_create(&type);
}

/* After a failure the other modules are still taken, and destroyed. */
static void append(tri_module *self, int index, tri_module *own_module)
{
    char name[16];

    snprintf(name, sizeof(name), "%d", index);
    if (tri_module_status(tri_module_add_child(self, name, own_module)) < 0)
        return; /* kept in self */
}

tri_module *tri_nn_sequential_of(int n, tri_module *const *own_modules)
{
    tri_module *self = sequential_new();

    if (n < 0)
        trii_module_fail(self, TRII_FAIL(TRI_ERR_INVALID_ARG, "nn_sequential_of: %d modules", n));
    else if (n > 0 && own_modules == NULL)
        trii_module_fail(self,
                         TRII_FAIL(TRI_ERR_INVALID_ARG, "nn_sequential_of: own_modules is NULL"));
    for (int i = 0; i < n && own_modules != NULL; i++)
        append(self, i, own_modules[i]);
    return self;
}
