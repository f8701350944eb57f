/*
 * environment_test.c - what workers inherit and what they do not.
 */
#include "launch/worker/environment.h"

#include <string.h>

#include "base/alloc.h"
#include "testing/check.h"

static bool has(const char *const *envp, const char *name)
{
    size_t length = strlen(name);
    bool any = false;

    for (; *envp != NULL; envp++)
        any = any || (strncmp(*envp, name, length) == 0 && (*envp)[length] == '=');
    return any;
}

/* It may hold the password of etcd. */
static void the_settings_of_the_rendezvous_stay_with_the_agent(void **state)
{
    const char *const inherited[] = {"HOME=/root", "PET_RDZV_CONF=username=a,password=secret",
                                     "PET_RDZV_CONFX=1", "RANK=7", NULL};
    const trii_launch_job job = {.local_size = 1,
                                 .world_size = 1,
                                 .group_size = 1,
                                 .role_size = 1,
                                 .master_addr = "127.0.0.1",
                                 .run_id = "r",
                                 .run_dir = "/tmp",
                                 .role = "default",
                                 .signals = "SIGTERM"};
    const char **envp = NULL;

    (void)state;
    CHECK_OK(trii_launch_environment(&job, 0, inherited, &envp));
    assert_true(has(envp, "HOME"));
    assert_true(has(envp, "RANK"));
    assert_true(has(envp, "PET_RDZV_CONFX"));
    assert_false(has(envp, "PET_RDZV_CONF"));
    trii_free(envp);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_settings_of_the_rendezvous_stay_with_the_agent),
};

TEST_MAIN(tests)
