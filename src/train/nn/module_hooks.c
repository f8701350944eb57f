/*
 * module_hooks.c - forward hooks: functions of the user that run before or after a module's
 * forward.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "train/nn/module.h"

static tri_status add(tri_module *module, tri_forward_hook hook, void *arg, bool before,
                      int64_t *id_out)
{
    tri_status status = tri_module_status(module);
    trii_hooks *hooks;

    if (status == TRI_OK && hook == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "hook of %s: hook is NULL", module->type->name);
    if (status != TRI_OK)
        return status;
    hooks = &module->hooks;
    status = trii_array_grow(&hooks->items, &hooks->capacity, hooks->n, 2, sizeof(*hooks->items),
                             "hooks of a module");
    if (status != TRI_OK)
        return status;
    hooks->items[hooks->n++] =
        (trii_hook){.call = hook, .arg = arg, .id = ++hooks->next_id, .before = before};
    if (id_out != NULL)
        *id_out = hooks->next_id;
    return TRI_OK;
}

tri_status tri_module_add_forward_pre_hook(tri_module *module, tri_forward_hook hook, void *arg,
                                           int64_t *id_out)
{
    return add(module, hook, arg, true, id_out);
}

tri_status tri_module_add_forward_hook(tri_module *module, tri_forward_hook hook, void *arg,
                                       int64_t *id_out)
{
    return add(module, hook, arg, false, id_out);
}

/* Hooks that were removed while the module was running are freed when nobody walks the list. */
static void sweep(trii_hooks *hooks)
{
    int kept = 0;

    for (int i = 0; i < hooks->n; i++) {
        if (hooks->items[i].call != NULL)
            hooks->items[kept++] = hooks->items[i];
    }
    hooks->n = kept;
}

bool tri_module_remove_hook(tri_module *module, int64_t id)
{
    for (int i = 0; module != NULL && i < module->hooks.n; i++) {
        trii_hook *hook = &module->hooks.items[i];

        if (hook->id != id || hook->call == NULL)
            continue;
        hook->call = NULL;
        if (module->hooks.running == 0)
            sweep(&module->hooks);
        return true;
    }
    return false;
}

/* The list may grow and move meanwhile, so hooks are read by index and copied. */
static void call(tri_module *module, bool before, int n, tri_tensor **in, int n_in,
                 tri_tensor **out, int n_out)
{
    for (int i = 0; i < n; i++) {
        trii_hook hook = module->hooks.items[i];

        if (hook.call != NULL && hook.before == before)
            hook.call(module, in, n_in, out, n_out, hook.arg);
    }
}

/* So that a hook finds every output set, and is not blamed for what forward did. */
static void check_outputs(const tri_module *module, bool hooked, tri_tensor **out, int n_out)
{
    for (int i = 0; i < n_out; i++) {
        if (TRII_LIKELY(out[i] != NULL))
            continue;
        if (hooked)
            trii_err_set("a forward hook of %s set output %d of %d to NULL", module->type->name, i,
                         n_out);
        else
            trii_err_set("forward of %s left output %d of %d unset", module->type->name, i, n_out);
        out[i] = trii_forward_failed(TRI_ERR_INVALID_ARG);
    }
}

void trii_forward_hooked(tri_module *module, tri_tensor *const *in, int n_in, tri_tensor **out,
                         int n_out)
{
    tri_tensor *few[8], **inputs = few;
    int n = module->hooks.n;

    if (n_in > (int)(sizeof(few) / sizeof(few[0])))
        inputs = trii_alloc((size_t)n_in, sizeof(*inputs), "inputs of a module");
    if (inputs == NULL) {
        for (int i = 0; i < n_out; i++)
            out[i] = trii_forward_failed(TRI_ERR_NO_MEMORY);
        return;
    }
    if (n_in > 0)
        memcpy(inputs, in, (size_t)n_in * sizeof(*inputs));
    module->hooks.running++;
    call(module, true, n, inputs, n_in, NULL, 0);
    trii_forward_plain(module, inputs, n_in, out, n_out);
    check_outputs(module, false, out, n_out);
    call(module, false, n, inputs, n_in, out, n_out);
    check_outputs(module, true, out, n_out);
    if (--module->hooks.running == 0)
        sweep(&module->hooks);
    if (inputs != few)
        trii_free(inputs);
}

void trii_hooks_fini(trii_hooks *hooks)
{
    trii_free(hooks->items);
    *hooks = (trii_hooks){0};
}
