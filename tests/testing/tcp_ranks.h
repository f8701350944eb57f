/*
 * tcp_ranks.h - ranks of the tcp engine as threads that say how they ended. Tests only.
 */
#ifndef TEST_TCP_RANKS_H
#define TEST_TCP_RANKS_H

#include <stdio.h>
#include <string.h>

#include <trireme/comm.h>

#include "os/clock.h"
#include "os/thread.h"

#define MAX_RANKS 11

typedef struct rank_arg rank_arg;
typedef tri_status (*rank_main)(rank_arg *a);

struct rank_arg {
    int rank, size;
    tri_store *store;
    tri_group *group;
    rank_main main;
    const void *what; /* the case's */
    tri_group_options options;
    tri_status status;
    char error[512];
    int64_t failed_ns; /* when main returned */
    trii_thread thread;
};

static inline tri_status failed(const char *what)
{
    fprintf(stderr, "%s\n", what);
    return TRI_ERR_INTERNAL;
}

static inline void run_rank(void *p)
{
    rank_arg *a = p;

    a->status = tri_group_create(a->store, a->rank, a->size, &a->options, &a->group);
    if (a->status == TRI_OK)
        a->status = a->main(a);
    a->failed_ns = trii_now_ns();
    snprintf(a->error, sizeof(a->error), "%s", a->status != TRI_OK ? tri_last_error() : "");
    tri_group_unref(a->group);
}

static inline void expect_failure(const rank_arg *a, tri_status status, const char *text)
{
    if (a->status != status || strstr(a->error, text) == NULL)
        fail_msg("rank %d: %s: \"%s\" instead of %s: \"%s\"", a->rank, tri_status_name(a->status),
                 a->error, tri_status_name(status), text);
}

#endif
