/* checkpoint_writer_test.c - checkpoints that a thread writes while training goes on. */
/* ctest: program=own */
#include <errno.h>

#include <trireme/checkpoint.h>
#include <trireme/nn.h>
#include <trireme/optim.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/thread.h"
#include "testing/scratch.h"

/* A disk that takes its time: while it is shut, fsync waits. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool shut;     /* guarded */
    int64_t asked; /* guarded: how often */
    bool is_full;  /* guarded */
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* In place of libc's. */
int fsync(int fd)
{
    bool full;

    pthread_mutex_lock(&disk.mutex);
    disk.asked++;
    pthread_cond_broadcast(&disk.changed);
    while (disk.shut)
        pthread_cond_wait(&disk.changed, &disk.mutex);
    full = disk.is_full;
    pthread_mutex_unlock(&disk.mutex);
    if (full) {
        errno = ENOSPC;
        return -1;
    }
    return fdatasync(fd);
}

static void disk_set(bool shut, bool is_full)
{
    pthread_mutex_lock(&disk.mutex);
    disk.shut = shut;
    disk.is_full = is_full;
    disk.asked = 0;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.mutex);
}

/* Until the writer has come to the disk, which is shut. */
static void disk_wait_for_writer(void)
{
    pthread_mutex_lock(&disk.mutex);
    while (disk.asked == 0)
        pthread_cond_wait(&disk.changed, &disk.mutex);
    pthread_mutex_unlock(&disk.mutex);
}

/* A thread that opens the disk once the writer has come to it. */
static void open_later(void *arg)
{
    (void)arg;
    disk_wait_for_writer();
    disk_set(false, false);
}

static tri_module *make(void)
{
    return tri_nn_sequential(tri_nn_linear(20, 30, NULL), tri_nn_linear(30, 4, NULL));
}

static void set_all(tri_module *net, double value)
{
    for (int64_t i = 0; i < tri_module_state_count(net); i++)
        CHECK_OK(tri_init_constant(tri_module_state(net, i).tensor, value));
}

/* The value that set_all had given to what is newest. */
static double newest(const char *folder, int64_t *step_out)
{
    tri_module *net = make();
    tri_checkpoint *checkpoint;
    double value;
    float bias[4];

    CHECK_OK(tri_checkpoint_open(folder, &checkpoint));
    CHECK_OK(tri_checkpoint_restore(checkpoint, net, NULL));
    *step_out = tri_checkpoint_step(checkpoint);
    CHECK_OK(tri_tensor_copy_out(tri_module_find(net, "1.bias"), bias, sizeof(bias)));
    value = (double)bias[3];
    tri_checkpoint_close(checkpoint);
    tri_module_destroy(net);
    return value;
}

static tri_status save(tri_checkpoint_writer *writer, tri_module *net, int64_t step)
{
    set_all(net, (double)step);
    return tri_checkpoint_writer_save(writer, net, NULL, &(tri_checkpoint_info){.step = step},
                                      NULL);
}

/* The caller's tensors, texts and steps are its own again when the call returns. */
static void what_is_saved_is_the_state_at_the_call(void **state)
{
    int64_t stays[1] = {3}, step;
    char key[] = "key", value[] = "value", file[] = "trainer", text[] = "{}";
    tri_checkpoint_writer *writer;
    tri_checkpoint *checkpoint;
    tri_module *net = make();
    tri_optimizer *opt = tri_sgd(net, 0.1, NULL);
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_checkpoint_writer_create(s.dir, &writer));
    assert_true(tri_checkpoint_writer_seconds(writer) == 0);
    CHECK_OK(save(writer, net, 3));
    CHECK_OK(tri_checkpoint_writer_wait(writer));
    disk_set(true, false);
    set_all(net, 5);
    CHECK_OK(tri_checkpoint_writer_save(
        writer, net, opt,
        &(tri_checkpoint_info){.step = 5,
                               .meta = &(tri_metadata){key, value},
                               .n_meta = 1,
                               .extras = &(tri_checkpoint_extra){.name = file, .text = text},
                               .n_extras = 1},
        &(tri_checkpoint_save_options){.keep = 1, .keep_steps = stays, .n_keep_steps = 1}));
    assert_true(tri_checkpoint_writer_is_busy(writer));
    set_all(net, 7);
    memset(key, 'x', 3);
    memset(value, 'x', 5);
    memset(file, 'x', 7);
    memset(text, 'x', 2);
    stays[0] = 9;
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    disk_set(false, false);
    CHECK_OK(tri_checkpoint_writer_wait(writer));
    assert_false(tri_checkpoint_writer_is_busy(writer));
    assert_true(tri_checkpoint_writer_seconds(writer) > 0);
    tri_checkpoint_writer_destroy(writer);
    assert_true(newest(s.dir, &step) == 5);
    assert_int_equal(step, 5);
    assert_int_equal(scratch_count(s.dir), 2); /* 3 stays */
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    assert_string_equal(tri_checkpoint_metadata(checkpoint, "key"), "value");
    assert_string_equal(tri_checkpoint_text(checkpoint, "trainer"), "{}");
    tri_checkpoint_close(checkpoint);
    scratch_end(&s);
}

