/* small_stack_test.c - computing on a thread with little stack, such as runtimes of other languages
 * and servers with many threads give their threads. */
#include <pthread.h>

#include <trireme/nn.h>
#include <trireme/ops.h>

#include "base/compiler.h"
#include "testing/check.h"

/* What context.h says; frames are larger under a sanitizer. */
#define STACK_BYTES ((size_t)(TEST_SANITIZED ? 1024 : 128) << 10)

typedef struct job {
    tri_tensor *(*of)(tri_tensor *x);
    tri_tensor *x;
    tri_status status;
} job;

/* Many filled operands and temporaries in one chain. */
static tri_tensor *long_chain(tri_tensor *x)
{
    tri_tensor *y = x, *rows[6], *last;

    for (int i = 0; i < 6; i++)
        rows[i] = tri_narrow(x, 0, i, 1);
    for (int i = 0; i < 3; i++)
        y = tri_add(tri_mul(y, rows[2 * i]), tri_tanh(tri_mul(x, rows[2 * i + 1])));
    last = tri_cast(y, TRI_DTYPE_BF16);
    return tri_add(tri_sum(y, NULL, 0, false),
                   tri_cast(tri_sum(last, NULL, 0, false), TRI_DTYPE_F32));
}

static tri_tensor *many_products(tri_tensor *x)
{
    x = tri_reshape(x, TRI_SHAPE(16, 64, 64));
    return tri_sum(tri_matmul(x, tri_transpose(x, 1, 2)), NULL, 0, false);
}

static tri_tensor *attention(tri_tensor *x)
{
    x = tri_reshape(x, TRI_SHAPE(1, 8, 128, 64));
    return tri_sum(tri_attention(x, x, x, NULL), NULL, 0, false);
}

static tri_tensor *convolution(tri_tensor *x)
{
    x = tri_reshape(x, TRI_SHAPE(4, 16, 32, 32));
    return tri_sum(
        tri_conv(x, tri_reshape(tri_narrow(x, 0, 0, 1), TRI_SHAPE(64, 16, 4, 4)), NULL, NULL), NULL,
        0, false);
}

static tri_tensor *in_double(tri_tensor *x)
{
    x = tri_cast(x, TRI_DTYPE_F64);
    return tri_sum(tri_softmax(tri_sin(tri_matmul(x, tri_transpose(x, 0, 1))), 1), NULL, 0, false);
}

static void *compute(void *arg)
{
    job *j = arg;
    tri_tensor *loss = j->of(j->x);
    double value;

    tri_backward(loss);
    j->status = tri_item_status(loss, &value);
    if (j->status == TRI_OK)
        j->status = tri_step_end_status();
    return NULL;
}

static void a_thread_with_a_small_stack_can_compute(void **state)
{
    static tri_tensor *(*const functions[])(tri_tensor *) = {long_chain, many_products, attention,
                                                             convolution, in_double};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(functions); i++) {
        job j = {functions[i], tri_tensor_create(TRI_SHAPE(256, 256), TRI_DTYPE_F32), TRI_OK};
        pthread_attr_t attr;
        pthread_t thread;

        CHECK_OK(tri_init_constant(j.x, 0.01));
        tri_requires_grad(j.x, true);
        assert_int_equal(pthread_attr_init(&attr), 0);
        assert_int_equal(pthread_attr_setstacksize(&attr, STACK_BYTES), 0);
        assert_int_equal(pthread_create(&thread, &attr, compute, &j), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        pthread_attr_destroy(&attr);
        CHECK_OK(j.status);
        tri_tensor_unref(j.x);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_thread_with_a_small_stack_can_compute),
};

TEST_MAIN(tests)
