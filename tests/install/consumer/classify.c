/* classify.c - runs a residual network, as a user's C program would. */
#include <trireme/models.h>
#include <trireme/trireme.h>

int main(void)
{
    tri_module *net = tri_model_resnet_of_width(18, 8, 10);
    tri_tensor *images = tri_tensor_create(TRI_SHAPE(2, 3, 32, 32), TRI_DTYPE_F32);
    tri_tensor *logits = tri_keep(tri_forward(net, images));

    TRI_TRY(tri_run());
    printf("logits %s\n", tri_tensor_shape_text(logits));
    tri_step_end();
    tri_tensor_unref(images);
    tri_module_destroy(net);
    return 0;
}
