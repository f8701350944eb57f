/*
 * launcher_options_test.c - flags of torchrun and torch.distributed.launch that change how a
 * worker is run.
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "os/cpu.h"
#include "testing/launcher_job.h"

/* A python3 that shows how it was called. */
static void fake_python(const char *folder, char *variable, size_t bytes)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/python", folder);
    write_text(path, "#!/bin/sh\nprintf '<%s>' \"$@\"\necho\n", 0755);
    snprintf(variable, bytes, "PYTHON_EXEC=%s", path);
}

static void local_rank_becomes_an_argument_where_launch_gave_it(void **state)
{
    char folder[256], variable[320], script[300], expected[400];
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    fake_python(folder, variable, sizeof(variable));
    snprintf(script, sizeof(script), "%s/train.py", folder);
    write_text(script, "", 0644);
    TRIRUN_ENV(&j, variable, "--launch-compat", "--nproc_per_node=1", script, "--lr", "1");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    snprintf(expected, sizeof(expected), "<-u><%s><--local-rank=0><--lr><1>\n", script);
    assert_string_equal(SPAWN_OUT(&j.trirun), expected);
    trirun_end(&j, 0);
    trirun_start_by(&j,
                    (const char *const[]){spawn_bin("trirun-launch"), script, "--lr", "1", NULL},
                    (const char *const[]){variable, NULL});
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), expected);
    trirun_end(&j, 0);
    TRIRUN_ENV(&j, variable, "--launch-compat", "--use_env", script, "--lr", "1");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    snprintf(expected, sizeof(expected), "<-u><%s><--lr><1>\n", script);
    assert_string_equal(SPAWN_OUT(&j.trirun), expected);
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

static void what_only_python_can_run_is_run_by_python(void **state)
{
    static const struct {
        const char *name, *text;
        unsigned mode;
        const char *flag, *expected; /* %s is the path */
    } cases[] = {
        {"train.py", "", 0755, NULL, "<-u><%s><x>\n"},
        {"train", "print(1)\n", 0644, NULL, "<-u><%s><x>\n"},
        {"bare", "print(1)\n", 0755, NULL,
         "<-u><%s><x>\n"}, /* executable, but not for the kernel */
        {"empty", "", 0755, NULL, "<-u><%s><x>\n"},
        {"script", "#!/bin/sh\necho own\n", 0755, NULL, "own\n"},
        {"no.py", "#!/bin/sh\necho own\n", 0755, "--no-python", "own\n"},
        {"path.py", "", 0644, "--run-path",
         "<-u><-c><import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], "
         "run_name='__main__')><%s><x>\n"},
        {"some.module", "", 0644, "-m", "<-u><-m><%s><x>\n"},
    };
    char folder[256], variable[320], path[300], expected[600];

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    fake_python(folder, variable, sizeof(variable));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        launcher_job j;
        const char *args[4] = {path, "x", NULL, NULL};

        snprintf(path, sizeof(path), "%s/%s", folder, cases[i].name);
        write_text(path, cases[i].text, cases[i].mode);
        if (cases[i].flag != NULL) {
            args[0] = cases[i].flag;
            args[1] = path;
            args[2] = "x";
        }
        trirun_start(&j, args, (const char *const[]){variable, NULL});
        assert_int_equal(spawn_wait(&j.trirun), 0);
        snprintf(expected, sizeof(expected), "%s", "");
        for (const char *at = cases[i].expected; *at != '\0'; at++) {
            size_t used = strlen(expected);

            if (at[0] == '%' && at[1] == 's')
                snprintf(expected + used, sizeof(expected) - used, "%s", path);
            else
                snprintf(expected + used, sizeof(expected) - used, "%c", *at);
            at += at[0] == '%';
        }
        assert_string_equal(SPAWN_OUT(&j.trirun), expected);
        trirun_end(&j, 0);
    }
    spawn_remove_folder(folder);
}

/* trirun raises its own limit of descriptors as far as it may; workers have what was given. */
static void workers_keep_the_limit_of_descriptors(void **state)
{
    struct rlimit before, few;
    launcher_job j;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = 200, .rlim_max = before.rlim_max};
    assert_true(before.rlim_max > 200);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    TRIRUN(&j, "--nproc-per-node=1", "sh", "-c",
           "echo worker $(ulimit -Sn), trirun $(grep 'open files' /proc/$PPID/limits)");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), "worker 200, trirun ");
    assert_null(strstr(SPAWN_OUT(&j.trirun), "files 200 ")); /* the shell joins blanks */
    trirun_end(&j, 0);
}

