/*
 * remote_served.h - what a worker of a test has of a module that it serves: sessions, graphs,
 * results for others. Tests only.
 */
#ifndef TEST_REMOTE_SERVED_H
#define TEST_REMOTE_SERVED_H

#include "train/parallel/rpc/remote_internal.h"
#include "testing/remote_workers.h"

/* What worker i serves by this name. */
static inline trii_served *served_as(remote_workers *r, int i, const char *name)
{
    char path[64];
    tri_rpc_ref *ref;
    trii_served *served;

    snprintf(path, sizeof(path), "w%d/%s", i, name);
    ref = worker_find(&r->w, i, path);
    served = tri_rpc_ref_object(ref);
    tri_rpc_ref_unref(ref);
    assert_non_null(served);
    return served;
}

/* --- to count, under the lock --------------------------------------------- */

static inline int served_sessions(const trii_served *s)
{
    int n = 0;

    for (const trii_session *session = s->sessions; session != NULL; session = session->next)
        n++;
    return n;
}

/* Forwards that wait for their backwards. */
static inline int served_graphs(const trii_served *s)
{
    int n = 0;

    for (const trii_session *session = s->sessions; session != NULL; session = session->next)
        n += atomic_load(&session->n_graphs);
    return n;
}

/* Results that wait for other owners. */
static inline int served_stays(const trii_served *s)
{
    int n = 0;

    for (const trii_stay *stay = s->stays; stay != NULL; stay = stay->next)
        n++;
    return n;
}

/* How often other owners have read one. */
static inline int served_reads(const trii_served *s)
{
    return (int)s->n_read;
}

static inline int served_count(trii_served *s, int (*count)(const trii_served *s))
{
    int n;

    trii_mutex_lock(&s->lock);
    n = count(s);
    trii_mutex_unlock(&s->lock);
    return n;
}

/* It has so many, now or soon. */
static inline void served_await(trii_served *s, int (*count)(const trii_served *s), int expected)
{
    int64_t deadline = trii_deadline_ms(20000);

    while (served_count(s, count) != expected && trii_now_ns() < deadline)
        trii_thread_yield();
    assert_int_equal(served_count(s, count), expected);
}

#endif
