/*
 * tutorials_test.c - the programs of examples/tutorials/ run as their heads say, and print what the
 * tutorials print.
 * ctest: start=first timeout=150
 */
#include <math.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "testing/check.h"
#include "testing/golden.h"
#include "testing/scratch.h"
#include "testing/spawn.h"
#include "testing/trirun_job.h"

enum { DEADLINE_MS = 120000 };

/* The line stands there once for each rank below n. */
static void expect_of_ranks(const char *out, const char *line, int n)
{
    char with_rank[128];

    for (int rank = 0; rank < n; rank++) {
        snprintf(with_rank, sizeof(with_rank), "%s %d.\n", line, rank);
        assert_int_equal(trirun_count(out, with_rank), 1);
    }
    assert_int_equal(trirun_count(out, line), n);
}

/* Status 0, and no word but of who waits for whom, which a loaded machine may bring about. */
static void expect_success(spawn *s)
{
    int status;

    s->deadline_ms = DEADLINE_MS;
    status = spawn_wait(s);
    for (const char *line = SPAWN_ERR(s); status == 0 && *line != '\0';) {
        const char *end = strchr(line, '\n');

        if (strncmp(line, "trireme warn group", 18) != 0 &&
            strncmp(line, "trireme warn store", 18) != 0)
            status = -1;
        line = end != NULL ? end + 1 : line + strlen(line);
    }
    if (status != 0)
        fail_msg("status %d\n%s%s", s->status, SPAWN_OUT(s), SPAWN_ERR(s));
    spawn_expect_no_process(s);
}

static void getting_started_runs_its_three_demos(void **state)
{
    char folder[256], tmpdir[300];
    const char *const env[] = {"TRI_CPU_DEVICES", tmpdir, NULL};
    spawn s;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(tmpdir, sizeof(tmpdir), "TMPDIR=%s", folder);
    spawn_start(&s, (const char *const[]){spawn_bin("getting_started_ddp"), NULL}, env);
    expect_success(&s);
    expect_of_ranks(SPAWN_OUT(&s), "Running basic DDP example on rank", 4);
    expect_of_ranks(SPAWN_OUT(&s), "Finished running basic DDP example on rank", 4);
    expect_of_ranks(SPAWN_OUT(&s), "Running DDP checkpoint example on rank", 4);
    expect_of_ranks(SPAWN_OUT(&s), "Finished running DDP checkpoint example on rank", 4);
    expect_of_ranks(SPAWN_OUT(&s), "Running DDP with model parallel example on rank", 2);
    expect_of_ranks(SPAWN_OUT(&s), "Finished running DDP with model parallel example on rank", 2);
    assert_int_equal(spawn_count_entries(folder), 0); /* the checkpoint is gone */
    spawn_free(&s);
    spawn_remove_folder(folder);
}

/* How many files whose names begin so were read, by the events of their folder. */
static int count_read(int events, const char *begin)
{
    enum { MOST = 8 };
    char names[MOST][64], text[4096];
    ssize_t bytes;
    int n = 0;

    while ((bytes = read(events, text, sizeof(text))) > 0) {
        for (const char *at = text; at < text + bytes;) {
            struct inotify_event event;
            const char *name = at + sizeof(event);
            int i = 0;

            memcpy(&event, at, sizeof(event));
            at = name + event.len;
            if (event.len == 0 || strncmp(name, begin, strlen(begin)) != 0)
                continue;
            while (i < n && strcmp(names[i], name) != 0)
                i++;
            assert_in_range(i, 0, MOST - 1);
            if (i == n)
                snprintf(names[n++], sizeof(names[0]), "%s", name);
        }
    }
    return n;
}

/* What cannot be seen in what it prints: what rank 0 saved is loaded, and all three demos average
 * their gradients. */