/* The first one is there, whole, when the second one returns. */
static void a_second_save_waits_for_the_first(void **state)
{
    tri_checkpoint_writer *writer;
    tri_module *net = make();
    int64_t step;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_checkpoint_writer_create(s.dir, &writer));
    for (int64_t n = 1; n <= 9; n++) {
        trii_thread opener;

        disk_set(true, false);
        CHECK_OK(save(writer, net, 2 * n));
        assert_true(tri_checkpoint_writer_is_busy(writer));
        CHECK_OK(trii_thread_start(&opener, "opener", open_later, NULL));
        CHECK_OK(save(writer, net, 2 * n + 1));
        trii_thread_join(&opener);
        assert_in_range(newest(s.dir, &step), 2 * n, 2 * n + 1);
        CHECK_OK(tri_checkpoint_writer_wait(writer));
        assert_true(newest(s.dir, &step) == (double)(2 * n + 1));
        assert_int_equal(scratch_count(s.dir), n == 1 ? 2 : 3);
    }
    tri_checkpoint_writer_destroy(writer);
    tri_module_destroy(net);
    scratch_end(&s);
}

/* Nothing grows but by the first save. */
static void the_copy_is_kept(void **state)
{
    tri_checkpoint_writer *writer;
    tri_module *net = make();
    long live, after = 0;
    scratch s;

    (void)state;
    scratch_begin(&s);
    set_all(net, 0); /* and what the module and the step keep, too */
    CHECK_OK(tri_checkpoint_save(s.dir, net, NULL, &(tri_checkpoint_info){.step = 0}, NULL));
    CHECK_OK(tri_step_end_status());
    live = trii_alloc_live();
    CHECK_OK(tri_checkpoint_writer_create(s.dir, &writer));
    for (int64_t n = 1; n <= 5; n++) {
        CHECK_OK(save(writer, net, n));
        CHECK_OK(tri_checkpoint_writer_wait(writer));
        CHECK_OK(tri_step_end_status());
        if (n == 1)
            after = trii_alloc_live();
        assert_int_equal(trii_alloc_live(), after);
    }
    tri_checkpoint_writer_destroy(writer);
    assert_int_equal(trii_alloc_live(), live);
    tri_module_destroy(net);
    scratch_end(&s);
}

static void a_failure_is_told_once(void **state)
{
    tri_checkpoint_writer *writer;
    tri_module *net = make();
    int64_t step;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_checkpoint_writer_create(s.dir, &writer));
    CHECK_OK(save(writer, net, 1));
    CHECK_OK(tri_checkpoint_writer_wait(writer));
    disk_set(false, true);
    CHECK_OK(save(writer, net, 2));
    CHECK_FAILS(save(writer, net, 3), TRI_ERR_IO, "No space left on device");
    assert_non_null(strstr(tri_last_error(), "step-000000000002"));
    CHECK_OK(tri_checkpoint_writer_wait(writer)); /* 3 was not begun */
    CHECK_OK(save(writer, net, 4));
    CHECK_FAILS(tri_checkpoint_writer_wait(writer), TRI_ERR_IO, "step-000000000004");
    CHECK_OK(tri_checkpoint_writer_wait(writer));
    assert_int_equal(scratch_count(s.dir), 1);
    assert_true(newest(s.dir, &step) == 1);
    disk_set(false, false);
    CHECK_OK(save(writer, net, 5));
    CHECK_OK(tri_checkpoint_writer_wait(writer));
    assert_true(newest(s.dir, &step) == 5);
    tri_checkpoint_writer_destroy(writer);
    tri_module_destroy(net);
    scratch_end(&s);
}

static void the_end_waits_for_what_is_in_flight(void **state)
{
    tri_checkpoint_writer *writer;
    tri_module *net = make();
    trii_thread opener;
    int64_t step;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_checkpoint_writer_create(s.dir, &writer));
    disk_set(true, false);
    CHECK_OK(save(writer, net, 1));
    CHECK_OK(trii_thread_start(&opener, "opener", open_later, NULL));
    tri_checkpoint_writer_destroy(writer);
    trii_thread_join(&opener);
    assert_true(newest(s.dir, &step) == 1);
    tri_checkpoint_writer_destroy(NULL);
    tri_module_destroy(net);
    scratch_end(&s);
}

