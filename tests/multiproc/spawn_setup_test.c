/*
 * spawn_setup_test.c - workers of tri_spawn and trirun that name the place where they meet, as
 * setup() of each PyTorch tutorial does:
 *
 *     os.environ['MASTER_ADDR'] = 'localhost'
 *     os.environ['MASTER_PORT'] = '12355'
 *     dist.init_process_group("gloo", rank=rank, world_size=world_size)
 *
 * This program is also the worker: with arguments it runs a scene.
 */
#include <stdlib.h>
#include <unistd.h>

#include <trireme/comm.h>

#include "testing/launcher_job.h"

static tri_status join_and_sum(const tri_init_options *options)
{
    int ranks = 0;
    float x = 1;
    tri_status status = tri_init(options);

    if (status == TRI_OK)
        status = tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    ranks = tri_world_size();
    if (status == TRI_OK && (int)x != ranks)
        status = TRI_ERR_INTERNAL;
    if (status == TRI_OK)
        printf("rank %d of %d summed\n", tri_rank(), ranks);
    tri_finalize();
    return status;
}

static tri_status setup_and_sum(const char *host, const char *port)
{
    setenv("MASTER_ADDR", host, 1);
    if (port != NULL)
        setenv("MASTER_PORT", port, 1);
    return join_and_sum(NULL);
}

/* arg: the port; NULL = that of the parent, by chance. */
static tri_status worker(int rank, void *arg)
{
    (void)rank;
    return setup_and_sum("localhost", arg);
}

/* SCENE: "spawn HOW PORT N", or "setup PORT". PORT "-": it is left alone. */
static int scene(int argc, char **argv)
{
    char *port = strcmp(argv[argc > 3 ? 3 : 2], "-") != 0 ? argv[argc > 3 ? 3 : 2] : NULL;
    tri_status status;

    if (argc > 3)
        status =
            tri_spawn(worker, port, (int)strtol(argv[4], NULL, 10),
                      &(tri_spawn_options){.how = strcmp(argv[2], "anew") == 0 ? TRI_SPAWN_ANEW
                                                                               : TRI_SPAWN_COPY});
    else
        status = setup_and_sum("localhost", port);
    if (status != TRI_OK)
        fprintf(stderr, "%s: %s\n", tri_status_name(status), tri_last_error());
    return status != TRI_OK;
}