static void each_worker_sees_one_gpu_with_a_virtual_rank(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN_ENV(&j, "CUDA_VISIBLE_DEVICES=4,6", "--nproc-per-node=2", "--virtual-local-rank", "sh",
               "-c", "echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES ${local_rank}");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), "0 0 4 0\n");
    assert_has(SPAWN_OUT(&j.trirun), "1 0 6 1\n");
    trirun_end(&j, 0);
    TRIRUN_ENV(&j, "CUDA_VISIBLE_DEVICES=3, 7 ,GPU-a", "--nproc-per-node=3", "--virtual-local-rank",
               "sh", "-c", "echo \"$RANK=$CUDA_VISIBLE_DEVICES.\"");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun), "0=3.\n");
    assert_has(SPAWN_OUT(&j.trirun), "1=7.\n");
    assert_has(SPAWN_OUT(&j.trirun), "2=GPU-a.\n");
    trirun_end(&j, 0);
    /* no GPU at all: not the first one */
    TRIRUN_ENV(&j, "CUDA_VISIBLE_DEVICES=", "--virtual-local-rank", "sh", "-c",
               "echo \"$CUDA_VISIBLE_DEVICES.\"");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), ".\n");
    trirun_end(&j, 0);
    TRIRUN_ENV(&j, "CUDA_VISIBLE_DEVICES=0,1", "--nproc-per-node=3", "--virtual-local-rank",
               "true");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "has no GPU for local rank 2");
    trirun_end(&j, 0);
}

/* 64 names and numbers, and then one more, which must not be lost. */
static void all_signals_of_a_long_list_are_handled(void **state)
{
    char list[600] = "--signals-to-handle=SIGTERM";
    size_t used = strlen(list);
    launcher_job j;

    (void)state;
    for (int i = 0; i < 73; i++)
        used +=
            (size_t)snprintf(list + used, sizeof(list) - used, ",%d", i < 60 ? 2 + i % 2 : i - 25);
    snprintf(list + used, sizeof(list) - used, ",SIGUSR2");
    TRIRUN(&j, list, "sh", "-c", "echo ready; exec sleep 1000");
    spawn_expect(&j.trirun, "ready");
    spawn_signal(&j.trirun, SIGUSR2);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "trirun: received SIGUSR2: stopping 1 worker");
    trirun_end(&j, 0);
}

/* As under torchrun: 0, 1, 2; and 3, which `ls` itself opens to look. */
static void a_worker_gets_no_descriptors_but_the_standard_ones(void **state)
{
    static const char *const words =
        "exec \"$0\" --nproc-per-node=2 --events=\"$1\" --log-dir=\"$1.d\" --tee=3 "
        "--metrics=\"$1.m\" ls /proc/self/fd 3</dev/null 5>/dev/null 9</dev/null";
    char folder[256], events[300];
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(events, sizeof(events), "%s/events", folder);
    trirun_start_by(&j, (const char *const[]){"sh", "-c", words, spawn_bin("trirun"), events, NULL},
                    NULL);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    for (int fd = 0; fd < 50; fd++) {
        for (int rank = 0; rank < 2; rank++) {
            char line[40];

            snprintf(line, sizeof(line), "[default%d]:%d\n", rank, fd);
            assert_int_equal(count_in(SPAWN_OUT(&j.trirun), line), fd <= 3);
        }
    }
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

static void workers_are_bound_to_cores_of_their_own(void **state)
{
    launcher_job j;
    const char *first, *second;
    trii_cpu_set allowed;
    bool differ;

    (void)state;
    trii_cpu_allowed(&allowed); /* the machine may have more */
    TRIRUN(&j, "--nproc-per-node=2", "--numa-binding=exclusive", "sh", "-c",
           "echo worker $RANK on $(grep Cpus_allowed_list /proc/self/status)");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    first = strstr(SPAWN_OUT(&j.trirun), "worker 0 on ");
    second = strstr(SPAWN_OUT(&j.trirun), "worker 1 on ");
    assert_non_null(first);
    assert_non_null(second);
    differ = strncmp(first + 12, second + 12, strcspn(first + 12, "\n") + 1) != 0;
    assert_int_equal(differ, trii_cpu_set_count(&allowed) > 1); /* each has its half */
    trirun_end(&j, 0);
}

static void mpiruns_habits_and_a_forgotten_folder_get_a_hint(void **state)
{
    static const struct {
        const char *args[4], *hint;
        int status;
    } cases[] = {
        {{"-np", "2", "true"}, "--nproc-per-node N", 2},
        {{"-n", "2", "true"}, "--nproc-per-node N", 2},
        {{"train_here"}, "did you mean ./train_here", 1},
        {{"average.c"}, "average.c is C source, not a program; did you mean ./average", 2},
        {{"examples"}, "examples is a folder, not a program", 2},
        {{"./pipe"}, "cannot run ./pipe: it is not a regular file", 1},
        {{"job.sh"}, "cannot run ./job.sh: it is not executable; chmod +x ./job.sh, or run sh", 1},
        {{"--no-python", "./text"}, "./text: it is not executable; chmod +x ./text\n", 1},
        {{"--signals-to-handle=SIGFOO", "true"}, "SIGFOO; allowed are numbers and SIGHUP", 1},
    };
    char folder[256], path[300], *old = getcwd(NULL, 0);

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/train_here", folder);
    write_text(path, "#!/bin/sh\n", 0755);
    snprintf(path, sizeof(path), "%s/average.c", folder);
    write_text(path, "int main(void) {}\n", 0644);
    snprintf(path, sizeof(path), "%s/job.sh", folder);
    write_text(path, "echo not for Python\n", 0644);
    snprintf(path, sizeof(path), "%s/text", folder);
    write_text(path, "", 0644);
    snprintf(path, sizeof(path), "%s/examples", folder);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof(path), "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0644), 0);
    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        launcher_job j;

        trirun_start(&j, cases[i].args, NULL);
        assert_int_equal(spawn_wait(&j.trirun), cases[i].status);
        assert_has(SPAWN_ERR(&j.trirun), cases[i].hint);
        trirun_end(&j, 0);
    }
    assert_int_equal(chdir(old), 0);
    free(old);
    spawn_remove_folder(folder);
}

