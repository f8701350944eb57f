/* overlaps_random_test.c - random programs over tensors that share memory, against a model in which
 * each tensor is a range of a plain array and operations run one after the other. */
/* ctest: also=TRI_EAGER=1 */
#include "testing/any_order.h"
#include "testing/shared_unit.h"
#include "train/graph/step/host_op.h"

#define UNIT 9216 /* elements, at most: a third of it is written where it lies */
#define TENSORS 8
#define HANDLES 12
#define PROGRAMS (TEST_SANITIZED ? 60 : 250)

/* A tensor of the program, a range of the model's array; or a value of the step. */
typedef struct operand {
    tri_tensor *tensor;
    int64_t n;
    float *data;
    bool bound; /* a value that lies in a tensor, and is gone when that is written again */
} operand;

static float arrays[2][UNIT]; /* of the unit, and of a tensor that shares nothing */
static operand tensors[TENSORS], handles[HANDLES];
static int n_tensors, n_handles;
static uint32_t state, program;

static uint32_t below(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(state >> 8) * n >> 24);
}

static operand *any_tensor(void)
{
    return &tensors[below((uint32_t)n_tensors)];
}

static operand *any_operand(void)
{
    return n_handles > 0 && below(2) == 0 ? &handles[below((uint32_t)n_handles)] : any_tensor();
}

static void compare(tri_tensor *tensor, const float *want, int64_t n)
{
    static float got[2 * UNIT];

    CHECK_OK(tri_tensor_copy_out(tensor, got, (size_t)n * sizeof(*got)));
    for (int64_t i = 0; i < n; i++) {
        if (got[i] != want[i])
            fail_msg("program %u: element %lld of %lld is %g, not %g", program, (long long)i,
                     (long long)n, (double)got[i], (double)want[i]);
    }
}

/* --- values of the step --------------------------------------------------- */

static void forget(int k)
{
    free(handles[k].data);
    handles[k] = handles[--n_handles];
}

/* One dimension, as all values have; NULL: the value was overwritten, which only one that lies in a
 * tensor may be. */
static tri_tensor *flat(const operand *x)
{
    tri_tensor *y = tri_reshape(x->tensor, &x->n, 1);
    double item;

    if (tri_tensor_status(y) == TRI_OK)
        return y;
    CHECK_FAILS(tri_item_status(y, &item), TRI_ERR_STATE, "overwritten");
    assert_true(x->bound);
    return NULL;
}

static float *new_value(tri_tensor *value, int64_t n)
{
    operand *x;

    if (n_handles == HANDLES)
        forget((int)below(HANDLES));
    x = &handles[n_handles++];
    *x = (operand){tri_keep(value), n, malloc((size_t)n * sizeof(float)), false};
    assert_non_null(x->data);
    return x->data;
}

/* a + b, the last elements of it, or a turned round. */
static void compute(bool elsewhere)
{
    operand a = *any_operand(), b = {0};
    int64_t n = a.n;
    float *data;
    tri_tensor *x = flat(&a), *y;

    if (x != NULL && below(3) > 0) {
        b = *any_operand();
        n = b.n < n ? b.n : n;
        y = flat(&b);
        x = y != NULL ? tri_add(tri_narrow(x, 0, 0, n), tri_narrow(y, 0, b.n - n, n)) : NULL;
    } else if (x != NULL) {
        x = tri_flip(x, 0);
    }
    if (x == NULL)
        return;
    if (elsewhere)
        x = tri_to(tri_mul_scalar(tri_to(x, TRI_CPU(1 + (int)below(2))), -1), TRI_CPU(0));
    data = malloc((size_t)n * sizeof(*data));
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++) {
        data[i] = b.n > 0 ? a.data[i] + b.data[b.n - n + i] : a.data[n - 1 - i];
        data[i] = elsewhere ? -data[i] : data[i];
    }
    memcpy(new_value(x, n), data, (size_t)n * sizeof(*data));
    free(data);
}

