/*
 * net_queue_test.c - many ranks of one host where the system lets few connections wait
 * (net.core.somaxconn; 128 by default before Linux 5.4).
 * ctest: labels=quick timeout=60
 */
#include <stdio.h>

#include "testing/hosts.h"
#include "testing/check.h"
#include "testing/ranks.h"

static const char *meets(rank_env *env)
{
    tri_group *group = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    return NULL;
}

/* The namespace is our own, so this is no change of the machine. Where we get none the group forms
 * under the system's own limit. */
static void a_short_queue_of_connections_delays_a_group_only(void **state)
{
    const tri_group_options options = {.engine = "shm", .timeout_ms = 20000};
    FILE *limit;

    (void)state;
    if (hosts_begin(1)) {
        limit = fopen("/proc/sys/net/core/somaxconn", "w");
        if (limit != NULL) {
            fputs("2\n", limit);
            assert_int_equal(fclose(limit), 0);
        }
    }
    run_threads(12, &options, meets, NULL);
    hosts_end();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_short_queue_of_connections_delays_a_group_only),
};

TEST_MAIN(tests)
