/*
 * composer.c - see composer.h.
 */
#include "train/graph/ops/composer.h"

trii_vid trii_compose(trii_composer *c, const trii_graph_op *op, const trii_vid *in, int n_in,
                      const trii_attrs *attrs)
{
    trii_vid out = TRII_NO_VALUE;

    if (c->status == TRI_OK)
        c->status = trii_record_values(c->step, op, in, n_in, attrs, &out);
    return out;
}

trii_vid trii_compose1(trii_composer *c, const trii_graph_op *op, trii_vid a)
{
    return trii_compose(c, op, &a, 1, NULL);
}

trii_vid trii_compose2(trii_composer *c, const trii_graph_op *op, trii_vid a, trii_vid b)
{
    return trii_compose(c, op, (trii_vid[]){a, b}, 2, NULL);
}

trii_vid trii_compose_number(trii_composer *c, const trii_graph_op *op, trii_vid a, double number)
{
    trii_attrs attrs;

    attrs.n_i = 0;
    attrs.n_f = 1;
    attrs.f[0] = number;
    return trii_compose(c, op, &a, 1, &attrs);
}

trii_vid trii_compose_sum(trii_composer *c, trii_vid a, int64_t mask, double divisor)
{
    trii_attrs attrs;
    trii_vid sum;

    attrs.n_i = 2;
    attrs.n_f = 0;
    attrs.i[0] = mask;
    attrs.i[1] = true;
    sum = trii_compose(c, &trii_op_sum, &a, 1, &attrs);
    return divisor == 1 ? sum : trii_compose_number(c, &trii_op_mul_scalar, sum, 1 / divisor);
}

trii_vid trii_compose_sum_to(trii_composer *c, trii_vid a, const trii_type *like)
{
    trii_vid out = TRII_NO_VALUE;

    if (c->status == TRI_OK)
        c->status = trii_rec_sum_to(c->step, a, like, &out);
    return out;
}

trii_vid trii_compose_reshape(trii_composer *c, trii_vid a, const int64_t *shape, int ndim)
{
    trii_vid out = TRII_NO_VALUE;

    if (c->status == TRI_OK)
        c->status = trii_rec_reshape(c->step, a, shape, ndim, &out);
    return out;
}

trii_vid trii_compose_expand(trii_composer *c, trii_vid a, const int64_t *shape, int ndim)
{
    trii_vid out = TRII_NO_VALUE;

    if (c->status == TRI_OK)
        c->status = trii_rec_expand(c->step, a, shape, ndim, &out);
    return out;
}

trii_vid trii_compose_cast(trii_composer *c, trii_vid a, tri_dtype dtype)
{
    trii_vid out = TRII_NO_VALUE;

    if (c->status == TRI_OK)
        c->status = trii_rec_cast(c->step, a, dtype, &out);
    return out;
}

trii_vid trii_compose_fill(trii_composer *c, const trii_type *type, double value)
{
    trii_attrs attrs;

    trii_fill_attrs(type, value, &attrs);
    return trii_compose(c, &trii_op_fill, NULL, 0, &attrs);
}

trii_vid trii_compose_masked(trii_composer *c, trii_vid x, trii_vid mask, bool inverted,
                             double value)
{
    trii_attrs attrs;

    attrs.n_i = attrs.n_f = 1;
    attrs.i[0] = inverted;
    attrs.f[0] = value;
    return trii_compose(c, &trii_op_masked_fill, (trii_vid[]){x, mask}, 2, &attrs);
}

tri_dtype trii_compose_dtype(const trii_type *type)
{
    return trii_dtype_is_half(type->dtype) ? TRI_DTYPE_F32 : type->dtype;
}

trii_vid trii_compose_one_less(trii_composer *c, trii_vid x)
{
    return trii_compose_number(c, &trii_op_add_scalar, trii_compose1(c, &trii_op_neg, x), 1);
}

trii_vid trii_compose_wide(trii_composer *c, trii_vid x)
{
    return c->status != TRI_OK
               ? x
               : trii_compose_cast(c, x, trii_compose_dtype(trii_type_of(c->step, x)));
}