/* --- communication -------------------------------------------------------- */

typedef struct comm {
    trii_host_op op; /* first */
    trii_host_buffers buffers;
    size_t n; /* elements of the operand */
} comm;

static tri_status start(trii_host_op *op, const trii_host_buffers *buffers)
{
    ((comm *)op)->buffers = *buffers;
    return TRI_OK;
}

/* In place of a gather of two ranks, the last one first; and of an all-reduce. */
static tri_status gather(trii_host_op *op, int64_t for_ns)
{
    const comm *c = (const comm *)op;

    (void)for_ns;
    for (size_t k = 2; k-- > 0;) {
        for (size_t i = 0; i < c->n; i++)
            ((float *)c->buffers.out[0])[k * c->n + i] =
                ((const float *)c->buffers.in[0])[i] + (float)k;
    }
    return TRI_OK;
}

static tri_status reduce(trii_host_op *op, int64_t for_ns)
{
    const comm *c = (const comm *)op;

    (void)for_ns;
    for (size_t i = 0; i < c->n; i++)
        ((float *)c->buffers.out[0])[i] = ((const float *)c->buffers.in[0])[i] + 1;
    return TRI_OK;
}

static tri_status poll(trii_host_op *op)
{
    (void)op;
    return TRI_INPROGRESS;
}

static const trii_host_kind gathers = {
    .name = "gather", .start = start, .poll = poll, .wait = gather};
static const trii_host_kind reduces = {
    .name = "reduce", .in_place = true, .start = start, .poll = poll, .wait = reduce};

static void communicate(void)
{
    trii_step *step = trii_step_current();
    operand a = *any_operand();
    bool gathering = below(2) == 0;
    int64_t n = a.n * (gathering ? 2 : 1);
    trii_host_op *op = NULL;
    trii_vid in, out = TRII_NO_VALUE;
    trii_host_result result = {.type = {.dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {n}}};
    const trii_host_call call = {.in = &in, .n_in = 1, .out = &result, .n_out = 1};
    float *data;
    tri_tensor *x = n <= UNIT ? flat(&a) : NULL;

    if (x == NULL)
        return;
    CHECK_OK(trii_resolve(step, x, &in));
    CHECK_OK(trii_host_op_new(step, gathering ? &gathers : &reduces, sizeof(comm), &op));
    op->group = 1;
    ((comm *)op)->n = (size_t)a.n;
    CHECK_OK(trii_record_host(step, op, &call, &out));
    data = malloc((size_t)n * sizeof(*data));
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++)
        data[i] = a.data[i % a.n] + (float)(gathering ? i / a.n : 1);
    memcpy(new_value(trii_handle_recorded(step, out), n), data, (size_t)n * sizeof(*data));
    free(data);
}

/* --- writes --------------------------------------------------------------- */

static void leave(void)
{
    const operand *to = any_tensor();
    operand *a = any_operand();
    trii_vid id = TRII_NO_VALUE;
    int64_t first;
    tri_tensor *x = a->n >= to->n ? flat(a) : NULL;

    if (x == NULL)
        return;
    first = (int64_t)below((uint32_t)(a->n - to->n) + 1);
    if (a->n > to->n) {
        x = tri_narrow(x, 0, first, to->n);
    } else if (a >= handles && a < handles + HANDLES) {
        x = a->tensor; /* and not a view of it */
        a->bound = true;
    }
    if (to->tensor->ndim > 1)
        x = tri_reshape(x, to->tensor->shape, to->tensor->ndim);
    CHECK_OK(trii_resolve(trii_step_current(), x, &id));
    CHECK_OK(trii_bind(trii_step_current(), id, to->tensor));
    memmove(to->data, a->data + first, (size_t)to->n * sizeof(*to->data));
}

