/*
 * log.h - messages that no caller can see otherwise (own threads, destructors) and
 * debugging, to stderr. TRI_LOG=LEVEL or a list "warn,group:debug,plan:info".
 */
#ifndef TRII_LOG_H
#define TRII_LOG_H

#include "base/compiler.h"

typedef enum trii_log_level {
    TRII_LOG_ERROR,
    TRII_LOG_WARN, /* the default */
    TRII_LOG_INFO,
    TRII_LOG_DEBUG,
    TRII_LOG_TRACE
} trii_log_level;

/* component: which part speaks, mostly its folder's name, e.g. "shm". Evaluates its arguments only
 * when it prints. */
#define TRII_LOG(level, component, ...)                                                            \
    do {                                                                                           \
        if (TRII_UNLIKELY(trii_log_enabled(level, component)))                                     \
            trii_log_write(level, component, __VA_ARGS__);                                         \
    } while (0)

bool trii_log_enabled(trii_log_level level, const char *component);
/* One line, one write; prefixed by level, component and rank. */
void trii_log_write(trii_log_level level, const char *component, const char *format, ...)
    TRII_PRINTF(3, 4);
/* From now on nothing is printed: the process ends, and threads that are left have nothing
 * to say any more. */
void trii_log_end(void);
/* Shown in every line; -1 (the start) shows none. */
void trii_log_set_rank(int rank);

#endif
