/*
 * print_test.c - tensors as text against what torch prints (print.txt, made by make_print.py), and
 * the ways in which a text comes out.
 */
#include <inttypes.h>
#include <math.h>

#include <trireme/ops.h>

#include "base/dtype.h"
#include "testing/check.h"
#include "testing/golden.h"

#define TEXT_MAX (1 << 16)

typedef struct print_case {
    tri_dtype dtype;
    int ndim;
    int64_t shape[TRI_MAX_DIMS];
    int64_t numel;
    char want[TEXT_MAX];
} print_case;

static tri_dtype dtype_of(const char *name)
{
    for (int d = 1; d < TRII_TENSOR_DTYPES; d++) {
        if (strcmp(tri_dtype_name((tri_dtype)d), name) == 0)
            return (tri_dtype)d;
    }
    fail_msg("no dtype is called %s", name);
    return TRI_DTYPE_NONE;
}

static void put_element(tri_dtype dtype, double value, char *at)
{
    union {
        int8_t i8;
        uint8_t u8;
        int32_t i32;
        int64_t i64;
        uint16_t u16;
        float f32;
        double f64;
    } u;

    switch (dtype) {
    case TRI_DTYPE_I8:
        u.i8 = (int8_t)value;
        break;
    case TRI_DTYPE_U8:
    case TRI_DTYPE_BOOL:
        u.u8 = (uint8_t)value;
        break;
    case TRI_DTYPE_I32:
        u.i32 = (int32_t)value;
        break;
    case TRI_DTYPE_I64:
        u.i64 = (int64_t)value;
        break;
    case TRI_DTYPE_F16:
        u.u16 = trii_f32_to_f16((float)value);
        break;
    case TRI_DTYPE_BF16:
        u.u16 = trii_f32_to_bf16((float)value);
        break;
    case TRI_DTYPE_F32:
        u.f32 = (float)value;
        break;
    default:
        u.f64 = value;
    }
    memcpy(at, &u, tri_dtype_size(dtype));
}

/* The tensor of a case's first line; the rest of the case is what it should print. */
static tri_tensor *read_case(FILE *file, print_case *c)
{
    static char line[TEXT_MAX], data[TEXT_MAX];
    char name[8];
    int used, at;

    if (fgets(line, sizeof(line), file) == NULL)
        return NULL;
    assert_int_equal(sscanf(line, "%7s %d%n", name, &c->ndim, &at), 2);
    c->dtype = dtype_of(name);
    c->numel = 1;
    for (int d = 0; d < c->ndim; d++, at += used) {
        assert_int_equal(sscanf(line + at, "%" SCNd64 "%n", &c->shape[d], &used), 1);
        c->numel *= c->shape[d];
    }
    at += (int)strlen(" :");
    for (int64_t i = 0; i < c->numel; i++, at += used) {
        uint64_t bits;
        double value;

        assert_int_equal(sscanf(line + at, "%" SCNx64 "%n", &bits, &used), 1);
        memcpy(&value, &bits, sizeof(value));
        put_element(c->dtype, value, data + (size_t)i * tri_dtype_size(c->dtype));
    }
    c->want[0] = '\0';
    while (fgets(line, sizeof(line), file) != NULL && strcmp(line, "end\n") != 0)
        strncat(c->want, line, sizeof(c->want) - strlen(c->want) - 1);
    c->want[strlen(c->want) - 1] = '\0'; /* the last newline */
    return tri_tensor_from(c->shape, c->ndim, c->dtype, data);
}

static void values_look_as_torch_prints_them(void **state)
{
    static print_case c;
    static char got[TEXT_MAX];
    FILE *file;
    tri_tensor *x;
    int n = 0;

    (void)state;
    file = golden_open("print.txt");
    while ((x = read_case(file, &c)) != NULL) {
        CHECK_OK(tri_tensor_status(x));
        tri_tensor_text(x, got, sizeof(got));
        assert_string_equal(got, c.want);
        tri_tensor_unref(x);
        n++;
    }
    assert_int_equal(n, 42);
    fclose(file);
    tri_step_end();
}

