/* weights_root_test.c - tri_load of files of torch.save that hold something else than a state
 * dictionary, or one under other keys and names: it loads, or the error says what is there and what
 * to do. Golden files: tests/golden/make_torch_files.py. */
/* ctest: threads=none */
#include <trireme/checkpoint.h>
#include <trireme/nn.h>

#include "testing/scratch.h"
#include "testing/torch_files.h"

/* Of Linear(3, 2). text: NULL where it loads. */
static void load(const char *path, const char *prefix, tri_status want, const char *text)
{
    const tri_load_options opt = {.prefix = prefix};
    tri_module *net = tri_nn_linear(3, 2, NULL);
    float weight[6];

    if (text != NULL) {
        CHECK_FAILS(tri_load(net, path, &opt), want, text);
    } else {
        CHECK_OK(tri_load(net, path, &opt));
        CHECK_OK(tri_tensor_copy_out(tri_module_find(net, "weight"), weight, sizeof(weight)));
        for (int i = 0; i < 6; i++)
            CHECK_NEAR(weight[i], (float)value_of(1, i), 0);
    }
    tri_module_destroy(net);
}

static void a_prefix_counts_below_the_usual_key_too(void **state)
{
    (void)state;
    load(golden_path("lightning-2.13.pth"), NULL, TRI_ERR_FORMAT,
         "names that begin with \"model.\" fit without it: set tri_load_options.prefix");
    load(golden_path("lightning-2.13.pth"), "model.", TRI_OK, NULL);
    load(golden_path("lightning-2.13.pth"), "state_dict.model.", TRI_OK, NULL);
    load(golden_path("lightning-2.13.pth"), "state_dict.", TRI_ERR_FORMAT,
         "unexpected: model.weight, model.bias");
}

static void dictionaries_in_dictionaries_are_names_with_dots(void **state)
{
    (void)state;
    load(golden_path("nested-2.13.pth"), NULL, TRI_ERR_FORMAT,
         "unexpected: encoder.weight, encoder.bias; names that begin with \"encoder.\" fit");
    load(golden_path("nested-2.13.pth"), "encoder.", TRI_OK, NULL);
    load(golden_path("nested-2.13.pth"), "model.encoder.", TRI_OK, NULL);
    load(golden_path("nested-2.13.pth"), "decoder.", TRI_ERR_FORMAT, "no name begins with");
}

static void names_of_wrappers_are_dropped(void **state)
{
    (void)state;
    load(golden_path("wrapped-2.13.pth"), NULL, TRI_OK, NULL); /* "module._orig_mod.weight" */
}

/* Strict: what cannot be read is unexpected, too. Otherwise the others are loaded. */
static void an_odd_tensor_stops_only_who_wants_it(void **state)
{
    const tri_load_options partial = {.partial = true};
    tri_module *net = tri_nn_linear(3, 2, NULL);
    memory_file m;

    (void)state;
    load(golden_path("odd-tensors-2.13.pth"), NULL, TRI_ERR_FORMAT,
         "unexpected: quantized, quarters, sparse, rows and 9 more; tri_load_options.partial sets");
    CHECK_OK(tri_load(net, golden_path("odd-tensors-2.13.pth"), &partial));
    tri_module_destroy(net);
    memory_file_begin(&m);
#define META                                                                                       \
    "ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\nK\2K\3\x86K\3K\1\x86\x89tR"
    write_pickle(&m, "}X\6\0\0\0weight" META "s.", sizeof("}X\6\0\0\0weight" META "s.") - 1);
    load(
        m.path, NULL, TRI_ERR_FORMAT,
        "weight is f32[2, 3] in the model, and what is loaded is on the meta device, where tensors "
        "have no elements");
    memory_file_end(&m);
}

