/* fit.c - fits a line, as a user's C program would. */
#include <trireme/trireme.h>

int main(void)
{
    const float xs[4] = {0, 1, 2, 3}, ys[4] = {1, 3, 5, 7};
    tri_module *model = tri_nn_linear(1, 1, NULL);
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_tensor *x = tri_tensor_from((int64_t[]){4, 1}, 2, TRI_DTYPE_F32, xs);
    tri_tensor *y = tri_tensor_from((int64_t[]){4, 1}, 2, TRI_DTYPE_F32, ys);
    double last = 1.0;

    for (int step = 0; step < 200; step++) {
        tri_tensor *loss = tri_mse_loss(tri_forward(model, x), y, NULL);

        tri_backward(loss);
        TRI_TRY(tri_optimizer_step(opt));
        last = tri_item(loss);
        tri_step_end();
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    printf("trained\n");
    return last < 1e-3 ? 0 : 1;
}
