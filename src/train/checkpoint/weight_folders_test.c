/* weight_folders_test.c - tri_load of folders: of hubs, torch's distributed checkpoints, DeepSpeed.
 * Golden folders: tests/golden/make_weight_folders.py, make_deepspeed_folders.py. */
/* ctest: threads=none */
#include <trireme/checkpoint.h>
#include <trireme/nn.h>

#include "base/alloc.h"
#define GOLDEN_FOLDER "folders/"
#include "testing/golden.h"
#include "testing/scratch.h"
#include "train/checkpoint/weights.h"

static tri_module *network(void)
{
    return tri_nn_sequential(tri_nn_linear(3, 5, NULL), tri_nn_batch_norm1d(5, NULL),
                             tri_nn_linear(5, 2, NULL));
}

/* Entry k has the values of the script. */
static void expect_loaded(tri_module *net)
{
    for (int64_t k = 0; k < tri_module_state_count(net); k++) {
        tri_tensor *tensor = tri_module_state(net, k).tensor;
        int64_t n = tri_tensor_numel(tensor);
        float values[15];
        int64_t counter;

        if (tri_tensor_dtype(tensor) == TRI_DTYPE_I64) {
            CHECK_OK(tri_tensor_copy_out(tensor, &counter, sizeof(counter)));
            assert_int_equal(counter, k * 37 % 100 - 50);
            continue;
        }
        CHECK_OK(tri_tensor_copy_out(tensor, values, (size_t)n * sizeof(float)));
        for (int64_t i = 0; i < n; i++)
            CHECK_NEAR(values[i], (float)((k * 37 + i * 11) % 100 - 50), 0);
    }
}

/* text: NULL where it loads; else what the error has, and nothing is changed. */
static void load(const char *path, const char *text)
{
    tri_module *net = network();
    uint64_t before, after;

    if (text == NULL) {
        CHECK_OK(tri_load(net, path, NULL));
        expect_loaded(net);
    } else {
        CHECK_OK(tri_module_hash(net, &before));
        CHECK_FAILS(tri_load(net, path, NULL), TRI_ERR_FORMAT, text);
        CHECK_OK(tri_module_hash(net, &after));
        assert_int_equal(before, after);
    }
    tri_module_destroy(net);
}

static void copy_file(scratch *s, const char *folder, const char *name)
{
    char from[256];
    size_t n;
    char *bytes;

    snprintf(from, sizeof(from), "%s/%s", folder, name);
    bytes = scratch_read(golden_path(from), &n);
    scratch_file(s, name, bytes, n);
    free(bytes);
}

static void folders_of_hubs_are_loaded(void **state)
{
    (void)state;
    load(golden_path("hub-safetensors"), NULL);
    load(golden_path("hub-safetensors/"), NULL);
    load(golden_path("hub-torch"), NULL);
    load(golden_path("hub-safetensors/model.safetensors.index.json"), NULL);
    load(golden_path("hub-torch/pytorch_model.bin.index.json"), NULL);
}

static void a_folder_of_one_file_is_loaded(void **state)
{
    static const char *const names[] = {"model.safetensors", "pytorch_model.bin"};

    (void)state;
    for (int k = 0; k < 2; k++) {
        tri_module *net = network(), *other = network();
        uint64_t hash, loaded;
        scratch s;

        scratch_begin(&s);
        CHECK_OK(tri_save(net, scratch_path(&s, names[k]))); /* what is in it counts */
        CHECK_OK(tri_load(other, s.dir, NULL));
        CHECK_OK(tri_module_hash(net, &hash));
        CHECK_OK(tri_module_hash(other, &loaded));
        assert_int_equal(hash, loaded);
        tri_module_destroy(net);
        tri_module_destroy(other);
        scratch_end(&s);
    }
}

static void a_folder_without_weights_is_refused(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    load(s.dir, "a folder without weights");
    scratch_end(&s);
}