static void options_behind_the_program_are_hinted_at(void **state)
{
    static const struct {
        const char *args[6];
        const char *line; /* NULL: nothing is said */
    } cases[] = {
        {{"true", "x", "--nproc-per-node", "2"},
         "trirun: --nproc-per-node 2 comes after true and is passed to it as an argument: options "
         "of "
         "trirun come first, as in trirun --nproc-per-node 2 true (if it is meant for true: trirun "
         "-- true)\n"},
        {{"true", "--lr", "1", "--nproc_per-node=2", "--nnodes=1"},
         "as in trirun --nproc_per-node=2 true"},
        {{"true", "--max_restarts"}, "trirun: --max_restarts comes after true"},
        {{"true", "--rdzv-id", "--x"}, "trirun: --rdzv-id comes after true"},
        /* what programs have as well, or was given to both, or comes after -- */
        {{"true", "--log-dir", "x", "--role", "y"}, NULL},
        {{"true", "-m", "-r", "--help", "--tee"}, NULL},
        {{"true", "--nproc", "--nnodes-max", "nnodes", "-nnodes"}, NULL},
        {{"--nnodes", "1", "true", "--nnodes", "1"}, NULL},
        {{"--", "true", "--nnodes", "1"}, NULL},
        {{"true", "--", "--nnodes", "1"}, NULL},
        {{"true", "torchrun", "--nnodes", "1"}, NULL},
        {{"true", "-m", "torch.distributed.run", "--nnodes=1"}, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const *args = cases[i].args;
        launcher_job j;

        TRIRUN(&j, args[0], args[1], args[2], args[3], args[4], args[5]);
        assert_int_equal(spawn_wait(&j.trirun), 0);
        if (cases[i].line != NULL)
            assert_has(SPAWN_ERR(&j.trirun), cases[i].line);
        assert_int_equal(count_in(SPAWN_ERR(&j.trirun), "\n"), cases[i].line != NULL);
        trirun_end(&j, 0);
    }
}

/* trirun is installed, and `./run train` builds few of the programs. */
static void the_help_names_no_program_of_the_build_folder(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--help");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_OUT(&j.trirun),
               "Examples:\n  trirun --standalone --nproc-per-node 2 ./train\n");
    assert_null(strstr(SPAWN_OUT(&j.trirun), "build/"));
    trirun_end(&j, 0);
}

static void a_node_rank_without_an_address_is_warned_of(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--nnodes=1", "--node-rank=3", "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_ERR(&j.trirun),
                        "trirun: --node-rank 3 is ignored: without an address this is a job of one "
                        "host; for N hosts give all of them --nnodes N and --master-addr\n");
    trirun_end(&j, 0);
    TRIRUN(&j, "--nnodes=1", "--node-rank=0", "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_ERR(&j.trirun), "");
    trirun_end(&j, 0);
}

