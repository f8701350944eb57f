/*
 * module_to.c - a module moves to another device.
 */
#include "base/err.h"
#include "graph/step.h"
#include "nn/module.h"
#include "tensor/device_list.h"

static tri_status check(tri_module *module, tri_device device)
{
    int64_t n = tri_module_state_count(module);
    tri_status st = trii_device_check(device);

    for (int64_t i = 0; i < n && st == TRI_OK; i++) {
        tri_state_entry entry = tri_module_state(module, i);

        st = tri_tensor_status(entry.tensor);
        if (st == TRI_OK && entry.tensor->grad_hook != NULL && entry.tensor->device != device)
            st = TRII_FAIL(TRI_ERR_STATE,
                           "the gradients lie in buckets of tri_ddp: move the model before it is "
                           "wrapped");
        if (st < 0)
            st = TRII_FAIL_CTX(st, "%s", entry.name);
    }
    return st;
}

tri_status tri_module_to(tri_module *module, tri_device device)
{
    int64_t n = 0;
    tri_status st = module != NULL ? tri_module_status(module)
                                   : TRII_FAIL(TRI_ERR_INVALID_ARG, "the module is NULL");

    if (st == TRI_OK)
        st = trii_module_flatten(module);
    if (st == TRI_OK) {
        n = tri_module_state_count(module);
        st = check(module, device);
    }
    for (int64_t i = 0; i < n && st == TRI_OK; i++)
        st = trii_tensor_send(tri_module_state(module, i).tensor, device);
    return st == TRI_OK ? TRI_OK : TRII_FAIL_CTX(st, "tri_module_to");
}
