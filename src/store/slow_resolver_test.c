/*
 * slow_resolver_test.c - a name service that takes its time uses up the time of the caller.
 */
/* ctest: program=own */
#include <trireme/store.h>

#include "os/clock.h"
#include "testing/check.h"
#include "testing/fake_resolver.h"

/* Longer than one attempt may take, and than all of them. */
#define ANSWER_MS 1800
#define TIMEOUT_MS 1700

static int n_asked;

static void resolver_asked(void)
{
    n_asked++;
    trii_sleep_until(trii_deadline_ms(ANSWER_MS));
}

static void its_time_counts(void **state)
{
    const tri_store_tcp_options options = {.timeout_ms = TIMEOUT_MS};
    tri_store *store = NULL;

    (void)state;
    CHECK_FAILS(tri_store_tcp("mute.example", 1, &options, &store), TRI_ERR_TIMEOUT,
                "is the name spelt right");
    assert_int_equal(n_asked, 1);
    assert_null(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(its_time_counts),
};

TEST_MAIN(tests)
