/*
 * minimal_device_test.c - the least that a device needs: memory, copies, which operations it has,
 * and their kernels. It fuses nothing, knows no layout, and its kernels are complete when they
 * return. A small model trains there with the numbers of the cpu, since every sum is exact.
 */
#include <trireme/trireme.h>

#include "base/err.h"
#include "testing/check.h"
#include "train/graph/ops/table.h"
#include "train/graph/run/kernel.h"
#include "train/plan/device_ops.h"
#include "train/plan/plan.h"
#include "train/tensor/device_list.h"
#include "train/tensor/device_memory.h"

#define ROWS 4
#define IN 3
#define HIDDEN 8
#define OUT 2
#define ARGS TRII_GROUP_VALUES /* operands and results of a kernel, at most */

/* --- memory --------------------------------------------------------------- */

static size_t used;

static tri_status memory_alloc(int index, size_t bytes, void **data_out)
{
    (void)index;
    *data_out = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (*data_out == NULL)
        return TRI_ERR_NO_MEMORY;
    memset(*data_out, 0, bytes);
    used += bytes;
    return TRI_OK;
}

static void memory_free(int index, void *data, size_t bytes)
{
    (void)index;
    used -= data != NULL ? bytes : 0;
    free(data);
}

static tri_status memory_write(int index, void *dst, const void *host, size_t bytes)
{
    (void)index;
    memcpy(dst, host, bytes);
    return TRI_OK;
}

static tri_status memory_read(int index, void *host, const void *src, size_t bytes)
{
    return memory_write(index, host, src, bytes);
}

static tri_status memory_copy(int dst_index, void *dst, int src_index, const void *src,
                              size_t bytes)
{
    (void)src_index;
    return memory_write(dst_index, dst, src, bytes);
}

/* --- kernels -------------------------------------------------------------- */

typedef struct kernel {
    trii_kernel base; /* first */
    const trii_graph_op *op;
    int n_in, n_out, first_f;
    int arg[ARGS]; /* where the pointer of operand or result i is; -1 = absent */
    trii_type type[ARGS];
    int64_t iattr[TRII_MAX_IATTRS];
} kernel;

static int n_kernels; /* that have run */

static tri_status kernel_run(const trii_kernel *base, void *const *args, const trii_run *run)
{
    const kernel *k = (const kernel *)(const void *)base;
    trii_array array[ARGS] = {{NULL, NULL}};
    trii_kernel_args of = {.n_in = k->n_in,
                           .n_out = k->n_out,
                           .in = array,
                           .out = array + k->n_in,
                           .iattr = k->iattr,
                           .fattr = run->f + k->first_f};

    assert_int_equal(run->queue->device, TRI_CUDA(0));
    for (int i = 0; i < k->n_in + k->n_out; i++) {
        if (k->arg[i] >= 0)
            array[i] = (trii_array){args[k->arg[i]], &k->type[i]};
    }
    n_kernels++;
    return trii_reference_kernel(k->op, &of);
}

static void kernel_destroy(trii_kernel *base)
{
    free(base);
}

static int find(const int32_t *values, int32_t n, int32_t value)
{
    int i = 0;

    while (i < n && values[i] != value)
        i++;
    assert_true(i < n);
    return i;
}

/* The elements in another order: f32, two dimensions. */
typedef struct reorder {
    trii_kernel base; /* first */
    int64_t shape[2], from[2], to[2];
} reorder;

static tri_status reorder_run(const trii_kernel *base, void *const *args, const trii_run *run)
{
    const reorder *r = (const reorder *)(const void *)base;
    const float *from = args[0];
    float *to = args[1];

    assert_int_equal(run->queue->device, TRI_CUDA(0));
    for (int64_t i = 0; i < r->shape[0]; i++) {
        for (int64_t j = 0; j < r->shape[1]; j++)
            to[i * r->to[0] + j * r->to[1]] = from[i * r->from[0] + j * r->from[1]];
    }
    return TRI_OK;
}

static tri_status compile_reorder(const trii_type *type, const trii_layout *from,
                                  const trii_layout *to, trii_kernel **kernel_out)
{
    const int64_t plain[2] = {type->shape[1], 1};
    reorder *r = calloc(1, sizeof(*r));

    assert_true(r != NULL && type->ndim == 2 && type->dtype == TRI_DTYPE_F32);
    r->base = (trii_kernel){.name = "reorder", .run = reorder_run, .destroy = kernel_destroy};
    memcpy(r->shape, type->shape, sizeof(r->shape));
    memcpy(r->from, from != NULL ? from->strides : plain, sizeof(r->from));
    memcpy(r->to, to != NULL ? to->strides : plain, sizeof(r->to));
    *kernel_out = &r->base;
    return TRI_OK;
}

static const trii_graph_op *refused; /* there is no kernel to be had for it */

