/*
 * remote_layers.h - small layers for remote modules, and what goes into them. Tests only.
 */
#ifndef TEST_REMOTE_LAYERS_H
#define TEST_REMOTE_LAYERS_H

#include "testing/remote_workers.h"

#define WIDTH 6

static inline tri_module *linear_with(int seed)
{
    tri_module *net = tri_nn_linear(WIDTH, WIDTH, NULL);
    tri_tensor *weight = remote_tensor((int64_t[]){WIDTH, WIDTH}, 2, TRI_DTYPE_F32, seed);
    size_t bytes;
    char *data = remote_bytes(weight, &bytes);

    CHECK_OK(tri_tensor_copy_in(tri_module_find(net, "weight"), data, bytes));
    free(data);
    tri_tensor_unref(weight);
    return net;
}

static inline tri_tensor *input(int seed)
{
    tri_tensor *x = remote_tensor((int64_t[]){4, WIDTH}, 2, TRI_DTYPE_F32, seed);

    tri_requires_grad(x, true);
    return x;
}

/* --- one module of w1, which w0 calls ------------------------------------- */

typedef struct far_net {
    remote_workers r;
    tri_module *net, *remote; /* at w1, as "net", and of w0 */
    tri_tensor *x;
} far_net;

static inline void far_begin(far_net *f, tri_module *(*make)(int seed),
                             const tri_remote_serve_options *opt)
{
    remote_begin(&f->r, 2, NULL);
    f->net = make(1);
    f->x = input(1);
    CHECK_OK(tri_remote_serve(f->r.w.rpc[1], "net", f->net, NULL, opt));
    f->remote = tri_remote_module(f->r.w.rpc[0], "w1/net", NULL);
}

static inline tri_status far_release(far_net *f)
{
    tri_status status;

    tri_module_destroy(f->remote);
    tri_tensor_unref(f->x);
    status = tri_remote_withdraw(f->r.w.rpc[1], "net");
    tri_module_destroy(f->net);
    return status;
}

static inline void far_end(far_net *f)
{
    CHECK_OK(far_release(f));
    remote_end(&f->r);
}

/* The same where this worker has been aborted: what w1 serves ends with it, or has ended. */
static inline void far_end_without(far_net *f, int dead)
{
    tri_status status = far_release(f);

    assert_true(status == TRI_OK || (dead == 1 && status == TRI_ERR_NOT_FOUND));
    tri_rpc_abort(f->r.w.rpc[1 - dead], "end");
    remote_end_without_leaving(&f->r);
}

#endif
