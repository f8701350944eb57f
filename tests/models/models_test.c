/* models_test.c - the networks of libtrireme-models hold what torchvision's do (model_states.txt,
 * made by vision_torch.py), under its names and in its order. */
/* ctest: threads=none tsan=no */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/models.h>

#include "testing/check.h"
#include "testing/golden.h"

static void entry_text(const char *model, tri_state_entry entry, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "%s %s %s[", model, entry.name,
                                   tri_dtype_name(tri_tensor_dtype(entry.tensor)));

    for (int d = 0; d < tri_tensor_ndim(entry.tensor); d++)
        used += (size_t)snprintf(text + used, bytes - used, d > 0 ? ", %lld" : "%lld",
                                 (long long)tri_tensor_size(entry.tensor, d));
    snprintf(text + used, bytes - used, "]\n");
}

/* The lines of this model, in order, and no others. */
static void check_state(const char *model)
{
    tri_module *net = tri_model_by_name(model, 10);
    char line[256], wanted[256];
    int64_t n = 0;
    FILE *file;

    CHECK_OK(tri_module_status(net));
    file = golden_open("model_states.txt");
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, model, strlen(model)) != 0 || line[strlen(model)] != ' ')
            continue;
        if (n < tri_module_state_count(net))
            entry_text(model, tri_module_state(net, n), wanted, sizeof(wanted));
        else
            snprintf(wanted, sizeof(wanted), "%s parameters %lld\n", model,
                     (long long)tri_module_parameter_count(net));
        assert_string_equal(wanted, line);
        n++;
    }
    assert_int_equal(n, tri_module_state_count(net) + 1);
    (void)fclose(file);
    tri_module_destroy(net);
}

static void residual_networks_hold_what_torchvision_s_do(void **state)
{
    (void)state;
    check_state("resnet18");
    check_state("resnet34");
    check_state("resnet50");
}

static void a_vision_transformer_holds_what_torchvision_s_does(void **state)
{
    (void)state;
    check_state("vit:32,8,64,2,4,10");
}

static void a_name_of_no_model_is_refused_with_those_that_there_are(void **state)
{
    static const char *const wrong[] = {"",          "resnet",   "linear:3", "mlp:3",
                                        "mlp:3,,4",  "mlp:3,-4", "mlp:3,4,", "mlp:3,4x",
                                        "gpt:1,2,3", "vit:32,8,"};
    tri_module *bad;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        bad = tri_model_by_name(wrong[i], 10);
        CHECK_FAILS(tri_module_status(bad), TRI_ERR_INVALID_ARG, "must be linear:IN,OUT, mlp:");
        tri_module_destroy(bad);
    }
    bad = tri_model_by_name(NULL, 10);
    CHECK_FAILS(tri_module_status(bad), TRI_ERR_INVALID_ARG, "tri_model_by_name: name is NULL");
    tri_module_destroy(bad);
}

static void a_size_that_does_not_fit_is_named(void **state)
{
    const struct {
        tri_module *module;
        const char *line;
    } bad[] = {
        {tri_model_by_name("resnet19", 10), "depth 19: must be 18, 34, 50, 101 or 152"},
        {tri_model_resnet(18, 0), "tri_model_resnet: classes 0: must be 1 to 1048576"},
        {tri_model_resnet_block(true, 8, 4, 0), "tri_model_resnet_block: stride 0: must be 1 to"},
        {tri_model_by_name("vit:32,5,64,2,4,10", 0), "size 32 is not a multiple of patch 5"},
        {tri_model_by_name("vit:32,8,63,2,4,10", 0), "width 63 is not a multiple of heads 4"},
        {tri_model_by_name("gpt:1,9,2,8,8", 0), "width 9 is not a multiple of heads 2"},
        {tri_model_gpt2(&(tri_model_gpt2_options){.layers = 1}), "width 0: must be 1 to"},
        {tri_model_vit(NULL), "tri_model_vit: opt is NULL"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_FAILS(tri_module_status(bad[i].module), TRI_ERR_INVALID_ARG, bad[i].line);
        tri_module_destroy(bad[i].module);
    }
}

static void halves_of_what_is_no_residual_network_are_refused(void **state)
{
    tri_module *net = tri_nn_linear(3, 2, NULL), *failed = tri_model_resnet(19, 10);
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(1, 3), TRI_DTYPE_F32);

    (void)state;
    CHECK_FAILS(tri_tensor_status(tri_model_resnet_first_half(net, x)), TRI_ERR_INVALID_ARG,
                "the module is a Linear, not a ResNet");
    CHECK_FAILS(tri_tensor_status(tri_model_resnet_second_half(failed, x)), TRI_ERR_INVALID_ARG,
                "depth 19");
    CHECK_FAILS(tri_tensor_status(tri_model_resnet_first_half(NULL, x)), TRI_ERR_INVALID_ARG,
                "the module is NULL");
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(failed);
    tri_module_destroy(net);
}

/* As many patches in another shape, or a border that no patch covers. */
static void inputs_that_a_model_was_not_made_for_are_refused(void **state)
{
    static const int64_t images[][4] = {{1, 3, 4, 16}, {1, 3, 9, 9}, {1, 3, 12, 12}};
    tri_module *vit = tri_model_by_name("vit:8,4,4,1,1,2", 0);
    tri_module *gpt = tri_model_by_name("gpt:1,8,2,4,16", 0);

    (void)state;
    for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++)
        CHECK_FAILS(tri_tensor_status(tri_forward(vit, tri_zeros(images[i], 4, TRI_DTYPE_F32))),
                    TRI_ERR_INVALID_ARG, "must be [N, 3, 8, 8]");
    CHECK_FAILS(tri_tensor_status(tri_forward(vit, tri_zeros(TRI_SHAPE(3, 8, 8), TRI_DTYPE_F32))),
                TRI_ERR_INVALID_ARG, "images [3, 8, 8]: must be [N, 3, 8, 8]");
    CHECK_OK(tri_tensor_status(tri_forward(vit, tri_zeros(TRI_SHAPE(0, 3, 8, 8), TRI_DTYPE_F32))));
    CHECK_FAILS(tri_tensor_status(tri_forward(gpt, tri_zeros(TRI_SHAPE(1, 5), TRI_DTYPE_I64))),
                TRI_ERR_INVALID_ARG, "tokens [1, 5]: must be [N, T], T at most the context, 4");
    CHECK_FAILS(tri_tensor_status(tri_forward(gpt, tri_zeros(TRI_SHAPE(4), TRI_DTYPE_I64))),
                TRI_ERR_INVALID_ARG, "tokens [4]");
    CHECK_FAILS(tri_tensor_status(tri_forward(gpt, tri_narrow(NULL, 0, 0, 1))), TRI_ERR_INVALID_ARG,
                "tri_narrow");
    CHECK_OK(tri_tensor_status(tri_forward(gpt, tri_zeros(TRI_SHAPE(1, 4), TRI_DTYPE_I64))));
    tri_step_end();
    tri_module_destroy(gpt);
    tri_module_destroy(vit);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(residual_networks_hold_what_torchvision_s_do),
    cmocka_unit_test(a_vision_transformer_holds_what_torchvision_s_does),
    cmocka_unit_test(a_name_of_no_model_is_refused_with_those_that_there_are),
    cmocka_unit_test(a_size_that_does_not_fit_is_named),
    cmocka_unit_test(halves_of_what_is_no_residual_network_are_refused),
    cmocka_unit_test(inputs_that_a_model_was_not_made_for_are_refused),
};

TEST_MAIN(tests)
