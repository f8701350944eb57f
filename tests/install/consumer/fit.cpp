// fit.cpp - the same in C++17.
#include <trireme/trireme.h>

#include <cstdio>

int main()
{
    const float xs[4] = {0, 1, 2, 3}, ys[4] = {1, 3, 5, 7};
    tri_sgd_options options = {};
    tri_module *model = tri_nn_linear(1, 1, NULL);

    options.momentum = 0.5;
    tri_optimizer *opt = tri_sgd(model, 0.05, &options);
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(4, 1), TRI_DTYPE_F32, xs);
    tri_tensor *y = tri_tensor_from(TRI_SHAPE(4, 1), TRI_DTYPE_F32, ys);
    double last = 1.0;
    tri_metrics *metrics;

    TRI_TRY(tri_metrics_open("/dev/null", -1, &metrics));
    for (int step = 0; step < 200; step++) {
        tri_tensor *loss = tri_mse_loss(tri_forward(model, x), y, NULL);
        tri_backward(loss);
        TRI_TRY(tri_optimizer_step(opt));
        last = tri_item(loss);
        tri_step_end();
        TRI_TRY(tri_metrics_log(metrics, {"step", static_cast<double>(step)}, {"loss", last}));
    }
    tri_metrics_close(metrics);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    std::printf("trained\n");
    return last < 1e-3 ? 0 : 1;
}
