// classify.cpp - the same in C++17.
#include <trireme/models.h>
#include <trireme/trireme.h>

#include <cstdio>

int main()
{
    tri_module *net = tri_model_by_name("mlp:12,8,10", 0);
    tri_tensor *images = tri_tensor_create(TRI_SHAPE(2, 12), TRI_DTYPE_F32);
    tri_tensor *logits = tri_keep(tri_forward(net, images));

    TRI_TRY(tri_run());
    std::printf("logits %s\n", tri_tensor_shape_text(logits));
    tri_step_end();
    tri_tensor_unref(images);
    tri_module_destroy(net);
    return 0;
}
