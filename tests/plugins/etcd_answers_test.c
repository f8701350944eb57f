/*
 * etcd_answers_test.c - what etcd answers is read as it is meant, whatever is wrong with it: known
 * answers of etcd 3.4, and a fuzzer over them.
 */
#include "fuzz/fuzz.h"
#include "testing/check.h"

#include "base/alloc.h"
#include "rendezvous-etcd/etcd_json.h"

static void read_ok(const char *text, trii_etcd_reply *reply)
{
    memset(reply, 0, sizeof(*reply));
    CHECK_OK(trii_etcd_reply_read(text, strlen(text), reply));
}

static void a_range_has_its_keys_and_numbers_beyond_doubles(void **state)
{
    trii_etcd_reply r;

    (void)state;
    read_ok("{\"header\":{\"revision\":\"9007199254740993\"},\"kvs\":[{\"key\":\"YQ==\","
            "\"mod_revision\":\"9007199254740995\",\"value\":\"YgBj\"},{\"key\":\"YWI=\"}],"
            "\"count\":\"2\"}",
            &r);
    assert_true(r.revision == INT64_C(9007199254740993) && r.count == 2 && r.n_kvs == 2);
    assert_true(r.kvs[0].mod_revision == INT64_C(9007199254740995));
    assert_string_equal(r.kvs[0].key, "a");
    assert_int_equal(r.kvs[0].value_bytes, 3);
    assert_memory_equal(r.kvs[0].value, "b\0c", 4);
    assert_string_equal(r.kvs[1].key, "ab");
    assert_int_equal(r.kvs[1].value_bytes, 0); /* left out: empty */
    trii_etcd_reply_fini(&r);
    assert_int_equal(trii_alloc_live(), 0);
}

static void a_transaction_says_which_branch_and_whose_keys(void **state)
{
    trii_etcd_reply r;

    (void)state;
    read_ok("{\"header\":{\"revision\":\"7\"},\"responses\":[{\"response_range\":{}},"
            "{\"response_range\":{\"kvs\":[{\"key\":\"aw==\",\"value\":\"MQ==\"}]}}]}",
            &r);
    assert_true(!r.succeeded && r.n_kvs == 1 && r.kvs[0].op == 1);
    trii_etcd_reply_fini(&r);
    read_ok("{\"succeeded\":true,\"responses\":[{\"response_put\":{}},"
            "{\"response_delete_range\":{\"deleted\":\"3\"}}]}",
            &r);
    assert_true(r.succeeded && r.count == 3);
    trii_etcd_reply_fini(&r);
}

static void events_leases_and_failures_are_told_apart(void **state)
{
    trii_etcd_reply r;

    (void)state;
    read_ok("{\"result\":{\"header\":{\"revision\":\"5\"},\"events\":[{\"kv\":{\"key\":\"aw==\"}},"
            "{\"type\":\"DELETE\",\"kv\":{\"key\":\"aw==\"}}]}}",
            &r);
    assert_true(r.n_kvs == 2 && !r.kvs[0].deleted && r.kvs[1].deleted && r.revision == 5);
    trii_etcd_reply_fini(&r);
    read_ok("{\"result\":{\"canceled\":true,\"compact_revision\":\"115\"}}", &r);
    assert_true(r.canceled && r.compact_revision == 115);
    read_ok("{\"result\":{\"ID\":\"1353509813800588549\"}}", &r);
    assert_true(r.lease == INT64_C(1353509813800588549) && r.ttl == 0 && !r.failed);
    read_ok("{\"error\":\"etcdserver: requested lease not found\",\"message\":\"etcdserver: "
            "requested lease not found\",\"code\":5}",
            &r);
    assert_true(r.failed && r.code == 5);
    assert_string_equal(r.message, "etcdserver: requested lease not found");
    /* of a stream, and of etcd 3.6 */
    read_ok("{\"error\":{\"grpc_code\":14,\"message\":\"etcdserver: no leader\"}}", &r);
    assert_true(r.failed && r.code == 14);
    read_ok("{\"code\":16,\"message\":\"invalid auth token\",\"details\":[]}", &r);
    assert_true(r.failed && r.code == 16);
}