static void wrong_indices_are_refused(void **state)
{
#define FIRST "model-00001-of-00002.safetensors"
    static const struct row {
        const char *json, *text;
    } rows[] = {
        {"{", "index.json, byte 1"},
        {"{\"weight_map\": 1}", "no index of weights: it has no object \"weight_map\""},
        {"{\"weight_map\": {}}", "missing: 0.weight"},
        {"{\"weight_map\": {\"a\": 5}}", "tensor a: not the name of a file"},
        {"{\"weight_map\": {\"a\": \"../x\"}}", "tensor a: file \"../x\" is not in the index's"},
        {"{\"weight_map\": {\"a\": \"x/../../y\"}}", "is not in the index's folder"},
        {"{\"weight_map\": {\"a\": \"..\"}}", "is not in the index's folder"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "is not in the index's folder"},
        {"{\"weight_map\": {\"a\": \"\"}}", "is not in the index's folder"},
        {"{\"weight_map\": {\"a\": \"..x\"}}", "..x"},
        {"{\"weight_map\": {\"a\": \"model-9.bin\"}}",
         "not all files that it lists are there: open"},
        {"{\"weight_map\": {\"a\": \"model.safetensors.index.json\"}}",
         "neither a safetensors file"},
        {"{\"weight_map\": {\"7.weight\": \"" FIRST "\"}}",
         "tensor 7.weight is not in file " FIRST ", where weight_map has it"},
        {" \n{\"weight_map\": {\"0.weight\": \"" FIRST "\"}}", "missing: 0.bias"},
    };
    scratch s;

    (void)state;
    scratch_begin(&s);
    copy_file(&s, "hub-safetensors", FIRST);
    for (size_t i = 0; i < TRII_COUNT_OF(rows); i++)
        load(scratch_file(&s, "model.safetensors.index.json", rows[i].json, strlen(rows[i].json)),
             rows[i].text);
    scratch_end(&s);
}

static void folders_of_torch_dcp_are_loaded(void **state)
{
    (void)state;
    load(golden_path("dcp-replicated"), NULL); /* {"model": .., "step": 7, ..} by two ranks */
    load(golden_path("dcp-sharded"), NULL);    /* 5 rows over two ranks of fully_shard */
    load(golden_path("dcp-app"), NULL);        /* with an optimizer */
}

static void damaged_folders_of_torch_dcp_are_refused(void **state)
{
    static const char *const names[] = {".metadata", "__0_0.distcp", "__1_0.distcp"};
    char *bytes[3];
    size_t n[3];
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int k = 0; k < 3; k++) {
        char name[64];

        snprintf(name, sizeof(name), "dcp-sharded/%s", names[k]);
        bytes[k] = scratch_read(golden_path(name), &n[k]);
        scratch_file(&s, names[k], bytes[k], n[k]);
    }
    load(s.dir, NULL);
    scratch_file(&s, names[2], bytes[2], n[2] / 2);
    load(s.dir, "is it cut short?");
    assert_int_equal(remove(scratch_path(&s, names[2])), 0);
    load(s.dir, names[2]);
    scratch_file(&s, names[2], bytes[2], n[2]);
    scratch_file(&s, names[0], bytes[0], n[0] / 2);
    load(s.dir, ".metadata: offset");
    /* Whatever byte is wrong: the same values, or an error and an unchanged module. */
    for (int k = 0; k < 3; k++) {
        for (size_t at = 0; at < n[k]; at += k == 0 ? 3 : 31) {
            tri_module *net = network();

            bytes[k][at] ^= 0x21;
            scratch_file(&s, names[k], bytes[k], n[k]);
            bytes[k][at] ^= 0x21;
            if (tri_load(net, s.dir, NULL) == TRI_OK)
                expect_loaded(net);
            tri_module_destroy(net);
        }
        scratch_file(&s, names[k], bytes[k], n[k]);
        free(bytes[k]);
    }
    load(s.dir, NULL);
    scratch_end(&s);
}

static void folders_of_deepspeed_are_loaded(void **state)
{
    (void)state;
    load(golden_path("deepspeed-stage0"), NULL);
    load(golden_path("deepspeed-stage1"), NULL);
    load(golden_path("deepspeed-stage1/global_step0"), NULL);
    load(golden_path("deepspeed-stage2-frozen"), NULL);
    load(golden_path("deepspeed-stage3"), NULL);
    load(golden_path("deepspeed-stage3/global_step0"), NULL);
    load(golden_path("deepspeed-stage3-frozen"), NULL);
}