static tri_status compile(tri_device device, const trii_ir *ir, const trii_group *group,
                          trii_kernel **kernel_out)
{
    const trii_ir_node *node = &ir->nodes[group->nodes[0]];
    kernel *k;

    assert_int_equal(device, TRI_CUDA(0));
    if (group->kind == TRII_GROUP_REORDER)
        return compile_reorder(&ir->values[group->in[0]].type, group->in_layout[0],
                               group->out_layout[0], kernel_out);
    if (node->op == refused)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "cuda:0: out of memory for code");
    k = calloc(1, sizeof(*k));
    assert_true(group->kind == TRII_GROUP_OP && group->n_nodes == 1);
    assert_true(k != NULL && node->n_in + node->n_out <= ARGS && node->random < 0);
    k->base = (trii_kernel){.name = node->op->name, .run = kernel_run, .destroy = kernel_destroy};
    k->op = node->op;
    k->n_in = node->n_in;
    k->n_out = node->n_out;
    k->first_f = node->first_f;
    memcpy(k->iattr, node->iattr, (size_t)node->n_i * sizeof(k->iattr[0]));
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        bool is_in = i < node->n_in;
        int32_t value = is_in ? node->in[i] : node->out[i - node->n_in];

        k->arg[i] = -1;
        if (value < 0)
            continue;
        k->arg[i] = is_in ? find(group->in, group->n_in, value)
                          : group->n_in + find(group->out, group->n_out, value);
        k->type[i] = ir->values[value].type;
        assert_null(is_in ? group->in_layout[k->arg[i]]
                          : group->out_layout[k->arg[i] - group->n_in]);
    }
    *kernel_out = &k->base;
    return TRI_OK;
}

/* All in f32, but for the casts around a node on bf16. */
static bool supports(const trii_ir *ir, const trii_ir_node *node)
{
    static const trii_graph_op *const ops[] = {
        &trii_op_fill,          &trii_op_linear, &trii_op_matmul,
        &trii_op_mse_loss,      &trii_op_relu,   &trii_op_mse_loss_backward,
        &trii_op_relu_backward, &trii_op_sum_to, &trii_op_update,
        &trii_op_neg,           &trii_op_sum,
    };

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (node->op == ops[i])
            return ir->values[node->out[0]].type.dtype == TRI_DTYPE_F32;
    }
    return node->op == &trii_op_cast;
}

/* --- the kind ------------------------------------------------------------- */

static int count(void)
{
    return 1;
}

static void register_minimal(void)
{
    static const trii_memory memory = {memory_alloc, memory_free, memory_write, memory_read,
                                       memory_copy};
    static const trii_device_ops ops = {.abi = TRII_DEVICE_ABI,
                                        .size = sizeof(ops),
                                        .name = "minimal",
                                        .supports = supports,
                                        .compile = compile};
    static const trii_device_kind kind = {count, &memory, &ops};

    trii_device_kinds[TRI_DEVICE_CUDA] = &kind;
}

/* --- training ------------------------------------------------------------- */

#define STEPS 3
#define WEIGHTS (IN * HIDDEN + HIDDEN + HIDDEN * OUT + OUT)

typedef struct trained {
    double loss[STEPS];
    float weights[STEPS][WEIGHTS]; /* after each step */
} trained;

/* Small multiples of 1/8: what the first step computes needs no rounding. */
static const float *numbers(int seed)
{
    static float data[IN * HIDDEN];

    for (int i = 0; i < IN * HIDDEN; i++)
        data[i] = (float)((i * 5 + seed * 3) % 7 - 3) / 8;
    return data;
}

static double step(tri_module *net, tri_optimizer *optimizer, int i)
{
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(ROWS, IN), TRI_DTYPE_F32, numbers(11 + i));
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(ROWS, OUT), TRI_DTYPE_F32, numbers(17 + i));
    tri_tensor *loss = tri_keep(tri_mse_loss(tri_forward(net, x), y, NULL));
    double value = 0;

    tri_backward(loss);
    CHECK_OK(tri_optimizer_step(optimizer));
    CHECK_OK(tri_item_status(loss, &value));
    CHECK_OK(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return value;
}

static trained train(tri_device device)
{
    trained t;
    tri_module *net;
    tri_optimizer *optimizer;

    CHECK_OK(tri_set_device(device));
    net = tri_nn_sequential(tri_nn_linear(IN, HIDDEN, NULL), tri_nn_relu(),
                            tri_nn_linear(HIDDEN, OUT, NULL));
    optimizer = tri_sgd(net, 0.25, NULL);
    CHECK_OK(tri_optimizer_status(optimizer));
    for (int k = 0; k < tri_module_state_count(net); k++) {
        tri_tensor *tensor = tri_module_state(net, k).tensor;

        CHECK_OK(tri_tensor_copy_in(tensor, numbers(k),
                                    (size_t)tri_tensor_numel(tensor) * sizeof(float)));
    }
    for (int i = 0; i < STEPS; i++) {
        float *at = t.weights[i];

        t.loss[i] = step(net, optimizer, i);
        for (int k = 0; k < tri_module_state_count(net); k++) {
            tri_tensor *tensor = tri_module_state(net, k).tensor;
            size_t n = (size_t)tri_tensor_numel(tensor);

            CHECK_OK(tri_tensor_copy_out(tensor, at, n * sizeof(float)));
            at += n;
        }
        assert_true(at == t.weights[i] + WEIGHTS);
    }
    tri_optimizer_destroy(optimizer);
    tri_module_destroy(net);
    CHECK_OK(tri_set_device(TRI_CPU(0)));
    return t;
}