/* etcd's simple tokens have 22 characters, its signed ones (JWT, RS256) some 600. */
static void a_token_is_taken_whole_or_not_at_all(void **state)
{
    char text[6000];
    trii_etcd_reply r;

    (void)state;
    for (int n = 20; n < 5500; n += 479) {
        snprintf(text, sizeof(text), "{\"token\":\"%0*d\"}", n, 7);
        if (n < (int)sizeof(r.token)) {
            read_ok(text, &r);
            assert_int_equal(strlen(r.token), n);
            trii_etcd_reply_fini(&r);
        } else {
            CHECK_FAILS(trii_etcd_reply_read(text, strlen(text), &r), TRI_ERR_FORMAT, "a token of");
        }
    }
}

static void what_is_no_answer_is_refused(void **state)
{
    trii_etcd_reply r;

    (void)state;
    CHECK_FAILS(trii_etcd_reply_read("<html>", 6, &r), TRI_ERR_FORMAT, "<html>");
    CHECK_FAILS(trii_etcd_reply_read("[]", 2, &r), TRI_ERR_FORMAT, "not a JSON object");
    CHECK_FAILS(trii_etcd_reply_read("{\"kvs\":[{\"key\":\"a_==\"}]}", 24, &r), TRI_ERR_FORMAT,
                "base64");
    CHECK_FAILS(trii_etcd_reply_read("{\"kvs\":[{\"key\":\"YQ=\"}]}", 23, &r), TRI_ERR_FORMAT,
                "base64");
    assert_int_equal(trii_alloc_live(), 0);
}

static void bytes_are_written_as_they_are_read(void **state)
{
    unsigned char data[700];

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 167 + 13);
    for (size_t n = 0; n < sizeof(data); n += n < 10 ? 1 : 97) {
        trii_wire_buffer text = {0};
        trii_etcd_reply r = {0};

        trii_etcd_put_text(&text, "{\"kvs\":[{\"key\":\"\",\"value\":");
        trii_etcd_put_bytes(&text, data, n);
        trii_etcd_put_text(&text, "}]}");
        CHECK_OK(trii_etcd_reply_read(text.data, text.used, &r));
        assert_int_equal(r.kvs[0].value_bytes, n);
        assert_memory_equal(r.kvs[0].value, data, n);
        trii_etcd_reply_fini(&r);
        trii_wire_buffer_fini(&text);
    }
}

/* --- the fuzzer ----------------------------------------------------------- */

static void run_answer(const uint8_t *data, size_t bytes)
{
    trii_etcd_reply r = {0};
    volatile char sink = 0;

    if (trii_etcd_reply_read((const char *)data, bytes, &r) == TRI_OK) {
        assert_true(memchr(r.message, 0, sizeof(r.message)) != NULL);
        assert_true(memchr(r.token, 0, sizeof(r.token)) != NULL);
        for (int i = 0; i < r.n_kvs; i++) {
            assert_true(r.kvs[i].key_bytes <= bytes && r.kvs[i].value_bytes <= bytes);
            assert_int_equal(r.kvs[i].value[r.kvs[i].value_bytes], 0);
            for (size_t k = 0; k < r.kvs[i].value_bytes; k++)
                sink = (char)(sink + r.kvs[i].value[k]);
        }
    }
    trii_etcd_reply_fini(&r);
    assert_int_equal(trii_alloc_live(), 0);
}

static const fuzz_target answers = {.name = "etcd_answers", .run = run_answer};

static void the_corpus_cut_anywhere(void **state)
{
    (void)state;
    fuzz_corpus(&answers);
}

static void twenty_thousand_mutations(void **state)
{
    (void)state;
    fuzz_mutations(&answers, 20000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_range_has_its_keys_and_numbers_beyond_doubles),
    cmocka_unit_test(a_transaction_says_which_branch_and_whose_keys),
    cmocka_unit_test(events_leases_and_failures_are_told_apart),
    cmocka_unit_test(a_token_is_taken_whole_or_not_at_all),
    cmocka_unit_test(what_is_no_answer_is_refused),
    cmocka_unit_test(bytes_are_written_as_they_are_read),
    cmocka_unit_test(the_corpus_cut_anywhere),
    cmocka_unit_test(twenty_thousand_mutations),
};

TEST_MAIN(tests)
