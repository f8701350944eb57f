/*
 * net_fit_test.c - tri_fit with num_nodes: each of two hosts starts its workers, which meet where
 * MASTER_ADDR and MASTER_PORT say. Where a system gives us no namespaces, on addresses of the
 * loopback interface.
 */
#include <stdio.h>
#include <stdlib.h>

#include "testing/fit_problem.h"
#include "testing/hosts.h"

static const char *own_path; /* of this program */

/* --- what this program does on a host ------------------------------------- */

static int fit_here(const char *folder)
{
    fit_samples train, val;
    fit_arg arg = {.lr = 0.2};
    tri_fit_options opt = fit_quiet(folder);
    tri_fit_result result;

    fit_samples_make(&train, 43, 1);
    fit_samples_make(&val, 21, 2);
    opt.max_epochs = 2;
    opt.devices = 2;
    opt.num_nodes = 2;
    TRI_TRY(tri_fit(&fit_task,
                    &(tri_fit_data){.train = train.dataset, .val = val.dataset, .batch_size = 4},
                    &opt, &arg, &result));
    printf("%lld updates, loss %.17g, accuracy %.17g\n", (long long)result.steps,
           tri_fit_result_value(&result, "val_loss"),
           tri_fit_result_value(&result, "val_accuracy"));
    tri_dataset_destroy(val.dataset);
    tri_dataset_destroy(train.dataset);
    return 0;
}

/* --- the test ------------------------------------------------------------- */

static void start_node(spawn *s, int host, int node, const char *address, int port,
                       const char *folder)
{
    const char *const argv[] = {own_path, "fit", folder, NULL};
    char text[3][100];
    const char *const env[] = {text[0], text[1], text[2], "TRI_ENGINE", NULL};

    snprintf(text[0], sizeof(text[0]), "MASTER_ADDR=%s", address);
    snprintf(text[1], sizeof(text[1]), "MASTER_PORT=%d", port);
    snprintf(text[2], sizeof(text[2]), "NODE_RANK=%d", node);
    if (host < 0)
        spawn_start(s, argv, env);
    else
        hosts_spawn(host, s, argv, env);
}

static void nodes_start_their_workers_and_meet(void **state)
{
    bool spread = hosts_begin(2);
    int port = spread ? 29500 : spawn_free_port();
    scratch folder;
    spawn s[2];

    (void)state;
    scratch_begin(&folder);
    for (int host = 1; host <= 2 && spread; host++) {
        hosts_plug(host);
        hosts_ip(host, "addr add 10.77.0.%d/24 dev eth0", host);
    }
    for (int node = 0; node < 2; node++)
        start_node(&s[node], spread ? 1 + node : -1, node, spread ? "10.77.0.1" : "127.0.0.1", port,
                   folder.dir);
    for (int node = 0; node < 2; node++)
        if (spawn_wait(&s[node]) != 0)
            fail_msg("node %d: status %d: %s", node, s[node].status, SPAWN_ERR(&s[node]));
    /* 43 samples on four ranks are 11 each: three updates of an epoch */
    assert_int_equal(strncmp(SPAWN_OUT(&s[0]), "6 updates, loss ", 16), 0);
    assert_string_equal(SPAWN_OUT(&s[0]), SPAWN_OUT(&s[1]));
    for (int node = 0; node < 2; node++)
        spawn_free(&s[node]);
    if (spread)
        hosts_end();
    scratch_end(&folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nodes_start_their_workers_and_meet),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 2 && strcmp(argv[1], "fit") == 0)
        return fit_here(argv[2]);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
