/*
 * rpc_lines_test.c - what the lines of calls that fail say: which limit, whose function, which line
 * of the source; and what the log says of a program that forgets things.
 */
#include "comm/rpc/rpc_internal.h"
#include "testing/logged.h"
#include "testing/rpc_promises.h"

static const tri_rpc_function make = {.name = "make", .run = run_make};

static tri_status run_nothing(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function nothing = {.name = "nothing", .run = run_nothing};
static const tri_rpc_function nothing_inline = {
    .name = "nothing_inline", .flags = TRI_RPC_INLINE, .run = run_nothing};

static const char too_long[9];

static tri_status run_too_long(tri_rpc_request *request, void *object)
{
    (void)object;
    return tri_rpc_reply(request, &(tri_rpc_message){.data = too_long, .bytes = sizeof(too_long)});
}
enum { TOO_LONG_LINE = __LINE__ - 2 };
static const tri_rpc_function replies_too_much = {
    .name = "replies_too_much", .max_reply = 8, .run = run_too_long};
static const tri_rpc_function replies_much = {.name = "replies_much", .run = run_too_long};
static const tri_rpc_function *const all[] = {&make, &nothing, &nothing_inline, &replies_too_much,
                                              &replies_much};

static void begin(workers *w, const tri_rpc_options *opt)
{
    promises_begin(w, 2, opt, all, (int)TRII_COUNT_OF(all));
}

/* "called at FILE:LINE" */
static void check_line(const char *text, const char *before, int line)
{
    const char *at = strstr(text, before);
    const char *name = at != NULL ? strstr(at, "rpc_lines_test.c:") : NULL;

    if (name == NULL || strtol(strchr(name, ':') + 1, NULL, 10) != line)
        fail_msg("%s: no line %d after %s", text, line, before);
}

/* --- limits --------------------------------------------------------------- */

static void a_message_that_is_refused_says_by_which_limit(void **state)
{
    static const tri_rpc_function small = {.name = "nothing", .max_request = 8, .max_part = 4};
    const tri_rpc_part part = {too_long, 5};
    tri_rpc_ref *to;
    workers w;

    (void)state;
    begin(&w, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_FAILS(
        tri_rpc_sync(to, &small, &(tri_rpc_message){.data = too_long, .bytes = 9}, NULL, NULL),
        TRI_ERR_INVALID_ARG, "nothing: 9 bytes of data, at most 8 (max_request)");
    CHECK_FAILS(tri_rpc_sync(to, &small, &(tri_rpc_message){.bytes = 8}, NULL, NULL),
                TRI_ERR_INVALID_ARG, "nothing: data is NULL, and bytes is 8");
    CHECK_FAILS(tri_rpc_sync(to, &small, &(tri_rpc_message){.n_refs = 3}, NULL, NULL),
                TRI_ERR_INVALID_ARG, "nothing: n_refs is 3, at most 256; refs is (nil)");
    CHECK_FAILS(
        tri_rpc_sync(to, &small, &(tri_rpc_message){.parts = &part, .n_parts = -1}, NULL, NULL),
        TRI_ERR_INVALID_ARG, "nothing: n_parts is -1, at most 1024; parts is 0x");
    CHECK_FAILS(
        tri_rpc_sync(to, &small, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL, NULL),
        TRI_ERR_INVALID_ARG, "part 0 has 5 bytes at ");
    assert_non_null(strstr(tri_last_error(), ", at most 4 (max_part)"));
    CHECK_FAILS(
        tri_rpc_sync(to, &nothing, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL, NULL),
        TRI_ERR_INVALID_ARG, "nothing: n_parts is 1, but it takes none (max_part)");
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* One that is small enough for one program, and not for the other. */
static void a_limit_of_the_other_program_is_told_from_the_own_one(void **state)
{
    static const tri_rpc_function large = {
        .name = "nothing", .max_request = 1 << 20, .max_part = 4};
    static const tri_rpc_function smaller = {.name = "replies_much", .max_reply = 8};
    static char data[70000];
    const tri_rpc_part part = {too_long, 4};

    (void)state;
    for (int t = 0; t < 2; t++) {
        tri_rpc_ref *to;
        workers w;

        begin(&w, t == 0 ? NULL : &by_tcp);
        to = worker_find(&w, 0, "w1");
        CHECK_FAILS(tri_rpc_sync(to, &large,
                                 &(tri_rpc_message){.data = data, .bytes = sizeof(data)}, NULL,
                                 NULL),
                    TRI_ERR_INVALID_ARG, "70000 bytes of data, at most 65536 there (max_request)");
        CHECK_FAILS(
            tri_rpc_sync(to, &large, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL, NULL),
            TRI_ERR_INVALID_ARG, "n_parts is 1, but it takes none (max_part)");
        CHECK_FAILS(tri_rpc_sync(to, &smaller, NULL, NULL, NULL), TRI_ERR_INVALID_ARG,
                    "its reply: 9 bytes of data, at most 8 here (max_reply)");
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

/* --- lines of the source -------------------------------------------------- */

static void a_reply_that_is_refused_says_where_it_was_made(void **state)
{
    tri_rpc_ref *to;
    workers w;
    int line;

    (void)state;
    begin(&w, NULL);
    to = worker_find(&w, 0, "w1");
    line = __LINE__ + 1;
    CHECK_FAILS(tri_rpc_sync(to, &replies_too_much, NULL, NULL, NULL), TRI_ERR_INVALID_ARG,
                "rpc_reply: 9 bytes of data, at most 8 (max_reply)");
    check_line(tri_last_error(), "(max_reply) (", TOO_LONG_LINE);
    check_line(tri_last_error(), ", called at ", line);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static void a_maker_that_returns_no_reference_is_named_with_its_line(void **state)
{
    tri_rpc_ref *to, *promise;
    tri_status status;
    workers w;
    int line;

    (void)state;
    begin(&w, NULL);
    to = worker_find(&w, 0, "w1");
    line = __LINE__ + 1;
    CHECK_OK(tri_rpc_remote(to, &nothing, NULL, NULL, &promise));
    while ((status = tri_rpc_ref_status(promise)) == TRI_INPROGRESS)
        trii_thread_yield();
    CHECK_FAILS(status, TRI_ERR_FORMAT, "nothing on w1 (");
    check_line(tri_last_error(), "FORMAT: its reply had no reference, called at ", line);
    tri_rpc_ref_unref(promise);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* What is called on it was to run at the worker of the first, not here. */
static void what_is_called_on_a_promise_that_failed_names_its_worker(void **state)
{
    tri_rpc_ref *to, *first, *second, *third;
    workers w;

    (void)state;
    begin(&w, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &first));
    CHECK_OK(tri_rpc_remote(first, &nothing_inline, NULL, NULL, &second)); /* waits here */
    worker_wait_for(&n_held, 1);
    (void)tri_status_fail(TRI_ERR_NAN, "no books today");
    tri_rpc_fail(held[0], TRI_ERR_NAN);
    CHECK_FAILS(tri_rpc_sync(first, &nothing, NULL, NULL, NULL), TRI_ERR_NAN, "nothing on w1: NAN");
    CHECK_FAILS(tri_rpc_sync(second, &nothing, NULL, NULL, NULL), TRI_ERR_NAN,
                "nothing on w1: NAN");
    CHECK_OK(tri_rpc_remote(second, &nothing, NULL, NULL, &third));
    CHECK_FAILS(tri_rpc_sync(third, &nothing, NULL, NULL, NULL), TRI_ERR_NAN, "nothing on w1: NAN");
    tri_rpc_ref_unref(first);
    tri_rpc_ref_unref(second);
    tri_rpc_ref_unref(third);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

/* --- the log -------------------------------------------------------------- */

static void replies_that_are_not_freed_are_logged_when_their_worker_leaves(void **state)
{
    tri_rpc_message kept[3], freed;
    tri_rpc_call *call;
    tri_rpc_ref *to;
    static logged log;
    workers w;
    char *text;
    int line;

    (void)state;
    logged_begin(&log);
    begin(&w, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_sync(to, &nothing, NULL, NULL, &kept[0]));
    CHECK_OK(tri_rpc_sync(to, &nothing, NULL, NULL, &freed));
    tri_rpc_message_free(&freed);
    CHECK_OK(tri_rpc_async(to, &nothing, NULL, NULL, &call));
    CHECK_OK(tri_rpc_call_wait(call, 0));
    CHECK_OK(tri_rpc_call_take_reply(call, &freed));
    tri_rpc_message_free(&freed); /* and its handle lives */
    CHECK_OK(tri_rpc_sync(to, &nothing, NULL, NULL, &kept[1]));
    line = __LINE__ + 1;
    CHECK_OK(tri_rpc_sync(to, &replies_much, NULL, NULL, &kept[2]));
    CHECK_OK(tri_rpc_leave(w.rpc[1], 20000));
    CHECK_OK(tri_rpc_leave(w.rpc[0], 20000));
    text = logged_read(&log);
    check_line(text, "not been freed (tri_rpc_message_free): 3, the last of replies_much, called",
               line);
    assert_null(strstr(strstr(text, "not been freed") + 1, "not been freed")); /* w1 has none */
    free(text);
    for (int i = 0; i < 3; i++)
        tri_rpc_message_free(&kept[i]);
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(to);
    workers_destroy(&w);
    logged_end(&log);
}

static void wait_until_made(tri_rpc *rpc, const tri_rpc_ref *promise)
{
    int64_t deadline = trii_deadline_ms(20000);

    for (bool made = false; !made; trii_thread_yield()) {
        assert_true(trii_now_ns() < deadline);
        rpc_lock(rpc);
        made = promise->maker == NULL;
        rpc_unlock(rpc);
    }
}

static void a_reference_that_failed_is_logged_unless_it_was_looked_at(void **state)
{
    tri_rpc_ref *to, *refs[2];
    static logged log;
    workers w;
    char *text;

    (void)state;
    logged_begin(&log);
    begin(&w, NULL);
    to = worker_find(&w, 0, "w1");
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &refs[i]));
        worker_wait_for(&n_held, i + 1);
        (void)tri_status_fail(TRI_ERR_NAN, "no book %d", i);
        tri_rpc_fail(held[i], TRI_ERR_NAN);
        wait_until_made(w.rpc[0], refs[i]);
    }
    CHECK_FAILS(tri_rpc_ref_status(refs[1]), TRI_ERR_NAN, "no book 1");
    tri_rpc_ref_unref(refs[0]);
    tri_rpc_ref_unref(refs[1]);
    tri_rpc_ref_unref(to);
    workers_end(&w);
    text = logged_read(&log);
    if (strstr(text, "nobody has looked at a reference that failed: make on w1") == NULL ||
        strstr(text, "no book 0") == NULL || strstr(text, "no book 1") != NULL)
        fail_msg("%s", text);
    free(text);
    logged_end(&log);
}

static void what_others_hold_is_logged_when_its_owner_leaves(void **state)
{
    static const tri_rpc_object kind = {.name = "book"};
    static int number;
    tri_rpc_ref *own, *found;
    static logged log;
    workers w;
    char *text;

    (void)state;
    logged_begin(&log);
    setenv("TRI_LOG", "info", 1);
    begin(&w, NULL);
    CHECK_OK(tri_rpc_own(w.rpc[1], "first", &kind, &number, &own));
    CHECK_OK(tri_rpc_find(w.rpc[0], "w1/first", &found));
    CHECK_OK(tri_rpc_leave(w.rpc[1], 20000));
    CHECK_OK(tri_rpc_leave(w.rpc[0], 20000));
    text = logged_read(&log);
    if (strstr(text, "w1 leaves, and w0 holds its object book first") == NULL)
        fail_msg("%s", text);
    free(text);
    tri_rpc_ref_unref(found);
    tri_rpc_ref_unref(own);
    workers_destroy(&w);
    logged_end(&log);
}

/* A busy callee takes its time to answer, which only a long deadline has. */
static void the_longer_a_call_was_given_the_earlier_its_callee_is_asked(void **state)
{
    static const int64_t ms[][2] = {{40, 20}, {160, 20}, {800, 100}, {1600, 200}, {60000, 200}};
    tri_rpc_call call = {.deadline_ns = TRII_NO_DEADLINE};

    (void)state;
    assert_true(rpc_call_look_ns(&call) == TRII_NO_DEADLINE);
    for (size_t i = 0; i < sizeof(ms) / sizeof(ms[0]); i++) {
        call = (tri_rpc_call){.began_ns = 1000};
        call.deadline_ns = call.began_ns + ms[i][0] * TRII_NS_PER_MS;
        assert_int_equal(call.deadline_ns - rpc_call_look_ns(&call), ms[i][1] * TRII_NS_PER_MS);
        call.asked = true;
        assert_int_equal(rpc_call_look_ns(&call), call.deadline_ns);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_message_that_is_refused_says_by_which_limit),
    cmocka_unit_test(a_limit_of_the_other_program_is_told_from_the_own_one),
    cmocka_unit_test(a_reply_that_is_refused_says_where_it_was_made),
    cmocka_unit_test(a_maker_that_returns_no_reference_is_named_with_its_line),
    cmocka_unit_test(what_is_called_on_a_promise_that_failed_names_its_worker),
    cmocka_unit_test(replies_that_are_not_freed_are_logged_when_their_worker_leaves),
    cmocka_unit_test(a_reference_that_failed_is_logged_unless_it_was_looked_at),
    cmocka_unit_test(what_others_hold_is_logged_when_its_owner_leaves),
    cmocka_unit_test(the_longer_a_call_was_given_the_earlier_its_callee_is_asked),
};

TEST_MAIN(tests)
