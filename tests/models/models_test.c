/* models_test.c - the networks of the examples hold what torchvision's do (model_states.txt, made
 * by vision_torch.py), under its names and in its order. */
/* ctest: threads=none tsan=no */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "by_name.h"
#include "testing/check.h"

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
    tri_module *net = model_by_name(model, 10);
    char path[512], line[256], wanted[256];
    int64_t n = 0;
    FILE *file;

    CHECK_OK(tri_module_status(net));
    snprintf(path, sizeof(path), "%s/tests/golden/model_states.txt", getenv("TRI_TEST_SOURCE"));
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, model, strlen(model)) != 0 || line[strlen(model)] != ' ')
            continue;
        if (n < tri_module_state_count(net))
            entry_text(model, tri_module_state(net, n), wanted, sizeof(wanted));
        else
            snprintf(wanted, sizeof(wanted), "%s parameters %lld\n", model,
                     (long long)tri_module_num_parameters(net));
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

static void what_names_no_model_is_none(void **state)
{
    static const char *const wrong[] = {"",         "resnet",    "resnet19",  "linear:3",
                                        "mlp:3",    "mlp:3,,4",  "mlp:3,-4",  "mlp:3,4,",
                                        "mlp:3,4x", "gpt:1,2,3", "vit:32,8,", "vit:32,5,64,2,4,10"};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_null(model_by_name(wrong[i], 10));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(residual_networks_hold_what_torchvision_s_do),
    cmocka_unit_test(a_vision_transformer_holds_what_torchvision_s_does),
    cmocka_unit_test(what_names_no_model_is_none),
};

TEST_MAIN(tests)
