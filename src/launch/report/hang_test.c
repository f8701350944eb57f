/*
 * hang_test.c - the calls of a rank, out of all records that its programs keep.
 */
#include "launch/report/hang.h"

#include "launch/inspect/why.h"
#include "testing/check.h"
#include "testing/scratch.h"

static void put_record(scratch *s, const char *name, uint64_t begun)
{
    static trii_record_file record;
    FILE *file = fopen(scratch_path(s, name), "w");

    memcpy(record.magic, TRII_RECORD_MAGIC, sizeof(TRII_RECORD_MAGIC));
    atomic_store(&record.begun, begun);
    assert_non_null(file);
    assert_int_equal(fwrite(&record, sizeof(record), 1, file), 1);
    fclose(file);
}

static void all_programs_of_a_rank_count(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(trii_rank_calls(s.dir, 1), 0);
    put_record(&s, "rank-1.rec", 3);
    put_record(&s, "rank-1.4711.rec", 40); /* beside one that runs */
    put_record(&s, "rank-11.rec", 500);
    put_record(&s, "rank-1.rec.old", 6000);
    put_record(&s, "rank-1.x.rec", 6000);
    put_record(&s, "rank-1.", 6000);
    assert_int_equal(trii_rank_calls(s.dir, 1), 43);
    assert_int_equal(trii_rank_calls(s.dir, 11), 500);
    assert_int_equal(trii_rank_calls(s.dir, 4711), 0);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_programs_of_a_rank_count),
};

TEST_MAIN(tests)
