/*
 * module_to.c - moves a module to another device.
 */
#include "base/err.h"
#include "train/graph/step/step.h"
#include "train/nn/module.h"
#include "train/tensor/device_list.h"

static tri_status check(tri_module *module, tri_device device)
{
    int64_t n = tri_module_state_count(module);
    tri_status status = trii_device_check(device);

    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        tri_state_entry entry = tri_module_state(module, i);

        status = tri_tensor_status(entry.tensor);
        if (status == TRI_OK && entry.tensor->placed != NULL && entry.tensor->device != device)
            status =
                TRII_FAIL(TRI_ERR_STATE,
                          "the gradients lie in buckets of tri_ddp: move the model before it is "
                          "wrapped");
        if (status != TRI_OK)
            status = TRII_FAIL_CTX(status, "%s", entry.name);
    }
    return status;
}

tri_status tri_module_to(tri_module *module, tri_device device)
{
    int64_t n = 0;
    tri_status status = module != NULL ? tri_module_status(module)
                                       : TRII_FAIL(TRI_ERR_INVALID_ARG, "the module is NULL");

    if (status == TRI_OK)
        status = trii_module_flatten(module);
    if (status == TRI_OK) {
        n = tri_module_state_count(module);
        status = check(module, device);
    }
    for (int64_t i = 0; i < n && status == TRI_OK; i++)
        status = trii_tensor_send(tri_module_state(module, i).tensor, device);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "tri_module_to");
}
