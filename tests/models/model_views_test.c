/*
 * model_views_test.c - attention of the layer and of the models reads queries, keys and values
 * where they were projected to, and writes their gradients where the projection's is: nothing is
 * copied.
 */
#include <trireme/models.h>
#include <trireme/trireme.h>

#include "train/plan/plan.h"
#include "testing/check.h"

/* Bytes that the newest run only moved, for a training step of the model on n inputs. */
static size_t copied_by_step(tri_module *model, tri_tensor *const *in, int n_in, bool bf16)
{
    tri_tensor *y;

    if (bf16)
        tri_autocast_begin(TRI_DTYPE_BF16);
    tri_forward_n(model, in, n_in, &y, 1);
    if (bf16)
        tri_autocast_end();
    tri_backward(tri_mean(tri_square(y), NULL, 0, false));
    CHECK_OK(tri_run());
    CHECK_OK(tri_step_end_status());
    return trii_plan_stats_get().copied_bytes;
}

/* Gradients that are new, and gradients that are added. */
static void copies_nothing(const char *what, tri_module *model, tri_tensor *const *in, int n_in)
{
    CHECK_OK(tri_module_status(model));
    for (int k = 0; k < 4; k++) {
        size_t copied = copied_by_step(model, in, n_in, k >= 2);

        if (copied != 0)
            fail_msg("%s, bf16 %d: step %d copies %zu bytes", what, k >= 2, k % 2, copied);
    }
    tri_module_destroy(model);
}

/* --- the layer ------------------------------------------------------------ */

#define WIDTH 24

static tri_tensor *input(int64_t n, int64_t t)
{
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(n, t, WIDTH), TRI_DTYPE_F32);

    CHECK_OK(tri_init_normal(x, 0, 1));
    tri_requires_grad(x, true);
    return x;
}

static void a_layer_of_attention_copies_nothing(void **state)
{
    static const int64_t sizes[][3] = {{2, 70, 3}, {1, 70, 3}, {3, 1, 3}, {3, 5, 1}, {2, 129, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        tri_tensor *x = input(sizes[i][0], sizes[i][1]);
        const tri_nn_multihead_attention_options dropped = {
            .dropout = 0.1, .no_bias = true, .is_causal = true};

        copies_nothing("a layer", tri_nn_multihead_attention(WIDTH, sizes[i][2], NULL), &x, 1);
        copies_nothing("with dropout", tri_nn_multihead_attention(WIDTH, sizes[i][2], &dropped), &x,
                       1);
        tri_tensor_unref(x);
    }
}

static void a_layer_of_cross_attention_copies_nothing(void **state)
{
    tri_tensor *in[3] = {input(2, 7), input(2, 13), NULL};

    (void)state;
    in[2] = in[1];
    copies_nothing("keys of another text", tri_nn_multihead_attention(WIDTH, 3, NULL), in, 3);
    tri_tensor_unref(in[0]);
    tri_tensor_unref(in[1]);
}

/* --- models --------------------------------------------------------------- */

static void a_gpt_copies_nothing(void **state)
{
    (void)state;
    for (int64_t t = 50; t <= 70; t += 20) { /* a part of its context, and the whole */
        tri_tensor *tokens = tri_tensor_create(TRI_SHAPE(2, t), TRI_DTYPE_I64);

        copies_nothing("gpt", tri_model_by_name("gpt:2,24,3,70,31", 0), &tokens, 1);
        tri_tensor_unref(tokens);
    }
}

/* Patches of images change their order, and the class token is put in front of them: that is all,
 * however many layers of attention follow. */
static void layers_of_a_vision_transformer_copy_nothing(void **state)
{
    static const char *const models[2] = {"vit:32,8,64,1,4,10", "vit:32,8,64,3,4,10"};
    tri_tensor *images = tri_tensor_create(TRI_SHAPE(2, 3, 32, 32), TRI_DTYPE_F32);
    size_t copied[2];

    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int i = 0; i < 2; i++) {
            tri_module *vit = tri_model_by_name(models[i], 0);

            (void)copied_by_step(vit, &images, 1, bf16 != 0); /* weights take their order */
            copied[i] = copied_by_step(vit, &images, 1, bf16 != 0);
            tri_module_destroy(vit);
        }
        assert_int_equal(copied[0], copied[1]);
    }
    tri_tensor_unref(images);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_layer_of_attention_copies_nothing),
    cmocka_unit_test(a_layer_of_cross_attention_copies_nothing),
    cmocka_unit_test(a_gpt_copies_nothing),
    cmocka_unit_test(layers_of_a_vision_transformer_copy_nothing),
};

TEST_MAIN(tests)
