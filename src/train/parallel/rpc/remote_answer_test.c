/*
 * remote_answer_test.c - a backward is answered with the gradients of its inputs, before those of
 * the parameters are there; what becomes of these is told by the step of the optimizer.
 */
#include "train/graph/step/host_op.h"
#include "train/parallel/rpc/served_run.h"
#include "testing/remote_workers.h"

#define ROWS 3
#define COLS 2
#define PATIENCE_MS 5000

/* What the gradient of the parameter waits for. */
static enum { HELD, GOES_ON, FAILS } gate;
static trii_mutex mutex = TRII_MUTEX_INITIALIZER;
static trii_cond changed;

static void set_gate(int to)
{
    trii_mutex_lock(&mutex);
    gate = to;
    trii_cond_broadcast(&changed);
    trii_mutex_unlock(&mutex);
}

/* --- an operation that passes on its operand, and whose gradient waits ---- */

typedef struct passed {
    trii_host_op op; /* first */
    size_t bytes;
    trii_host_buffers buffers;
    bool waits;
} passed;

static tri_status passed_start(trii_host_op *op, const trii_host_buffers *buffers)
{
    ((passed *)op)->buffers = *buffers;
    return TRI_OK;
}

static tri_status passed_wait(trii_host_op *op, int64_t for_ns)
{
    passed *p = (passed *)op;
    int64_t until = trii_now_ns() + (for_ns < INT64_MAX ? for_ns : PATIENCE_MS * TRII_NS_PER_MS);
    int now = GOES_ON;

    if (p->waits) {
        trii_mutex_lock(&mutex);
        while (gate == HELD && trii_cond_wait_until(&changed, &mutex, until))
            ;
        now = (int)gate;
        trii_mutex_unlock(&mutex);
    }
    if (now == HELD)
        return for_ns < INT64_MAX ? TRI_INPROGRESS
                                  : tri_status_fail(TRI_ERR_TIMEOUT, "nobody opened the gate");
    if (now == FAILS)
        return tri_status_fail(TRI_ERR_NAN, "no gradient of the parameter");
    memcpy(p->buffers.out[0], p->buffers.in[0], p->bytes);
    return TRI_OK;
}

static tri_status passed_poll(trii_host_op *op)
{
    return passed_wait(op, 0);
}

static tri_status passed_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                              const bool *needs, trii_vid *grad_in);
static const trii_host_kind passed_kind = {.name = "passed",
                                           .start = passed_start,
                                           .poll = passed_poll,
                                           .wait = passed_wait,
                                           .grad = passed_grad};

static tri_status record_passed(trii_step *step, trii_vid in, bool waits, trii_vid *out)
{
    trii_host_op *op = NULL;
    trii_host_result result = {.type = step->values[in].type, .requires_grad = !waits};
    tri_status status = trii_host_op_new(step, &passed_kind, sizeof(passed), &op);

    if (status != TRI_OK)
        return status;
    ((passed *)op)->bytes = trii_type_bytes(&result.type);
    ((passed *)op)->waits = waits;
    return trii_record_host(
        step, op, &(trii_host_call){.in = &in, .n_in = 1, .out = &result, .n_out = 1}, out);
}

static tri_status passed_grad(trii_step *step, const trii_node *node, const trii_vid *grad_out,
                              const bool *needs, trii_vid *grad_in)
{
    (void)node;
    (void)needs;
    return record_passed(step, grad_out[0], true, &grad_in[0]);
}

/* --- the module: x [ROWS, COLS] times its parameter ----------------------- */

static bool again; /* it has a part that is computed again */

static tri_tensor *scaled_forward(tri_module *self, tri_tensor *x)
{
    trii_step *step = trii_step_current();
    trii_vid in, out = TRII_NO_VALUE;

    if (trii_resolve(step, tri_module_find(self, "weight"), &in) != TRI_OK ||
        record_passed(step, in, false, &out) != TRI_OK)
        return NULL; /* which its caller hears of */
    x = tri_mul(x, trii_handle(step, out));
    if (again) {
        tri_recompute_begin();
        x = tri_tanh(tri_tanh(x));
        tri_recompute_end();
    }
    return x;
}

