/*
 * misuse_test.c - whatever is passed to a public function, whenever: the outcome is a status or a
 * failed handle with a line that says why; no crash, no hang, nothing on stdout. Every function of
 * the headers is called with one bad argument after the other (make_calls.awk), in processes of
 * their own, so that a crash is one failure that names its call.
 * ctest: start=first labels=quick timeout=120 tsan=every_function_on_a_second_thread
 */
#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "misuse/misuse.h"
#include "os/thread.h"
#include "testing/check.h"
#include "testing/scratch.h"

#define DEADLINE_S                                                                                 \
    60 /* of a call; nothing waits for longer than 0.3 s, but the largest models are               \
        * made in seconds where a sanitizer shares the cores */
#define TEXT 6000

/* What a child tells, also when it dies. */
typedef struct report {
    int variant;  /* that it is in */
    int findings; /* so far */
    char wrong[TEXT], failed[TEXT];
    char sensible[TEXT]; /* why the call fails with sensible arguments */
} report;

static report *told;
static bool calls_work; /* those with sensible arguments, but for few */
static int console;     /* stderr is kept from the children */

void misuse_status(misuse_pick *p, tri_status status)
{
    if (status >= 0)
        return;
    snprintf(p->failed, p->bytes, "%s", tri_last_error());
    if (p->failed[0] == '\0')
        snprintf(p->wrong, p->bytes, "%s without a line", tri_status_name(status));
}

/* NULL is what their headers promise for what is not there. */
static const char *const may_be_null[] = {"tri_module_find",
                                          "tri_module_child",
                                          "tri_module_submodule",
                                          "tri_module_unwrapped",
                                          "tri_grad",
                                          "tri_tensor_ref",
                                          "tri_trainer_model",
                                          "tri_trainer_optimizer",
                                          "tri_engine_module",
                                          "tri_engine_optimizer",
                                          NULL};

/* Their lines name the operation that they are made of, or a layer, and the argument by its shape;
 * that of tri_module_load names the parts that n left out, and that of tri_status_fail is its
 * caller's. */
static const char *const named_otherwise[] = {"tri_status_fail",
                                              "tri_status_fail_at",
                                              "tri_module_fail",
                                              "tri_forward",
                                              "tri_engine_forward",
                                              "tri_dropout",
                                              "tri_flatten",
                                              "tri_transpose",
                                              "tri_batch_norm",
                                              "tri_model_resnet_first_half",
                                              "tri_model_resnet_second_half",
                                              "tri_module_load",
                                              NULL};

/* They fail here with sensible arguments too: there is a world already, a group of one cannot
 * shrink, this process is not a worker, handles no request and serves no module, no context was
 * entered, no callback, no bucket outside of a hook, no trainer outside of a fit, and no task; and
 * tri_status_fail and tri_module_fail, which are for that. */
static const char *const cannot_work[] = {"tri_init",
                                          "tri_status_fail",
                                          "tri_status_fail_at",
                                          "tri_module_fail",
                                          "tri_group_shrink",
                                          "tri_rpc_fini",
                                          "tri_rpc_reply",
                                          "tri_remote_withdraw",
                                          "tri_remote_optimizer_step",
                                          "tri_spawn",
                                          "tri_context_leave",
                                          "tri_module_simple",
                                          "tri_gradcheck",
                                          "tri_module_add_forward_pre_hook",
                                          "tri_module_add_forward_hook",
                                          "tri_ddp_join",
                                          "tri_bucket_hook_f16",
                                          "tri_bucket_hook_bf16",
                                          "tri_bucket_hook_power_sgd",
                                          "tri_fit",
                                          "tri_validate",
                                          "tri_test",
                                          "tri_predict",
                                          "tri_pipeline_step",
                                          "tri_trainer_set_state",
                                          NULL};

/* They read a data set or a sampler that another call has checked, and return no status. */
static const char *const check_nothing[] = {"tri_dataset_length", "tri_sampler_length",
                                            "tri_sampler_indices", NULL};

