/* packed_test.c - when copies of a parameter are kept, and of which contents. */
/* ctest: threads=none */
#include "base/alloc.h"
#include "train/tensor/packed.h"
#include "train/tensor/persistent.h"
#include "testing/check.h"

#define BYTES 64
static const trii_layout layouts[2] = {{.name = "rows"}, {.name = "columns"}};
static const trii_packed_kind rows = {.layout = &layouts[0], .bytes = BYTES},
                              columns = {.layout = &layouts[1], .bytes = BYTES},
                              plain = {.bytes = BYTES};

static tri_tensor *parameter(void)
{
    return tri_tensor_create((int64_t[]){4}, 1, TRI_DTYPE_F32);
}

/* What a run does: takes a copy, makes it if need be, and keeps it if that is wanted. */
static trii_packed_use use_copy(tri_tensor *w, const trii_packed_kind *kind, int32_t version)
{
    trii_packed_use use = trii_packed_take(w, kind, version);

    trii_storage_unref(use.dropped);
    if (use.wanted)
        CHECK_OK(trii_storage_create(NULL, NULL, kind->bytes, &use.storage));
    if (use.storage != NULL && !use.ready)
        trii_storage_unref(trii_packed_keep(w, kind, version, use.storage));
    trii_storage_unref(use.storage);
    return use;
}

static void write_to(tri_tensor *w)
{
    const trii_packed_dropped dropped = trii_packed_written(w);

    trii_packed_release(&dropped);
}

static void what_is_asked_for_once_is_not_kept(void **state)
{
    tri_tensor *w = parameter();

    (void)state;
    for (int32_t version = 0; version < 5; version++) {
        trii_packed_use use = use_copy(w, &rows, version);

        assert_false(use.ready || use.wanted);
        assert_null(use.storage);
        write_to(w);
    }
    assert_int_equal(trii_packed_bytes(), 0);
    tri_tensor_unref(w);
}

static void the_second_run_keeps_it_and_the_next_version_at_once(void **state)
{
    tri_tensor *w = parameter();

    (void)state;
    (void)use_copy(w, &rows, 0);
    assert_true(use_copy(w, &rows, 0).wanted);
    assert_true(use_copy(w, &rows, 0).ready);
    assert_int_equal(trii_packed_bytes(), BYTES);
    write_to(w);
    for (int i = 0; i < 3; i++) {
        trii_packed_use use = use_copy(w, &rows, 1);

        assert_non_null(use.storage); /* the memory is there */
        assert_true(use.ready == (i > 0));
    }
    write_to(w);
    assert_false(use_copy(w, &rows, 2).ready);
    write_to(w); /* version 2 was read once */
    assert_int_equal(trii_packed_bytes(), 0);
    tri_tensor_unref(w);
}

static void memory_goes_with_the_tensor(void **state)
{
    long before = trii_alloc_live();
    tri_tensor *w = parameter();

    (void)state;
    for (int i = 0; i < 3; i++) {
        (void)use_copy(w, &rows, 0);
        (void)use_copy(w, &columns, 0);
    }
    assert_int_equal(trii_packed_bytes(), 2 * BYTES);
    tri_tensor_unref(w);
    assert_int_equal(trii_packed_bytes(), 0);
    assert_int_equal(trii_alloc_live(), before);
}

static void a_copy_that_is_read_is_not_written_over(void **state)
{
    tri_tensor *w = parameter();
    trii_packed_use reader, next;

    (void)state;
    (void)use_copy(w, &rows, 0);
    (void)use_copy(w, &rows, 0);
    reader = trii_packed_take(w, &rows, 0);
    assert_true(reader.ready);
    next = trii_packed_take(w, &rows, 0); /* others read it, too */
    assert_ptr_equal(next.storage, reader.storage);
    trii_storage_unref(next.storage);
    write_to(w);
    next = trii_packed_take(w, &rows, 1);
    assert_false(next.ready || next.wanted);
    assert_null(next.storage);
    trii_storage_unref(reader.storage);
    next = trii_packed_take(w, &rows, 1);
    assert_non_null(next.storage);
    assert_false(next.ready);
    /* another run makes its own meanwhile */
    reader = trii_packed_take(w, &rows, 1);
    assert_null(reader.storage);
    assert_false(reader.ready || reader.wanted);
    trii_storage_unref(next.storage);
    tri_tensor_unref(w);
}

