/*
 * tcp_strangers_test.c - a rank that waits for its peers hears strangers beside them: neither
 * many silent ones nor slow ones keep a peer out.
 */
#include <trireme/comm.h>

#include "os/clock.h"
#include "os/socket.h"
#include "os/thread.h"
#include "store/store_ops.h"
#include "testing/check.h"

/* A view of a store whose reader waits at a gate before it learns rank 0's address. */
typedef struct gated {
    tri_store base;
    tri_store *under;
    trii_mutex mutex;
    trii_cond opened;
    bool open;
} gated;

static tri_store *under_of(tri_store *self)
{
    return ((gated *)self)->under;
}

static void gated_destroy(tri_store *self)
{
    (void)self; /* the test's */
}

static tri_status gated_set(tri_store *self, const char *key, const void *value, size_t bytes)
{
    return tri_store_set(under_of(self), key, value, bytes);
}

static tri_status gated_multi_get(tri_store *self, const char *const *keys, int n_keys,
                                  int64_t deadline_ns, void **values_out, size_t *bytes_out)
{
    gated *g = (gated *)self;

    trii_mutex_lock(&g->mutex);
    while (!g->open && strstr(keys[0], "addr/0") != NULL)
        trii_cond_wait(&g->opened, &g->mutex);
    trii_mutex_unlock(&g->mutex);
    return g->under->ops->multi_get(g->under, keys, n_keys, deadline_ns, values_out, bytes_out);
}

static tri_status gated_add(tri_store *self, const char *key, int64_t delta, int64_t *sum_out)
{
    return tri_store_add(under_of(self), key, delta, sum_out);
}

static tri_status gated_wait(tri_store *self, const char *const *keys, int n_keys,
                             int64_t deadline_ns)
{
    return under_of(self)->ops->wait(under_of(self), keys, n_keys, deadline_ns);
}

static tri_status gated_check(tri_store *self, const char *const *keys, int n_keys,
                              bool *present_out)
{
    return tri_store_check(under_of(self), keys, n_keys, present_out);
}

static tri_status gated_remove(tri_store *self, const char *key, bool *existed_out)
{
    return tri_store_delete(under_of(self), key, existed_out);
}

static const trii_store_ops gated_ops = {
    .abi = TRII_STORE_ABI,
    .size = sizeof(trii_store_ops),
    .name = "gated",
    .destroy = gated_destroy,
    .set = gated_set,
    .multi_get = gated_multi_get,
    .add = gated_add,
    .wait = gated_wait,
    .check = gated_check,
    .remove = gated_remove,
};

typedef struct rank {
    tri_store *store;
    int number;
    tri_status status;
    char why[512];
    trii_thread thread;
} rank;

static void rank_main(void *arg)
{
    const tri_group_options options = {.engine = "tcp", .timeout_ms = 20000};
    rank *r = arg;
    tri_group *group = NULL;
    float x = 1;

    r->status = tri_group_create(r->store, r->number, 2, &options, &group);
    if (r->status == TRI_OK)
        r->status = tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    if (r->status == TRI_OK && x != 2)
        r->status = TRI_ERR_MISMATCH;
    snprintf(r->why, sizeof(r->why), "%s", tri_last_error());
    tri_group_unref(group);
}

static void a_crowd_of_strangers_keeps_no_peer_out(void **state)
{
    enum { CROWD = 200 };
    gated gate = {0};
    rank ranks[2] = {{.number = 0}, {.number = 1}};
    tri_store *store = NULL;
    int fds[CROWD], port = 0;
    char host[64];
    void *value = NULL;
    int64_t start;

    (void)state;
    unsetenv("TRI_JOB_KEY_FILE");
    CHECK_OK(tri_store_hash(&store));
    trii_store_init(&gate.base, &gated_ops, 20000);
    trii_mutex_init(&gate.mutex);
    trii_cond_init(&gate.opened);
    gate.under = store;
    ranks[0].store = store;
    ranks[1].store = &gate.base;
    for (int r = 0; r < 2; r++)
        CHECK_OK(trii_thread_start(&ranks[r].thread, "rank", rank_main, &ranks[r]));
    CHECK_OK(tri_store_get(store, "tri_group/1/tcp/addr/0", 20000, &value, NULL));
    assert_int_equal(sscanf(value, "%*s %d %63s", &port, host), 2);
    tri_store_free(value);
    for (int i = 0; i < CROWD; i++) {
        CHECK_OK(trii_socket_connect(host, port, trii_deadline_ms(20000), false, &fds[i]));
        /* silence, or the beginning of what a rank says */
        CHECK_OK(trii_socket_send_all(fds[i], "1IRT", (size_t)(i % 5), trii_deadline_ms(20000)));
    }
    start = trii_now_ns();
    trii_mutex_lock(&gate.mutex);
    gate.open = true;
    trii_cond_broadcast(&gate.opened);
    trii_mutex_unlock(&gate.mutex);
    for (int r = 0; r < 2; r++) {
        trii_thread_join(&ranks[r].thread);
        if (ranks[r].status != TRI_OK)
            fail_msg("rank %d: %s: %s", r, tri_status_name(ranks[r].status), ranks[r].why);
    }
    /* one after the other they would take two seconds each */
    assert_true(trii_now_ns() - start < 10 * TRII_NS_PER_S);
    for (int i = 0; i < CROWD; i++)
        trii_socket_close(fds[i]);
    tri_store_unref(store);
    trii_cond_fini(&gate.opened);
    trii_mutex_fini(&gate.mutex);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_crowd_of_strangers_keeps_no_peer_out),
};

TEST_MAIN(tests)