/* Ends a child with a save in flight: by itself or by a signal. */
static void end_in_flight(scratch *s, bool killed)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        tri_checkpoint_writer *writer;
        tri_module *net = make();

        if (tri_checkpoint_writer_create(s->dir, &writer) != TRI_OK ||
            save(writer, net, 1) != TRI_OK || tri_checkpoint_writer_wait(writer) != TRI_OK)
            _exit(1);
        disk_set(true, false);
        if (save(writer, net, 2) != TRI_OK)
            _exit(2);
        disk_wait_for_writer();
        if (killed)
            (void)raise(SIGKILL);
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, killed ? SIGKILL : 0);
}

static void an_end_in_flight_leaves_the_one_before(void **state)
{
    tri_module *net = make();
    int64_t step;
    scratch s;

    (void)state;
    for (int killed = 0; killed < 2; killed++) {
        scratch_begin(&s);
        end_in_flight(&s, killed == 1);
        assert_true(newest(s.dir, &step) == 1);
        assert_int_equal(scratch_count(s.dir), 2); /* and half a one under another name, */
        set_all(net, 3);
        CHECK_OK(tri_checkpoint_save(s.dir, net, NULL, &(tri_checkpoint_info){.step = 3}, NULL));
        assert_int_equal(scratch_count(s.dir), 2); /* which goes */
        assert_true(newest(s.dir, &step) == 3);
        scratch_end(&s);
    }
    tri_module_destroy(net);
}

/* kill -9 at any moment of training with asynchronous saves: the newest is whole, and no older than
 * what was known to be on disk. */
static void a_killed_run_leaves_whole_ones_only(void **state)
{
    uint64_t random = 11;
    int64_t last = 0;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int round = 0; round < (TEST_SANITIZED ? 10 : 40); round++) {
        int64_t known = last, n, step;
        int report[2];
        pid_t pid;

        assert_int_equal(pipe(report), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            tri_checkpoint_writer *writer;
            tri_module *net = make();

            if (tri_checkpoint_writer_create(s.dir, &writer) != TRI_OK)
                _exit(1);
            for (n = last + 1;; n++) {
                int64_t done = n - 1; /* once another one is begun */

                if (save(writer, net, n) != TRI_OK ||
                    write(report[1], &done, sizeof(done)) != sizeof(done))
                    _exit(2);
            }
        }
        close(report[1]);
        for (int k = 0; k <= round % 3; k++)
            assert_int_equal(read(report[0], &known, sizeof(known)), sizeof(known));
        trii_sleep_until(trii_now_ns() + scratch_random(&random) % 8000000);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        while (read(report[0], &n, sizeof(n)) == sizeof(n))
            known = n;
        close(report[0]);
        if (known == 0)
            continue;
        assert_true(newest(s.dir, &step) == (double)step);
        assert_in_range(step, known, known + 2);
        last = step;
    }
    assert_true(last > 0);
    scratch_end(&s);
}

/* The thread is the parent's; so is what it writes. */
static void a_forked_child_leaves_the_writer_alone(void **state)
{
    tri_checkpoint_writer *writer;
    tri_module *net = make();
    int64_t step;
    int status;
    pid_t pid;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_checkpoint_writer_create(s.dir, &writer));
    disk_set(true, false);
    CHECK_OK(save(writer, net, 1));
    disk_wait_for_writer();
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (tri_checkpoint_writer_wait(writer) != TRI_ERR_STATE ||
            strstr(tri_last_error(), "create one here") == NULL)
            _exit(1);
        if (tri_checkpoint_writer_save(writer, net, NULL, &(tri_checkpoint_info){.step = 2},
                                       NULL) != TRI_ERR_STATE)
            _exit(2);
        if (tri_checkpoint_writer_is_busy(writer) || tri_checkpoint_writer_seconds(writer) != 0)
            _exit(3);
        tri_checkpoint_writer_destroy(writer);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    disk_set(false, false);
    CHECK_OK(tri_checkpoint_writer_wait(writer));
    assert_true(newest(s.dir, &step) == 1);
    tri_checkpoint_writer_destroy(writer);
    tri_module_destroy(net);
    scratch_end(&s);
}

