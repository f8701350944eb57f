/* models_test.c - the networks of the examples against those of torchvision. */
#include "../../examples/models.h"

#include "testing/check.h"
#include "testing/nn_golden.h"

#define N_ENTRIES (sizeof(golden_resnet18) / sizeof(golden_resnet18[0]))

static void entry_text(tri_state_entry entry, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "%s %s[", entry.name,
                                   tri_dtype_name(tri_tensor_dtype(entry.tensor)));

    for (int d = 0; d < tri_tensor_ndim(entry.tensor); d++)
        used += (size_t)snprintf(text + used, bytes - used, d > 0 ? ", %lld" : "%lld",
                                 (long long)tri_tensor_size(entry.tensor, d));
    snprintf(text + used, bytes - used, "]");
}

static void resnet18_has_the_state_of_torchvision(void **state)
{
    tri_module *net = resnet18_create(10);
    char text[256];

    (void)state;
    CHECK_OK(tri_module_status(net));
    assert_int_equal(tri_module_state_count(net), N_ENTRIES);
    for (size_t i = 0; i < N_ENTRIES; i++) {
        entry_text(tri_module_state(net, (int64_t)i), text, sizeof(text));
        assert_string_equal(text, golden_resnet18[i]);
    }
    assert_int_equal(tri_module_num_parameters(net), 11181642);
    tri_module_destroy(net);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet18_has_the_state_of_torchvision),
    };

    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
