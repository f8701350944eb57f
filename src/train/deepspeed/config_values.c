/*
 * config_values.c - what a configuration has under a path, and the line that refuses it.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"
#include "train/deepspeed/engine_config.h"

double trii_conf_get_number(const trii_engine_config *c, const char *path, double fallback)
{
    double number = fallback;

    return trii_conf_number(trii_conf_find(c->root, path), &number) ? number : fallback;
}

bool trii_conf_get_bool(const trii_engine_config *c, const char *path, bool fallback)
{
    const trii_conf *value = trii_conf_find(c->root, path);

    return value != NULL && value->kind == TRII_CONF_BOOL ? value->number != 0 : fallback;
}

const char *trii_conf_get_text(const trii_engine_config *c, const char *path, const char *fallback)
{
    const trii_conf *value = trii_conf_find(c->root, path);

    return value != NULL && value->kind == TRII_CONF_TEXT ? value->text : fallback;
}

tri_status trii_conf_refuse(const trii_engine_config *c, const trii_conf *value, const char *path,
                            const char *format, ...)
{
    const bool quoted = value->kind == TRII_CONF_TEXT;
    char why[TRII_ERR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s:%d: %s: %s%.80s%s %s", c->name, value->line, path,
                     quoted ? "\"" : "", trii_conf_spelling(value), quoted ? "\"" : "", why);
}