/* However they are spelled; before anything runs. */
static void outputs_that_are_one_file_are_refused(void **state)
{
    char folder[256], events[300], metrics[320], error[340];
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(events, sizeof(events), "--events=%s/out", folder);
    snprintf(metrics, sizeof(metrics), "--metrics=%s/../%s/out", folder, strrchr(folder, '/') + 1);
    for (int round = 0; round < 2; round++) { /* the file is not there; is there, through a link */
        TRIRUN(&j, events, metrics, "echo", "ran");
        assert_int_equal(spawn_wait(&j.trirun), 1);
        assert_has(SPAWN_ERR(&j.trirun), "trirun: --events and --metrics both name ");
        assert_has(SPAWN_ERR(&j.trirun), ": use two files\n");
        assert_has_not(SPAWN_OUT(&j.trirun), "ran");
        trirun_end(&j, 0);
        assert_int_equal(spawn_count_entries(folder), round == 0 ? 0 : 2);
        snprintf(error, sizeof(error), "%s/out", folder);
        write_text(error, "kept\n", 0600);
        snprintf(error, sizeof(error), "%s/link", folder);
        assert_int_equal(round == 0 ? symlink("out", error) : 0, 0);
        snprintf(metrics, sizeof(metrics), "--metrics=%s/link", folder);
    }
    snprintf(error, sizeof(error), "TORCHELASTIC_ERROR_FILE=%s/out", folder);
    TRIRUN_ENV(&j, error, metrics, "true");
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "--metrics and TORCHELASTIC_ERROR_FILE both name ");
    trirun_end(&j, 0);
    spawn_remove_folder(folder);
}

/* A link is as good as the name that it leads to, though nothing is there yet. */
static void outputs_behind_links_to_nothing_are_one_file_too(void **state)
{
    const char *const cases[][2] = {{"link", "out"}, {"out", "link"}, {"link", "far"}};
    char folder[256], link[300], target[300], events[320], metrics[320];
    launcher_job j;

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(link, sizeof(link), "%s/link", folder);
    assert_int_equal(symlink("out", link), 0);
    snprintf(link, sizeof(link), "%s/far", folder);
    snprintf(target, sizeof(target), "%s/./link", folder);
    assert_int_equal(symlink(target, link), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(events, sizeof(events), "--events=%s/%s", folder, cases[i][0]);
        snprintf(metrics, sizeof(metrics), "--metrics=%s/%s", folder, cases[i][1]);
        TRIRUN(&j, events, metrics, "echo", "ran");
        assert_int_equal(spawn_wait(&j.trirun), 1);
        assert_has(SPAWN_ERR(&j.trirun), "trirun: --events and --metrics both name ");
        assert_has_not(SPAWN_OUT(&j.trirun), "ran");
        trirun_end(&j, 0);
        assert_int_equal(spawn_count_entries(folder), 2);
    }
    spawn_remove_folder(folder);
}

/* The limit, the need and the remedy, before any worker runs. */
static void too_few_descriptors_for_the_workers_are_told(void **state)
{
    const char *const argv[] = {"sh",
                                "-c",
                                "ulimit -n 256; exec \"$@\"",
                                "sh",
                                spawn_bin("trirun"),
                                "--nproc-per-node=200",
                                "sh",
                                "-c",
                                "echo ran",
                                NULL};
    int need = 0, limit = 0, advice = 0;
    launcher_job j;

    (void)state;
    trirun_start_by(&j, argv, NULL);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_int_equal(sscanf(SPAWN_ERR(&j.trirun),
                            "trirun: an agent of 200 workers needs %d descriptors and this process "
                            "may have %d: raise the limit (ulimit -n %d, ",
                            &need, &limit, &advice),
                     3);
    assert_int_equal(limit, 256);
    assert_in_range(need, 800, 1000);
    assert_int_equal(advice, need);
    assert_string_equal(SPAWN_OUT(&j.trirun), "");
    trirun_end(&j, 0);
}