static tri_module *scaled_create(void)
{
    tri_module *self = tri_module_simple("Scaled", 0, scaled_forward);

    (void)tri_module_add_parameter(
        self, "weight", tri_tensor_clone(tri_full(TRI_SHAPE(1, COLS), 2, TRI_DTYPE_F32)));
    return self;
}

typedef struct trainer {
    remote_workers r;
    tri_module *there[2], *remote[2];
    tri_optimizer *theirs[2];
    tri_remote_optimizer *opt;
    tri_tensor *x;
} trainer;

/* Modules of the workers w1 and w2, the second one with the gate. */
static void begin(trainer *t)
{
    trii_cond_init(&changed);
    set_gate(HELD);
    remote_begin(&t->r, 3, NULL);
    t->there[0] = tri_nn_linear(COLS, COLS, &(tri_nn_linear_options){.no_bias = true});
    t->there[1] = scaled_create();
    for (int i = 0; i < 2; i++) {
        char name[16];

        t->theirs[i] = tri_sgd(t->there[i], 1, NULL);
        CHECK_OK(tri_remote_serve(t->r.w.rpc[1 + i], "part", t->there[i], t->theirs[i], NULL));
        snprintf(name, sizeof(name), "w%d/part", 1 + i);
        t->remote[i] = tri_remote_module(t->r.w.rpc[0], name, NULL);
    }
    t->opt = tri_remote_optimizer_of(NULL, t->remote, 2, NULL);
    t->x = remote_tensor((int64_t[]){ROWS, COLS}, 2, TRI_DTYPE_F32, 1);
    tri_requires_grad(t->x, true);
}

/* The first n modules are served. */
static void release(trainer *t, int n)
{
    tri_remote_optimizer_destroy(t->opt);
    tri_tensor_unref(t->x);
    for (int i = 0; i < 2; i++) {
        tri_module_destroy(t->remote[i]);
        if (i < n)
            CHECK_OK(tri_remote_withdraw(t->r.w.rpc[1 + i], "part"));
        tri_optimizer_destroy(t->theirs[i]);
        tri_module_destroy(t->there[i]);
    }
}

static void end(trainer *t)
{
    tri_step_end();
    release(t, 2);
    remote_end(&t->r);
}

static float weight_of(const trainer *t)
{
    float w[COLS];

    CHECK_OK(tri_tensor_copy_out(tri_module_find(t->there[1], "weight"), w, sizeof(w)));
    tri_step_end();
    return w[0];
}

/* Of the loss sum(x w), for the n-th time. */
static void backward(const trainer *t, int n)
{
    float grad[ROWS * COLS];

    tri_backward(tri_sum(tri_forward(t->remote[1], t->x), NULL, 0, false));
    CHECK_OK(tri_tensor_copy_out(tri_grad(t->x), grad, sizeof(grad)));
    for (int i = 0; i < ROWS * COLS; i++)
        CHECK_NEAR(grad[i], 2 * n, 0);
}

static float first_column(void)
{
    double sum = 0;

    for (int i = 0; i < ROWS; i++)
        sum += remote_spread(i * COLS, 1);
    return (float)sum;
}

/* --- tests ---------------------------------------------------------------- */

static void gradients_of_inputs_do_not_wait_for_those_of_parameters(void **state)
{
    trainer t;

    (void)state;
    begin(&t);
    backward(&t, 1); /* the gate is closed */
    set_gate(GOES_ON);
    CHECK_OK(tri_remote_optimizer_step(t.opt));
    tri_step_end();
    CHECK_NEAR(weight_of(&t), 2 - first_column(), 1e-6);
    end(&t);
}