static void getting_started_loads_and_averages(void **state)
{
    char folder[256], tmpdir[300];
    const char *const env[] = {"TRI_CPU_DEVICES=4", "TRI_LOG=plan:info", tmpdir, NULL};
    int events = inotify_init1(IN_NONBLOCK);
    spawn s;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(tmpdir, sizeof(tmpdir), "TMPDIR=%s", folder);
    assert_true(inotify_add_watch(events, folder, IN_CLOSE_NOWRITE) >= 0);
    spawn_start(&s, (const char *const[]){spawn_bin("getting_started_ddp"), NULL}, env);
    s.deadline_ms = DEADLINE_MS;
    assert_int_equal(spawn_wait(&s), 0);
    assert_int_equal(trirun_count(SPAWN_ERR(&s), " 2 host operations"), 4 + 4 + 2);
    assert_int_equal(count_read(events, "model-"), 1);
    close(events);
    spawn_free(&s);
    spawn_remove_folder(folder);
}

/* If jobs shared a file, one would remove what another one has not loaded yet. That is rare, so
 * this counts their files. */
static void getting_started_keeps_to_its_own_file(void **state)
{
    enum { JOBS = 4 };
    char folder[256], tmpdir[300];
    const char *const env[] = {"TRI_CPU_DEVICES=2", tmpdir, NULL};
    int events = inotify_init1(IN_NONBLOCK);
    spawn s[JOBS];

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(tmpdir, sizeof(tmpdir), "TMPDIR=%s", folder);
    assert_true(inotify_add_watch(events, folder, IN_CLOSE_NOWRITE) >= 0);
    for (int i = 0; i < JOBS; i++)
        spawn_start(&s[i], (const char *const[]){spawn_bin("getting_started_ddp"), NULL}, env);
    for (int i = 0; i < JOBS; i++) {
        expect_success(&s[i]);
        spawn_free(&s[i]);
    }
    assert_in_range(count_read(events, "model-"), 2, JOBS); /* a port may come twice */
    close(events);
    assert_int_equal(spawn_count_entries(folder), 0);
    spawn_remove_folder(folder);
}

static void its_launched_form_averages(void **state)
{
    trirun_job j;

    (void)state;
    TRIRUN_START(&j, "--nproc_per_node=2", "sh", "-c", "TRI_LOG=plan:info exec \"$0\"",
                 spawn_bin("elastic_ddp"));
    j.run.deadline_ms = DEADLINE_MS;
    assert_int_equal(spawn_wait(&j.run), 0);
    assert_int_equal(trirun_count(SPAWN_ERR(&j.run), " 2 host operations"), 2);
    trirun_end(&j, 0);
}

