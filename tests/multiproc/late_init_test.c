/*
 * late_init_test.c - programs that ask how many they are before they have joined the world: what
 * they divided by that is not divided among all, so the log warns.
 */
#include <trireme/comm.h>

#include "testing/trirun_job.h"

/* Asks first, joins then. */
static int ask(bool size)
{
    int was = size ? tri_world_size() - 1 : tri_rank();

    if (was != 0 || tri_init(NULL) != TRI_OK)
        return 9;
    tri_finalize();
    if (tri_world_size() != 1 || tri_rank() != 0)
        return 8;
    return tri_init(NULL) != TRI_OK;
}

static void start(trirun_job *j, const char *how, const char *n)
{
    char self[4096] = "";

    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    TRIRUN_START(j, n, self, "--worker", how);
    if (spawn_wait(&j->run) != 0)
        fail_msg("%s", SPAWN_ERR(&j->run));
}

static void a_program_that_asks_for_the_size_too_early_is_warned_once(void **state)
{
    trirun_job j;

    (void)state;
    start(&j, "size", "--nproc-per-node=2");
    assert_int_equal(trirun_count(SPAWN_ERR(&j.run),
                                  "tri_world_size was 1 before tri_init, which joined 2 ranks"),
                     1);
    trirun_end(&j, 0);
    start(&j, "size", "--nproc-per-node=1");
    assert_string_equal(SPAWN_ERR(&j.run), "");
    trirun_end(&j, 0);
    start(&j, "rank", "--nproc-per-node=2");
    assert_string_equal(SPAWN_ERR(&j.run), "");
    trirun_end(&j, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_program_that_asks_for_the_size_too_early_is_warned_once),
};

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0)
        return ask(strcmp(argv[2], "size") == 0);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
