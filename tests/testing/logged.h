/*
 * logged.h - what the library logs, read by a test: a file in the place of stderr, for the rest of
 * its process. Tests only.
 */
#ifndef TEST_LOGGED_H
#define TEST_LOGGED_H

#include "testing/check.h"
#include "testing/scratch.h"

typedef struct logged {
    scratch folder;
    char path[sizeof(((scratch *)NULL)->path[0])]; /* "": none */
} logged;

static logged logged_now; /* a copy: a case that fails leaves its own stack */

/* The case has failed before it has read the file, in which the reason is. */
static inline void logged_show(void)
{
    size_t bytes;
    char *text;

    if (logged_now.path[0] == '\0')
        return;
    fflush(stderr);
    text = scratch_read(logged_now.path, &bytes);
    printf("%s", text);
    free(text);
    scratch_end(&logged_now.folder);
}

/* Before the library is used: warnings, and what is worse. */
static inline void logged_begin(logged *l)
{
    setenv("TRI_LOG", "warn", 1);
    scratch_begin(&l->folder);
    snprintf(l->path, sizeof(l->path), "%s", scratch_path(&l->folder, "log"));
    logged_now = *l;
    assert_int_equal(atexit(logged_show), 0);
    assert_non_null(freopen(l->path, "w", stderr));
}

/* What has been logged so far, to be freed. */
static inline char *logged_read(const logged *l)
{
    size_t bytes;

    fflush(stderr);
    return scratch_read(l->path, &bytes);
}

static inline void logged_end(logged *l)
{
    logged_now.path[0] = '\0';
    scratch_end(&l->folder);
}

/* Nothing but that a rank waits for another one, which on a busy machine may be late. */
static inline void logged_expect_nothing(logged *l)
{
    char *text = logged_read(l);

    for (const char *line = text, *end; *line != '\0'; line = end) {
        const char *waits = strstr(line, " has waited ");

        end = line + strcspn(line, "\n");
        end += *end == '\n';
        if (waits == NULL || waits >= end)
            fail_msg("%s", line);
    }
    free(text);
    logged_end(l);
}

#endif
