/*
 * rpc_call_test.c - calls between workers that are threads: replies, failures, limits, order,
 * over shared memory and over tcp.
 */
#include "comm/rpc/rpc_internal.h"
#include "testing/logged.h"
#include "testing/rpc_calls.h"
#include "testing/rpc_workers.h"

/* --- functions ------------------------------------------------------------ */

static tri_status run_echo(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);

    (void)object;
    return tri_rpc_reply(request, &(tri_rpc_message){.data = in->data,
                                                     .bytes = in->bytes,
                                                     .parts = in->parts,
                                                     .n_parts = in->n_parts});
}

static tri_status run_refuse(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return tri_status_fail(TRI_ERR_NAN, "7 is not a number today");
}

static tri_status run_own_name(tri_rpc_request *request, void *object)
{
    const char *name = tri_rpc_name(NULL);

    (void)object;
    return tri_rpc_reply(request, &(tri_rpc_message){.data = name, .bytes = strlen(name) + 1});
}

static const tri_rpc_function inline_sum = {
    .name = "inline_sum", .flags = TRI_RPC_INLINE, .run = run_sum};
static const tri_rpc_function echo = {
    .name = "echo", .max_request = 1 << 20, .max_reply = 1 << 20, .run = run_echo};
static const tri_rpc_function refuse = {.name = "refuse", .run = run_refuse};

static const tri_rpc_function own_name = {.name = "own_name", .run = run_own_name};

static const tri_rpc_function *const all[] = {&sum, &inline_sum, &echo, &refuse, &hang, &own_name};

static void begin(workers *w, int n, const tri_rpc_options *opt)
{
    calls_begin(w, n, opt, all, (int)TRII_COUNT_OF(all));
}

/* --- cases ---------------------------------------------------------------- */