static bool is_one_of(const char *name, const char *const *list)
{
    while (*list != NULL && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* A handle that is NULL says nothing. */
static bool is_there(misuse_pick *p, const void *handle)
{
    if (handle == NULL && !is_one_of(p->row->name, may_be_null))
        snprintf(p->wrong, p->bytes, "NULL instead of a failed handle");
    return handle != NULL;
}

void misuse_tensor(misuse_pick *p, tri_tensor *x)
{
    if (is_there(p, x))
        misuse_status(p, tri_tensor_status(x));
}

void misuse_module(misuse_pick *p, tri_module *module)
{
    if (is_there(p, module))
        misuse_status(p, tri_module_status(module));
}

void misuse_optimizer(misuse_pick *p, tri_optimizer *optimizer)
{
    if (is_there(p, optimizer))
        misuse_status(p, tri_optimizer_status(optimizer));
}

/* --- variants of one function --------------------------------------------- */

/* The v-th call of a row; false: there are no more. */
static bool choose(const misuse_row *row, int v, misuse_pick *p)
{
    *p = (misuse_pick){
        .row = row, .bad = -1, .wrong = told->wrong, .failed = told->failed, .bytes = TEXT};
    if (v < 2) {
        p->bad = v == 0 ? -1 : -2;
        return true;
    }
    v -= 2;
    for (int i = 0; i < row->n; i++) {
        int kinds = misuse_kinds(&row->parameters[i]);

        if (v < kinds) {
            p->bad = i;
            p->kind = v;
            return true;
        }
        v -= kinds;
    }
    return false;
}

static void describe(const misuse_row *row, int v, char *text, size_t bytes)
{
    misuse_pick p;

    if (!choose(row, v, &p) || p.bad == -1)
        snprintf(text, bytes, "%s with sensible arguments", row->name);
    else if (p.bad == -2)
        snprintf(text, bytes, "%s with all arguments bad", row->name);
    else
        snprintf(text, bytes, "%s with bad %s (number %d%s)", row->name,
                 row->parameters[p.bad].name, p.kind,
                 misuse_is_newer(&p) ? ", of a newer library" : "");
}

static void complain(const misuse_row *row, int v, const char *what)
{
    char call[200];

    describe(row, v, call, sizeof(call));
    dprintf(console, "%s: %s\n", call, what);
    told->findings++;
}

/* As a word of its own. */
static bool names(const char *line, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = line; n > 0 && (at = strstr(at, word)) != NULL; at++) {
        if ((at == line || !is_letter(at[-1])) && !is_letter(at[n]))
            return true;
    }
    return false;
}

/* "BatchNorm2d: ..." of tri_nn_batch_norm2d. */
static bool names_layer(const char *line, const char *function)
{
    for (; *function != '\0'; function++) {
        if (*function != '_' && tolower((unsigned char)*line++) != *function)
            return false;
    }
    return !is_letter(*line);
}

/* Where one argument alone is bad the line of the failure names it, what it is or the call, or
 * shows the text. */
static bool is_named(const misuse_pick *p)
{
    const misuse_parameter *bad;
    char noun[40] = "";

    if (p->bad < 0 || strcmp(p->failed, told->sensible) == 0 ||
        is_one_of(p->row->name, named_otherwise) || names(p->failed, p->row->name) ||
        names(p->failed, p->row->name + strlen("tri_")))
        return true;
    if (misuse_is_newer(p) && strstr(p->failed, "reserved[") != NULL)
        return true;
    bad = &p->row->parameters[p->bad];
    if (names(p->failed, bad->name + (strncmp(bad->name, "own_", 4) == 0 ? 4 : 0)))
        return true;
    if (strncmp(p->row->name, "tri_nn_", 7) == 0 && names_layer(p->failed, p->row->name + 7))
        return true;
    if (strcmp(bad->type, "const char *") == 0) {
        const char *text = misuse_pointer(p, p->bad);
        char shown[40];

        snprintf(shown, sizeof(shown), "%s", text != NULL ? text : "NULL"); /* lines are cut */
        for (char *at = shown; *at != '\0'; at++) /* as in a message, which is one line */
            *at = *at > 0 && *at < ' ' ? '?' : *at;
        return strstr(p->failed, shown) != NULL;
    }
    if (sscanf(bad->type, "const tri_%39[a-z_]", noun) != 1)
        (void)sscanf(bad->type, "tri_%39[a-z_]", noun);
    return names(p->failed, noun);
}

static void call_from(const misuse_row *row, int first)
{
    misuse_pick p;

    for (int v = first; choose(row, v, &p); v++) {
        told->variant = v;
        told->wrong[0] = told->failed[0] = '\0';
        trii_err_set("no failure");
        alarm(DEADLINE_S);
        row->call(&p);
        if (calls_work && misuse_is_newer(&p) && !is_one_of(row->name, check_nothing) &&
            strstr(tri_last_error(), "reserved[") == NULL)
            complain(row, v, "takes a reserved word that is not 0");
        if (p.bad == -1)
            memcpy(told->sensible, told->failed, TEXT);
        if (p.bad == -1 && calls_work && told->failed[0] != '\0' &&
            !is_one_of(row->name, cannot_work))
            complain(row, v, told->failed);
        if (told->wrong[0] != '\0')
            complain(row, v, told->wrong);
        else if (told->failed[0] != '\0' && !is_named(&p))
            complain(row, v, told->failed);
    }
}

/* --- circumstances -------------------------------------------------------- */

typedef struct circumstance {
    void (*before)(void);
    bool on_a_thread;
    bool calls_work;
} circumstance;

static void nothing(void)
{
}

static void join_world(void)
{
    if (tri_init(NULL) != TRI_OK)
        _exit(99);
}

static void leave_world(void)
{
    join_world();
    tri_finalize();
}

static void fail_a_step(void)
{
    const float numbers[6] = {0};
    tri_tensor *a = tri_tensor_from((const int64_t[]){2, 3}, 2, TRI_DTYPE_F32, numbers);
    tri_tensor *bad = tri_matmul(a, a);

    tri_backward(bad);
    if (tri_tensor_status(bad) >= 0)
        _exit(99);
}

static const misuse_row *thread_row;
static int thread_first;

static void thread_main(void *arg)
{
    (void)arg;
    call_from(thread_row, thread_first);
}

static void child(const misuse_row *row, int first, const circumstance *c, int out)
{
    trii_thread thread;

    dup2(out, 1);
    for (int s = 0; s < 4; s++) /* cmocka catches them */
        signal((const int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL}[s], SIG_DFL);
    c->before();
    if (c->on_a_thread) {
        thread_row = row;
        thread_first = first;
        if (trii_thread_start(&thread, "misuse", thread_main, NULL) != TRI_OK)
            _exit(99);
        trii_thread_join(&thread);
    } else {
        call_from(row, first);
    }
    fflush(stdout);
    _exit(0);
}

/* What the process that died left on stderr: a sanitizer's report. */
static void show_last_words(void)
{
    char words[2000];
    ssize_t n = pread(2, words, sizeof(words) - 1, 0);

    words[n > 0 ? n : 0] = '\0';
    dprintf(console, "%s", words);
}

/* All calls of one function. Where one ends the process the next process continues after it. */
static void call_all(const misuse_row *row, const circumstance *c, int out)
{
    misuse_pick p;
    int first = 0, status = 0;

    calls_work = c->calls_work;
    told->sensible[0] = '\0';
    while (choose(row, first, &p)) {
        char how[80];
        pid_t pid;

        told->variant = first;
        assert_int_equal(ftruncate(2, 0), 0);
        pid = fork();
        if (pid == 0)
            child(row, first, c, out);
        assert_true(pid > 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            break;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
            snprintf(how, sizeof(how), "does not return");
        else if (WIFSIGNALED(status))
            snprintf(how, sizeof(how), "dies of signal %d", WTERMSIG(status));
        else
            snprintf(how, sizeof(how), "ends the process with %d", WEXITSTATUS(status));
        complain(row, told->variant, how);
        show_last_words();
        first = told->variant + 1;
    }
}

static void misuse_all(const circumstance *c)
{
    struct stat printed;
    scratch s;
    int out;

    scratch_begin(&s);
    setenv("TRI_TIMEOUT_MS", "300", 1);
    setenv("TRI_LOG", "error", 1);
    assert_int_equal(chdir(scratch_path(&s, ".")), 0); /* some calls make files */
    told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(told != MAP_FAILED);
    out = open(scratch_path(&s, "stdout"), O_RDWR | O_CREAT | O_APPEND, 0600);
    console = fcntl(2, F_DUPFD_CLOEXEC, 10);
    assert_non_null(freopen(scratch_path(&s, "stderr"), "a+", stderr));
    for (int r = 0; r < misuse_n_rows; r++) {
        call_all(&misuse_rows[r], c, out);
        assert_int_equal(fstat(out, &printed), 0);
        if (printed.st_size > 0) {
            complain(&misuse_rows[r], 0, "prints to stdout");
            assert_int_equal(ftruncate(out, 0), 0);
        }
    }
    fflush(stderr);
    dup2(console, 2);
    close(console);
    close(out);
    assert_int_equal(chdir("/"), 0);
    scratch_end(&s);
    assert_int_equal(told->findings, 0);
    munmap(told, sizeof(*told));
}

/* --- the cases ------------------------------------------------------------ */

static void every_function_before_anything_else(void **state)
{
    (void)state;
    misuse_all(&(circumstance){.before = nothing});
}

static void every_function_in_a_world_of_one(void **state)
{
    (void)state;
    misuse_all(&(circumstance){.before = join_world, .calls_work = true});
}

static void every_function_after_finalize(void **state)
{
    (void)state;
    misuse_all(&(circumstance){.before = leave_world});
}

static void every_function_after_a_failed_step(void **state)
{
    (void)state;
    misuse_all(&(circumstance){.before = fail_a_step});
}

static void every_function_on_a_second_thread(void **state)
{
    (void)state;
    misuse_all(&(circumstance){.before = join_world, .on_a_thread = true});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_function_before_anything_else),
    cmocka_unit_test(every_function_in_a_world_of_one),
    cmocka_unit_test(every_function_after_finalize),
    cmocka_unit_test(every_function_after_a_failed_step),
    cmocka_unit_test(every_function_on_a_second_thread),
};

TEST_MAIN(tests)
