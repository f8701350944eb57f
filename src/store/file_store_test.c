/*
 * file_store_test.c - the file store on the disk: PyTorch's bytes, records that a dead process
 * left torn, damage, locks that are held, files that vanish. What every store promises is in
 * store_test.c.
 */
#include <trireme/store.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/shared_file.h"
#include "os/thread.h"
#include "store/file_log.h"
#include "testing/check.h"
#include "testing/scratch.h"

/* The bytes of a record at the end of `out`; returns its length. */
static size_t put(char *out, const char *key, const char *value)
{
    uint32_t key_bytes = (uint32_t)strlen(key), value_bytes = (uint32_t)strlen(value);

    memcpy(out, &key_bytes, 4);
    memcpy(out + 4, key, key_bytes);
    memcpy(out + 4 + key_bytes, &value_bytes, 4);
    memcpy(out + 8 + key_bytes, value, value_bytes);
    return 8 + key_bytes + value_bytes;
}

static void check_value(tri_store *store, const char *key, const char *want)
{
    void *value = NULL;

    CHECK_OK(tri_store_get(store, key, 1000, &value, NULL));
    assert_string_equal(value, want);
    tri_store_free(value);
}

static bool is_there(tri_store *store, const char *key)
{
    bool present = false;

    CHECK_OK(tri_store_check(store, &key, 1, &present));
    return present;
}

static void the_bytes_are_pytorchs(void **state)
{
    static const char *const want[][2] = {
        {"refcount/", "1"}, {"/a", "xyz"},     {"/b", "7"},
        {"-/a", ""},        {"/c", "one"},     {"/c", "two"},
        {"/c", "two more"}, {"cleanup/", "1"}, {"refcount/", "0"},
    };
    char bytes[256], *got;
    size_t used = 0, n = 0;
    bool existed = false;
    tri_store *store;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &store));
    CHECK_OK(tri_store_set(store, "a", "xyz", 3));
    CHECK_OK(tri_store_add(store, "b", 7, NULL));
    CHECK_OK(tri_store_delete(store, "a", &existed));
    assert_true(existed);
    CHECK_OK(tri_store_delete(store, "a", &existed)); /* writes nothing */
    assert_false(existed);
    CHECK_OK(tri_store_compare_set(store, "c", "", 0, "one", 3, NULL, NULL));
    CHECK_OK(tri_store_compare_set(store, "c", "no", 2, "x", 1, NULL, NULL)); /* nor this */
    CHECK_OK(tri_store_compare_set(store, "c", "one", 3, "two", 3, NULL, NULL));
    CHECK_OK(tri_store_append(store, "c", " more", 5));
    tri_store_unref(store);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        used += put(bytes + used, want[i][0], want[i][1]);
    got = scratch_read(scratch_path(&s, "f"), &n);
    assert_int_equal(n, used);
    assert_memory_equal(got, bytes, n);
    free(got);
    scratch_end(&s);
}

static void what_others_wrote_is_seen(void **state)
{
    char record[64];
    tri_store *store, *second;
    scratch s;
    FILE *file;

    (void)state;
    scratch_begin(&s);
    scratch_file(&s, "f", record, put(record, "/old", "of an earlier run"));
    CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &store));
    check_value(store, "old", "of an earlier run");
    file = fopen(scratch_path(&s, "f"), "ab");
    fwrite(record, 1, put(record, "/new", "by hand"), file);
    fclose(file);
    check_value(store, "new", "by hand");
    CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &second));
    CHECK_OK(tri_store_set(second, "new", "by a store", 10));
    check_value(store, "new", "by a store");
    CHECK_OK(tri_store_delete(second, "new", NULL));
    assert_false(is_there(store, "new"));
    tri_store_unref(second);
    tri_store_unref(store);
    scratch_end(&s);
}