/* One folder has one saver at a time, whichever way it saves. */
static void a_folder_that_is_being_written_is_busy(void **state)
{
    tri_checkpoint_writer *writer, *other;
    tri_module *net = make();
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_checkpoint_writer_create(s.dir, &writer));
    CHECK_OK(tri_checkpoint_writer_create(s.dir, &other));
    disk_set(true, false);
    CHECK_OK(save(writer, net, 1));
    disk_wait_for_writer();
    CHECK_FAILS(tri_checkpoint_save(s.dir, net, NULL, &(tri_checkpoint_info){.step = 2}, NULL),
                TRI_ERR_STATE, "is being written by another");
    CHECK_OK(save(other, net, 3));
    CHECK_FAILS(tri_checkpoint_writer_wait(other), TRI_ERR_STATE, "is being written by another");
    disk_set(false, false);
    CHECK_OK(tri_checkpoint_writer_wait(writer));
    tri_checkpoint_writer_destroy(other);
    tri_checkpoint_writer_destroy(writer);
    tri_module_destroy(net);
    scratch_end(&s);
}

static void what_cannot_be_is_named(void **state)
{
    const tri_checkpoint_info info = {.step = 1};
    tri_checkpoint_writer *writer;
    tri_module *net = make();
    scratch s;

    (void)state;
    scratch_begin(&s);
#define REFUSED(call, text) CHECK_FAILS(call, TRI_ERR_INVALID_ARG, text)
    REFUSED(tri_checkpoint_writer_create(NULL, &writer), "folder is NULL");
    REFUSED(tri_checkpoint_writer_create("", &writer), "folder is empty");
    REFUSED(tri_checkpoint_writer_create(s.dir, NULL), "writer_out is NULL");
    REFUSED(tri_checkpoint_writer_wait(NULL), "writer is NULL");
    REFUSED(tri_checkpoint_writer_save(NULL, net, NULL, &info, NULL), "writer is NULL");
    assert_false(tri_checkpoint_writer_is_busy(NULL));
    assert_true(tri_checkpoint_writer_seconds(NULL) == 0);
    CHECK_OK(tri_checkpoint_writer_create(s.dir, &writer));
    REFUSED(tri_checkpoint_writer_save(writer, NULL, NULL, &info, NULL), "module");
    REFUSED(tri_checkpoint_writer_save(writer, net, NULL, NULL, NULL), "info is NULL");
    REFUSED(tri_checkpoint_writer_save(writer, net, NULL, &(tri_checkpoint_info){.step = -1}, NULL),
            "step -1");
#undef REFUSED
    CHECK_OK(tri_checkpoint_writer_wait(writer));
    tri_checkpoint_writer_destroy(writer);
    tri_module_destroy(net);
    assert_int_equal(scratch_count(s.dir), 0);
    scratch_end(&s);
}

static void every_allocation_may_fail(void **state)
{
    tri_status status = TRI_ERR_NO_MEMORY;
    tri_module *net = make();
    int64_t step = 0;
    scratch s;

    (void)state;
    scratch_begin(&s);
    set_all(net, 1);
    CHECK_OK(tri_checkpoint_save(s.dir, net, NULL, &(tri_checkpoint_info){.step = 1}, NULL));
    for (long n = 1; status == TRI_ERR_NO_MEMORY; n++) {
        tri_checkpoint_writer *writer = NULL;
        long live = trii_alloc_live();

        set_all(net, 2);
        trii_alloc_fail_at(n);
        status = tri_checkpoint_writer_create(s.dir, &writer);
        if (status == TRI_OK)
            status = tri_checkpoint_writer_save(
                writer, net, NULL,
                &(tri_checkpoint_info){.step = 2, .meta = &(tri_metadata){"a", "b"}, .n_meta = 1},
                NULL);
        if (status == TRI_OK)
            status = tri_checkpoint_writer_wait(writer);
        trii_alloc_fail_at(0);
        tri_checkpoint_writer_destroy(writer);
        assert_true(trii_alloc_live() <= live + 1);
        assert_true(newest(s.dir, &step) == (double)step);
    }
    CHECK_OK(status);
    assert_int_equal(step, 2);
    tri_module_destroy(net);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_saved_is_the_state_at_the_call),
    cmocka_unit_test(a_second_save_waits_for_the_first),
    cmocka_unit_test(the_copy_is_kept),
    cmocka_unit_test(a_failure_is_told_once),
    cmocka_unit_test(the_end_waits_for_what_is_in_flight),
    cmocka_unit_test(an_end_in_flight_leaves_the_one_before),
    cmocka_unit_test(a_killed_run_leaves_whole_ones_only),
    cmocka_unit_test(a_forked_child_leaves_the_writer_alone),
    cmocka_unit_test(a_folder_that_is_being_written_is_busy),
    cmocka_unit_test(what_cannot_be_is_named),
    cmocka_unit_test(every_allocation_may_fail),
};
TEST_MAIN(tests)
