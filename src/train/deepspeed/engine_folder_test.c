/* engine_folder_test.c - folders that cannot be written, and a `latest` that is not what it should
 * be: all ranks get one line that says so, and `latest` never names what is not whole. */
#include "testing/engine_ranks.h"

#define CONFIG(stage)                                                                              \
    "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_clipping\": 1,"                            \
    " \"optimizer\": {\"type\": \"Adam\"}, \"zero_optimization\": {\"stage\": " #stage             \
    ", \"stage3_param_persistence_threshold\": 0}}"

static const char *const configs[] = {CONFIG(0), CONFIG(1), CONFIG(2), CONFIG(3)};

typedef struct call {
    const char *dir, *tag;
    int micro_steps;
    bool load;
} call;

static tri_status make_call(tri_engine *e, rank *r, void *arg)
{
    const call *c = arg;
    tri_status status;

    TRY(engine_micro_steps(e, r, 0, c->micro_steps));
    status = c->load ? tri_engine_load_checkpoint(e, c->dir, c->tag, NULL)
                     : tri_engine_save_checkpoint(e, c->dir, c->tag, NULL, 0);
    if (c->load && status != TRI_OK && tri_engine_global_steps(e) != c->micro_steps)
        return TRII_FAIL(TRI_ERR_INTERNAL, "a load that failed has changed the counters");
    if (c->load && status == TRI_OK && tri_engine_global_steps(e) != c->micro_steps + 1)
        return TRII_FAIL(TRI_ERR_INTERNAL, "%d updates", (int)tri_engine_global_steps(e));
    return status;
}

static void works(const char *config, int size, call c)
{
    rank ranks[MAX_RANKS];

    run_engines(ranks, size, config, make_call, &c);
    check_ranks(ranks, size);
}

/* All ranks fail alike; and as often as they try. */
static void fails(const char *config, int size, call c, tri_status status, const char *line)
{
    rank ranks[MAX_RANKS];

    run_engines(ranks, size, config, make_call, &c);
    for (int r = 0; r < size; r++)
        if (ranks[r].status != status || strstr(ranks[r].line, line) == NULL)
            fail_msg("rank %d of %d: %s: %s\ninstead of %s: %s", r, size,
                     tri_status_name(ranks[r].status), ranks[r].line, tri_status_name(status),
                     line);
}

static void latest_is(scratch *s, const char *tag)
{
    size_t bytes;
    char *text = scratch_read(scratch_path(s, "latest"), &bytes);

    assert_string_equal(text, tag);
    free(text);
}

/* --- saving --------------------------------------------------------------- */

/* Of the checkpoint, and of `latest` alone. */
static void a_full_disk_leaves_the_last_checkpoint(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i++) {
        for (int size = 1; size <= 2; size++) {
            scratch s;

            scratch_begin(&s);
            works(configs[i], size, (call){.dir = s.dir, .tag = "whole", .micro_steps = 1});
            for (int room = 0; room <= 300; room += 300) {
                scratch_limit_files((size_t)room);
                fails(configs[i], size, (call){.dir = s.dir, .tag = "half", .micro_steps = 2},
                      TRI_ERR_IO, "File too large");
                scratch_limit_files((size_t)1 << 40);
                latest_is(&s, "whole");
                works(configs[i], size, (call){.dir = s.dir, .load = true});
            }
            works(configs[i], size, (call){.dir = s.dir, .tag = "half", .micro_steps = 1});
            latest_is(&s, "half");
            scratch_end(&s);
        }
    }
}

static void a_latest_that_cannot_be_written_is_an_error(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(mkdir(scratch_path(&s, "latest"), 0700), 0);
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i += 3)
        fails(configs[i], 2, (call){.dir = s.dir}, TRI_ERR_IO, "/latest: ");
    scratch_end(&s);
}