static void a_call_runs_at_the_other_worker_and_its_reply_comes_back(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(opt)
    {
        workers w;
        tri_rpc_ref *to;

        begin(&w, 2, opt);
        to = worker_find(&w, 0, "w1");
        assert_string_equal(tri_rpc_ref_owner(to), "w1");
        for (int i = 0; i < 100; i++) {
            check_sum(to, &sum);
            check_sum(to, &inline_sum);
        }
        CHECK_OK(tri_rpc_sync(to, &sum, NULL, NULL, NULL));
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

/* A handler may run before the process's own worker is known as that. */
static void in_a_handler_null_is_the_worker_that_it_runs_for(void **state)
{
    workers w;
    tri_rpc_ref *to;
    tri_rpc_message reply;

    (void)state;
    begin(&w, 2, NULL);
    assert_string_equal(tri_rpc_name(NULL), "");
    for (int i = 0; i < 2; i++) {
        to = worker_find(&w, 0, i == 0 ? "w0" : "w1");
        CHECK_OK(tri_rpc_sync(to, &own_name, NULL, NULL, &reply));
        assert_string_equal((const char *)reply.data, i == 0 ? "w0" : "w1");
        tri_rpc_message_free(&reply);
        tri_rpc_ref_unref(to);
    }
    workers_end(&w);
}

static void messages_of_every_size_come_as_they_were(void **state)
{
    static const size_t sizes[] = {0, 1, 255, 4096, 49151, 49153, 65536, 1 << 20};
    static unsigned char data[1 << 20];

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 2654435761u >> 24);
    FOR_EACH_TRANSPORT(opt)
    {
        workers w;
        tri_rpc_ref *to;

        begin(&w, 2, opt);
        to = worker_find(&w, 1, "w0");
        for (size_t i = 0; i < TRII_COUNT_OF(sizes); i++) {
            tri_rpc_message reply;

            CHECK_OK(tri_rpc_sync(to, &echo, &(tri_rpc_message){.data = data, .bytes = sizes[i]},
                                  NULL, &reply));
            assert_int_equal(reply.bytes, sizes[i]);
            assert_memory_equal(reply.data, data, sizes[i]);
            assert_int_equal((uintptr_t)reply.data % 16, 0);
            tri_rpc_message_free(&reply);
        }
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

static void a_failure_comes_with_its_line_and_both_sites(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(opt)
    {
        workers w;
        tri_rpc_ref *to;
        tri_rpc_call *call;

        begin(&w, 2, opt);
        to = worker_find(&w, 0, "w1");
        CHECK_FAILS(tri_rpc_sync(to, &refuse, NULL, NULL, NULL), TRI_ERR_NAN,
                    "refuse on w1 (host ");
        assert_non_null(strstr(tri_last_error(), "NAN: 7 is not a number today (rpc_call_test.c:"));
        assert_non_null(strstr(tri_last_error(), "called at "));
        CHECK_OK(tri_rpc_async(to, &refuse, NULL, NULL, &call));
        assert_int_equal(tri_rpc_call_wait(call, 0), TRI_ERR_NAN);
        assert_non_null(strstr(tri_rpc_call_error(call), "7 is not a number"));
        tri_rpc_call_destroy(call);
        check_sum(to, &sum);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

static void what_does_not_fit_is_refused_by_the_caller(void **state)
{
    static const tri_rpc_function small = {.name = "echo", .max_request = 8};
    static const tri_rpc_function large = {.name = "sum", .max_request = 1 << 20};
    static char data[70000];
    const tri_rpc_part part = {data, 10};
    workers w;
    tri_rpc_ref *to;

    (void)state;
    begin(&w, 2, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_FAILS(tri_rpc_sync(to, &small, &(tri_rpc_message){.data = data, .bytes = 9}, NULL, NULL),
                TRI_ERR_INVALID_ARG, "9 bytes of data, at most 8");
    CHECK_FAILS(
        tri_rpc_sync(to, &sum, &(tri_rpc_message){.parts = &part, .n_parts = 1}, NULL, NULL),
        TRI_ERR_INVALID_ARG, "takes none (max_part)");
    CHECK_FAILS(tri_rpc_sync(to, &sum, &(tri_rpc_message){.bytes = 8}, NULL, NULL),
                TRI_ERR_INVALID_ARG, "data is NULL");
    /* and by a callee whose program has other limits */
    CHECK_FAILS(
        tri_rpc_sync(to, &large, &(tri_rpc_message){.data = data, .bytes = 70000}, NULL, NULL),
        TRI_ERR_INVALID_ARG, "at most 65536");
    check_sum(to, &sum);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static void a_function_that_is_not_there_is_named_with_its_neighbours(void **state)
{
    static const tri_rpc_function slip = {.name = "inline_smu"};

    (void)state;
    FOR_EACH_TRANSPORT(opt)
    {
        workers w;
        tri_rpc_ref *to;

        begin(&w, 2, opt);
        to = worker_find(&w, 0, "w1");
        CHECK_FAILS(tri_rpc_sync(to, &slip, NULL, NULL, NULL), TRI_ERR_NOT_FOUND,
                    "no function inline_smu on worker w1; most like it, of 6: inline_sum, ");
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

typedef struct done_count {
    atomic_int n;
    tri_status status;
} done_count;

static void count_done(tri_rpc_call *call, void *arg)
{
    done_count *d = arg;

    d->status = tri_rpc_call_test(call);
    atomic_fetch_add(&d->n, 1);
}

static void an_end_is_told_once_whatever_it_is(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(opt)
    {
        done_count d[3] = {{0}};
        const tri_rpc_function *const functions[] = {&sum, &refuse, &hang};
        workers w;
        tri_rpc_ref *to;

        begin(&w, 2, opt);
        to = worker_find(&w, 0, "w1");
        for (int i = 0; i < 3; i++) {
            const tri_rpc_call_options o = {
                .timeout_ms = i == 2 ? 50 : 0, .done = count_done, .arg = &d[i]};

            CHECK_OK(tri_rpc_async(to, functions[i], NULL, &o, NULL));
        }
        for (int i = 0; i < 3; i++)
            worker_wait_for(&d[i].n, 1);
        tri_rpc_ref_unref(to);
        workers_end(&w);
        assert_int_equal(d[0].status, TRI_OK);
        assert_int_equal(d[1].status, TRI_ERR_NAN);
        assert_int_equal(d[2].status, TRI_ERR_TIMEOUT);
        for (int i = 0; i < 3; i++)
            assert_int_equal(atomic_load(&d[i].n), 1);
    }
}

static void many_calls_at_once_end_each_with_its_reply(void **state)
{
    enum { N = 64 };

    (void)state;
    FOR_EACH_TRANSPORT(opt)
    {
        tri_rpc_call *calls[N] = {NULL};
        double x[N];
        workers w;
        tri_rpc_ref *to;

        begin(&w, 2, opt);
        to = worker_find(&w, 0, "w1");
        for (int i = 0; i < N; i++) {
            x[i] = i;
            CHECK_OK(tri_rpc_async(to, i % 2 == 0 ? &sum : &inline_sum,
                                   &(tri_rpc_message){.data = &x[i], .bytes = sizeof(x[i])}, NULL,
                                   &calls[i]));
        }
        for (int n = 0; n < N; n++) {
            tri_rpc_message reply;
            int which = -1;

            CHECK_OK(tri_rpc_wait_any(calls, N, 20000, &which));
            CHECK_OK(tri_rpc_call_wait(calls[which], 0));
            CHECK_OK(tri_rpc_call_take_reply(calls[which], &reply));
            assert_true(*(const double *)reply.data == which);
            tri_rpc_message_free(&reply);
            tri_rpc_call_destroy(calls[which]);
            calls[which] = NULL;
        }
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

static void a_worker_calls_itself(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT(opt)
    {
        workers w;
        tri_rpc_ref *to;

        begin(&w, 1, opt);
        to = worker_find(&w, 0, "w0");
        check_sum(to, &sum);
        check_sum(to, &inline_sum);
        tri_rpc_ref_unref(to);
        workers_end(&w);
    }
}

static void two_that_connect_to_each_other_at_once_have_one_connection(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        tri_rpc_ref *to[3] = {NULL};
        workers w;

        begin(&w, 3, round % 2 == 0 ? NULL : &by_tcp);
        for (int i = 0; i < 3; i++) {
            char name[8];

            snprintf(name, sizeof(name), "w%d", (i + 1) % 3);
            to[i] = worker_find(&w, i, name);
        }
        for (int i = 0; i < 3; i++)
            check_sum(to[i], &sum);
        for (int i = 0; i < 3; i++)
            tri_rpc_ref_unref(to[i]);
        workers_end(&w);
    }
}

static void a_call_without_a_reader_of_its_failure_is_logged_and_freed(void **state)
{
    const tri_rpc_options two = {.threads = 2}; /* `hang` has one */
    const char *first;
    char *text;
    static logged log;
    workers w;
    tri_rpc_ref *to;
    tri_rpc_call *call;

    (void)state;
    logged_begin(&log);
    begin(&w, 2, &two);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_async(to, &refuse, NULL, NULL, NULL));
    CHECK_OK(tri_rpc_async(to, &hang, NULL, NULL, &call));
    tri_rpc_call_destroy(call); /* goes on */
    CHECK_OK(tri_rpc_async(to, &refuse, NULL, NULL, &call));
    while (tri_rpc_call_error(call)[0] == '\0')
        trii_thread_yield();
    tri_rpc_call_destroy(call); /* unread */
    worker_wait_for(&n_started, 1);
    atomic_store(&release_all, 1);
    tri_rpc_ref_unref(to);
    workers_end(&w);
    text = logged_read(&log);
    first = strstr(text, "nobody has looked at a call that failed: NAN: refuse on w1");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "nobody has looked at a call that failed: NAN: refuse"));
    free(text);
    logged_end(&log);
}

static tri_status run_reply_and_fail(tri_rpc_request *request, void *object)
{
    tri_status status = tri_rpc_reply(request, NULL);

    (void)object;
    return status == TRI_OK ? tri_status_fail(TRI_ERR_NAN, "too late") : status;
}
static const tri_rpc_function reply_and_fail = {.name = "two-faced", .run = run_reply_and_fail};

static void a_failure_after_the_reply_is_logged(void **state)
{
    char *text;
    static logged log;
    workers w;
    tri_rpc_ref *to;

    (void)state;
    logged_begin(&log);
    begin(&w, 2, NULL);
    worker_serve(&w, 1, &reply_and_fail);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_sync(to, &reply_and_fail, NULL, NULL, NULL));
    tri_rpc_ref_unref(to);
    workers_end(&w);
    text = logged_read(&log);
    assert_non_null(strstr(text, "two-faced has replied to w0, and then failed: NAN: too late"));
    free(text);
    logged_end(&log);
}

/* By its line: it waited for nearly all of the time, and then asked for the names. */
static bool waited_for_line(int64_t ms)
{
    static const char before[] = "no object line on worker w1 (waited ";
    const char *text = strstr(tri_last_error(), before);
    double waited_ms = text != NULL ? strtod(text + strlen(before), NULL) * 1e3 : 0;

    return waited_ms >= 0.8 * (double)ms && waited_ms <= (double)ms &&
           strstr(text, "; there is lin") != NULL;
}

/* By a worker whose patience that is. */
static tri_status find_for(int64_t ms, const workers *w, const tri_rpc_options *opt)
{
    tri_rpc_options o = opt != NULL ? *opt : (tri_rpc_options){0};
    tri_rpc_ref *found = NULL;
    tri_rpc *seeker;
    tri_status status;
    char text[512];

    o.open = true;
    o.timeout_ms = ms;
    CHECK_OK(tri_rpc_create(w->store, "seeker", 0, 0, &o, &seeker));
    status = tri_rpc_find(seeker, "w1/line", &found);
    snprintf(text, sizeof(text), "%s", tri_last_error());
    CHECK_OK(tri_rpc_leave(seeker, 20000));
    tri_rpc_destroy(seeker);
    return tri_status_fail(status, "%s", text);
}

static void an_object_that_does_not_come_is_named_with_those_like_it(void **state)
{
    static const tri_rpc_object thing = {.name = "thing"};

    (void)state;
    FOR_EACH_TRANSPORT(opt)
    {
        tri_rpc_ref *lin, *sun;
        workers w;
        int64_t ms;

        workers_begin(&w, 2, opt);
        CHECK_FAILS_WITHIN(ms, find_for(ms, &w, opt), TRI_ERR_TIMEOUT, "; it has none (");
        CHECK_OK(tri_rpc_own(w.rpc[1], "lin", &thing, NULL, &lin));
        ms = 50;
        do {
            ms *= 2;
            CHECK_FAILS(find_for(ms, &w, opt), TRI_ERR_TIMEOUT, "rpc_find: w1/line");
        } while (!waited_for_line(ms) && ms < 4000);
        if (!waited_for_line(ms))
            fail_msg("%s", tri_last_error());
        CHECK_OK(tri_rpc_own(w.rpc[1], "sun", &thing, NULL, &sun));
        CHECK_FAILS_WITHIN(ms, find_for(ms, &w, opt), TRI_ERR_TIMEOUT, "; there are lin, sun");
        tri_rpc_ref_unref(lin);
        tri_rpc_ref_unref(sun);
        workers_end(&w);
    }
}

static tri_rpc_ref *self_of_leaving;

/* Calls its own worker once that is leaving. */
static tri_status run_call_self(tri_rpc_request *request, void *object)
{
    tri_rpc *rpc = request->rpc;
    bool leaves;

    (void)object;
    atomic_fetch_add(&n_started, 1);
    do {
        rpc_lock(rpc);
        leaves = rpc->state == RPC_STATE_LEAVING;
        rpc_unlock(rpc);
    } while (!leaves);
    return tri_rpc_sync(self_of_leaving, &echo, NULL, NULL, NULL);
}
static const tri_rpc_function call_self = {.name = "call_self", .run = run_call_self};

static void a_worker_that_leaves_may_call_itself(void **state)
{
    tri_rpc_call *call;
    workers w;

    (void)state;
    begin(&w, 1, NULL);
    worker_serve(&w, 0, &call_self);
    self_of_leaving = worker_find(&w, 0, "w0");
    n_started = 0;
    CHECK_OK(tri_rpc_async(self_of_leaving, &call_self, NULL, NULL, &call));
    worker_wait_for(&n_started, 1);
    CHECK_OK(tri_rpc_leave(w.rpc[0], 0));
    CHECK_OK(tri_rpc_call_wait(call, 0));
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(self_of_leaving);
    workers_destroy(&w);
}

static void wrong_arguments_are_refused(void **state)
{
    static const tri_rpc_function nameless = {.name = NULL};
    static const tri_rpc_function spaced = {.name = "a b"};
    static const tri_rpc_function other = {.name = "sum", .run = run_echo};
    const tri_rpc_function *bad;
    tri_rpc_ref *ref = NULL;
    tri_rpc *rpc = NULL;
    workers w;

    (void)state;
    begin(&w, 1, NULL);
    bad = &nameless;
    CHECK_FAILS(tri_rpc_serve(w.rpc[0], &bad, 1), TRI_ERR_INVALID_ARG, "is not a name");
    bad = &spaced;
    CHECK_FAILS(tri_rpc_serve(w.rpc[0], &bad, 1), TRI_ERR_INVALID_ARG, "\"a b\" is not a name");
    bad = &other;
    CHECK_FAILS(tri_rpc_serve(w.rpc[0], &bad, 1), TRI_ERR_STATE, "sum is another function");
    CHECK_FAILS(tri_rpc_find(w.rpc[0], "a/b/c", &ref), TRI_ERR_INVALID_ARG, "is not a name");
    CHECK_FAILS(tri_rpc_create(w.store, "x", 2, 2, NULL, &rpc), TRI_ERR_INVALID_ARG, "rank 2 of 2");
    CHECK_FAILS(tri_rpc_create(w.store, "", 0, 1, NULL, &rpc), TRI_ERR_INVALID_ARG,
                "is not a name");
    CHECK_FAILS(tri_rpc_create(w.store, "w0", 0, 1, NULL, &rpc), TRI_ERR_STATE,
                "the name w0 belongs to rank 0");
    CHECK_FAILS(tri_rpc_sync(NULL, &sum, NULL, NULL, NULL), TRI_ERR_INVALID_ARG, "to is NULL");
    CHECK_FAILS(tri_rpc_find(NULL, "w0", &ref), TRI_ERR_STATE, "this process is not a worker");
    workers_end(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_call_runs_at_the_other_worker_and_its_reply_comes_back),
    cmocka_unit_test(in_a_handler_null_is_the_worker_that_it_runs_for),
    cmocka_unit_test(messages_of_every_size_come_as_they_were),
    cmocka_unit_test(a_failure_comes_with_its_line_and_both_sites),
    cmocka_unit_test(what_does_not_fit_is_refused_by_the_caller),
    cmocka_unit_test(a_function_that_is_not_there_is_named_with_its_neighbours),
    cmocka_unit_test(an_end_is_told_once_whatever_it_is),
    cmocka_unit_test(many_calls_at_once_end_each_with_its_reply),
    cmocka_unit_test(a_worker_calls_itself),
    cmocka_unit_test(two_that_connect_to_each_other_at_once_have_one_connection),
    cmocka_unit_test(a_call_without_a_reader_of_its_failure_is_logged_and_freed),
    cmocka_unit_test(a_failure_after_the_reply_is_logged),
    cmocka_unit_test(an_object_that_does_not_come_is_named_with_those_like_it),
    cmocka_unit_test(a_worker_that_leaves_may_call_itself),
    cmocka_unit_test(wrong_arguments_are_refused),
};

TEST_MAIN(tests)
