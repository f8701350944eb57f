/*
 * log.c - see log.h. The specification is parsed once, at the first use.
 */
/* build: leaf */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

/* The rooms, whose names messages begin with. */
static const char *const components[] = {
    "base",     "os",   "store",   "group",   "self",      "shm", "tcp",    "mpi",
    "mpich",    "gloo", "nccl",    "reducer", "elastic",   "rpc", "launch", "tensor",
    "graph",    "plan", "device",  "cpu",     "cuda",      "nn",  "optim",  "data",
    "parallel", "ddp",  "trainer", "log",     "checkpoint"};

static atomic_int shown_rank = -1;
static atomic_bool ended;

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

static bool is_one_of(const char *text, size_t length, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0)
            return true;
    }
    return false;
}

static const char *component_list(char *text, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < TRII_COUNT_OF(components) && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i > 0 ? ", " : "", components[i]);
    return text;
}

/* What is neither a level nor a component would silence what was asked for. */
static void check_spec(const char *spec)
{
    char list[320];

    for (size_t length; *spec != '\0'; spec += length + (spec[length] == ',')) {
        const char *colon, *level;
        size_t name_length;

        length = strcspn(spec, ",");
        colon = memchr(spec, ':', length);
        level = colon != NULL ? colon + 1 : spec;
        name_length = colon != NULL ? (size_t)(colon - spec) : length;
        if (colon == NULL && is_one_of(spec, length, level_names, TRII_COUNT_OF(level_names)))
            continue;
        if (!is_one_of(spec, name_length, components, TRII_COUNT_OF(components)))
            trii_log_write(
                TRII_LOG_WARN, "log",
                "TRI_LOG: %.*s is not a %s; LEVEL or COMPONENT:LEVEL, with commas between "
                "several; levels are error, warn, info, debug and trace, components are %s",
                (int)name_length, spec, colon != NULL ? "component" : "level",
                component_list(list, sizeof(list)));
        else if (colon != NULL && !is_one_of(level, length - name_length - 1, level_names,
                                             TRII_COUNT_OF(level_names)))
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

    if (atomic_load(&ended))
        return;
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

void trii_log_end(void)
{
    atomic_store(&ended, true);
}

void trii_log_set_rank(int rank)
{
    atomic_store(&shown_rank, rank);
}
