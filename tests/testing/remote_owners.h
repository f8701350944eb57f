/*
 * remote_owners.h - a trainer and two workers that own the first and the last part of its model,
 * as threads; and the same model in one process, whose bits it must have. Tests only.
 */
#ifndef TEST_REMOTE_OWNERS_H
#define TEST_REMOTE_OWNERS_H

#include "base/err.h"
#include "train/parallel/rpc/account_internal.h"
#include "train/parallel/rpc/remote_optimizer_internal.h"
#include "testing/remote_served.h"

enum { OWNERS = 2, ROWS = 4 };

/* --- the model ------------------------------------------------------------ */

typedef enum { SGD, MOMENTUM, ADAM } rule;

static inline tri_optimizer *model_optimizer(tri_module *net, rule r)
{
    if (r == ADAM)
        return tri_adam(net, 0.05, NULL);
    return tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = r == MOMENTUM ? 0.9 : 0});
}

/* The model: the first part, one in the middle, the last part. */
typedef struct model {
    tri_module *part[3];
    tri_optimizer *opt[3];
} model;

static inline void model_begin(model *m, rule r)
{
    tri_manual_seed(5);
    m->part[0] = tri_nn_sequential(tri_nn_linear(6, 8, NULL), tri_nn_tanh());
    m->part[1] = tri_nn_linear(8, 7, NULL);
    m->part[2] = tri_nn_sequential(tri_nn_tanh(), tri_nn_linear(7, 3, NULL));
    for (int i = 0; i < 3; i++)
        m->opt[i] = model_optimizer(m->part[i], r);
}

static inline void model_end(model *m)
{
    for (int i = 0; i < 3; i++) {
        tri_optimizer_destroy(m->opt[i]);
        tri_module_destroy(m->part[i]);
    }
}

static inline uint64_t model_hash(model *m)
{
    uint64_t all = 0;

    for (int i = 0; i < 3; i++) {
        uint64_t hash = 0;

        CHECK_OK(tri_module_hash(m->part[i], &hash));
        all = all * 31 + hash;
    }
    return all;
}

static inline tri_tensor *model_forward(tri_module *const part[3], tri_tensor *x)
{
    for (int i = 0; i < 3; i++)
        x = tri_forward(part[i], x);
    return x;
}

/* One batch, or pieces of it that become one loss. */
static inline tri_tensor *model_loss(tri_module *const part[3], tri_tensor *x, tri_tensor *y,
                                     int pieces)
{
    tri_tensor *piece[ROWS], *out[ROWS];

    if (pieces == 1)
        return tri_mse_loss(model_forward(part, x), y, NULL);
    tri_chunk(x, pieces, 0, piece);
    for (int i = 0; i < pieces; i++)
        out[i] = model_forward(part, piece[i]);
    return tri_mse_loss(tri_concat(out, pieces, 0), y, NULL);
}

/* What one process makes of it. */
static inline void model_step(model *m, tri_tensor *x, tri_tensor *y, int pieces, int passes)
{
    for (int p = 0; p < passes; p++)
        tri_backward(model_loss(m->part, x, y, pieces));
    for (int i = 0; i < 3; i++)
        CHECK_OK(tri_optimizer_step(m->opt[i]));
    tri_step_end();
}

static inline void model_expect_equal(model *a, model *b)
{
    for (int i = 0; i < 3; i++) {
        remote_expect_equal_state(a->part[i], b->part[i]);
        for (int64_t s = 0; s < tri_optimizer_state_count(a->opt[i]); s++)
            remote_expect_equal(tri_optimizer_state(a->opt[i], s).tensor,
                                tri_optimizer_state(b->opt[i], s).tensor);
    }
    tri_step_end();
}

/* --- the workers ---------------------------------------------------------- */

/* Parts 0 and 2 at w1 and w2, part 1 at the trainer, w0. */
typedef struct remote_owners {
    remote_workers r;
    model m;
    tri_module *part[3]; /* as the trainer has them */
    tri_remote_optimizer *opt;
    tri_tensor *x, *y;
    model here; /* the same in one process, between owners_begin_with_here and owners_end_equal */
} remote_owners;

static inline void owners_begin_with(remote_owners *f, rule r,
                                     const tri_remote_serve_options *serve,
                                     const tri_remote_optimizer_options *options)
{
    tri_module *remotes[OWNERS];

    memset(f, 0, sizeof(*f));
    remote_begin(&f->r, 1 + OWNERS, NULL);
    model_begin(&f->m, r);
    CHECK_OK(tri_remote_serve(f->r.w.rpc[1], "first", f->m.part[0], f->m.opt[0], serve));
    CHECK_OK(tri_remote_serve(f->r.w.rpc[2], "last", f->m.part[2], f->m.opt[2], serve));
    f->part[0] = remotes[0] = tri_remote_module(f->r.w.rpc[0], "w1/first", NULL);
    f->part[1] = f->m.part[1];
    f->part[2] = remotes[1] = tri_remote_module(f->r.w.rpc[0], "w2/last", NULL);
    f->opt = tri_remote_optimizer_of(f->m.opt[1], remotes, OWNERS, options);
    f->x = remote_tensor((int64_t[]){ROWS, 6}, 2, TRI_DTYPE_F32, 1);
    f->y = remote_tensor((int64_t[]){ROWS, 3}, 2, TRI_DTYPE_F32, 2);
}

static inline void owners_begin(remote_owners *f, rule r)
{
    owners_begin_with(f, r, NULL, NULL);
}

/* All but the workers. */
static inline void owners_release(remote_owners *f)
{
    tri_step_end();
    tri_remote_optimizer_destroy(f->opt);
    tri_module_destroy(f->part[0]);
    tri_module_destroy(f->part[2]);
    (void)!tri_remote_withdraw(f->r.w.rpc[1], "first");
    (void)!tri_remote_withdraw(f->r.w.rpc[2], "last");
    tri_tensor_unref(f->x);
    tri_tensor_unref(f->y);
    model_end(&f->m);
}

static inline void owners_end(remote_owners *f)
{
    owners_release(f);
    remote_end(&f->r);
}

static inline tri_status owners_step(remote_owners *f)
{
    tri_status status;

    tri_backward(model_loss(f->part, f->x, f->y, 1));
    status = tri_remote_optimizer_step(f->opt);
    if (status != TRI_OK) {
        char line[TRII_ERR_BYTES];

        snprintf(line, sizeof(line), "%s", tri_last_error());
        tri_step_end();
        trii_err_set("%s", line);
    } else {
        tri_step_end();
    }
    return status;
}

/* --- beside one process --------------------------------------------------- */

static inline void owners_begin_with_here(remote_owners *f, rule r)
{
    owners_begin(f, r);
    model_begin(&f->here, r);
}

static inline void owners_here_step(remote_owners *f)
{
    model_step(&f->here, f->x, f->y, 1, 1);
}

static inline void owners_step_both(remote_owners *f)
{
    CHECK_OK(owners_step(f));
    owners_here_step(f);
}

static inline void owners_end_equal(remote_owners *f)
{
    model_expect_equal(&f->m, &f->here);
    model_end(&f->here);
    owners_end(f);
}

#endif