static const char *self(void)
{
    static char path[4096];

    assert_true(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
    return path;
}

static const char *free_port(void)
{
    static char text[16];

    snprintf(text, sizeof(text), "%d", spawn_free_port());
    return text;
}

static void check_sums(const spawn *s, int n)
{
    assert_string_equal(SPAWN_ERR(s), "");
    for (int rank = 0; rank < n; rank++) {
        char line[48];

        snprintf(line, sizeof(line), "rank %d of %d summed\n", rank, n);
        assert_has(SPAWN_OUT(s), line);
    }
}

/* A slow machine makes ranks say that they wait for each other. */
static const char quiet[] = "TRI_LOG=error";

static void check_spawned_with(const char *how, const char *port, int n, const char *variable)
{
    char size[8];
    const char *argv[] = {self(), "spawn", how, port, size, NULL};
    const char *env[] = {"RANK",        "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                         "TRI_RUN_DIR", quiet,        variable,      NULL};
    spawn s;

    snprintf(size, sizeof(size), "%d", n);
    spawn_start(&s, argv, env);
    spawn_wait(&s);
    check_sums(&s, n);
    assert_int_equal(s.status, 0);
    spawn_expect_no_process(&s);
    spawn_free(&s);
}

static void check_spawned(const char *how, const char *port, int n)
{
    check_spawned_with(how, port, n, NULL);
}

static void workers_of_tri_spawn_meet_where_their_setup_says(void **state)
{
    static const int sizes[] = {1, 2, 3, 4};

    (void)state;
    for (int i = 0; i < 4; i++) {
        check_spawned("copy", free_port(), sizes[i]);
        check_spawned("anew", free_port(), sizes[i]);
    }
    check_spawned("copy", "-", 3); /* the parent's, which serves it as 127.0.0.1 */
    check_spawned("anew", "-", 3);
}

/* The launcher above has long names for its folders. */
static void workers_of_tri_spawn_meet_where_an_error_file_has_a_long_name(void **state)
{
    char variable[4000];

    (void)state;
    snprintf(variable, sizeof(variable), "TORCHELASTIC_ERROR_FILE=/%03900d", 0);
    check_spawned_with("copy", free_port(), 2, variable);
    check_spawned_with("anew", free_port(), 2, variable);
}

static void workers_of_trirun_meet_where_their_setup_says(void **state)
{
    static const char *const counts[] = {"--nproc-per-node=1", "--nproc-per-node=2",
                                         "--nproc-per-node=4"};
    static const int sizes[] = {1, 2, 4};
    launcher_job j;

    (void)state;
    for (int i = 0; i < 3; i++) {
        TRIRUN_ENV(&j, quiet, counts[i], self(), "setup", free_port());
        spawn_wait(&j.trirun);
        check_sums(&j.trirun, sizes[i]);
        assert_int_equal(j.trirun.status, 0);
        trirun_end(&j, 0);
    }
    TRIRUN_ENV(&j, quiet, "--nproc-per-node=3", self(), "setup", "-");
    spawn_wait(&j.trirun);
    check_sums(&j.trirun, 3);
    trirun_end(&j, 0);
}

/* Another program has the port: all hear it at once. */
static void a_place_that_is_taken_is_an_error_at_once(void **state)
{
    const tri_store_tcp_options serve = {.serve = true};
    char port[16];
    const char *argv[] = {self(), "spawn", "copy", port, "3", NULL};
    const char *env[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TRI_RUN_DIR", NULL};
    tri_store *other = NULL;
    spawn s;

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &serve, &other));
    snprintf(port, sizeof(port), "%d", tri_store_port(other));
    spawn_start(&s, argv, env);
    assert_int_equal(spawn_wait(&s), 1);
    assert_has(SPAWN_ERR(&s), "rank 0: ");
    assert_has(SPAWN_ERR(&s), "choose a free port");
    spawn_expect_no_process(&s);
    spawn_free(&s);
    tri_store_unref(other);
}

/* arg: a URL, or "store:PORT", or "env" (MASTER_ADDR and MASTER_PORT). The ranks are given in
 * reverse order. Each joins twice, since programs leave a world and join again. */
static tri_status gives_rank_and_size(int rank, void *arg)
{
    const tri_store_tcp_options options = {.serve = rank == 2};
    tri_init_options init = {.rank = 2 - rank, .world_size = 3};
    const char *where = arg;
    tri_status status = TRI_OK;

    if (strncmp(where, "store:", 6) == 0)
        status =
            tri_store_tcp("127.0.0.1", (int)strtol(where + 6, NULL, 10), &options, &init.store);
    else if (strcmp(where, "env") != 0)
        init.url = where;
    for (int i = 0; i < 2 && status == TRI_OK; i++)
        status = join_and_sum(&init);
    tri_store_unref(init.store);
    return status;
}

static void programs_give_rank_and_size_and_a_place_or_a_store(void **state)
{
    char folder[200], file[300], url[60], store[40];
    char *const places[] = {url, store, file, (char[]){"env"}};

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(file, sizeof(file), "file://%s/world", folder);
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%s", free_port());
    snprintf(store, sizeof(store), "store:%s", free_port());
    for (int i = 0; i < 4; i++)
        CHECK_OK(tri_spawn(gives_rank_and_size, places[i], 3, NULL));
    spawn_remove_folder(folder);
}

/* torchrun does not say where its agent serves. */
static void below_another_launcher_the_error_names_what_is_in_the_way(void **state)
{
    const tri_init_options options = {.group.timeout_ms = 100};

    (void)state;
    clearenv();
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "localhost", 1);
    setenv("MASTER_PORT", free_port(), 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    CHECK_FAILS(tri_init(&options), TRI_ERR_TIMEOUT,
                "TORCHELASTIC_USE_AGENT_STORE=True says that the launcher serves there; if this "
                "program has set MASTER_ADDR or MASTER_PORT, take it out of the environment, too");
}

static void options_that_contradict_each_other_are_refused(void **state)
{
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_FAILS(tri_init(&(tri_init_options){.store = store}), TRI_ERR_INVALID_ARG,
                "a store is given, and no world_size");
    CHECK_FAILS(tri_init(&(tri_init_options){.store = store, .world_size = 1, .url = "env://"}),
                TRI_ERR_INVALID_ARG, "url and store both say where the ranks meet");
    CHECK_FAILS(tri_init(&(tri_init_options){.rank = 1, .world_size = 1}), TRI_ERR_INVALID_ARG,
                "rank 1 is out of range (world_size 1)");
    tri_store_unref(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(programs_give_rank_and_size_and_a_place_or_a_store),
    cmocka_unit_test(below_another_launcher_the_error_names_what_is_in_the_way),
    cmocka_unit_test(options_that_contradict_each_other_are_refused),
    cmocka_unit_test(workers_of_tri_spawn_meet_where_their_setup_says),
    cmocka_unit_test(workers_of_tri_spawn_meet_where_an_error_file_has_a_long_name),
    cmocka_unit_test(workers_of_trirun_meet_where_their_setup_says),
    cmocka_unit_test(a_place_that_is_taken_is_an_error_at_once),
};

int main(int argc, char **argv)
{
    if (argc > 2 && (strcmp(argv[1], "spawn") == 0 || strcmp(argv[1], "setup") == 0))
        return scene(argc, argv);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