static void a_model_trains_with_the_numbers_of_the_cpu(void **state)
{
    trained here, there;

    (void)state;
    register_minimal();
    here = train(TRI_CPU(0));
    assert_int_equal(n_kernels, 0);
    there = train(TRI_CUDA(0));
    assert_true(n_kernels >= STEPS * 10);
    assert_true(here.loss[0] == there.loss[0]);
    assert_memory_equal(here.weights[0], there.weights[0], sizeof(here.weights[0]));
    for (int i = 1; i < STEPS; i++) {
        CHECK_NEAR(here.loss[i], there.loss[i], 1e-6);
        for (int k = 0; k < WEIGHTS; k++)
            CHECK_NEAR(here.weights[i][k], there.weights[i][k], 1e-6);
    }
    trii_plan_release();
    assert_int_equal(used, 0);
}

/* --- what it lacks -------------------------------------------------------- */

static tri_tensor *there(tri_dtype dtype)
{
    return tri_to(tri_cast(tri_full(TRI_SHAPE(2, 3), -1.5, TRI_DTYPE_F32), dtype), TRI_CUDA(0));
}

static void an_operation_without_a_kernel_is_named(void **state)
{
    double value = 0;

    (void)state;
    register_minimal();
    CHECK_FAILS(tri_item_status(tri_sum(tri_sin(there(TRI_DTYPE_F32)), NULL, 0, false), &value),
                TRI_ERR_UNSUPPORTED, "cuda:0 has no kernel for sin of f32");
    assert_non_null(strstr(tri_last_error(), "minimal_device_test.c:"));
    tri_step_end();
    CHECK_FAILS(tri_item_status(tri_sum(tri_relu(there(TRI_DTYPE_F64)), NULL, 0, false), &value),
                TRI_ERR_UNSUPPORTED, "cuda:0 has no kernel for relu of f64");
    tri_step_end();
}

static void an_operation_whose_kernel_cannot_be_compiled_is_named(void **state)
{
    double value = 0;

    (void)state;
    register_minimal();
    for (int round = 0; round < 3; round++) {
        tri_tensor *x = there(TRI_DTYPE_F32);
        tri_tensor *y = tri_sum(tri_relu(tri_neg(x)), NULL, 0, false); /* kernels stand before it */

        refused = round == 1 ? &trii_op_relu : NULL;
        if (round == 1)
            CHECK_FAILS(tri_item_status(y, &value), TRI_ERR_NO_MEMORY, "tri_relu at ");
        else
            CHECK_OK(tri_item_status(y, &value));
        if (round == 1)
            assert_non_null(strstr(tri_last_error(), "cuda:0: out of memory for code"));
        trii_plan_release(); /* what was compiled, too */
        tri_step_end();
    }
    CHECK_NEAR(value, 9, 0.0);
}

static void bf16_without_a_kernel_is_computed_in_f32(void **state)
{
    uint16_t bits[6];
    tri_tensor *y;

    (void)state;
    register_minimal();
    y = tri_keep(tri_neg(there(TRI_DTYPE_BF16)));
    CHECK_OK(tri_tensor_copy_out(y, bits, sizeof(bits)));
    for (int i = 0; i < 6; i++)
        assert_int_equal(bits[i], 0x3fc0); /* 1.5 */
    CHECK_OK(tri_step_end_status());
}

/* The device reads no strides, so the plan has the transposed operand copied. */
static void a_view_is_copied(void **state)
{
    const float data[2][3] = {{1, -2, 3}, {-4, 5, -6}};
    tri_tensor *x, *y;
    float got[3][2];

    (void)state;
    register_minimal();
    x = tri_to(tri_tensor_from(TRI_SHAPE(2, 3), TRI_DTYPE_F32, data), TRI_CUDA(0));
    y = tri_keep(tri_neg(tri_transpose(x, 0, 1)));
    CHECK_OK(tri_tensor_copy_out(y, got, sizeof(got)));
    for (int i = 0; i < 6; i++)
        assert_true(got[i / 2][i % 2] == -data[i % 2][i / 2]);
    CHECK_OK(tri_step_end_status());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_model_trains_with_the_numbers_of_the_cpu),
    cmocka_unit_test(an_operation_without_a_kernel_is_named),
    cmocka_unit_test(an_operation_whose_kernel_cannot_be_compiled_is_named),
    cmocka_unit_test(bf16_without_a_kernel_is_computed_in_f32),
    cmocka_unit_test(a_view_is_copied),
};

TEST_MAIN(tests)