/* The last output that it prints. */
static double tensor_parallel_on(const char *workers)
{
    double output = 0;
    const char *at;
    spawn s;

    spawn_start(&s,
                (const char *const[]){spawn_bin("trirun"), "--standalone", "--nproc-per-node",
                                      workers, spawn_bin("tensor_parallel_example"), NULL},
                (const char *const[]){"TRI_NUM_THREADS=1", NULL});
    expect_success(&s);
    assert_int_equal(trirun_count(SPAWN_OUT(&s), "Tensor Parallel iter "), 10);
    at = strstr(SPAWN_OUT(&s), "iter 9 completed, output ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "iter 9 completed, output %lf", &output), 1);
    spawn_free(&s);
    return output;
}

static void any_number_of_workers_prints_the_outputs_of_one(void **state)
{
    static const char *const workers[] = {"2", "3", "4"};
    double alone = tensor_parallel_on("1");

    (void)state;
    for (int k = 0; k < 3; k++) {
        double together = tensor_parallel_on(workers[k]);

        if (!(fabs(together - alone) <= 1e-3 * fabs(alone)))
            fail_msg("output %g with one worker, %g with %s", alone, together, workers[k]);
    }
}

/* The help, and what is not understood. */
static void tutorials_say_how_they_are_called(void **state)
{
    static const struct {
        const char *program, *mistake[4];
    } cases[] = {
        {"c10d_calls", {"fast"}},
        {"data_tutorial", {"a", "b"}},
        {"dist_tuto", {"-x"}},
        {"elastic_ddp", {"50"}},
        {"getting_started_ddp", {"50"}},
        {"train_dist", {"5x"}},
        {"train_dist", {"1", "1"}},
        {"train_dist", {"1", "4", "a", "b"}},
        {"multigpu_torchrun", {"50"}},
        {"multigpu_torchrun", {"50", "10", "3"}},
        {"lightning_mnist", {"a", "b"}},
        {"lightning_autoencoder", {"many"}},
        {"tensor_parallel_example", {"4"}},
        {"pipeline_tutorial", {"4"}},
        {"tp_tutorial", {"4"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *program = spawn_bin(cases[i].program), *const *m = cases[i].mistake;
        spawn s;

        spawn_start(&s, (const char *const[]){program, "--help", NULL}, NULL);
        assert_int_equal(spawn_wait(&s), 0);
        assert_string_equal(SPAWN_ERR(&s), "");
        trirun_has(SPAWN_OUT(&s), "usage: ");
        trirun_has(SPAWN_OUT(&s), cases[i].program);
        spawn_free(&s);
        spawn_start(&s, (const char *const[]){program, m[0], m[1], m[2], m[3], NULL}, NULL);
        if (spawn_wait(&s) != 2)
            fail_msg("%s %s: %d: %s", program, m[0], s.status, SPAWN_ERR(&s));
        assert_string_equal(SPAWN_OUT(&s), "");
        trirun_has(SPAWN_ERR(&s), "(--help lists the options)\n");
        trirun_has(SPAWN_ERR(&s), cases[i].program);
        spawn_free(&s);
    }
}

static void its_launched_form_takes_the_flags_of_both_launchers(void **state)
{
    char endpoint[64];
    trirun_job j;

    (void)state;
    snprintf(endpoint, sizeof(endpoint), "--rdzv_endpoint=127.0.0.1:%d", spawn_free_port());
    for (int i = 0; i < 2; i++) {
        if (i == 0) /* torchrun */
            TRIRUN_START(&j, "--nnodes=1", "--nproc_per_node=2", "--rdzv_id=100",
                         "--rdzv_backend=c10d", endpoint, spawn_bin("elastic_ddp"));
        else /* torch.distributed.launch, which hands out --local-rank */
            TRIRUN_START(&j, "--launch-compat", "--nproc_per_node=2", spawn_bin("elastic_ddp"));
        expect_success(&j.run);
        expect_of_ranks(SPAWN_OUT(&j.run), "Start running basic DDP example on rank", 2);
        expect_of_ranks(SPAWN_OUT(&j.run), "Finished running basic DDP example on rank", 2);
        trirun_end(&j, 0);
    }
}

/* Rank 1 is killed after two to six epochs, and all go on from the last snapshot. */
static void training_goes_on_from_a_snapshot(void **state)
{
    char folder[256], script[1024];
    trirun_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(script, sizeof(script),
             "cd '%s' && if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then export "
             "TRI_CHAOS=kill=@200,rank=1; fi; exec '%s' 10 1 --batch_size 32",
             folder, spawn_bin("multigpu_torchrun"));
    TRIRUN_START(&j, "--standalone", "--nproc_per_node=2", "--max_restarts=3", "sh", "-c", script);
    j.run.deadline_ms = DEADLINE_MS;
    assert_int_equal(spawn_wait(&j.run), 0);
    trirun_has(SPAWN_ERR(&j.run), "rank 1 was killed by SIGKILL");
    trirun_has(SPAWN_OUT(&j.run), "[GPU0] Epoch 0 | Batchsize: 32 | Steps: 32\n");
    trirun_has(SPAWN_OUT(&j.run), "Epoch 0 | Training snapshot saved at snapshot\n");
    assert_int_equal(trirun_count(SPAWN_OUT(&j.run), "Loading snapshot\n"), 2);
    assert_int_equal(trirun_count(SPAWN_OUT(&j.run), "Resuming training from snapshot at"), 2);
    assert_int_equal(trirun_count(SPAWN_OUT(&j.run), "[GPU0] Epoch 0 "), 1);
    assert_int_equal(trirun_count(SPAWN_OUT(&j.run), "[GPU1] Epoch 9 "), 1);
    trirun_has(SPAWN_OUT(&j.run), "Epoch 9 | Training snapshot saved at snapshot\n");
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

/* multigpu.py: one program starts the processes. A batch that is larger than a share is the
 * share. */
static void training_starts_its_processes_by_itself(void **state)
{
    char folder[256], script[512];
    spawn s;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(script, sizeof(script), "cd '%s' && exec '%s' --batch_size=5000 2 3 --spawn 2", folder,
             spawn_bin("multigpu_torchrun"));
    spawn_start(&s, (const char *const[]){"sh", "-c", script, NULL}, NULL);
    expect_success(&s);
    for (int rank = 0; rank < 2; rank++) {
        char line[64];

        snprintf(line, sizeof(line), "[GPU%d] Epoch 1 | Batchsize: 1024 | Steps: 1\n", rank);
        assert_int_equal(trirun_count(SPAWN_OUT(&s), line), 1);
    }
    assert_int_equal(trirun_count(SPAWN_OUT(&s), "\n"), 5);
    trirun_has(SPAWN_OUT(&s), "Epoch 0 | Training snapshot saved at snapshot\n");
    spawn_free(&s);
    spawn_remove_folder(folder);
}

/* The processes find each other by the environment, and by a file and an address that are named. */
static void applications_are_distributed_in_three_ways(void **state)
{
    static const char *const lines[] = {
        "Rank 0 started sending\n",        "Rank 1 started receiving\n",
        "Rank  0  has data  tensor(1.)\n", "Rank  1  has data  tensor(1.)\n",
        "Rank  0  has data  tensor(2.)\n", "Rank  1  has data  tensor(2.)\n",
    };
    static const char ring[] = "  has data  tensor([6., 10., 14., 18.]), as tri_all_reduce has\n";
    char folder[256], urls[3][300] = {""};
    spawn refused;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(urls[1], sizeof(urls[1]), "file://%s/sharedfile", folder);
    snprintf(urls[2], sizeof(urls[2]), "tcp://127.0.0.1:%d", spawn_free_port());
    for (int i = 0; i < 3; i++) {
        spawn s;

        spawn_start(
            &s,
            (const char *const[]){spawn_bin("dist_tuto"), *urls[i] != '\0' ? urls[i] : NULL, NULL},
            NULL);
        expect_success(&s);
        for (size_t k = 0; k < sizeof(lines) / sizeof(lines[0]); k++)
            trirun_has(SPAWN_OUT(&s), lines[k]);
        assert_int_equal(trirun_count(SPAWN_OUT(&s), "tensor(1.)"), 4);
        assert_int_equal(trirun_count(SPAWN_OUT(&s), ring), 4);
        spawn_free(&s);
    }
    assert_int_equal(spawn_count_entries(folder), 0); /* the last that leaves takes the file away */
    spawn_start(&refused, (const char *const[]){spawn_bin("dist_tuto"), "nowhere://", NULL}, NULL);
    assert_int_not_equal(spawn_wait(&refused), 0);
    trirun_has(SPAWN_ERR(&refused), "nowhere");
    spawn_free(&refused);
    spawn_remove_folder(folder);
}

/* The lines of a rank, in their order. */
static size_t lines_of(const char *text, int rank, char *lines_out, size_t bytes)
{
    char head[16];
    size_t used = 0, n = (size_t)snprintf(head, sizeof(head), "rank %d: ", rank);

    for (const char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        if (strncmp(text, head, n) != 0)
            continue;
        assert_true(used + (size_t)(end + 1 - text) < bytes);
        memcpy(lines_out + used, text, (size_t)(end + 1 - text));
        used += (size_t)(end + 1 - text);
    }
    lines_out[used] = '\0';
    return used;
}

/* c10d_calls.txt is what the calls of PyTorch leave behind. */
static void every_call_of_c10d_gives_what_pytorchs_gives(void **state)
{
    char wanted[4096], got[4096];
    size_t bytes, total = 0;
    char *golden;
    trirun_job j;

    (void)state;
    golden = scratch_read(golden_path("c10d_calls.txt"), &bytes);
    TRIRUN_START(&j, "--nproc_per_node=3", spawn_bin("c10d_calls"));
    expect_success(&j.run);
    for (int rank = 0; rank < 3; rank++) {
        total += lines_of(golden, rank, wanted, sizeof(wanted));
        lines_of(SPAWN_OUT(&j.run), rank, got, sizeof(got));
        assert_string_equal(got, wanted);
    }
    assert_true(total > 1000);
    assert_int_equal(total, strlen(SPAWN_OUT(&j.run)));
    free(golden);
    trirun_end(&j, 0);
}

/* The epoch's mean loss on a rank. */
static double loss_of(const char *out, int rank, int epoch)
{
    char head[64];
    const char *line;

    snprintf(head, sizeof(head), "Rank  %d , epoch  %d :  ", rank, epoch);
    line = strstr(out, head);
    if (line == NULL)
        fail_msg("no \"%s\" in:\n%s", head, out);
    return strtod(line + strlen(head), NULL);
}

/* Replicas begin alike and see different samples: without the average they would differ. With a
 * sum in its place, without updates or with the same samples the losses are 0.003 away. */
static void gradients_are_averaged_by_hand(void **state)
{
    static const double reached[2] = {2.29792, 2.29884};
    const char *const argv[] = {spawn_bin("train_dist"), "2", "512", NULL};
    char parameters[2][32];
    spawn s;

    (void)state;
    spawn_start(&s, argv, NULL);
    expect_success(&s);
    for (int rank = 0; rank < 2; rank++) {
        double first = loss_of(SPAWN_OUT(&s), rank, 0), last = loss_of(SPAWN_OUT(&s), rank, 1);
        const char *line = SPAWN_OUT(&s);
        char head[40];

        assert_true(first < 2.4 && last < first);
        CHECK_NEAR(last, reached[rank], 1e-3);
        snprintf(head, sizeof(head), "Rank  %d , parameters  ", rank);
        line = strstr(line, head);
        assert_non_null(line);
        assert_int_equal(sscanf(line + strlen(head), "%31s", parameters[rank]), 1);
    }
    assert_string_equal(parameters[0], parameters[1]);
    spawn_free(&s);
}

static void datasets_are_loaded_by_workers_in_pytorchs_order(void **state)
{
    static const char *const lines[] = {
        "5 files: Ankle Boot T-Shirt T-Shirt Dress T-Shirt\n",
        "Feature batch shape: [64, 1, 28, 28]\nLabels batch shape: [64]\n", "\nLabel: 9\n",
        "num_workers=2 gives the same 16 of 16 batches\n",
        /* as torch 2.13 prints them */
        "RandomSampler, epoch 0: [4, 0, 1, 3, 2]\nRandomSampler, epoch 1: [0, 4, 2, 3, 1]\n",
        "WeightedRandomSampler, epoch 0: [5, 4, 4, 5, 4, 4]\n"
        "WeightedRandomSampler, epoch 1: [1, 2, 2, 2, 4, 1]\n",
        "DistributedSampler, rank 0, epoch 0: [10, 4, 5, 2, 9, 6]\n"
        "DistributedSampler, rank 0, epoch 1: [0, 2, 7, 4, 1, 5]\n"
        "DistributedSampler, rank 1, epoch 0: [0, 3, 8, 1, 7, 10]\n"
        "DistributedSampler, rank 1, epoch 1: [10, 3, 6, 8, 9, 0]\n"};
    char folder[256], tmpdir[300];
    const char *const env[] = {tmpdir, NULL};
    spawn s;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(tmpdir, sizeof(tmpdir), "TMPDIR=%s", folder);
    spawn_start(&s, (const char *const[]){spawn_bin("data_tutorial"), NULL}, env);
    expect_success(&s);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        trirun_has(SPAWN_OUT(&s), lines[i]);
    assert_int_equal(spawn_count_entries(folder), 0);
    spawn_free(&s);
    spawn_remove_folder(folder);
}

/* The program with an argument, in a folder where its runs go; it says what it trains on stderr. */
static void run_in(const char *folder, const char *program, const char *argument, spawn *s)
{
    char script[512];

    snprintf(script, sizeof(script), "cd '%s' && TRI_NUM_THREADS=1 exec '%s' %s", folder,
             spawn_bin(program), argument);
    spawn_start(s, (const char *const[]){"sh", "-c", script, NULL}, NULL);
    s->deadline_ms = DEADLINE_MS;
    if (spawn_wait(s) != 0)
        fail_msg("%s\n%s%s", script, SPAWN_OUT(s), SPAWN_ERR(s));
    spawn_expect_no_process(s);
}

/* Two workers that the program starts, and two of trirun: the same numbers. */
static void lightning_trains_an_autoencoder(void **state)
{
    char folder[256], script[512];
    spawn s;
    trirun_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    run_in(folder, "lightning_autoencoder", "2", &s);
    trirun_has(SPAWN_OUT(&s), "100 steps, train_loss 0.0");
    snprintf(script, sizeof(script), "cd '%s' && exec '%s'", folder,
             spawn_bin("lightning_autoencoder"));
    TRIRUN_START(&j, "--standalone", "--nproc_per_node=2", "sh", "-c", script);
    j.run.deadline_ms = DEADLINE_MS;
    assert_int_equal(spawn_wait(&j.run), 0);
    trirun_has(SPAWN_OUT(&j.run), SPAWN_OUT(&s));
    trirun_end(&j, 0);
    spawn_free(&s);
    spawn_remove_folder(folder);
}

static void lightning_trains_mnist_and_goes_on(void **state)
{
    char folder[256], runs[300];
    spawn s;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    run_in(folder, "lightning_mnist", "", &s);
    assert_int_equal(strncmp(SPAWN_OUT(&s), "Training is starting\nTraining is ending\n", 40), 0);
    trirun_has(SPAWN_OUT(&s), "test_acc 0.8");
    spawn_free(&s);
    run_in(folder, "lightning_mnist", "last", &s); /* which was complete */
    trirun_has(SPAWN_OUT(&s), "test_acc 0.8");
    snprintf(runs, sizeof(runs), "%s/runs", folder);
    assert_int_equal(spawn_count_entries(runs), 1);
    spawn_free(&s);
    spawn_remove_folder(folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(getting_started_runs_its_three_demos),
    cmocka_unit_test(getting_started_loads_and_averages),
    cmocka_unit_test(getting_started_keeps_to_its_own_file),
    cmocka_unit_test(its_launched_form_averages),
    cmocka_unit_test(any_number_of_workers_prints_the_outputs_of_one),
    cmocka_unit_test(tutorials_say_how_they_are_called),
    cmocka_unit_test(its_launched_form_takes_the_flags_of_both_launchers),
    cmocka_unit_test(training_goes_on_from_a_snapshot),
    cmocka_unit_test(training_starts_its_processes_by_itself),
    cmocka_unit_test(applications_are_distributed_in_three_ways),
    cmocka_unit_test(gradients_are_averaged_by_hand),
    cmocka_unit_test(every_call_of_c10d_gives_what_pytorchs_gives),
    cmocka_unit_test(datasets_are_loaded_by_workers_in_pytorchs_order),
    cmocka_unit_test(lightning_trains_an_autoencoder),
    cmocka_unit_test(lightning_trains_mnist_and_goes_on),
};

TEST_MAIN(tests)
