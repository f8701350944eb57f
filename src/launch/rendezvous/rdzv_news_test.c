/*
 * rdzv_news_test.c - the thread that waits for a round's key, with a store that is broken or mute:
 * it neither turns for ever nor keeps anybody from ending the round.
 */
#include <string.h>

#include "launch/rendezvous/rdzv_internal.h"
#include "store/store_ops.h"
#include "testing/check.h"

typedef struct mute_store {
    tri_store base;
    bool broken; /* it says TIMEOUT at once, as a tcp store does whose server did not answer */
    atomic_int waits;
    atomic_bool asked; /* since it is mute: to end the wait, which it does not hear */
} mute_store;

static _Atomic int64_t waited_ns;

static int64_t virtual_now(void)
{
    return trii_now_ns() + atomic_load(&waited_ns);
}

static void mute_destroy(tri_store *self)
{
    (void)self;
}

static tri_status mute_set(tri_store *self, const char *key, const void *value, size_t bytes)
{
    (void)key;
    (void)value;
    (void)bytes;
    atomic_store(&((mute_store *)self)->asked, true);
    return TRI_ERR_TIMEOUT;
}

static tri_status mute_check(tri_store *self, const char *const *keys, int n, bool *present_out)
{
    (void)self;
    (void)keys;
    (void)n;
    (void)present_out;
    return TRI_ERR_TIMEOUT;
}

static tri_status mute_wait(tri_store *self, const char *const *keys, int n, int64_t deadline_ns)
{
    mute_store *store = (mute_store *)self;

    (void)keys;
    (void)n;
    atomic_fetch_add(&store->waits, 1);
    while (!store->broken && !atomic_load(&store->asked) && trii_now_ns() < deadline_ns)
        trii_thread_yield();
    if (!store->broken) /* the rest of the wait is virtual */
        atomic_fetch_add(&waited_ns, deadline_ns - trii_now_ns());
    return TRI_ERR_TIMEOUT;
}

static const trii_store_ops mute_ops = {
    .abi = TRII_STORE_ABI,
    .size = sizeof(trii_store_ops),
    .name = "mute",
    .destroy = mute_destroy,
    .set = mute_set,
    .wait = mute_wait,
    .check = mute_check,
};

static trii_rdzv_time virtual_time;

static void begin(trii_rendezvous *r, mute_store *store, bool broken)
{
    memset(r, 0, sizeof(*r));
    memset(store, 0, sizeof(*store));
    trii_store_init(&store->base, &mute_ops, 1000);
    store->broken = broken;
    r->kv = &store->base;
    virtual_time = trii_rdzv_real_time;
    virtual_time.now_ns = virtual_now;
    r->time = &virtual_time;
    trii_mutex_init(&r->mutex);
    trii_cond_init(&r->changed);
    CHECK_OK(trii_thread_start(&r->watcher, "watcher", trii_rdzv_watch_main, r));
    trii_rdzv_watch_start(r);
}

static void end(trii_rendezvous *r)
{
    trii_rdzv_watch_stop(r);
    trii_mutex_lock(&r->mutex);
    r->watch = TRII_WATCH_QUIT;
    trii_cond_broadcast(&r->changed);
    trii_mutex_unlock(&r->mutex);
    trii_thread_join(&r->watcher);
    trii_cond_fini(&r->changed);
    trii_mutex_fini(&r->mutex);
}

/* The first thread is notified, and looks. */
static void a_broken_store_is_not_asked_for_ever(void **state)
{
    static trii_rendezvous r;
    mute_store store;

    (void)state;
    begin(&r, &store, true);
    assert_true(trii_rdzv_pause(&r, trii_deadline_ms(20000)));
    assert_int_equal(r.watch, TRII_WATCH_NEWS);
    assert_int_equal(atomic_load(&store.waits), 1);
    end(&r);
}

static void a_mute_store_does_not_keep_a_round_from_ending(void **state)
{
    static trii_rendezvous r;
    mute_store store;

    (void)state;
    begin(&r, &store, false);
    while (atomic_load(&store.waits) == 0)
        trii_thread_yield();
    end(&r);
    assert_int_equal(atomic_load(&store.waits), 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_broken_store_is_not_asked_for_ever),
    cmocka_unit_test(a_mute_store_does_not_keep_a_round_from_ending),
};

TEST_MAIN(tests)
