/*
 * trainer_callbacks.c - calls what a program has hooked into the loop.
 */
#include <stdio.h>
#include <string.h>

#include "train/trainer/trainer_internal.h"

/* A failure of a callback: with its name, and a line if it wrote none. */
static tri_status failed(const tri_callback *callback, const char *hook, tri_status status,
                         bool has_line)
{
    if (status > 0) {
        trii_err_set("returned %s instead of TRI_OK or an error", tri_status_name(status));
        status = TRI_ERR_INVALID_ARG;
    } else if (!has_line) {
        trii_err_set("returned this status and no line");
    }
    return TRII_FAIL_CTX(status, "callback %.64s, %s", callback->cls->name, hook);
}

tri_status trii_hooks_at(tri_trainer *t, size_t offset, const char *hook)
{
    for (int i = 0; i < t->opt->n_callbacks; i++) {
        tri_callback *callback = t->opt->callbacks[i];
        trii_hook call;
        unsigned lines = trii_err_lines();
        tri_status status;

        memcpy(&call, (const char *)callback->cls + offset, sizeof(call));
        if (call == NULL)
            continue;
        status = call(callback, t);
        if (status != TRI_OK)
            return failed(callback, hook, status, trii_err_lines() != lines);
    }
    return TRI_OK;
}

tri_status trii_batch_hooks_at(tri_trainer *t, size_t offset, const char *hook,
                               const tri_batch *batch)
{
    for (int i = 0; i < t->opt->n_callbacks; i++) {
        tri_callback *callback = t->opt->callbacks[i];
        trii_batch_hook call;
        unsigned lines = trii_err_lines();
        tri_status status;

        memcpy(&call, (const char *)callback->cls + offset, sizeof(call));
        if (call == NULL)
            continue;
        status = call(callback, t, batch);
        if (status != TRI_OK)
            return failed(callback, hook, status, trii_err_lines() != lines);
    }
    return TRI_OK;
}

void trii_hooks_exception(tri_trainer *t, tri_status status)
{
    char line[TRII_ERR_BYTES];

    snprintf(line, sizeof(line), "%s", tri_last_error());
    for (int i = 0; i < t->opt->n_callbacks; i++) {
        tri_callback *callback = t->opt->callbacks[i];

        if (callback->cls->exception == NULL)
            continue;
        callback->cls->exception(callback, t, status);
        trii_err_set("%s", line);
    }
}

tri_status trii_hooks_record(tri_trainer *t, const tri_metric *values, int n)
{
    for (int i = 0; i < t->opt->n_callbacks; i++) {
        tri_callback *callback = t->opt->callbacks[i];
        unsigned lines = trii_err_lines();
        tri_status status;

        if (callback->cls->record == NULL)
            continue;
        status = callback->cls->record(callback, t, values, n);
        if (status != TRI_OK)
            return failed(callback, "record", status, trii_err_lines() != lines);
    }
    return TRI_OK;
}