/* torchrun strips the names, and warns of a list without any. */
static void blanks_in_the_list_of_signals_are_no_part_of_a_name(void **state)
{
    launcher_job j;

    (void)state;
    TRIRUN(&j, "--signals-to-handle", " SIGTERM,\tSIGUSR2 , SIGINT", "sh", "-c",
           "echo ready; exec sleep 1000");
    spawn_expect(&j.trirun, "ready");
    spawn_signal(&j.trirun, SIGUSR2);
    assert_int_equal(spawn_wait(&j.trirun), 1);
    assert_has(SPAWN_ERR(&j.trirun), "trirun: received SIGUSR2: stopping 1 worker");
    trirun_end(&j, 0);
    TRIRUN_ENV(&j, "PET_SIGNALS_TO_HANDLE=SIGTERM , SIGINT", "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_ERR(&j.trirun), "");
    trirun_end(&j, 0);
    TRIRUN(&j, "--signals-to-handle=", "true");
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_has(SPAWN_ERR(&j.trirun), "trirun: --signals-to-handle is empty: ");
    trirun_end(&j, 0);
}

static void a_program_on_standard_input_is_run_by_python(void **state)
{
    const char *const argv[] = {
        "sh", "-c", "echo 'import sys; print(\"read\", sys.argv[1:])' | \"$0\" - --lr 1",
        spawn_bin("trirun"), NULL};
    launcher_job j;

    (void)state;
    trirun_start_by(&j, argv, NULL);
    assert_int_equal(spawn_wait(&j.trirun), 0);
    assert_string_equal(SPAWN_OUT(&j.trirun), "read ['--lr', '1']\n");
    trirun_end(&j, 0);
}

/* exec says that the script itself is not there. */
static void a_missing_interpreter_is_named(void **state)
{
    static const char *const cases[][2] = {
        {"#!/no/such -e\necho\n", "/no/such\n"},
        {"#!/bin/sh\r\necho\r\n", "/bin/sh\\r (its lines end in \\r\\n, as on Windows)\n"}};
    char folder[256], path[300], expected[500];

    (void)state;
    spawn_make_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/run.sh", folder);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        launcher_job j;

        write_text(path, cases[i][0], 0755);
        TRIRUN(&j, path);
        assert_int_equal(spawn_wait(&j.trirun), 1);
        snprintf(expected, sizeof(expected),
                 "cannot start %s: it is there, but what runs it is not: %s", path, cases[i][1]);
        assert_has(SPAWN_ERR(&j.trirun), expected);
        trirun_end(&j, 0);
    }
    spawn_remove_folder(folder);
}

static void a_file_that_cannot_be_written_ends_the_job_before_it_begins(void **state)
{
    static const struct {
        const char *flag, *says;
    } cases[] = {
        {"--metrics=/no/x", "trirun: --metrics /no/x: create /no/x: No such file or directory\n"},
        {"--metrics=/etc/passwd/x", "trirun: --metrics /etc/passwd/x: "},
        {"--metrics=/", "--metrics /: write /: not a file, and only files are replaced\n"},
        {"--metrics=9400", "--metrics 9400: a port is :9400, a file of that name ./9400\n"},
        {"--metrics=[::1:1", "--metrics [::1:1: an IPv6 endpoint is [ADDRESS]:PORT\n"},
        {"--metrics=::1", "--metrics ::1: an IPv6 address is written in brackets"},
        {"--events=/no/x", "trirun: --events: open /no/x: No such file or directory\n"},
        {"--log-dir=/etc/passwd/x",
         "--log-dir /etc/passwd/x: cannot be made (name a folder that you may write to): "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        launcher_job j;

        TRIRUN(&j, cases[i].flag, "echo", "ran");
        assert_int_equal(spawn_wait(&j.trirun), 1);
        assert_string_equal(SPAWN_OUT(&j.trirun), "");
        assert_has(SPAWN_ERR(&j.trirun), cases[i].says);
        trirun_end(&j, 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(options_behind_the_program_are_hinted_at),
    cmocka_unit_test(too_few_descriptors_for_the_workers_are_told),
    cmocka_unit_test(the_help_names_no_program_of_the_build_folder),
    cmocka_unit_test(a_node_rank_without_an_address_is_warned_of),
    cmocka_unit_test(outputs_that_are_one_file_are_refused),
    cmocka_unit_test(outputs_behind_links_to_nothing_are_one_file_too),
    cmocka_unit_test(local_rank_becomes_an_argument_where_launch_gave_it),
    cmocka_unit_test(what_only_python_can_run_is_run_by_python),
    cmocka_unit_test(workers_keep_the_limit_of_descriptors),
    cmocka_unit_test(each_worker_sees_one_gpu_with_a_virtual_rank),
    cmocka_unit_test(all_signals_of_a_long_list_are_handled),
    cmocka_unit_test(a_worker_gets_no_descriptors_but_the_standard_ones),
    cmocka_unit_test(workers_are_bound_to_cores_of_their_own),
    cmocka_unit_test(mpiruns_habits_and_a_forgotten_folder_get_a_hint),
    cmocka_unit_test(blanks_in_the_list_of_signals_are_no_part_of_a_name),
    cmocka_unit_test(a_program_on_standard_input_is_run_by_python),
    cmocka_unit_test(a_missing_interpreter_is_named),
    cmocka_unit_test(a_file_that_cannot_be_written_ends_the_job_before_it_begins),
};

TEST_MAIN(tests)
