/*
 * peer_dialer_test.c - calls whose name takes for ever to resolve keep nobody from ending.
 */
/* ctest: program=own */
#include <stdatomic.h>
#include <string.h>

#include "launch/peers/peer_dialer.h"
#include "os/clock.h"
#include "os/thread.h"
#include "testing/check.h"
#include "testing/fake_resolver.h"

static trii_mutex mutex;
static trii_cond changed;
static bool asked, released;
static atomic_int n_answered;

static void resolver_asked(void)
{
    trii_mutex_lock(&mutex);
    asked = true;
    trii_cond_broadcast(&changed);
    while (!released)
        trii_cond_wait(&changed, &mutex);
    trii_mutex_unlock(&mutex);
}

static void answered(void *arg, const trii_peer_dial *call, int fd, trii_peer_dial_result answer,
                     const char *why)
{
    (void)arg;
    (void)call;
    (void)why;
    assert_int_equal(fd, -1);
    assert_int_equal(answer, TRII_PEER_UNREACHABLE);
    atomic_fetch_add(&n_answered, 1);
}

static void begin(trii_loop **loop_out, trii_peer_dialer **calls_out)
{
    const trii_job_key none = {0};
    trii_peer_dial call = {.agent = {.host = "mute.example", .port = 1, .token = "t"}};

    trii_mutex_init(&mutex);
    trii_cond_init(&changed);
    asked = released = false;
    CHECK_OK(trii_loop_create(loop_out));
    CHECK_OK(trii_peer_dialer_create(*loop_out, &none, answered, NULL, calls_out));
    CHECK_OK(trii_peer_dialer_start(*calls_out, &call));
    trii_mutex_lock(&mutex);
    while (!asked)
        trii_cond_wait(&changed, &mutex);
    trii_mutex_unlock(&mutex);
}

static void release(void)
{
    trii_mutex_lock(&mutex);
    released = true;
    trii_cond_broadcast(&changed);
    trii_mutex_unlock(&mutex);
}

static void a_call_that_fails_is_told(void **state)
{
    trii_loop *loop;
    trii_peer_dialer *calls;

    (void)state;
    begin(&loop, &calls);
    release();
    while (atomic_load(&n_answered) == 0)
        trii_loop_run_once(loop, trii_deadline_ms(1000));
    trii_peer_dialer_destroy(calls);
    trii_loop_destroy(loop);
}

static void a_name_that_does_not_resolve_keeps_nobody(void **state)
{
    trii_loop *loop;
    trii_peer_dialer *calls;

    (void)state;
    begin(&loop, &calls);
    trii_peer_dialer_destroy(calls);
    assert_int_equal(atomic_load(&n_answered), 0);
    release(); /* the thread ends by itself */
    trii_loop_destroy(loop);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_call_that_fails_is_told),
    cmocka_unit_test(a_name_that_does_not_resolve_keeps_nobody),
};

TEST_MAIN(tests)