static void a_folder_that_may_not_be_written_is_named(void **state)
{
    const uid_t me = geteuid();
    scratch s;

    (void)state;
    scratch_begin(&s);
    works(configs[2], 2, (call){.dir = s.dir, .tag = "whole", .micro_steps = 1});
    assert_int_equal(chmod(s.dir, 0555), 0);
    if (me == 0) /* who may write everywhere */
        assert_int_equal(seteuid(65534), 0);
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i += 3)
        fails(configs[i], 2, (call){.dir = s.dir, .micro_steps = 2}, TRI_ERR_IO,
              "Permission denied");
    if (me == 0)
        assert_int_equal(seteuid(me), 0);
    assert_int_equal(chmod(s.dir, 0700), 0);
    latest_is(&s, "whole");
    works(configs[2], 2, (call){.dir = s.dir, .load = true});
    scratch_end(&s);
}

static void a_folder_that_is_a_file_is_named(void **state)
{
    scratch s;
    const char *file;

    (void)state;
    scratch_begin(&s);
    file = scratch_file(&s, "file", "text", 4);
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i += 3)
        for (int size = 1; size <= 2; size++) {
            fails(configs[i], size, (call){.dir = file}, TRI_ERR_IO, file);
            fails(configs[i], size, (call){.dir = file, .load = true}, TRI_ERR_IO, file);
        }
    fails(configs[0], 2, (call){.dir = NULL}, TRI_ERR_INVALID_ARG, "dir");
    scratch_end(&s);
}

/* --- tags and `latest` ---------------------------------------------------- */

static void a_tag_is_the_name_of_a_folder(void **state)
{
    static const char *const wrong[] = {"", ".", "..", "../up", "a/b", "/tmp", ".hidden", "latest"};
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (size_t i = 0; i < TRII_COUNT_OF(wrong); i++) {
        fails(configs[0], 2, (call){.dir = s.dir, .tag = wrong[i]}, TRI_ERR_INVALID_ARG,
              "is not the name of a folder");
        fails(configs[0], 2, (call){.dir = s.dir, .tag = wrong[i], .load = true},
              TRI_ERR_INVALID_ARG, "is not the name of a folder");
    }
    assert_int_equal(scratch_count(s.dir), 0);
    fails(configs[0], 2, (call){.dir = s.dir, .tag = "missing", .load = true}, TRI_ERR_NOT_FOUND,
          "missing");
    scratch_end(&s);
}

static void what_latest_says_is_checked(void **state)
{
    static const struct {
        const char *text;
        tri_status status;
        const char *line;
    } cases[] = {
        {"", TRI_ERR_FORMAT, "/latest has \"\", which is not a tag"},
        {"\n", TRI_ERR_FORMAT, "/latest has \"\", which is not a tag"},
        {"../a", TRI_ERR_FORMAT, "/latest has \"../a\", which is not a tag"},
        {"a/step-1", TRI_ERR_FORMAT, "which is not a tag"},
        {"..", TRI_ERR_FORMAT, "which is not a tag"},
        {"gone", TRI_ERR_FORMAT, "/gone: `latest` names it, but there is no such checkpoint"},
        {"a\n", TRI_OK, NULL},
        {"a\r\nb\n", TRI_OK, NULL},
    };
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int size = 1; size <= 2; size++) {
        works(configs[3], size, (call){.dir = s.dir, .tag = "a", .micro_steps = 1});
        for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
            scratch_file(&s, "latest", cases[i].text, strlen(cases[i].text));
            if (cases[i].status == TRI_OK)
                works(configs[3], size, (call){.dir = s.dir, .load = true});
            else
                fails(configs[3], size, (call){.dir = s.dir, .load = true}, cases[i].status,
                      cases[i].line);
        }
        /* The checkpoint is there without it. */
        assert_int_equal(remove(scratch_path(&s, "latest")), 0);
        fails(configs[3], size, (call){.dir = s.dir, .load = true}, TRI_ERR_NOT_FOUND, "/latest");
        works(configs[3], size, (call){.dir = s.dir, .tag = "a", .load = true});
    }
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_full_disk_leaves_the_last_checkpoint),
    cmocka_unit_test(a_latest_that_cannot_be_written_is_an_error),
    cmocka_unit_test(a_folder_that_may_not_be_written_is_named),
    cmocka_unit_test(a_folder_that_is_a_file_is_named),
    cmocka_unit_test(a_tag_is_the_name_of_a_folder),
    cmocka_unit_test(what_latest_says_is_checked),
};

TEST_MAIN(tests)
