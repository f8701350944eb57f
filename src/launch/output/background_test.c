/*
 * background_test.c - files written by a thread: nobody waits for a slow one, the order of what was
 * put is kept, the newest takes the place of older, and what is lost is said.
 */
#include "launch/output/background.h"

#include <string.h>

#include "base/err.h"
#include "launch/output/output.h"
#include "os/clock.h"
#include "os/socket.h"
#include "os/thread.h"
#include "testing/check.h"
#include "testing/no_descriptors.h"

/* A file that is written when the test says so. */
typedef struct slow_target {
    trii_mutex mutex;
    trii_cond changed;
    int may_write; /* how many puts may go on */
    bool begun, fails, released;
    char text[4096];
} slow_target;

static void target_init(slow_target *t)
{
    memset(t, 0, sizeof(*t));
    trii_mutex_init(&t->mutex);
    trii_cond_init(&t->changed);
}

static tri_status slow_put(void *target, const char *data, size_t bytes)
{
    slow_target *t = target;

    trii_mutex_lock(&t->mutex);
    t->begun = true;
    trii_cond_broadcast(&t->changed);
    while (t->may_write == 0)
        trii_cond_wait(&t->changed, &t->mutex);
    t->may_write--;
    if (!t->fails)
        strncat(t->text, data, bytes);
    trii_mutex_unlock(&t->mutex);
    return t->fails ? TRII_FAIL(TRI_ERR_IO, "the disk is full") : TRI_OK;
}

static void slow_release(void *target)
{
    ((slow_target *)target)->released = true;
}

static const trii_background_kind appended = {.put = slow_put, .release = slow_release};
static const trii_background_kind newest = {
    .put = slow_put, .release = slow_release, .newest = true};

static void let(slow_target *t, int n)
{
    trii_mutex_lock(&t->mutex);
    t->may_write = n;
    trii_cond_broadcast(&t->changed);
    trii_mutex_unlock(&t->mutex);
}

static void wait_begun(slow_target *t)
{
    trii_mutex_lock(&t->mutex);
    while (!t->begun)
        trii_cond_wait(&t->changed, &t->mutex);
    trii_mutex_unlock(&t->mutex);
}

typedef struct fixture {
    trii_loop *loop;
    trii_background *b;
    int n_moved, n_warned;
    char warning[600];
} fixture;

static void moved(void *arg)
{
    ((fixture *)arg)->n_moved++;
}

static void warned(void *arg, const char *text)
{
    fixture *f = arg;

    f->n_warned++;
    snprintf(f->warning, sizeof(f->warning), "%s", text);
}

static void begin(fixture *f)
{
    memset(f, 0, sizeof(*f));
    CHECK_OK(trii_loop_create(&f->loop));
    CHECK_OK(trii_background_create(f->loop, moved, warned, f, &f->b));
}

static void run_until_idle(fixture *f)
{
    while (trii_background_left_in_all(f->b) > 0)
        trii_loop_run_once(f->loop, TRII_NO_DEADLINE);
}

static void end(fixture *f)
{
    trii_background_destroy(f->b);
    trii_loop_destroy(f->loop);
}

static void puts_never_wait_and_keep_their_order(void **state)
{
    trii_background_file *file;
    slow_target t;
    fixture f;

    (void)state;
    begin(&f);
    target_init(&t);
    CHECK_OK(trii_background_open(f.b, &appended, "slow", &t, &file));
    assert_int_equal(trii_background_left(file), 0);
    trii_background_put(file, "one ", 4);
    wait_begun(&t);
    trii_background_put(file, "two ", 4);
    trii_background_put(file, "three", 5);
    assert_int_equal(trii_background_left(file), 13); /* also what is being written */
    assert_int_equal(trii_background_left_in_all(f.b), 13);
    trii_background_close(file); /* all of it is written nevertheless */
    assert_false(t.released);
    let(&t, 100);
    run_until_idle(&f);
    end(&f);
    assert_string_equal(t.text, "one two three");
    assert_true(t.released);
    assert_int_equal(f.n_warned, 0);
}

static void the_newest_takes_the_place_of_what_waits(void **state)
{
    trii_background_file *file;
    slow_target t;
    fixture f;

    (void)state;
    begin(&f);
    target_init(&t);
    CHECK_OK(trii_background_open(f.b, &newest, "figures", &t, &file));
    trii_background_put(file, "first ", 6);
    wait_begun(&t);
    trii_background_put(file, "second ", 7);
    trii_background_put(file, "third", 5);
    assert_int_equal(trii_background_left(file), 6 + 5);
    let(&t, 100);
    run_until_idle(&f);
    while (f.n_moved == 0) /* it may have been idle before it could say so */
        trii_loop_run_once(f.loop, TRII_NO_DEADLINE);
    end(&f);
    assert_string_equal(t.text, "first third");
}

