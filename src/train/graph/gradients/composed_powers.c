/*
 * composed_powers.c - the gradients of powers and products, for create_graph.
 *
 * The gradient of a product is the product of the others, which is no quotient where something is
 * zero. It is recorded as the gradient of a tree: neighbours are multiplied until one number is
 * left; on the way back each is multiplied by its neighbour.
 */
#include "train/graph/gradients/composed.h"

#include <float.h>

/* --- powers --------------------------------------------------------------- */

static trii_vid compare(trii_composer *c, const trii_graph_op *op, trii_vid a, double number,
                        const trii_type *like)
{
    const trii_type scalar = {.dtype = like->dtype, .device = like->device};

    return trii_compose2(c, op, a, trii_compose_fill(c, &scalar, number));
}

/* Where a is too small for 1 / a to be finite, or NaN. */
static trii_vid has_no_inverse(trii_composer *c, trii_vid a, const trii_type *type)
{
    double least = type->dtype == TRI_DTYPE_F64   ? DBL_MIN
                   : type->dtype == TRI_DTYPE_F16 ? 0x1p-14
                                                  : (double)FLT_MIN;

    a = compare(c, &trii_op_ge, trii_compose1(c, &trii_op_abs, a), least, type);
    return trii_compose1(c, &trii_op_logical_not, a);
}

/* Of the base: b a^(b - 1), 0 where b is 0; of the exponent: a^b log a, 0 where a is 0 and b is not
 * negative. Where a factor would not be finite the base is replaced, so that the result that is
 * discarded is finite. */
tri_status trii_composed_pow(trii_step *step, const trii_node *node, trii_vid g, bool of_exponent,
                             trii_vid *out)
{
    trii_composer c = {step, TRI_OK};
    trii_vid base = trii_node_in(step, node, 0), b = trii_node_in(step, node, 1);
    const trii_type type = *trii_type_of(step, node->first_out);
    const trii_type own = *trii_type_of(step, of_exponent ? b : base);
    trii_vid a = trii_compose_expand(&c, base, type.shape, type.ndim), mask, d;

    mask = of_exponent ? compare(&c, &trii_op_eq, a, 0, &type) : has_no_inverse(&c, a, &type);
    mask = trii_compose2(&c, &trii_op_logical_and, mask,
                         compare(&c, of_exponent ? &trii_op_ge : &trii_op_eq, b, 0, &type));
    a = trii_compose_masked(&c, a, mask, false, 1);
    if (of_exponent) {
        d = trii_compose2(&c, &trii_op_mul, trii_compose2(&c, &trii_op_pow, a, b),
                          trii_compose1(&c, &trii_op_log, a));
    } else {
        d = trii_compose2(&c, &trii_op_pow, a, trii_compose_number(&c, &trii_op_add_scalar, b, -1));
        d = trii_compose_masked(&c, trii_compose2(&c, &trii_op_mul, d, b), mask, false, 0);
    }
    *out = trii_compose_sum_to(&c, trii_compose2(&c, &trii_op_mul, g, d), &own);
    return c.status;
}

/* --- products ------------------------------------------------------------- */

#define LEVELS 63

/* Factors in rows: [rows, n]. */
typedef struct tree {
    trii_composer c;
    int64_t rows;
} tree;

static trii_vid narrow(tree *t, trii_vid x, int dim, int64_t start, int64_t n)
{
    trii_vid out = TRII_NO_VALUE;

    if (t->c.status == TRI_OK)
        t->c.status = trii_rec_narrow(t->c.step, x, dim, start, n, &out);
    return out;
}

/* [rows, n] -> [rows, (n + 1) / 2, 2]: an odd last element is paired with 1. */
static trii_vid pairs_of(tree *t, trii_vid x, int64_t n)
{
    const trii_attrs attrs = {.n_i = 4, .n_f = 1, .i = {0, 0, 0, n % 2}, .f = {1}};

    if (n % 2 != 0)
        x = trii_compose(&t->c, &trii_op_pad, &x, 1, &attrs);
    return trii_compose_reshape(&t->c, x, (int64_t[]){t->rows, (n + 1) / 2, 2}, 3);
}

/* [rows, n]: for each element the product of the others, times g [rows, 1]. */
static trii_vid others(tree *t, trii_vid x, int64_t n, trii_vid g)
{
    const trii_attrs last = {.n_i = 1, .i = {2}};
    trii_vid pairs[LEVELS];
    int64_t size[LEVELS];
    int levels = 0;

    for (; n > 1; n = (n + 1) / 2) {
        trii_vid both = pairs_of(t, x, n);

        pairs[levels] = both;
        size[levels++] = n;
        x = trii_compose2(&t->c, &trii_op_mul, narrow(t, both, 2, 0, 1), narrow(t, both, 2, 1, 1));
        x = trii_compose_reshape(&t->c, x, (int64_t[]){t->rows, (n + 1) / 2}, 2);
    }
    while (--levels >= 0) {
        int64_t half = (size[levels] + 1) / 2;

        g = trii_compose_reshape(&t->c, g, (int64_t[]){t->rows, half, 1}, 3);
        g = trii_compose2(&t->c, &trii_op_mul, g,
                          trii_compose(&t->c, &trii_op_flip, &pairs[levels], 1, &last));
        g = trii_compose_reshape(&t->c, g, (int64_t[]){t->rows, 2 * half}, 2);
        g = narrow(t, g, 1, 0, size[levels]);
    }
    return g;
}

/* The order with the kept dimensions first; the number of products, and of factors of each. */
static trii_attrs kept_first(const trii_type *type, int64_t mask, int64_t *rows, int64_t *n)
{
    trii_attrs order = {.n_i = 0};

    *rows = *n = 1;
    for (int reduced = 0; reduced < 2; reduced++) {
        for (int d = 0; d < type->ndim; d++) {
            if ((mask >> d & 1) != reduced)
                continue;
            trii_attrs_add(&order, d);
            *(reduced != 0 ? n : rows) *= type->shape[d];
        }
    }
    return order;
}

tri_status trii_composed_prod(trii_step *step, const trii_node *node, trii_vid g, trii_vid *out)
{
    tree t = {.c = {step, TRI_OK}};
    trii_vid x = trii_node_in(step, node, 0), d;
    const trii_type type = *trii_type_of(step, x);
    int64_t shape[TRI_MAX_DIMS], n;
    const trii_attrs order = kept_first(&type, node->attrs.i[0], &t.rows, &n);
    trii_attrs back = order;

    if (t.rows == 0 || n == 0) {
        *out =
            trii_compose_number(&t.c, &trii_op_mul_scalar, x, 0); /* no elements, or no products */
        return t.c.status;
    }
    for (int d_out = 0; d_out < type.ndim; d_out++) {
        shape[d_out] = type.shape[order.i[d_out]];
        back.i[order.i[d_out]] = d_out;
    }
    x = trii_compose(&t.c, &trii_op_permute, &x, 1, &order);
    x = trii_compose_reshape(&t.c, x, (int64_t[]){t.rows, n}, 2);
    g = trii_compose_reshape(&t.c, g, (int64_t[]){t.rows, 1}, 2);
    d = trii_compose_reshape(&t.c, others(&t, x, n, g), shape, type.ndim);
    *out = trii_compose(&t.c, &trii_op_permute, &d, 1, &back);
    return t.c.status;
}
