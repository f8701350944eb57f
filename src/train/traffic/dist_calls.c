/*
 * dist_calls.c - the public calls of dist.h: they resolve operand and group, check what a run would
 * find too late, and record by traffic.h and along.h.
 */
#include <trireme/dist.h>

#include "base/dtype.h"
#include "base/err.h"
#include "comm/group/join/world.h"
#include "train/graph/ops/rules.h"
#include "train/traffic/along.h"
#include "train/traffic/shared_loss.h"

/* One call: what it got, and what becomes of it. */
typedef struct call {
    const char *name; /* without tri_ */
    trii_step *step;
    tri_tensor *x;
    tri_group *group;
    trii_vid in, out;
    int dim; /* counted from the start */
    tri_status status;
} call;

/* The group comes first: a refusal of anything else is told to it. */
static call begin_in(const char *name, tri_tensor *x, tri_group *group)
{
    call c = {.name = name,
              .step = trii_step_current(),
              .x = x,
              .group = group,
              .in = TRII_NO_VALUE,
              .out = TRII_NO_VALUE};

    c.status = trii_group_resolve(&c.group, "dist");
    if (c.status != TRI_OK)
        c.group = NULL;
    else if (c.step == NULL)
        c.status = TRI_ERR_NO_MEMORY;
    return c;
}

static call begin(const char *name, tri_tensor *x, tri_group *group)
{
    call c = begin_in(name, x, group);

    if (c.status == TRI_OK && x == NULL)
        c.status = TRII_FAIL(TRI_ERR_INVALID_ARG, "x is NULL");
    if (c.status == TRI_OK)
        c.status = trii_resolve(c.step, x, &c.in);
    c.out = c.in;
    return c;
}

static call begin_along(const char *name, tri_tensor *x, int dim, tri_group *group)
{
    call c = begin(name, x, group);

    if (c.status == TRI_OK)
        c.status = trii_dim_operand(c.step, x, dim, &c.in, &c.dim);
    return c;
}

/* A reduction that the engine would refuse in the run, where nobody knows the call any more. */
static void check_reduction(call *c, tri_redop op)
{
    if (c->status == TRI_OK)
        c->status = trii_reduction_check(trii_type_of(c->step, c->in)->dtype, op);
}

/* Nothing is to be done among one rank, but for reductions without a gradient, whose results must
 * not have one there either. */
static bool is_alone(const call *c, tri_redop op)
{
    return c->status != TRI_OK ||
           (tri_group_size(c->group) == 1 && (op == TRI_REDOP_SUM || op == TRI_REDOP_AVG));
}

/* Peers may be waiting in this collective, which will never be run here. */
static tri_tensor *refused(const call *c)
{
    tri_tensor *x = c->x, *failed = trii_handle_refused(c->step, c->name, &x, x != NULL, c->status);
    char line[TRII_ERR_BYTES];

    (void)snprintf(line, sizeof(line), "%s", tri_last_error());
    if (c->group != NULL && tri_group_size(c->group) > 1)
        tri_group_abort(c->group, line);
    trii_err_set("%s", line);
    return failed;
}

static tri_tensor *end(const call *c)
{
    tri_tensor *x = c->x;

    if (c->status != TRI_OK)
        return refused(c);
    return c->out == c->in && x != NULL ? x : trii_handle_recorded(c->step, c->out);
}

tri_tensor *tri_dist_all_reduce(tri_tensor *x, tri_redop op, tri_group *group)
{
    call c = begin("dist_all_reduce", x, group);

    check_reduction(&c, op);
    if (!is_alone(&c, op))
        c.status = trii_record_all_reduce(c.step, c.group, c.in, op, &c.out);
    return end(&c);
}

tri_tensor *tri_dist_all_gather(tri_tensor *x, int dim, tri_group *group)
{
    call c = begin_along("dist_all_gather", x, dim, group);

    if (!is_alone(&c, TRI_REDOP_SUM))
        c.status =
            trii_record_gather_along(c.step, c.group, trii_record_all_gather, c.in, c.dim, &c.out);
    return end(&c);
}

tri_tensor *tri_dist_reduce_scatter(tri_tensor *x, tri_redop op, int dim, tri_group *group)
{
    call c = begin_along("dist_reduce_scatter", x, dim, group);

    check_reduction(&c, op);
    if (!is_alone(&c, op))
        c.status = trii_record_reduce_scatter_along(c.step, c.group, c.in, op, c.dim, &c.out);
    return end(&c);
}

