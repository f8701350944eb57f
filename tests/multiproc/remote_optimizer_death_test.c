/*
 * remote_optimizer_death_test.c - steps during which an owner or a trainer dies. Owners are
 * processes, forked before the library is used here; they and the trainer meet in a file.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "train/graph/ops/table.h"
#include "train/parallel/rpc/account_internal.h"
#include "testing/remote_served.h"
#include "testing/scratch.h"

#define ROWS 4

static scratch folder;
static char store_path[192];

/* The parts of a model; 0 and 2 are at owners. */
static tri_module *make_part(int i)
{
    static const int64_t sizes[] = {6, 8, 7, 3};

    tri_manual_seed((uint64_t)i + 3);
    return tri_nn_linear(sizes[i], sizes[i + 1], NULL);
}

static tri_optimizer *make_optimizer(tri_module *part)
{
    return tri_sgd(part, 0.1, &(tri_sgd_options){.momentum = 0.9});
}

static tri_rpc *open_worker(const char *name)
{
    const tri_rpc_options options = {.open = true, .threads = 1, .timeout_ms = 20000};
    tri_store *store = NULL;
    tri_rpc *rpc = NULL;

    TRI_TRY(tri_store_file(store_path, NULL, &store));
    TRI_TRY(tri_rpc_create(store, name, 0, 0, &options, &rpc));
    tri_store_unref(store);
    return rpc;
}

/* --- owners --------------------------------------------------------------- */

typedef struct owner {
    int pid, part;
    int go[2]; /* it begins when it reads a byte */
    bool dies; /* when it is to update */
} owner;

static tri_status die_in_update(trii_step *step, const trii_segment *segment)
{
    for (int32_t n = segment->first_node; n < segment->end_node; n++) {
        if (step->nodes[n].op == &trii_op_update)
            _exit(3);
    }
    return trii_executor_default->run(step, segment);
}
static const trii_executor dying = {.name = "dying", .run = die_in_update};

static void owner_main(const owner *o, const char *name)
{
    tri_module *part;
    char byte;
    tri_rpc *rpc;

    close(o->go[1]);
    if (read(o->go[0], &byte, 1) != 1)
        _exit(0);
    part = make_part(o->part);
    if (o->dies)
        trii_executor_set(&dying);
    rpc = open_worker(name);
    TRI_TRY(tri_remote_serve(rpc, "part", part, make_optimizer(part), NULL));
    (void)!tri_rpc_join(rpc, TRI_FOREVER);
    _exit(0);
}

static void owner_fork(owner *o, const char *name, int part, bool dies)
{
    *o = (owner){.part = part, .dies = dies};
    assert_int_equal(pipe(o->go), 0);
    o->pid = fork();
    assert_true(o->pid >= 0);
    if (o->pid == 0)
        owner_main(o, name);
    close(o->go[0]);
}

static void owner_go(const owner *o)
{
    assert_int_equal(write(o->go[1], "x", 1), 1);
}

static void owner_end(owner *o)
{
    close(o->go[1]);
    if (o->pid != 0)
        assert_int_equal(waitpid(o->pid, NULL, 0), o->pid);
}

static void owner_kill(owner *o)
{
    assert_int_equal(kill(o->pid, SIGKILL), 0);
    assert_int_equal(waitpid(o->pid, NULL, 0), o->pid);
    o->pid = 0;
}

static void meet(void)
{
    scratch_begin(&folder);
    snprintf(store_path, sizeof(store_path), "%s", scratch_path(&folder, "store"));
    setenv("TRI_LOG", "error", 1);
}

/* --- the trainer ---------------------------------------------------------- */

typedef struct trainer {
    tri_rpc *rpc;
    tri_module *part[3];
    tri_optimizer *own;
    tri_remote_optimizer *opt;
    tri_tensor *x, *y;
} trainer;

static void trainer_begin(trainer *t)
{
    t->rpc = open_worker("trainer");
    t->part[0] = tri_remote_module(t->rpc, "ps0/part", NULL);
    t->part[1] = make_part(1);
    t->part[2] = tri_remote_module(t->rpc, "ps1/part", NULL);
    t->own = make_optimizer(t->part[1]);
    t->opt = tri_remote_optimizer_of(t->own, (tri_module *[]){t->part[0], t->part[2]}, 2, NULL);
    t->x = remote_tensor((int64_t[]){ROWS, 6}, 2, TRI_DTYPE_F32, 1);
    t->y = remote_tensor((int64_t[]){ROWS, 3}, 2, TRI_DTYPE_F32, 2);
}

