/* weights_test.c - tri_load of files that PyTorch programs leave: by content, with the keys that
 * they use. Golden files: tests/golden/make_torch_files.py. */
/* ctest: threads=none */
#include <trireme/checkpoint.h>
#include <trireme/nn.h>
#include <trireme/torch_file.h>

#include "testing/scratch.h"
#include "testing/torch_files.h"

static void expect_loaded(tri_module *net)
{
    float weight[6], bias[2];

    CHECK_OK(tri_tensor_copy_out(tri_module_find(net, "weight"), weight, sizeof(weight)));
    CHECK_OK(tri_tensor_copy_out(tri_module_find(net, "bias"), bias, sizeof(bias)));
    for (int i = 0; i < 6; i++)
        CHECK_NEAR(weight[i], (float)((37 + i * 11) % 100 - 50), 0);
    for (int i = 0; i < 2; i++)
        CHECK_NEAR(bias[i], (float)((74 + i * 11) % 100 - 50), 0);
}

/* Of Linear(3, 2). */
static void load(const char *name, const tri_load_options *opt, tri_status want, const char *text)
{
    tri_module *net = tri_nn_linear(3, 2, NULL);

    if (want == TRI_OK) {
        CHECK_OK(tri_load(net, golden_path(name), opt));
        expect_loaded(net);
    } else {
        CHECK_FAILS(tri_load(net, golden_path(name), opt), want, text);
    }
    tri_module_destroy(net);
}

static void files_of_torch_are_loaded_by_content(void **state)
{
    (void)state;
    load("state-2.13.pth", NULL, TRI_OK, NULL);
    load("state-legacy-2.13.pth", NULL, TRI_OK, NULL);
    load("unchecked-2.13.pth", NULL, TRI_OK, NULL);
}

static void the_state_is_found_under_its_key(void **state)
{
    (void)state;
    load("epoch-2.13.pth", NULL, TRI_OK, NULL); /* "model", names with "module." */
    load("odd-key-2.13.pth", NULL, TRI_ERR_FORMAT,
         "no state dictionary under a usual key, but tensors below \"agent.\": "
         "tri_load_options.prefix chooses what is below one");
    load("odd-key-2.13.pth", &(tri_load_options){.prefix = "agent."}, TRI_OK, NULL);
    load("epoch-2.13.pth", &(tri_load_options){.prefix = "model.module."}, TRI_OK, NULL);
    load("epoch-2.13.pth", &(tri_load_options){.prefix = "model.modul"}, TRI_ERR_FORMAT, "missing");
    load("epoch-2.13.pth", &(tri_load_options){.prefix = "agent."}, TRI_ERR_FORMAT,
         "missing: weight, bias; no name begins with tri_load_options.prefix");
    load("epoch-2.13.pth", &(tri_load_options){.prefix = ""}, TRI_ERR_FORMAT,
         "unexpected: model.module.weight, model.module.bias");
}

static void what_is_no_state_is_refused(void **state)
{
    (void)state;
    load("whole-2.13.pth", NULL, TRI_ERR_UNSUPPORTED, "torch.nn.modules.linear.Linear");
    load("whole-inside-2.13.pth", NULL, TRI_ERR_UNSUPPORTED,
         "an object of class torch.nn.modules.linear.Linear under \"model\", whose code is");
    load("alone-2.13.pth", NULL, TRI_ERR_FORMAT, "missing: weight");
    load("everything-2.13.pth", NULL, TRI_ERR_FORMAT, "missing: weight");
}

static void a_prefix_is_proposed_where_it_makes_the_names_fit(void **state)
{
    static const float data[6] = {0};
    tri_module *net = tri_nn_linear(3, 2, NULL);
    tri_state_source sources[] = {
        {.name = "actor.weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {2, 3}, .data = data},
        {.name = "actor.bias", .dtype = TRI_DTYPE_F32, .ndim = 1, .shape = {2}, .data = data}};

    (void)state;
    CHECK_FAILS(tri_module_load(net, sources, 2, NULL), TRI_ERR_INVALID_ARG,
                "names that begin with \"actor.\" fit without it: set tri_load_options.prefix");
    CHECK_OK(tri_module_load(net, sources, 2, &(tri_load_options){.prefix = "actor."}));
    tri_module_destroy(net);
}

/* A name of a file that would begin a line of its own, or clear a terminal. */
static void a_message_stays_one_line(void **state)
{
    static const float data[6] = {0};
    tri_module *net = tri_nn_linear(3, 2, &(tri_nn_linear_options){.no_bias = true});
    tri_state_source sources[] = {
        {.name = "weight", .dtype = TRI_DTYPE_F32, .ndim = 2, .shape = {2, 3}, .data = data},
        {.name = "a\nb\x1b[2J", .dtype = TRI_DTYPE_F32, .data = data}};

    (void)state;
    CHECK_FAILS(tri_module_load(net, sources, 2, NULL), TRI_ERR_INVALID_ARG, "unexpected: a?b?[2J");
    CHECK_FAILS(tri_load(net, "/none\nthere", NULL), TRI_ERR_NOT_FOUND, "/none?there");
    tri_module_destroy(net);
}

/* A module is loaded whole or not at all: what is damaged is found before anything is written. */
static void fails_and_changes_nothing(const char *name, const char *tensor, const char *prefix)
{
    size_t n;
    char *bytes = scratch_read(golden_path(name), &n);
    tri_torch_file *file;
    tri_module *net = tri_nn_linear(3, 2, NULL);
    uint64_t before, after;
    scratch s;
    FILE *f;

    scratch_begin(&s);
    CHECK_OK(tri_torch_open(golden_path(name), &file));
    bytes[tri_torch_find(file, tensor)->file_offset] ^= 1;
    tri_torch_close(file);
    f = fopen(scratch_path(&s, "damaged.pth"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    CHECK_OK(tri_module_hash(net, &before));
    CHECK_FAILS(
        tri_load(net, scratch_path(&s, "damaged.pth"), &(tri_load_options){.prefix = prefix}),
        TRI_ERR_FORMAT, "data/1 are damaged: their CRC-32 is not the one that the file says");
    CHECK_OK(tri_module_hash(net, &after));
    assert_int_equal(before, after);
    tri_module_destroy(net);
    free(bytes);
    scratch_end(&s);
}

static void a_damaged_file_changes_nothing(void **state)
{
    (void)state;
    fails_and_changes_nothing("state-2.13.pth", "bias", NULL);
    fails_and_changes_nothing("state-2.13.pth", "bias", "");
    fails_and_changes_nothing("odd-key-2.13.pth", "agent.bias", "agent.");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(files_of_torch_are_loaded_by_content),
    cmocka_unit_test(the_state_is_found_under_its_key),
    cmocka_unit_test(what_is_no_state_is_refused),
    cmocka_unit_test(a_prefix_is_proposed_where_it_makes_the_names_fit),
    cmocka_unit_test(a_message_stays_one_line),
    cmocka_unit_test(a_damaged_file_changes_nothing),
};
TEST_MAIN(tests)