tri_tensor *tri_dist_all_to_all(tri_tensor *x, tri_group *group)
{
    call c = begin_along("dist_all_to_all", x, 0, group);

    if (!is_alone(&c, TRI_REDOP_SUM))
        c.status = trii_record_all_to_all_rows(c.step, c.group, c.in, &c.out);
    return end(&c);
}

tri_tensor *tri_dist_all_to_all_v(tri_tensor *x, const int64_t *to, const int64_t *from,
                                  tri_group *group)
{
    call c = begin_along("dist_all_to_all_v", x, 0, group);

    if (c.status == TRI_OK)
        c.status = trii_record_all_to_all_v_rows(c.step, c.group, c.in, to, from, &c.out);
    return end(&c);
}

tri_tensor *tri_dist_broadcast(tri_tensor *x, int root, tri_group *group)
{
    call c = begin("dist_broadcast", x, group);

    if (c.status == TRI_OK && (root < 0 || root >= tri_group_size(c.group)))
        c.status = TRII_FAIL(TRI_ERR_INVALID_ARG, "root %d is out of range (group of %d)", root,
                             tri_group_size(c.group));
    if (!is_alone(&c, TRI_REDOP_SUM))
        c.status = trii_record_broadcast(c.step, c.group, c.in, root, &c.out);
    return end(&c);
}

tri_tensor *tri_dist_send(tri_tensor *x, int peer, int tag, tri_group *group)
{
    call c = begin("dist_send", x, group);

    if (c.status == TRI_OK)
        c.status = trii_record_send(c.step, c.group, c.in, peer, tag, &c.out);
    return end(&c);
}

static tri_status type_of(const int64_t *shape, int ndim, tri_dtype dtype, trii_type *type)
{
    *type = (trii_type){.dtype = dtype != TRI_DTYPE_NONE ? dtype : TRI_DTYPE_F32,
                        .device = tri_current_device(),
                        .ndim = ndim};
    if (ndim < 0 || ndim > TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d dimensions, 0 to %d are allowed", ndim,
                         TRI_MAX_DIMS);
    if (ndim > 0 && shape == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "shape is NULL, with %d dimensions", ndim);
    if ((unsigned)dtype >= TRII_TENSOR_DTYPES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "dtype %d does not exist", (int)dtype);
    for (int d = 0; d < ndim; d++) {
        type->shape[d] = shape[d];
        if (shape[d] < 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "size %lld in dimension %d", (long long)shape[d],
                             d);
    }
    return trii_type_check(type);
}

tri_tensor *tri_dist_recv(const int64_t *shape, int ndim, tri_dtype dtype, bool requires_grad,
                          int peer, int tag, tri_group *group)
{
    call c = begin_in("dist_recv", NULL, group);
    trii_type type;

    if (c.status == TRI_OK)
        c.status = type_of(shape, ndim, dtype, &type);
    if (c.status == TRI_OK)
        c.status = trii_record_recv(c.step, c.group, &type, requires_grad, peer, tag, NULL, &c.out);
    return end(&c);
}

tri_tensor *tri_dist_copy_to(tri_tensor *x, tri_group *group)
{
    call c = begin("dist_copy_to", x, group);

    if (c.status == TRI_OK)
        c.status = trii_record_copy_to(c.step, c.group, c.in, &c.out);
    return end(&c);
}

tri_tensor *tri_dist_reduce_from(tri_tensor *x, tri_group *group)
{
    call c = begin("dist_reduce_from", x, group);

    check_reduction(&c, TRI_REDOP_SUM);
    if (!is_alone(&c, TRI_REDOP_SUM))
        c.status = trii_record_reduce_from(c.step, c.group, c.in, &c.out);
    return end(&c);
}

tri_tensor *tri_dist_scatter_to(tri_tensor *x, int dim, tri_group *group)
{
    call c = begin_along("dist_scatter_to", x, dim, group);

    if (c.status == TRI_OK)
        c.status = trii_record_scatter_to(c.step, c.group, c.in, c.dim, &c.out);
    return end(&c);
}

tri_tensor *tri_dist_gather_from(tri_tensor *x, int dim, tri_group *group)
{
    call c = begin_along("dist_gather_from", x, dim, group);

    if (!is_alone(&c, TRI_REDOP_SUM))
        c.status =
            trii_record_gather_along(c.step, c.group, trii_record_gather_from, c.in, c.dim, &c.out);
    return end(&c);
}
