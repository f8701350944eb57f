/*
 * json.h - the only user of Jansson in this room: wrappers for what its callers would repeat.
 */
#ifndef TRII_JSON_H
#define TRII_JSON_H

#include <jansson.h>

#include "base/alloc.h"
#include "base/compiler.h"

/* A non-negative integer of an object; false if it is absent or something else. */
static inline bool trii_json_size(const json_t *value, uint64_t *size_out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *size_out = (uint64_t)json_integer_value(value);
    return true;
}

/* The compact text, with a 0 after it; release with trii_free. NULL when memory is out. */
static inline char *trii_json_text(const json_t *value)
{
    size_t length = json_dumpb(value, NULL, 0, JSON_COMPACT);
    char *text = length > 0 ? (char *)trii_alloc(length + 1, 1, "JSON text") : NULL;

    if (text != NULL && json_dumpb(value, text, length, JSON_COMPACT) != length) {
        trii_free(text);
        return NULL;
    }
    return text;
}

/* Adds `own_value` under a key; false without memory (or if the text is not UTF-8). */
static inline bool trii_json_put(json_t *object, const char *key, json_t *own_value)
{
    return json_object_set_new(object, key, own_value) == 0;
}

#endif