static void copy_in(void)
{
    const operand *to = any_tensor();

    for (int64_t i = 0; i < to->n; i++)
        to->data[i] = (float)below(100);
    CHECK_OK(tri_tensor_copy_in(to->tensor, to->data, (size_t)to->n * sizeof(*to->data)));
}

/* --- programs ------------------------------------------------------------- */

static void make_tensors(bool large)
{
    static const int twelfths[][2] = {{0, 6}, {6, 6}, {3, 6}, {0, 4}, {4, 4}, {8, 4}, {1, 10}};
    int64_t n = large ? UNIT : 24;

    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < n; i++)
            arrays[k][i] = (float)below(100);
        tensors[k] =
            (operand){tri_tensor_from(&n, 1, TRI_DTYPE_F32, arrays[k]), n, arrays[k], false};
    }
    for (n_tensors = 2; n_tensors < TENSORS; n_tensors++) {
        const int *range = twelfths[below(7)];
        int64_t first = range[0] * n / 12, size = range[1] * n / 12;
        operand *t = &tensors[n_tensors];

        *t = (operand){NULL, size, arrays[0] + first, false};
        if (below(2) == 0)
            CHECK_OK(trii_tensor_range(tensors[0].tensor, first, TRI_SHAPE(size), &t->tensor));
        else
            CHECK_OK(
                trii_tensor_range(tensors[0].tensor, first, TRI_SHAPE(2, size / 2), &t->tensor));
    }
}

static void end_step(void)
{
    CHECK_OK(tri_step_end_status());
    while (n_handles > 0)
        forget(0);
}

static void run_program(bool elsewhere)
{
    state = program * 2654435761u;
    make_tensors(below(3) == 0);
    for (int k = 10 + (int)below(30); k > 0; k--) {
        uint32_t what = below(100);
        const operand *x = any_operand();

        if (what < 35)
            compute(elsewhere && below(2) == 0);
        else if (what < 60)
            leave();
        else if (what < 70)
            copy_in();
        else if (what < 82)
            communicate();
        else if (what < 92 && !x->bound)
            compare(x->tensor, x->data, x->n);
        else if (what < 96)
            CHECK_OK(tri_run());
        else
            end_step();
    }
    for (int k = 0; k < n_handles; k++) {
        if (!handles[k].bound)
            compare(handles[k].tensor, handles[k].data, handles[k].n);
    }
    end_step();
    for (int k = 0; k < n_tensors; k++)
        compare(tensors[k].tensor, tensors[k].data, tensors[k].n);
    for (int k = 0; k < n_tensors; k++)
        tri_tensor_unref(tensors[k].tensor);
}

static void random_programs_do_what_they_say(void **unused)
{
    (void)unused;
    for (program = 1; program <= PROGRAMS; program++)
        run_program(false);
    trii_executor_set(&trii_executor_reference);
    for (; program <= PROGRAMS + PROGRAMS / 5; program++)
        run_program(false);
    trii_executor_set(NULL);
}

static void random_programs_do_what_they_say_while_a_search_for_nan_looks(void **unused)
{
    bool before = trii_nan_check_set(trii_step_current(), true);

    (void)unused;
    for (program = 1; program <= PROGRAMS / 5; program++)
        run_program(false);
    (void)trii_nan_check_set(trii_step_current(), before);
}

static void random_programs_do_what_they_say_in_any_order_of_queues(void **unused)
{
    (void)unused;
    CHECK_OK(tri_cpu_devices_set(3));
    trii_executor_set(&any_order_executor);
    for (program = 1; program <= PROGRAMS; program++) {
        any_order_number = (int)(program % ANY_ORDERS);
        run_program(true);
    }
    trii_executor_set(NULL);
    assert_true(any_order_runs > PROGRAMS || is_eager());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_programs_do_what_they_say),
    cmocka_unit_test(random_programs_do_what_they_say_while_a_search_for_nan_looks),
    cmocka_unit_test(random_programs_do_what_they_say_in_any_order_of_queues),
};

TEST_MAIN(tests)