static void a_loss_is_said_once_and_later_bytes_are_tried(void **state)
{
    trii_background_file *file;
    slow_target t;
    fixture f;

    (void)state;
    begin(&f);
    target_init(&t);
    t.fails = true;
    let(&t, 100);
    CHECK_OK(trii_background_open(f.b, &appended, "log file x", &t, &file));
    for (int i = 0; i < 3; i++) {
        trii_background_put(file, "lost", 4);
        run_until_idle(&f);
    }
    t.fails = false; /* nothing is being written */
    trii_background_put(file, "kept", 4);
    run_until_idle(&f);
    end(&f);
    assert_string_equal(t.text, "kept");
    assert_int_equal(f.n_warned, 1);
    assert_string_equal(f.warning, "log file x: the disk is full");
}

/* What is stuck is left to the end of the process; what it has not written is said. */
static void nobody_waits_for_what_is_stuck_at_the_end(void **state)
{
    static slow_target t; /* the thread goes on with it */
    trii_background_file *file;
    fixture f;

    (void)state;
    begin(&f);
    target_init(&t);
    CHECK_OK(trii_background_open(f.b, &appended, "stuck", &t, &file));
    trii_background_put(file, "bytes", 5);
    wait_begun(&t);
    end(&f);
    assert_int_equal(f.n_warned, 1);
    assert_string_equal(f.warning, "stuck: 5 bytes could not be written in time");
}

static void what_was_never_written_to_is_released(void **state)
{
    trii_background_file *file;
    slow_target t;
    fixture f;

    (void)state;
    begin(&f);
    target_init(&t);
    CHECK_OK(trii_background_open(f.b, &appended, "idle", &t, &file));
    trii_background_close(file);
    assert_true(t.released);
    target_init(&t);
    CHECK_OK(trii_background_open(f.b, &appended, "idle", &t, &file));
    assert_false(t.released);
    end(&f);
    assert_true(t.released);
}

/* A file that takes nothing the first time. */
typedef struct full_once {
    int n_puts;
    char text[200];
} full_once;

static tri_status put_unless_first(void *target, const char *data, size_t bytes)
{
    full_once *f = target;

    if (f->n_puts++ == 0)
        return TRII_FAIL(TRI_ERR_IO, "the disk is full");
    assert_in_range(bytes, 1, sizeof(f->text) - strlen(f->text) - 1);
    strncat(f->text, data, bytes);
    return TRI_OK;
}

static void leave(void *target)
{
    (void)target;
}

static void say(void *arg, const char *text)
{
    trii_sink_print(arg, "%s\n", text);
}

/* Without descriptors there is no thread, and what cannot be written is said at once, in the sink
 * that is being written. */
static void a_sink_is_told_of_its_own_loss(void **state)
{
    static const trii_background_kind kind = {.put = put_unless_first, .release = leave};
    full_once file = {0};
    int listener, caller, port;
    trii_background *b;
    trii_loop *loop;
    trii_sink sink;

    (void)state;
    CHECK_OK(trii_loop_create(&loop));
    CHECK_OK(trii_background_create(loop, NULL, say, &sink, &b));
    CHECK_OK(trii_sink_init(&sink, loop, b, 1, "stdout"));
    CHECK_OK(trii_background_open(b, &kind, "stdout", &file, &sink.file));
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &listener, &port));
    caller = descriptors_end_and_call(port);
    trii_sink_print(&sink, "first\n");
    trii_sink_print(&sink, "second\n");
    descriptors_allow();
    assert_string_equal(file.text, "stdout: the disk is full\nsecond\n");
    trii_socket_close(caller);
    trii_socket_close(listener);
    trii_background_destroy(b);
    trii_sink_fini(&sink);
    trii_loop_destroy(loop);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(puts_never_wait_and_keep_their_order),
    cmocka_unit_test(the_newest_takes_the_place_of_what_waits),
    cmocka_unit_test(a_loss_is_said_once_and_later_bytes_are_tried),
    cmocka_unit_test(nobody_waits_for_what_is_stuck_at_the_end),
    cmocka_unit_test(what_was_never_written_to_is_released),
    cmocka_unit_test(a_sink_is_told_of_its_own_loss),
};

TEST_MAIN(tests)
