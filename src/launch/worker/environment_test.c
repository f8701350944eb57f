/*
 * environment_test.c - what workers inherit and what they do not.
 */
#include "launch/worker/environment.h"

#include <string.h>

#include "base/alloc.h"
#include "testing/check.h"

static trii_launch_options options = {.role = "default", .signals = "SIGTERM"};

/* Entries that begin so. */
static int count(const char *const *envp, const char *begin)
{
    int n = 0;

    for (; *envp != NULL; envp++)
        n += strncmp(*envp, begin, strlen(begin)) == 0;
    return n;
}

/* It may hold the password of etcd. */
static void the_settings_of_the_rendezvous_stay_with_the_agent(void **state)
{
    const char *const inherited[] = {"HOME=/root", "PET_RDZV_CONF=username=a,password=secret",
                                     "PET_RDZV_CONFX=1", "RANK=7", NULL};
    const trii_launch_job job = {.options = &options,
                                 .local_size = 1,
                                 .world_size = 1,
                                 .group_size = 1,
                                 .role_size = 1,
                                 .master_addr = "127.0.0.1",
                                 .run_id = "r",
                                 .run_dir = "/tmp"};
    const char **envp = NULL;

    (void)state;
    CHECK_OK(trii_launch_environment(&job, 0, inherited, &envp));
    assert_int_equal(count(envp, "HOME="), 1);
    assert_int_equal(count(envp, "RANK="), 1);
    assert_int_equal(count(envp, "PET_RDZV_CONFX="), 1);
    assert_int_equal(count(envp, "PET_RDZV_CONF="), 0);
    trii_free(envp);
}

/* trirun may be a worker of trirun. */
static void what_we_set_is_not_inherited_beside_it(void **state)
{
    const char *const inherited[] = {
        "RANK=7",      "RANKS=1", "CUDA_VISIBLE_DEVICES=4,5", "TRI_AGENT_STORE=a 1 new ",
        "MASTER_PORT", NULL};
    trii_launch_job job = {.options = &options,
                           .local_size = 2,
                           .world_size = 2,
                           .group_size = 1,
                           .role_size = 2,
                           .master_addr = "127.0.0.1",
                           .run_id = "r",
                           .run_dir = "/tmp"};
    const char **envp = NULL;

    (void)state;
    CHECK_OK(trii_launch_environment(&job, 1, inherited, &envp));
    assert_int_equal(count(envp, "RANK=1"), 1);
    assert_int_equal(count(envp, "RANK="), 1);
    assert_int_equal(count(envp, "RANKS="), 1);
    assert_int_equal(count(envp, "TRI_AGENT_STORE="), 0); /* that of another job */
    assert_int_equal(count(envp, "CUDA_VISIBLE_DEVICES=4,5"), 1);
    trii_free(envp);
    options.virtual_local_rank = true;
    CHECK_OK(trii_launch_environment(&job, 0, inherited, &envp));
    assert_int_equal(count(envp, "CUDA_VISIBLE_DEVICES="), 1);
    assert_int_equal(count(envp, "CUDA_VISIBLE_DEVICES=4"), 0);
    trii_free(envp);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_settings_of_the_rendezvous_stay_with_the_agent),
    cmocka_unit_test(what_we_set_is_not_inherited_beside_it),
};

TEST_MAIN(tests)