/* PyTorch's readers spin for ever in front of such a record. */
static void a_torn_record_is_skipped_and_then_cut_off(void **state)
{
    const char *none = "k2";
    char torn[64];
    size_t whole = put(torn, "/k2", "never finished");
    scratch s;

    (void)state;
    setenv("TRI_LOG", "error", 1); /* it warns */
    scratch_begin(&s);
    for (size_t keep = 1; keep < whole; keep++) {
        tri_store *store, *other;
        FILE *file;

        CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &store));
        CHECK_OK(tri_store_set(store, "k1", "one", 3));
        file = fopen(scratch_path(&s, "f"), "ab");
        assert_int_equal(fwrite(torn, 1, keep, file), keep);
        fclose(file);
        check_value(store, "k1", "one"); /* a reader stops in front of it */
        CHECK_FAILS(tri_store_wait(store, &none, 1, 5), TRI_ERR_TIMEOUT, "k2");
        CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &other)); /* a writer cuts it off */
        CHECK_OK(tri_store_set(other, "k2", "two", 3));
        check_value(store, "k2", "two");
        check_value(store, "k1", "one");
        tri_store_unref(other);
        tri_store_unref(store);
        assert_int_equal(remove(scratch_path(&s, "f")), 0);
    }
    scratch_end(&s);
}

static void damage_and_other_files_are_named(void **state)
{
    static const char other[] = "this is a letter, not a store at all";
    tri_store *store = NULL;
    char damaged[64], path[256];
    size_t used;
    scratch s;

    (void)state;
    scratch_begin(&s);
    scratch_file(&s, "letter", other, sizeof(other));
    CHECK_FAILS(tri_store_file(scratch_path(&s, "letter"), NULL, &store), TRI_ERR_FORMAT,
                "is damaged at byte 0");
    used = put(damaged, "/k", "v");
    memset(damaged + used, 0, 8);
    scratch_file(&s, "zeros", damaged, used + 8);
    CHECK_FAILS(tri_store_file(scratch_path(&s, "zeros"), NULL, &store), TRI_ERR_FORMAT,
                "is damaged at byte 11; remove it and start again: a key of 0 bytes");
    memset(damaged + 6, 0xff, 4);
    scratch_file(&s, "huge", damaged, used);
    CHECK_FAILS(tri_store_file(scratch_path(&s, "huge"), NULL, &store), TRI_ERR_FORMAT,
                "a value of 4294967295 bytes");
    /* at once, where PyTorch waits for its whole time-out */
    snprintf(path, sizeof(path), "%s/none/f", s.dir);
    CHECK_FAILS(tri_store_file(path, NULL, &store), TRI_ERR_NOT_FOUND, "No such file");
    CHECK_FAILS(tri_store_file(s.dir, NULL, &store), TRI_ERR_IO, "Is a directory");
    CHECK_FAILS(tri_store_file("/dev/null", NULL, &store), TRI_ERR_IO, "is not a regular file");
    CHECK_FAILS(tri_store_file("", NULL, &store), TRI_ERR_INVALID_ARG, "empty");
    assert_null(store);
    scratch_end(&s);
}

static void a_lock_that_is_not_given_back_is_a_timeout(void **state)
{
    const tri_store_file_options options = {.timeout_ms = 30};
    const char *key = "k";
    tri_store *store;
    scratch s;
    int fd;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_store_file(scratch_path(&s, "f"), &options, &store));
    CHECK_OK(trii_shared_file_open(scratch_path(&s, "f"), false, &fd));
    CHECK_OK(trii_shared_file_lock(fd, "f", true, TRII_NO_DEADLINE));
    CHECK_FAILS(tri_store_set(store, "k", "v", 1), TRI_ERR_TIMEOUT, "holds its lock");
    CHECK_FAILS(tri_store_wait(store, &key, 1, 10), TRI_ERR_IO, "holds its lock");
    CHECK_OK(trii_shared_file_lock(fd, "f", false,
                                   TRII_NO_DEADLINE)); /* readers do not mind other readers */
    assert_false(is_there(store, "k"));
    trii_shared_file_close(fd);
    CHECK_OK(tri_store_set(store, "k", "v", 1));
    tri_store_unref(store);
    scratch_end(&s);
}

typedef struct holder {
    trii_thread thread;
    int64_t until_ns;
    int fd;
} holder;

static void give_back(void *arg)
{
    holder *h = arg;

    trii_sleep_until(h->until_ns);
    trii_shared_file_unlock(h->fd);
}

/* Everybody who uses the store has the lock for a moment, longer on a busy machine. */
static void a_short_wait_still_gets_the_lock(void **state)
{
    const char *keys[] = {"k", "none"};
    holder h;
    tri_store *store;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &store));
    CHECK_OK(tri_store_set(store, "k", "v", 1));
    CHECK_OK(trii_shared_file_open(scratch_path(&s, "f"), false, &h.fd));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(trii_shared_file_lock(h.fd, "f", true, TRII_NO_DEADLINE));
        h.until_ns = trii_now_ns() + 50 * TRII_NS_PER_MS; /* so long a holder was off its core */
        CHECK_OK(trii_thread_start(&h.thread, "holder", give_back, &h));
        assert_int_equal(tri_store_wait(store, &keys[i], 1, 1), i == 0 ? TRI_OK : TRI_ERR_TIMEOUT);
        trii_thread_join(&h.thread);
    }
    trii_shared_file_close(h.fd);
    tri_store_unref(store);
    scratch_end(&s);
}