/* The optimizer's f32 weights, which are 0.125 more than the network's in bf16. */
static void one_file_of_a_divided_model_is_refused(void **state)
{
    tri_module *net = network();

    (void)state;
    CHECK_FAILS(tri_load(net,
                         golden_path("deepspeed-stage3/global_step0/"
                                     "zero_pp_rank_0_mp_rank_00_model_states.pt"),
                         NULL),
                TRI_ERR_UNSUPPORTED, "in stage 3, whose weights are in several files: load its");
    tri_module_destroy(net);
    load(golden_path("deepspeed-stage1/global_step0/mp_rank_00_model_states.pt"), NULL);
}

static void the_f32_weights_of_a_bf16_run_are_loaded(void **state)
{
    tri_module *net = network();
    float bias[2];

    (void)state;
    CHECK_OK(
        tri_load(net, golden_path("deepspeed-stage2-bf16"), &(tri_load_options){.convert = true}));
    CHECK_OK(tri_tensor_copy_out(tri_module_find(net, "2.bias"), bias, sizeof(bias)));
    for (int i = 0; i < 2; i++)
        CHECK_NEAR(bias[i], (float)((8 * 37 + i * 11) % 100 - 50) + 0.125F, 0);
    tri_module_destroy(net);
}

static void incomplete_folders_of_deepspeed_are_refused(void **state)
{
    static const char *const names[] = {"mp_rank_00_model_states.pt",
                                        "zero_pp_rank_0_mp_rank_00_optim_states.pt",
                                        "zero_pp_rank_1_mp_rank_00_optim_states.pt"};
    char *bytes;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int k = 0; k < 3; k++) {
        char name[128];

        snprintf(name, sizeof(name), "deepspeed-stage1/global_step0/%s", names[k]);
        bytes = scratch_read(golden_path(name), &n);
        scratch_file(&s, names[k], bytes, n);
        if (k < 2)
            free(bytes);
    }
    load(s.dir, NULL);
    scratch_file(&s, names[2], bytes, n / 2);
    load(s.dir, "is it cut short?");
    for (size_t at = 0; at < n; at += 13) { /* the same values, or an error */
        tri_module *net = network();

        bytes[at] ^= 0x21;
        scratch_file(&s, names[2], bytes, n);
        bytes[at] ^= 0x21;
        if (tri_load(net, s.dir, NULL) == TRI_OK)
            expect_loaded(net);
        tri_module_destroy(net);
    }
    assert_int_equal(remove(scratch_path(&s, names[2])), 0);
    load(s.dir, names[2]);
    free(bytes);
    scratch_file(&s, "latest", "../x", 4);
    load(s.dir, "latest: not the tag of a checkpoint in this folder");
    scratch_file(&s, "latest", "global_step9", 12);
    load(s.dir, "global_step9");
    scratch_end(&s);
}

/* Checkpoints of Trireme, of an engine and without, are named as what they are: `latest` and
 * model.safetensors are others' names, too. */
static void checkpoints_are_not_taken_for_weights(void **state)
{
    static const tri_checkpoint_info info = {.step = 3};
    tri_module *net = network();
    char path[512];
    scratch s;

    (void)state;
    scratch_begin(&s);
    snprintf(path, sizeof(path), "%s/global_step3", s.dir);
    CHECK_OK(tri_checkpoint_save(path, net, NULL, &info, NULL));
    load(path, "checkpoints of Trireme: tri_engine_load_checkpoint and tri_checkpoint_restore");
    load(s.dir, "a folder without weights");
    scratch_file(&s, "latest", "global_step3", 12);
    load(s.dir, "checkpoints of Trireme: ");
    snprintf(path, sizeof(path), "%s/global_step3/step-000000000003", s.dir);
    CHECK_OK(tri_load(net, path, NULL)); /* the model is whole */
    scratch_file(&s, "global_step3/step-000000000003/pieces.rank0.safetensors", "", 0);
    load(path, "checkpoints of Trireme: ");
    tri_module_destroy(net);
    scratch_end(&s);
}