static void trainer_end(trainer *t)
{
    tri_remote_optimizer_destroy(t->opt);
    for (int i = 0; i < 3; i++)
        tri_module_destroy(t->part[i]);
    tri_optimizer_destroy(t->own);
    tri_tensor_unref(t->x);
    tri_tensor_unref(t->y);
    CHECK_OK(tri_rpc_leave(t->rpc, 0));
    tri_rpc_destroy(t->rpc);
}

static tri_tensor *loss_of(tri_module *const part[3], const trainer *t)
{
    tri_tensor *x = t->x;

    for (int i = 0; i < 3; i++)
        x = tri_forward(part[i], x);
    return tri_mse_loss(x, t->y, NULL);
}

static tri_status step(trainer *t)
{
    char line[TRII_ERR_BYTES];
    tri_status status;

    tri_backward(loss_of(t->part, t));
    status = tri_remote_optimizer_step(t->opt);
    snprintf(line, sizeof(line), "%s", tri_last_error());
    tri_step_end();
    if (status != TRI_OK)
        trii_err_set("%s", line);
    return status;
}

/* Until the next owner is there. */
static void repeat(trainer *t)
{
    int64_t deadline = trii_deadline_ms(20000);
    tri_status status;

    do
        status = step(t);
    while (status == TRI_ERR_PEER_LOST && trii_now_ns() < deadline);
    CHECK_OK(status);
}

static void meet_owner(const trainer *t, const char *name)
{
    int64_t deadline = trii_deadline_ms(20000);
    tri_rpc_ref *ref = NULL;
    tri_status status;

    do
        status = tri_rpc_find(t->rpc, name, &ref);
    while (status == TRI_ERR_PEER_LOST && trii_now_ns() < deadline);
    CHECK_OK(status);
    tri_rpc_ref_unref(ref);
}

/* What a part makes of ones, here or at its owner, as exact as it is. */
static double answer_of(tri_module *part, int i)
{
    static const int64_t sizes[] = {6, 8, 7};
    tri_tensor *ones = tri_tensor_create((int64_t[]){1, sizes[i]}, 2, TRI_DTYPE_F32);
    double answer = 0;

    CHECK_OK(tri_init_constant(ones, 1));
    TRI_NO_GRAD
    {
        answer = tri_item(tri_sum(tri_square(tri_forward(part, ones)), NULL, 0, false));
    }
    tri_step_end();
    tri_tensor_unref(ones);
    return answer;
}

/* The same after so many steps in one process, each of which updates the parts in `who`. */
static void answers_after(const trainer *t, int steps, const unsigned *who, double answers[3])
{
    tri_module *part[3];
    tri_optimizer *opt[3];

    for (int i = 0; i < 3; i++) {
        part[i] = make_part(i);
        opt[i] = make_optimizer(part[i]);
    }
    for (int s = 0; s < steps; s++) {
        tri_backward(loss_of(part, t));
        for (int i = 0; i < 3; i++) {
            if ((who[s] >> i & 1) != 0)
                CHECK_OK(tri_optimizer_step(opt[i]));
            else
                tri_optimizer_zero_grad(opt[i]);
        }
        tri_step_end();
    }
    for (int i = 0; i < 3; i++) {
        answers[i] = answer_of(part[i], i);
        tri_optimizer_destroy(opt[i]);
        tri_module_destroy(part[i]);
    }
}

static void expect_answers(trainer *t, int steps, const unsigned *who)
{
    double answers[3];

    answers_after(t, steps, who, answers);
    for (int i = 0; i < 3; i++)
        assert_true(answer_of(t->part[i], i) == answers[i]);
}

/* --- cases ---------------------------------------------------------------- */

static void a_step_with_a_killed_owner_leaves_all_parameters(void **state)
{
    owner first, last, next;
    double answers[3];
    trainer t;

    (void)state;
    meet();
    owner_fork(&first, "ps0", 0, false);
    owner_fork(&last, "ps1", 2, false);
    owner_fork(&next, "ps1", 2, false);
    owner_go(&first);
    owner_go(&last);
    trainer_begin(&t);
    answers_after(&t, 0, NULL, answers);
    tri_backward(loss_of(t.part, &t));
    CHECK_OK(tri_run());
    owner_kill(&last);
    owner_go(&next); /* from its checkpoint, if it were one that trains longer */
    meet_owner(&t, "ps1/part");
    CHECK_FAILS(tri_remote_optimizer_step(t.opt), TRI_ERR_PEER_LOST, "ps1/part");
    tri_step_end();
    for (int i = 0; i < 3; i++)
        assert_true(answer_of(t.part[i], i) == answers[i]);
    repeat(&t);
    CHECK_OK(step(&t));
    expect_answers(&t, 2, (unsigned[]){7, 7});
    trainer_end(&t);
    owner_end(&first);
    owner_end(&last);
    owner_end(&next);
    scratch_end(&folder);
}

