/*
 * plot_events.c - event files of TensorBoard as series of points: scalars over steps.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "plot_read.h"
#include "train/records/event_read.h"

/* Any record will do: that its length is right no other file has by chance. */
bool plot_has_events(const char *path, const void *contents, size_t bytes)
{
    const char *slash = strrchr(path, '/');
    trii_event_reader reader = {.path = path, .data = contents, .bytes = bytes};
    trii_event event;

    return strstr(slash != NULL ? slash : path, "tfevents") != NULL ||
           trii_event_read(&reader, &event) == TRI_OK;
}

static tri_status add_value(const trii_event *event, const trii_event_value *value, plot_data *data)
{
    char *key = trii_alloc(value->tag_bytes + 1, 1, "key");
    tri_status status;

    if (key == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(key, value->tag, value->tag_bytes);
    status = plot_add(data, key, (double)event->step, value->value);
    trii_free(key);
    return status;
}

tri_status plot_read_events(const char *path, const void *contents, size_t bytes, const char *x_key,
                            plot_data *data)
{
    trii_event_reader reader = {.path = path, .data = contents, .bytes = bytes};
    trii_event event;
    tri_status status;

    if (strcmp(x_key, "step") != 0)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: --x %s: event files have values over steps only: leave --x out", path,
                         x_key);
    while ((status = trii_event_read(&reader, &event)) == TRI_OK) {
        trii_event_value value;

        if (event.is_start)
            plot_drop_from(data, (double)event.step);
        while ((status = trii_event_value_next(&reader, &event, &value)) == TRI_OK) {
            if (!value.is_scalar)
                continue;
            status = add_value(&event, &value, data);
            if (status != TRI_OK)
                return status;
        }
        if (status != TRI_END)
            return status;
    }
    return status == TRI_END ? TRI_OK : status;
}
