/*
 * log.c - see log.h. The specification is parsed once, at the first use.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

static atomic_int shown_rank = -1;

/* Level of one "name" or "component:name" entry if it concerns `component`, else -1.
 * A bare component means debug. */
static int entry_level(const char *entry, size_t length, const char *component)
{
    const char *colon = memchr(entry, ':', length);
    size_t name_length = colon != NULL ? (size_t)(colon - entry) : length;
    const char *level = colon != NULL ? colon + 1 : entry;
    size_t level_length = colon != NULL ? length - name_length - 1 : length;
    bool named = strlen(component) == name_length && memcmp(entry, component, name_length) == 0;

    if (colon != NULL && !named)
        return -1;
    for (size_t i = 0; i < TRII_COUNT_OF(level_names); i++) {
        if (strlen(level_names[i]) == level_length &&
            memcmp(level_names[i], level, level_length) == 0)
            return (int)i;
    }
    return named ? TRII_LOG_DEBUG : -1;
}

/* A component's level that is none would silence what was asked for. */
static void check_spec(const char *spec)
{
    for (size_t length; *spec != '\0'; spec += length + (spec[length] == ',')) {
        const char *colon;
        size_t n = 0;

        length = strcspn(spec, ",");
        colon = memchr(spec, ':', length);
        if (colon == NULL)
            continue; /* a level, or a component */
        while (n < TRII_COUNT_OF(level_names) &&
               (strlen(level_names[n]) != (size_t)(spec + length - colon) - 1 ||
                strncmp(level_names[n], colon + 1, strlen(level_names[n])) != 0))
            n++;
        if (n == TRII_COUNT_OF(level_names))
            trii_log_write(TRII_LOG_WARN, "log",
                           "TRI_LOG: %.*s must end with error, warn, info, debug or trace",
                           (int)length, spec);
    }
}

bool trii_log_enabled(trii_log_level level, const char *component)
{
    static const char *_Atomic cached;
    const char *spec = atomic_load_explicit(&cached, memory_order_relaxed);
    int limit = TRII_LOG_WARN;

    if (spec == NULL) {
        spec = trii_param_text(TRII_PARAM_LOG);
        spec = spec != NULL ? spec : "";
        if (atomic_exchange_explicit(&cached, spec, memory_order_relaxed) == NULL)
            check_spec(spec);
    }
    while (*spec != '\0') {
        size_t length = strcspn(spec, ",");
        int found = entry_level(spec, length, component);

        if (found >= 0)
            limit = found;
        spec += length + (spec[length] == ',');
    }
    return (int)level <= limit;
}

void trii_log_write(trii_log_level level, const char *component, const char *format, ...)
{
    char line[1024];
    int rank = atomic_load(&shown_rank);
    int used;
    va_list args;

    used = rank >= 0
               ? snprintf(line, sizeof(line), "trireme %s %s rank %d: ", level_names[level],
                          component, rank)
               : snprintf(line, sizeof(line), "trireme %s %s: ", level_names[level], component);
    va_start(args, format);
    vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, args);
    va_end(args);
    memcpy(line + strlen(line), "\n", 2); /* room was left for it above */
    fputs(line, stderr);
}

void trii_log_set_rank(int rank)
{
    atomic_store(&shown_rank, rank);
}