/* In a folder that everybody may write to, the first user to come would own the rendezvous. */
static void another_users_file_is_refused(void **state)
{
    tri_store *store = NULL;
    scratch s;
    FILE *f;

    (void)state;
    scratch_begin(&s);
    f = fopen(scratch_path(&s, "theirs"), "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(symlink("theirs", scratch_path(&s, "link")), 0);
    assert_int_equal(tri_store_file(scratch_path(&s, "link"), NULL, &store), TRI_ERR_IO);
    assert_non_null(strstr(tri_last_error(), "symbolic link"));
    assert_int_equal(mkfifo(scratch_path(&s, "fifo"), 0600), 0);
    assert_int_equal(tri_store_file(scratch_path(&s, "fifo"), NULL, &store), TRI_ERR_IO);
    assert_non_null(strstr(tri_last_error(), "not a regular file"));
    if (geteuid() == 0) { /* nobody else can give files away */
        assert_int_equal(chown(scratch_path(&s, "theirs"), 4711, (gid_t)-1), 0);
        assert_int_equal(tri_store_file(scratch_path(&s, "theirs"), NULL, &store), TRI_ERR_IO);
        assert_non_null(strstr(tri_last_error(), "user 4711"));
        assert_int_equal(chown(scratch_path(&s, "theirs"), 0, (gid_t)-1), 0);
    }
    CHECK_OK(tri_store_file(scratch_path(&s, "theirs"), NULL, &store));
    tri_store_unref(store);
    scratch_end(&s);
}

static void a_file_that_was_removed_is_made_again(void **state)
{
    tri_store *store, *other;
    int64_t n = -1;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &store));
    CHECK_OK(tri_store_set(store, "k", "v", 1));
    assert_int_equal(remove(scratch_path(&s, "f")), 0);
    assert_false(is_there(store, "k"));
    CHECK_OK(tri_store_set(store, "k", "w", 1));
    check_value(store, "k", "w");
    /* another one in its place, longer than what was read of the first */
    assert_int_equal(rename(scratch_path(&s, "f"), scratch_path(&s, "old")), 0);
    CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &other));
    CHECK_OK(tri_store_set(other, "long", "a value that is longer than the whole file was", 46));
    assert_false(is_there(store, "k"));
    assert_true(is_there(store, "long"));
    CHECK_OK(tri_store_num_keys(store, &n));
    assert_int_equal(n, 1);
    tri_store_unref(other);
    tri_store_unref(store);
    scratch_end(&s);
}

static void the_last_of_a_world_removes_the_file(void **state)
{
    const tri_store_file_options three = {.world_size = 3};
    tri_store *store[3];
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int i = 0; i < 3; i++)
        CHECK_OK(tri_store_file(scratch_path(&s, "f"), &three, &store[i]));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(scratch_count(s.dir), 1);
        tri_store_unref(store[i]);
    }
    assert_int_equal(scratch_count(s.dir), 0);
    /* the first two of a world may come and go before the third */
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tri_store_file(scratch_path(&s, "f"), &three, &store[i]));
        tri_store_unref(store[i]);
        assert_int_equal(scratch_count(s.dir), i < 2);
    }
    scratch_end(&s);
}

static void a_full_disk_is_an_error_and_loses_nothing(void **state)
{
    size_t bytes = 100000;
    char *value = calloc(1, bytes);
    tri_store *store;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &store));
    CHECK_OK(tri_store_set(store, "k", "v", 1));
    scratch_limit_files(10000);
    CHECK_FAILS(tri_store_set(store, "big", value, bytes), TRI_ERR_IO, "cannot write");
    check_value(store, "k", "v");
    assert_false(is_there(store, "big"));
    CHECK_OK(tri_store_set(store, "k2", "v2", 2));
    check_value(store, "k2", "v2");
    tri_store_unref(store);
    free(value);
    scratch_end(&s);
}

/* --- several at once ------------------------------------------------------ */