/* Also to the owner that made its operand: its parameters have their gradients meanwhile. */
static void another_owner_goes_on_with_them(void **state)
{
    trainer t;
    float before[COLS * COLS], after[COLS * COLS];

    (void)state;
    begin(&t);
    CHECK_OK(tri_tensor_copy_out(tri_module_find(t.there[0], "weight"), before, sizeof(before)));
    tri_backward(tri_sum(tri_forward(t.remote[1], tri_forward(t.remote[0], t.x)), NULL, 0, false));
    CHECK_OK(tri_run());
    set_gate(GOES_ON);
    CHECK_OK(tri_remote_optimizer_step(t.opt));
    tri_step_end();
    CHECK_OK(tri_tensor_copy_out(tri_module_find(t.there[0], "weight"), after, sizeof(after)));
    CHECK_NEAR(after[0], before[0] - 2 * first_column(), 1e-5);
    end(&t);
}

static void the_optimizer_tells_what_fails_after_the_answer(void **state)
{
    trainer t;

    (void)state;
    begin(&t);
    backward(&t, 1);
    set_gate(FAILS);
    CHECK_FAILS(tri_remote_optimizer_step(t.opt), TRI_ERR_NAN, "no gradient of the parameter");
    tri_step_end();
    CHECK_NEAR(weight_of(&t), 2, 0);
    set_gate(GOES_ON);
    backward(&t, 2);
    CHECK_OK(tri_remote_optimizer_step(t.opt));
    tri_step_end();
    CHECK_NEAR(weight_of(&t), 2 - first_column(), 1e-6);
    end(&t);
}

/* The first one has been answered. */
static void the_next_backward_tells_it_too(void **state)
{
    tri_tensor *y, *loss[2];
    trainer t;

    (void)state;
    begin(&t);
    y = tri_forward(t.remote[1], t.x);
    loss[0] = tri_sum(y, NULL, 0, false);
    loss[1] = tri_sum(tri_square(y), NULL, 0, false);
    tri_backward_of(&loss[0], 1, &(tri_backward_options){.keep_graph = true});
    CHECK_OK(tri_run());
    set_gate(FAILS);
    tri_backward(loss[1]);
    CHECK_FAILS(tri_run(), TRI_ERR_NAN, "no gradient of the parameter");
    tri_step_end();
    end(&t);
}

/* What is computed again shall not be kept for the gradients of parameters. */
static void parts_that_are_computed_again_are_answered_at_the_end(void **state)
{
    trainer t;

    (void)state;
    again = true;
    begin(&t);
    set_gate(FAILS);
    tri_backward(tri_sum(tri_forward(t.remote[1], t.x), NULL, 0, false));
    CHECK_FAILS(tri_run(), TRI_ERR_NAN, "no gradient of the parameter");
    end(&t);
    again = false;
}

/* Until it has left it needs the module. */
static void a_worker_that_leaves_waits_for_the_gradients_of_parameters(void **state)
{
    trainer t;
    trii_served *served;

    (void)state;
    begin(&t);
    served = trii_served_named(t.r.w.rpc[2], "part");
    backward(&t, 1);
    CHECK_FAILS(tri_rpc_leave(t.r.w.rpc[2], 10), TRI_ERR_TIMEOUT,
                "work of requests that were answered (1)");
    set_gate(GOES_ON);
    trii_mutex_lock(&served->lock);
    while (!served->has_ended)
        trii_cond_wait(&served->ended, &served->lock);
    trii_mutex_unlock(&served->lock);
    trii_served_unref(served);
    tri_step_end();
    release(&t, 1);
    for (int i = 0; i < 2; i++)
        tri_rpc_abort(t.r.w.rpc[i], "end");
    remote_end_without_leaving(&t.r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gradients_of_inputs_do_not_wait_for_those_of_parameters),
    cmocka_unit_test(another_owner_goes_on_with_them),
    cmocka_unit_test(the_optimizer_tells_what_fails_after_the_answer),
    cmocka_unit_test(the_next_backward_tells_it_too),
    cmocka_unit_test(parts_that_are_computed_again_are_answered_at_the_end),
    cmocka_unit_test(a_worker_that_leaves_waits_for_the_gradients_of_parameters),
};

TEST_MAIN(tests)