static void older_contents_neither_find_nor_replace_newer_ones(void **state)
{
    tri_tensor *w = parameter();

    (void)state;
    for (int i = 0; i < 3; i++)
        (void)use_copy(w, &rows, INT32_MAX);
    write_to(w);
    (void)use_copy(w, &rows, 0); /* versions wrap around */
    assert_true(use_copy(w, &rows, 0).ready);
    for (int i = 0; i < 3; i++) {
        trii_packed_use use = use_copy(w, &rows, INT32_MAX);

        assert_false(use.ready || use.wanted);
        assert_null(use.storage);
    }
    assert_true(use_copy(w, &rows, 0).ready);
    tri_tensor_unref(w);
}

/* Nobody has asked for the newer ones yet. */
static void older_contents_are_not_taken_for_newer_ones(void **state)
{
    tri_tensor *w = parameter();

    (void)state;
    (void)use_copy(w, &rows, 0);
    write_to(w);
    (void)use_copy(w, &rows, 0);
    assert_false(use_copy(w, &rows, 1).wanted); /* the first that asks for these */
    assert_true(use_copy(w, &rows, 1).wanted);
    write_to(w);
    (void)use_copy(w, &rows, 1);
    assert_true(use_copy(w, &rows, 1).ready);
    assert_false(use_copy(w, &rows, 2).ready);
    tri_tensor_unref(w);
}

/* The contents that a run has made when others are wanted already are dropped. */
static void a_copy_that_is_made_too_late_is_not_kept(void **state)
{
    tri_tensor *w = parameter();
    trii_packed_use slow;

    (void)state;
    (void)use_copy(w, &rows, 0);
    (void)use_copy(w, &rows, 0);
    write_to(w);
    slow = trii_packed_take(w, &rows, 1);
    assert_non_null(slow.storage);
    write_to(w);
    (void)use_copy(w, &rows, 2);
    assert_null(trii_packed_keep(w, &rows, 1, slow.storage));
    trii_storage_unref(slow.storage);
    assert_false(use_copy(w, &rows, 2).ready);
    assert_true(use_copy(w, &rows, 2).ready);
    tri_tensor_unref(w);
}

static void the_first_of_two_that_make_one_is_kept(void **state)
{
    tri_tensor *w = parameter();
    trii_storage *made[2];

    (void)state;
    (void)use_copy(w, &rows, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(trii_packed_take(w, &rows, 0).wanted);
        CHECK_OK(trii_storage_create(NULL, NULL, BYTES, &made[i]));
    }
    for (int i = 0; i < 2; i++)
        assert_null(trii_packed_keep(w, &rows, 0, made[i]));
    trii_storage_unref(made[1]);
    assert_ptr_equal(use_copy(w, &rows, 0).storage, made[0]);
    trii_storage_unref(made[0]);
    assert_int_equal(trii_packed_bytes(), BYTES);
    tri_tensor_unref(w);
}

static void a_tensor_has_few_and_gives_up_what_nobody_asks_for(void **state)
{
    tri_tensor *w = parameter();

    (void)state;
    for (int i = 0; i < 3; i++) {
        (void)use_copy(w, &rows, 0);
        (void)use_copy(w, &columns, 0);
        assert_false(use_copy(w, &plain, 0).wanted);
    }
    assert_int_equal(trii_packed_bytes(), TRII_PACKED_COPIES * BYTES);
    write_to(w);
    (void)use_copy(w, &columns, 1);
    (void)use_copy(w, &plain, 1);
    assert_true(use_copy(w, &plain, 1).wanted); /* in the place of `rows` */
    assert_true(use_copy(w, &columns, 1).ready);
    assert_int_equal(trii_packed_bytes(), TRII_PACKED_COPIES * BYTES);
    tri_tensor_unref(w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_asked_for_once_is_not_kept),
    cmocka_unit_test(the_second_run_keeps_it_and_the_next_version_at_once),
    cmocka_unit_test(memory_goes_with_the_tensor),
    cmocka_unit_test(a_copy_that_is_read_is_not_written_over),
    cmocka_unit_test(older_contents_neither_find_nor_replace_newer_ones),
    cmocka_unit_test(older_contents_are_not_taken_for_newer_ones),
    cmocka_unit_test(a_copy_that_is_made_too_late_is_not_kept),
    cmocka_unit_test(the_first_of_two_that_make_one_is_kept),
    cmocka_unit_test(a_tensor_has_few_and_gives_up_what_nobody_asks_for),
};

TEST_MAIN(tests)