enum { N_WRITERS = 4, N_ADDS = 200 };

typedef struct adder {
    const char *path;
    tri_status status;
    trii_thread thread;
} adder;

/* With a store of its own, as another process would have it. */
static void add_many(void *arg)
{
    adder *a = arg;
    tri_store *store = NULL;

    a->status = tri_store_file(a->path, NULL, &store);
    for (int i = 0; i < N_ADDS && a->status == TRI_OK; i++)
        a->status = tri_store_add(store, "n", 1, NULL);
    tri_store_unref(store);
}

static void many_writers_lose_nothing(void **state)
{
    adder adders[N_WRITERS];
    int64_t sum = 0;
    tri_store *store;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int i = 0; i < N_WRITERS; i++) {
        adders[i] = (adder){.path = scratch_path(&s, "f")};
        CHECK_OK(trii_thread_start(&adders[i].thread, "adder", add_many, &adders[i]));
    }
    for (int i = 0; i < N_WRITERS; i++) {
        trii_thread_join(&adders[i].thread);
        CHECK_OK(adders[i].status);
    }
    CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &store));
    CHECK_OK(tri_store_add(store, "n", 0, &sum));
    assert_int_equal(sum, N_WRITERS * N_ADDS);
    tri_store_unref(store);
    scratch_end(&s);
}

/* --- the format, byte by byte --------------------------------------------- */

static void records_may_come_in_any_pieces(void **state)
{
    char bytes[128];
    size_t total = put(bytes, "/a", "one");

    (void)state;
    total += put(bytes + total, "-/a", "");
    total += put(bytes + total, "/b", "two");
    for (size_t cut = 0; cut <= total; cut++) {
        trii_slice value = {0};
        size_t used = 0, need = 0, rest = 0;
        trii_kv *kv;

        CHECK_OK(trii_kv_create(&kv));
        CHECK_OK(trii_file_log_read(kv, bytes, cut, &used, &need));
        assert_true(used <= cut && (used == cut) == (need == 0));
        CHECK_OK(trii_file_log_read(kv, bytes + used, total - used, &rest, &need));
        assert_int_equal(used + rest, total);
        assert_int_equal(trii_kv_count(kv), 1);
        assert_true(trii_kv_get(kv, (trii_slice){"/b", 2}, &value));
        assert_memory_equal(value.data, "two", 3);
        trii_kv_destroy(kv);
    }
}

/* At each allocation of a look at what another wrote. */
static void want_of_memory_is_no_damage(void **state)
{
    tri_store *mine, *theirs;
    tri_status status = TRI_ERR_NO_MEMORY;
    bool present = false;
    int failed = 0;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &mine));
    CHECK_OK(tri_store_file(scratch_path(&s, "f"), NULL, &theirs));
    CHECK_OK(tri_store_set(theirs, "first", "1", 1));
    CHECK_OK(tri_store_set(theirs, "second", "2", 1));
    for (int n = 1; status != TRI_OK; n++) {
        const char *key = "second";

        trii_alloc_fail_at(n);
        status = tri_store_check(mine, &key, 1, &present);
        trii_alloc_fail_at(0);
        if (status == TRI_OK)
            break;
        assert_int_equal(status, TRI_ERR_NO_MEMORY);
        assert_null(strstr(tri_last_error(), "damaged"));
        failed++;
    }
    assert_true(failed > 1 && present);
    check_value(mine, "first", "1");
    tri_store_unref(mine);
    tri_store_unref(theirs);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_bytes_are_pytorchs),
    cmocka_unit_test(what_others_wrote_is_seen),
    cmocka_unit_test(a_torn_record_is_skipped_and_then_cut_off),
    cmocka_unit_test(damage_and_other_files_are_named),
    cmocka_unit_test(a_lock_that_is_not_given_back_is_a_timeout),
    cmocka_unit_test(a_short_wait_still_gets_the_lock),
    cmocka_unit_test(another_users_file_is_refused),
    cmocka_unit_test(a_file_that_was_removed_is_made_again),
    cmocka_unit_test(the_last_of_a_world_removes_the_file),
    cmocka_unit_test(a_full_disk_is_an_error_and_loses_nothing),
    cmocka_unit_test(many_writers_lose_nothing),
    cmocka_unit_test(records_may_come_in_any_pieces),
    cmocka_unit_test(want_of_memory_is_no_damage),
};

TEST_MAIN(tests)