static void what_is_no_state_is_named(void **state)
{
#define NUMPY "cnumpy._core.multiarray\n_reconstruct\n)R"
#define MODULE "ctorch.nn.modules.linear\nLinear\n)\x81}X\x08\0\0\0_modules}sb"
#define PICKLE(text) text, sizeof(text) - 1
    static const struct row {
        const char *pickle;
        size_t bytes;
        tri_status want;
        const char *text;
    } rows[] = {
        {PICKLE("N."), TRI_ERR_FORMAT, "it holds None without tensors: save the state_dict()"},
        {PICKLE("K\5."), TRI_ERR_FORMAT, "it holds a number without tensors"},
        {PICKLE("X\3\0\0\0abc."), TRI_ERR_FORMAT, "it holds a text without tensors"},
        {PICKLE("]."), TRI_ERR_FORMAT, "it holds a list without tensors"},
        {PICKLE("}K\1Ns."), TRI_ERR_FORMAT, "it holds a dictionary without tensors"},
        {PICKLE("}X\5\0\0\0modelNs."), TRI_ERR_FORMAT, "it holds a dictionary without tensors"},
        {PICKLE("}."), TRI_ERR_FORMAT, "missing: weight, bias"},
        {PICKLE(NUMPY "."), TRI_ERR_UNSUPPORTED,
         "an array or a number of numpy: save torch.from_numpy() of it"},
        {PICKLE("}X\1\0\0\0a" NUMPY "s."), TRI_ERR_UNSUPPORTED,
         "it holds arrays of numpy: save torch.from_numpy() of each"},
        {PICKLE("](" MODULE "e."), TRI_ERR_UNSUPPORTED,
         "it holds an object of class torch.nn.modules.linear.Linear, whose code is in a program"},
        {PICKLE("}X\3\0\0\0dev"
                "ctorch\ndevice\nX\3\0\0\0cpu\x85Rs."),
         TRI_ERR_FORMAT, "it holds a dictionary without tensors"},
    };
    memory_file m;

    (void)state;
    memory_file_begin(&m);
    for (size_t i = 0; i < TRII_COUNT_OF(rows); i++) {
        write_pickle(&m, rows[i].pickle, rows[i].bytes);
        load(m.path, NULL, rows[i].want, rows[i].text);
    }
    memory_file_end(&m);
    load(golden_path("optimizer-2.13.pth"), NULL, TRI_ERR_FORMAT,
         "it holds the state of an optimizer");
}

static void files_of_other_kinds_are_named(void **state)
{
    static const struct row {
        const char *bytes;
        size_t n;
        const char *text;
    } rows[] = {
        {PICKLE(""), "the file is empty"},
        {PICKLE("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "`git lfs pull`"},
        {PICKLE("<!DOCTYPE html>"), "a page of HTML or XML"},
        {PICKLE("\x1f\x8b\x08\0\0\0\0\0\0\3"), "gunzip"},
        {PICKLE("\x89HDF\r\n\x1a\n"), "HDF5"},
        {PICKLE("GGUF\3\0\0\0\0\0"), "llama.cpp"},
        {PICKLE("\x80\4\x95\0\0\0\0\0\0\0\0}."), "a pickle that torch.save did not write"},
        {PICKLE("\x93NUMPY\1\0"), "an array of numpy"},
        {PICKLE("abcdefghijk"), "neither a safetensors file nor one of torch.save"},
    };
    char tar[512] = "net.pth";
    memory_file m;

    (void)state;
    memory_file_begin(&m);
    for (size_t i = 0; i < TRII_COUNT_OF(rows); i++) {
        memory_file_write(&m, rows[i].bytes, rows[i].n);
        load(m.path, NULL, TRI_ERR_FORMAT, rows[i].text);
    }
    memcpy(tar + 257, "ustar", 5);
    memory_file_write(&m, tar, sizeof(tar));
    load(m.path, NULL, TRI_ERR_FORMAT, "a tar archive");
    memory_file_end(&m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_prefix_counts_below_the_usual_key_too),
    cmocka_unit_test(dictionaries_in_dictionaries_are_names_with_dots),
    cmocka_unit_test(names_of_wrappers_are_dropped),
    cmocka_unit_test(an_odd_tensor_stops_only_who_wants_it),
    cmocka_unit_test(what_is_no_state_is_named),
    cmocka_unit_test(files_of_other_kinds_are_named),
};
TEST_MAIN(tests)