static void other_files_are_named_as_such(void **state)
{
    static const struct row {
        const char *bytes, *text;
    } rows[] = {
        {"", "weights.bin: the file is empty"},
        {"hello", "weights.bin: neither a safetensors file nor one of torch.save"},
        {"global_step3", "weights.bin: neither a safetensors file nor one of torch.save"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"},
    };
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (size_t i = 0; i < TRII_COUNT_OF(rows); i++) {
        scratch_file(&s, "weights.bin", rows[i].bytes, strlen(rows[i].bytes));
        load(scratch_path(&s, "weights.bin"), rows[i].text);
    }
    scratch_end(&s);
}

static void copy_renamed(scratch *s, const char *from, const char *to)
{
    size_t n;
    char *bytes = scratch_read(golden_path(from), &n);

    scratch_file(s, to, bytes, n);
    free(bytes);
}

static void load_latest(scratch *s, const char *tag, const char *text)
{
    scratch_file(s, "latest", tag, strlen(tag));
    load(s->dir, text);
}

/* The files of several runs in one folder, as a save over another one leaves them. */
static void files_of_several_runs_are_refused(void **state)
{
#define MODEL "mp_rank_00_model_states.pt"
#define OPTIM(r) "zero_pp_rank_" #r "_mp_rank_00_optim_states.pt"
    scratch s;

    (void)state;
    scratch_begin(&s);
    copy_renamed(&s, "deepspeed-stage1/global_step0/" MODEL, MODEL);
    copy_renamed(&s, "deepspeed-stage1/global_step0/" OPTIM(1), OPTIM(1));
    load(s.dir, "the optimizer states of rank 0 are missing, which have the f32 weights; " MODEL);
    copy_renamed(&s, "deepspeed-stage1/global_step0/" OPTIM(0), OPTIM(0));
    load(s.dir, NULL);
    copy_renamed(&s, "deepspeed-mixed/three-ranks.pt", OPTIM(1));
    load(s.dir, "rank 1's optimizer states are of a run of 3 ranks, those of rank 0 of 2");
    copy_renamed(&s, "deepspeed-mixed/longer.pt", OPTIM(1));
    load(s.dir, "the ranks' shares of group 0 of the parameters have several lengths: are");
    scratch_end(&s);
}

static void a_tag_may_have_spaces_around_it(void **state)
{
    static const char *const tags[] = {".\n", ".\r\n", " . ", "."};
    scratch s;

    (void)state;
    scratch_begin(&s);
    copy_renamed(&s, "deepspeed-stage0/global_step0/" MODEL, MODEL);
    for (size_t k = 0; k < TRII_COUNT_OF(tags); k++)
        load_latest(&s, tags[k], NULL);
    load_latest(&s, " \n", "not the tag of a checkpoint in this folder");
    load_latest(&s, " ..", "not the tag of a checkpoint in this folder");
    scratch_end(&s);
}

static void an_allocation_that_fails_leaves_nothing(void **state)
{
    static const char *const names[] = {"hub-safetensors", "hub-torch", "dcp-app",
                                        "deepspeed-stage1", "deepspeed-stage3-frozen"};
    long live = trii_alloc_live();

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(names); k++) {
        tri_status status = TRI_ERR_NO_MEMORY;

        for (long n = 1; status != TRI_OK; n++) {
            trii_weights weights;

            trii_alloc_fail_at(n);
            status = trii_weights_open(golden_path(names[k]), TRII_WEIGHTS_STATE, &weights);
            if (status == TRI_OK)
                status = trii_weights_check(&weights, NULL);
            trii_alloc_fail_at(0);
            assert_true(status == TRI_OK || status == TRI_ERR_NO_MEMORY);
            trii_weights_close(&weights);
            assert_int_equal(trii_alloc_live(), live);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(folders_of_hubs_are_loaded),
    cmocka_unit_test(a_folder_of_one_file_is_loaded),
    cmocka_unit_test(a_folder_without_weights_is_refused),
    cmocka_unit_test(wrong_indices_are_refused),
    cmocka_unit_test(folders_of_torch_dcp_are_loaded),
    cmocka_unit_test(damaged_folders_of_torch_dcp_are_refused),
    cmocka_unit_test(folders_of_deepspeed_are_loaded),
    cmocka_unit_test(one_file_of_a_divided_model_is_refused),
    cmocka_unit_test(the_f32_weights_of_a_bf16_run_are_loaded),
    cmocka_unit_test(incomplete_folders_of_deepspeed_are_refused),
    cmocka_unit_test(checkpoints_are_not_taken_for_weights),
    cmocka_unit_test(other_files_are_named_as_such),
    cmocka_unit_test(files_of_several_runs_are_refused),
    cmocka_unit_test(a_tag_may_have_spaces_around_it),
    cmocka_unit_test(an_allocation_that_fails_leaves_nothing),
};
TEST_MAIN(tests)