static void an_owner_that_dies_in_a_backward_is_named(void **state)
{
    owner first, last;
    double answers[3];
    trainer t;

    (void)state;
    meet();
    owner_fork(&first, "ps0", 0, false);
    owner_fork(&last, "ps1", 2, false);
    owner_go(&first);
    owner_go(&last);
    trainer_begin(&t);
    answers_after(&t, 0, NULL, answers);
    tri_backward(loss_of(t.part, &t));
    CHECK_OK(tri_run());
    tri_step_end();
    tri_remote_optimizer_zero_grad(t.opt);
    tri_backward(loss_of(t.part, &t));
    owner_kill(&first);
    CHECK_FAILS(tri_remote_optimizer_step(t.opt), TRI_ERR_PEER_LOST, "ps0");
    tri_step_end();
    assert_true(answer_of(t.part[1], 1) == answers[1]);
    assert_true(answer_of(t.part[2], 2) == answers[2]);
    trainer_end(&t);
    owner_end(&first);
    owner_end(&last);
    scratch_end(&folder);
}

/* Between its word that it would update and the update. */
static void an_owner_that_dies_in_an_update_gets_it_by_the_repetition(void **state)
{
    owner first, last, next;
    trainer t;

    (void)state;
    meet();
    owner_fork(&first, "ps0", 0, false);
    owner_fork(&last, "ps1", 2, true);
    owner_fork(&next, "ps1", 2, false);
    owner_go(&first);
    owner_go(&last);
    trainer_begin(&t);
    CHECK_FAILS(step(&t), TRI_ERR_PEER_LOST,
                "only this worker, ps0/part are known to have (repeat the step");
    assert_non_null(strstr(tri_last_error(), "ps1/part: remote.commit on ps1"));
    owner_go(&next);
    repeat(&t); /* the others leave it out */
    /* whose gradients are those of the others' new parameters */
    expect_answers(&t, 2, (unsigned[]){3, 4});
    CHECK_OK(step(&t));
    expect_answers(&t, 3, (unsigned[]){3, 4, 7});
    trainer_end(&t);
    owner_end(&first);
    assert_int_equal(waitpid(last.pid, NULL, 0), last.pid);
    last.pid = 0;
    owner_end(&last);
    owner_end(&next);
    scratch_end(&folder);
}

/* Gradients of a trainer that is gone. */
static void a_trainers_gradients_die_with_it(void **state)
{
    remote_workers r;
    tri_module *part, *remote, *other;
    tri_optimizer *opt;
    tri_remote_optimizer *of;
    trii_served *served;
    tri_tensor *x;

    (void)state;
    remote_begin(&r, 2, NULL);
    part = make_part(0);
    opt = make_optimizer(part);
    x = remote_tensor((int64_t[]){ROWS, 6}, 2, TRI_DTYPE_F32, 1);
    CHECK_OK(tri_remote_serve(r.w.rpc[1], "part", part, opt, NULL));
    served = served_as(&r, 1, "part");
    remote = tri_remote_module(r.w.rpc[0], "w1/part", NULL);
    of = tri_remote_optimizer_of(NULL, &remote, 1, NULL);
    tri_backward(tri_mean(tri_forward(remote, x), NULL, 0, false));
    CHECK_OK(tri_run());
    assert_non_null(served->accounts->first->pass); /* its thread does nothing now */
    tri_rpc_abort(r.w.rpc[0], "killed");
    served_await(served, served_sessions, 0);
    tri_step_end();
    tri_remote_optimizer_destroy(of);
    tri_module_destroy(remote);
    /* what the module's thread does after that is seen once it has answered somebody */
    other = tri_remote_module(r.w.rpc[1], "w1/part", NULL);
    of = tri_remote_optimizer_of(NULL, &other, 1, NULL);
    CHECK_OK(tri_remote_optimizer_step(of));
    for (const trii_account *a = served->accounts->first; a != NULL; a = a->next)
        assert_true(a->pass == NULL && a->total == NULL && a->step == 0);
    tri_step_end();
    tri_remote_optimizer_destroy(of);
    tri_module_destroy(other);
    CHECK_OK(tri_remote_withdraw(r.w.rpc[1], "part"));
    tri_optimizer_destroy(opt);
    tri_module_destroy(part);
    tri_tensor_unref(x);
    tri_rpc_abort(r.w.rpc[1], "end");
    remote_end_without_leaving(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_with_a_killed_owner_leaves_all_parameters),
        cmocka_unit_test(an_owner_that_dies_in_a_backward_is_named),
        cmocka_unit_test(an_owner_that_dies_in_an_update_gets_it_by_the_repetition),
        cmocka_unit_test(a_trainers_gradients_die_with_it),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