static void gradients_and_makers_are_told(void **state)
{
    const float one = 1;
    tri_tensor *w = tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &one);
    char text[200];

    (void)state;
    tri_requires_grad(w, true);
    tri_tensor_text(w, text, sizeof(text));
    assert_string_equal(text, "tensor(1., requires_grad=True)");
    tri_tensor_text(tri_mul_scalar(w, 2.5), text, sizeof(text));
    assert_string_equal(text, "tensor(2.5000, grad_fn=<mul_scalar>)");
    tri_no_grad_begin();
    tri_tensor_text(tri_mul_scalar(w, 2.5), text, sizeof(text));
    tri_no_grad_end();
    assert_string_equal(text, "tensor(2.5000)");
    tri_step_end();
    tri_tensor_unref(w);
}

static void room_is_never_exceeded(void **state)
{
    const float values[3] = {1, 2, 3};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(3), TRI_DTYPE_F32, values);
    const char *whole = "tensor([1., 2., 3.])";
    char text[32];

    (void)state;
    assert_int_equal(tri_tensor_text(x, NULL, 0), strlen(whole));
    for (size_t room = 0; room < sizeof(text); room++) {
        memset(text, '#', sizeof(text));
        assert_int_equal(tri_tensor_text(x, text, room), strlen(whole));
        assert_int_equal(text[room], '#');
        if (room > 0) {
            size_t n = room - 1 < strlen(whole) ? room - 1 : strlen(whole);

            assert_int_equal(strlen(text), n);
            assert_memory_equal(text, whole, n);
        }
    }
    tri_tensor_unref(x);
    tri_step_end();
}

static void a_failure_is_printed_in_the_place_of_the_value(void **state)
{
    tri_tensor *a = tri_tensor_create(TRI_SHAPE(2), TRI_DTYPE_F32);
    tri_tensor *b = tri_tensor_create(TRI_SHAPE(3), TRI_DTYPE_F32);
    char text[400];

    (void)state;
    tri_tensor_text(tri_add(a, b), text, sizeof(text));
    assert_non_null(strstr(text, "tensor(failed: "));
    assert_non_null(strstr(text, "tri_add(f32 [2], f32 [3]) at "));
    tri_tensor_text(NULL, text, sizeof(text));
    assert_non_null(strstr(text, "the tensor is NULL"));
    tri_step_end();
    tri_tensor_unref(a);
    tri_tensor_unref(b);
}

static void files_get_a_line(void **state)
{
    const double half = 0.5;
    tri_tensor *x = tri_tensor_from(NULL, 0, TRI_DTYPE_F64, &half);
    FILE *file = tmpfile();
    char line[100];

    (void)state;
    assert_non_null(file);
    tri_tensor_print(x, file);
    rewind(file);
    assert_non_null(fgets(line, sizeof(line), file));
    assert_string_equal(line, "tensor(0.5000, dtype=f64)\n");
    fclose(file);
    tri_tensor_unref(x);
    tri_step_end();
}

/* tri_item cannot tell a NaN from a failure. */
static void items_come_with_a_status(void **state)
{
    const float nan = NAN;
    tri_tensor *x = tri_tensor_from(NULL, 0, TRI_DTYPE_F32, &nan);
    tri_tensor *two = tri_tensor_create(TRI_SHAPE(2), TRI_DTYPE_F32);
    double value = 7;

    (void)state;
    CHECK_OK(tri_item_status(x, &value));
    assert_true(isnan(value));
    CHECK_OK(tri_item_status(tri_mul_scalar(tri_sum(two, NULL, 0, false), 0), &value));
    assert_true(value == 0);
    CHECK_FAILS(tri_item_status(two, &value), TRI_ERR_INVALID_ARG, "f32 [2] is not one element");
    assert_true(isnan(value));
    CHECK_FAILS(tri_item_status(x, NULL), TRI_ERR_INVALID_ARG, "value_out is NULL");
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(two);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(values_look_as_torch_prints_them),
    cmocka_unit_test(gradients_and_makers_are_told),
    cmocka_unit_test(room_is_never_exceeded),
    cmocka_unit_test(a_failure_is_printed_in_the_place_of_the_value),
    cmocka_unit_test(files_get_a_line),
    cmocka_unit_test(items_come_with_a_status),
};

TEST_MAIN(tests)
