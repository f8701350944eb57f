/*
 * rdzv_wait_test.c - what is seen to while keys are waited for.
 */
/* ctest: threads=none */
#include "launch/rendezvous/rdzv_internal.h"
#include "testing/check.h"

enum { KEYS = 100, LOOK_MS = 300 };

static tri_store *store;
static int64_t virtual_ns = TRII_NS_PER_S;
static int n_keys, n_looks;

static int64_t virtual_now(void)
{
    return virtual_ns;
}

/* Each pause brings one more key. */
static bool virtual_wait(trii_cond *cond, trii_mutex *mutex, int64_t deadline_ns)
{
    char key[16];

    (void)cond;
    (void)mutex;
    virtual_ns = deadline_ns;
    snprintf(key, sizeof(key), "key%d", n_keys++);
    CHECK_OK(tri_store_set(store, key, "1", 1));
    return false;
}

static const trii_rdzv_time virtual_time = {
    .now_ns = virtual_now, .wall_ns = virtual_now, .wait_until = virtual_wait};

static tri_status check_members(trii_rendezvous *r)
{
    if (virtual_ns - r->members_ns >= LOOK_MS * TRII_NS_PER_MS) {
        r->members_ns = virtual_ns;
        n_looks++;
    }
    return TRI_OK;
}

static const trii_rdzv_handler handler = {.fixed_hosts = true, .check_members = check_members};

static void members_are_looked_after_while_many_keys_come_one_by_one(void **state)
{
    static trii_rendezvous r;
    char names[KEYS][16], *values[KEYS];
    const char *keys[KEYS];

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    trii_mutex_init(&r.mutex);
    r.handler = &handler;
    r.time = &virtual_time;
    r.kv = store;
    r.round.group_size = 4 * KEYS; /* a pause takes 100 ms */
    for (int i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof(names[i]), "key%d", i);
        keys[i] = names[i];
    }
    CHECK_OK(trii_rdzv_read_keys(&r, keys, KEYS, KEYS, TRII_NO_DEADLINE, values, NULL));
    assert_int_equal(n_keys, KEYS);
    assert_in_range(n_looks, KEYS / 5, KEYS / 3);
    for (int i = 0; i < KEYS; i++)
        tri_store_free(values[i]);
    trii_mutex_fini(&r.mutex);
    tri_store_unref(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(members_are_looked_after_while_many_keys_come_one_by_one),
};

TEST_MAIN(tests)
