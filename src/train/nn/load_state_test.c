/* load_state_test.c - loading with options: parts, other types, other names, and the list of it
 * all. */
#include <stdio.h>
#include <string.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "testing/check.h"
#include "testing/scratch.h"

static const float weight[6] = {1, 2, 3, 4, 5, 6}, bias[2] = {7, 8};

static void check_floats(tri_module *net, const char *name, const float *wanted, int n)
{
    float got[8];

    CHECK_OK(tri_tensor_copy_out(tri_module_find(net, name), got, (size_t)n * sizeof(float)));
    assert_memory_equal(got, wanted, (size_t)n * sizeof(float));
}

static void check_unchanged(tri_module *net, uint64_t hash)
{
    uint64_t now;

    CHECK_OK(tri_module_hash(net, &now));
    assert_true(now == hash);
}

static const char *read_all(FILE *file)
{
    static char text[2000];
    size_t n;

    rewind(file);
    n = fread(text, 1, sizeof(text) - 1, file);
    text[n] = '\0';
    return text;
}

/* However long the names are, what can be done about it is not cut off. */
static void the_remedy_is_in_the_line(void **state)
{
    static float zeros[320];
    const tri_state_source wider[] = {
        {.name = "0.weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {32, 10}, .data = zeros},
        {.name = "0.bias", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {32}, .data = zeros},
        {.name = "2.weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {3, 32}, .data = zeros},
        {.name = "2.bias", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {3}, .data = zeros}};
    tri_state_source others[6] = {{0}};
    char name[6][100];
    tri_module *net =
        tri_nn_sequential(tri_nn_linear(10, 16, NULL), tri_nn_relu(), tri_nn_linear(16, 3, NULL));

    (void)state;
    CHECK_FAILS(tri_module_load(net, wider, 4, NULL), TRI_ERR_INVALID_ARG,
                "0.weight is f32[16, 10] in the model, f32[32, 10] in what is loaded");
    assert_non_null(strstr(tri_last_error(), " and 1 more; tri_load_options.partial sets those"));
    for (int i = 0; i < 6; i++) {
        memset(name[i], 'a' + i, sizeof(name[i]));
        name[i][sizeof(name[i]) - 1] = '\0';
        others[i] = wider[0];
        others[i].name = i < 4 ? name[i] : i < 5 ? "0.weight" : "2.weight";
    }
    CHECK_FAILS(tri_module_load(net, others, 6, NULL), TRI_ERR_INVALID_ARG, "missing: 0.bias");
    assert_non_null(strstr(tri_last_error(), "; unexpected: aaaaaaaaaaaaaaaaaaaa"));
    assert_non_null(strstr(tri_last_error(), " and 3 more; of another kind: 0.weight is"));
    assert_non_null(strstr(tri_last_error(), "; tri_load_options.rename maps names to others"));
    tri_module_destroy(net);
}

/* Of the sources that no entry has, the one of the shape and nearly the name of a missing entry. */
static void a_name_that_is_nearly_right_is_named(void **state)
{
    tri_state_source sources[] = {
        {.name = "0.bais", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = bias},
        {.name = "0.weights", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {3, 2}, .data = weight},
        {.name = "0.wieght", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {2, 3}, .data = weight}};
    tri_module *net = tri_nn_sequential(tri_nn_linear(3, 2, NULL));

    (void)state;
    CHECK_FAILS(tri_module_load(net, sources, 3, NULL), TRI_ERR_INVALID_ARG,
                "; tri_load_options.rename maps names, such as 0.wieght to 0.weight");
    sources[2].name = "0.kernel";
    CHECK_FAILS(tri_module_load(net, sources, 3, NULL), TRI_ERR_INVALID_ARG,
                "; tri_load_options.rename maps names to others");
    tri_module_destroy(net);
}

static void what_partial_would_do_is_said(void **state)
{
    const tri_state_source sources[] = {
        {.name = "weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {2, 3}, .data = weight},
        {.name = "bias", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = bias},
        {.name = "extra", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = bias}};
    tri_module *net = tri_nn_linear(3, 2, NULL);

    (void)state;
    CHECK_FAILS(tri_module_load(net, sources, 3, NULL), TRI_ERR_INVALID_ARG,
                "unexpected: extra; tri_load_options.partial sets those that fit");
    CHECK_FAILS(tri_module_load(net, sources, 1, NULL), TRI_ERR_INVALID_ARG,
                "missing: bias; tri_load_options.partial sets those that fit");
    tri_module_destroy(net);
}

/* A body that fits and a head that does not. */
static void a_part_of_the_state_is_loaded(void **state)
{
    const tri_state_source sources[] = {
        {.name = "0.weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {2, 3}, .data = weight},
        {.name = "0.bias", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = bias},
        {.name = "1.weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {3, 2}, .data = weight},
        {.name = "extra", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = bias}};
    tri_module *net = tri_nn_sequential(tri_nn_linear(3, 2, NULL), tri_nn_linear(2, 1, NULL));
    FILE *report = tmpfile();
    tri_load_options opt = {.partial = true, .report = report};
    float head[2];
    uint64_t before;

    (void)state;
    CHECK_OK(tri_tensor_copy_out(tri_module_find(net, "1.weight"), head, sizeof(head)));
    CHECK_OK(tri_module_hash(net, &before));
    CHECK_FAILS(tri_module_load(net, sources, 4, NULL), TRI_ERR_INVALID_ARG,
                "missing: 1.bias; unexpected: extra; of another kind: 1.weight is f32[1, 2] in the "
                "model, f32[3, 2] in what is loaded; tri_load_options.rename maps names to others");
    check_unchanged(net, before);
    CHECK_OK(tri_module_load(net, sources, 4, &opt));
    check_floats(net, "0.weight", weight, 6);
    check_floats(net, "0.bias", bias, 2);
    check_floats(net, "1.weight", head, 2);
    assert_string_equal(read_all(report), "of another kind: 1.weight is f32[1, 2] in the model, "
                                          "f32[3, 2] in what is loaded\n"
                                          "unexpected: extra\nmissing: 1.bias\n");
    CHECK_OK(tri_module_hash(net, &before));
    CHECK_FAILS(tri_module_load(net, sources + 2, 2, &opt), TRI_ERR_INVALID_ARG,
                "no part of the state fits");
    CHECK_FAILS(tri_module_load(net, NULL, 0, &opt), TRI_ERR_INVALID_ARG, "no part of the state");
    check_unchanged(net, before);
    fclose(report);
    tri_module_destroy(net);
}

static void halves_and_doubles_become_floats(void **state)
{
    char unaligned[1 + 6 * sizeof(uint16_t)];
    uint16_t f16[2];
    const double f64[2] = {7, 8};
    tri_module *net = tri_nn_linear(3, 2, NULL);
    tri_state_source sources[] = {
        {.name = "weight",
         .dtype = TRI_DTYPE_BF16,
         .ndim = 2,
         .shape = {2, 3},
         .data = unaligned + 1},
        {.name = "bias", .dtype = TRI_DTYPE_F16, .ndim = 1, .shape = {2}, .data = f16}};
    FILE *report = tmpfile();
    const tri_load_options opt = {.convert = true, .report = report};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        uint16_t half = trii_f32_to_bf16(weight[i]);

        memcpy(unaligned + 1 + i * sizeof(half), &half, sizeof(half));
        if (i < 2)
            f16[i] = trii_f32_to_f16(bias[i]);
    }
    CHECK_FAILS(
        tri_module_load(net, sources, 2, NULL), TRI_ERR_INVALID_ARG,
        "weight is f32[2, 3] in the model, bf16[2, 3] in what is loaded, bias is f32[2] in the "
        "model, f16[2] in what is loaded; tri_load_options.convert converts dtypes");
    CHECK_OK(tri_module_load(net, sources, 2, &opt));
    check_floats(net, "weight", weight, 6);
    check_floats(net, "bias", bias, 2);
    assert_string_equal(read_all(report),
                        "converted: weight is f32[2, 3], converted from bf16[2, 3]\n"
                        "converted: bias is f32[2], converted from f16[2]\n");
    sources[1] = (tri_state_source){
        .name = "bias", .dtype = TRI_DTYPE_F64, .ndim = 1, .shape = {2}, .data = f64};
    CHECK_OK(tri_module_load(net, sources, 2, &opt));
    check_floats(net, "bias", bias, 2);
    sources[1].dtype = TRI_DTYPE_I64; /* no floating-point number */
    CHECK_FAILS(tri_module_load(net, sources, 2, &opt), TRI_ERR_INVALID_ARG,
                "bias is f32[2] in the model, i64[2] in what is loaded");
    fclose(report);
    tri_module_destroy(net);
}

static const char *without_prefix(const char *name, char *room, void *arg)
{
    const char *prefix = arg;

    if (strcmp(name, "mask") == 0)
        return NULL;
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return name;
    snprintf(room, TRI_STATE_NAME_MAX, "%s", name + strlen(prefix));
    return room;
}

static void entries_are_renamed_and_left_out(void **state)
{
    char prefix[] = "transformer.";
    const tri_state_source sources[] = {
        {.name = "transformer.weight",
         .dtype = TRI_DTYPE_F32,
         .ndim = 2,
         .shape = {2, 3},
         .data = weight},
        {.name = "bias", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = bias},
        {.name = "mask", .dtype = TRI_DTYPE_BOOL, .ndim = 1, .shape = {2}, .data = bias},
        {.name = "transformer.bias",
         .dtype = TRI_DTYPE_F32,
         .ndim = 1,
         .shape = {2},
         .data = bias}};
    const tri_load_options opt = {.rename = without_prefix, .arg = prefix},
                           both = {.rename = without_prefix, .arg = prefix, .partial = true};
    tri_module *net = tri_nn_linear(3, 2, NULL);

    (void)state;
    CHECK_OK(tri_module_load(net, sources, 3, &opt));
    check_floats(net, "weight", weight, 6);
    check_floats(net, "bias", bias, 2);
    CHECK_FAILS(tri_module_load(net, sources, 4, &opt), TRI_ERR_INVALID_ARG,
                "bias, and again from transformer.bias");
    CHECK_FAILS(tri_module_load(net, sources, 4, &both), TRI_ERR_INVALID_ARG, "and again");
    tri_module_destroy(net);
}

static void files_are_loaded_with_options(void **state)
{
    const uint16_t halves[2] = {trii_f32_to_bf16(7), trii_f32_to_bf16(8)};
    const tri_safetensors_entry entry = {.name = "bias",
                                         .dtype = TRI_DTYPE_BF16,
                                         .ndim = 1,
                                         .shape = {2},
                                         .data = halves,
                                         .bytes = 4};
    tri_module *net = tri_nn_linear(3, 2, NULL);
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_safetensors_write(scratch_path(&s, "w"), &entry, 1, NULL, 0));
    CHECK_FAILS(tri_load(net, scratch_path(&s, "w"), NULL), TRI_ERR_FORMAT, "missing: weight");
    CHECK_FAILS(tri_load(net, scratch_path(&s, "w"), &(tri_load_options){.partial = true}),
                TRI_ERR_FORMAT, "no part of the state fits");
    CHECK_OK(tri_load(net, scratch_path(&s, "w"),
                      &(tri_load_options){.partial = true, .convert = true}));
    check_floats(net, "bias", bias, 2);
    tri_module_destroy(net);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_remedy_is_in_the_line),
    cmocka_unit_test(a_name_that_is_nearly_right_is_named),
    cmocka_unit_test(what_partial_would_do_is_said),
    cmocka_unit_test(a_part_of_the_state_is_loaded),
    cmocka_unit_test(halves_and_doubles_become_floats),
    cmocka_unit_test(entries_are_renamed_and_left_out),
    cmocka_unit_test(files_are_loaded_with_options),
};

TEST_MAIN(tests)
