/*
 * resnet_pipeline_test.c - examples/tutorials/rpc_pipeline.c with the network of the tutorial, all
 * 25 million parameters of it; what happens on the way shows with fewer (remote_tutorials_test.c).
 * ctest: labels=full timeout=150
 */
#include "testing/check.h"
#include "testing/spawn.h"
#include "testing/trirun_job.h"

enum { DEADLINE_MS = 120000 };

static void a_pipeline_has_resnet_50(void **state)
{
    spawn s;

    (void)state;
    spawn_start(&s,
                (const char *const[]){spawn_bin("rpc_pipeline"), "--image_size=64",
                                      "--batch_size=1", "--split_size=1", "--batches=1",
                                      "--verbose", NULL},
                NULL);
    spawn_succeeds(&s, DEADLINE_MS);
    trirun_has(SPAWN_OUT(&s), "shard 1 has 1444928 parameters\n");
    trirun_has(SPAWN_OUT(&s), "shard 2 has 24112104 parameters\n");
    spawn_free(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_pipeline_has_resnet_50),
};

TEST_MAIN(tests)
