/*
 * plugin_test.c - what is no engine, no plug-in or no name is refused, with the places that were
 * looked at; a rank that lacks a plug-in does not leave the others waiting.
 */
#include "testing/check.h"
#include "testing/ranks.h"
#include "testing/scratch.h"

#include "base/alloc.h"
#include "comm/group/plugin.h"

static void built_in_engines_are_found(void **state)
{
    const trii_engine *engine = NULL;

    (void)state;
    CHECK_OK(trii_engine_find("shm", &engine));
    assert_string_equal(engine->name, "shm");
    assert_true(tri_engine_is_available("tcp"));
    assert_false(tri_engine_is_available(NULL));
    assert_false(tri_engine_is_available(""));
}

static void unknown_names_are_refused(void **state)
{
    const trii_engine *engine = NULL;

    (void)state;
    CHECK_FAILS(trii_engine_find("nonesuch", &engine), TRI_ERR_UNSUPPORTED,
                "engine-nonesuch.so in");
    CHECK_FAILS(trii_engine_find("../../etc/passwd", &engine), TRI_ERR_UNSUPPORTED,
                "that is not a name");
    CHECK_FAILS(trii_engine_find("a_name_that_is_too_long", &engine), TRI_ERR_UNSUPPORTED,
                "that is not a name");
    assert_null(engine);
}

/* Of PyTorch's names, where they have not been built. */
static void a_name_from_pytorch_is_told_what_to_write_instead(void **state)
{
    static const char *const rows[][2] = {
        {"gloo", "libgloo-dev"}, {"mpi", "libopenmpi-dev"}, {"nccl", "NCCL and CUDA"}};
    const trii_engine *engine = NULL;
    char what[200];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (tri_engine_is_available(rows[i][0]))
            continue; /* it is beside the library */
        CHECK_FAILS(trii_engine_find(rows[i][0], &engine), TRI_ERR_UNSUPPORTED,
                    "leave the engine out, since this library has its own (shm, tcp)");
        snprintf(what, sizeof(what), "or install %s and build again (looked for engine-%s.so in ",
                 rows[i][1], rows[i][0]);
        CHECK_FAILS(trii_engine_find(rows[i][0], &engine), TRI_ERR_UNSUPPORTED, what);
    }
    assert_null(engine);
}

static void what_is_no_plugin_is_refused(void **state)
{
    const trii_engine *engine = NULL;
    char path[200];
    scratch s;

    (void)state;
    scratch_begin(&s);
    scratch_file(&s, "engine-garbage.so", "not an object file", 18);
    snprintf(path, sizeof(path), "/nonexistent:%s", s.dir);
    setenv("TRI_PLUGIN_PATH", path, 1);
    CHECK_FAILS(trii_engine_find("garbage", &engine), TRI_ERR_UNSUPPORTED, "engine-garbage.so");
    CHECK_FAILS(trii_engine_find("absent", &engine), TRI_ERR_UNSUPPORTED, s.dir);
    assert_false(tri_engine_is_available("garbage"));
    unsetenv("TRI_PLUGIN_PATH");
    scratch_end(&s);
    assert_int_equal(trii_alloc_live(), 0);
}

static const char *one_has_a_typo(rank_env *env)
{
    tri_group_options options = {.engine = "gluu", .timeout_ms = 60000};
    tri_group *group = NULL;

    RANK_FAILS(env, tri_group_create(env->store, env->rank, env->size, &options, &group),
               TRI_ERR_UNSUPPORTED, "engine gluu");
    return NULL;
}

static void all_ranks_are_refused_at_once(void **state)
{
    (void)state;
    run_threads(3, NULL, one_has_a_typo, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(built_in_engines_are_found),
    cmocka_unit_test(unknown_names_are_refused),
    cmocka_unit_test(a_name_from_pytorch_is_told_what_to_write_instead),
    cmocka_unit_test(what_is_no_plugin_is_refused),
    cmocka_unit_test(all_ranks_are_refused_at_once),
};

TEST_MAIN(tests)
