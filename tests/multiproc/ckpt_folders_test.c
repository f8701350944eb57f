/* ckpt_folders_test.c - `trireme ckpt` of folders: of hubs, torch's distributed checkpoints,
 * DeepSpeed; and what it writes for hubs. */
#include <stdio.h>

#include <trireme/checkpoint.h>
#include <trireme/nn.h>

#include "testing/ckpt_run.h"
#include "testing/scratch.h"

static const char *const folders[] = {
    "hub-safetensors",       "hub-torch",
    "dcp-replicated",        "dcp-sharded",
    "dcp-columns",           "dcp-app",
    "deepspeed-stage0",      "deepspeed-stage1",
    "deepspeed-stage2-bf16", "deepspeed-stage2-frozen",
    "deepspeed-stage3",      "deepspeed-stage3-frozen",
};
#define N_FOLDERS (sizeof(folders) / sizeof(folders[0]))

static const char *folder_at(size_t k)
{
    char name[64];

    snprintf(name, sizeof(name), "folders/%s", folders[k]);
    return golden_path(name);
}

static void folders_are_shown(void **state)
{
    (void)state;
    CKPT(0, "hub-torch: files with an index, as hubs have them\n", "show", folder_at(1));
    CKPT(
        0,
        "0.weight               f32    5x3               60  in pytorch_model-00001-of-00002.bin\n",
        "show", folder_at(1));
    CKPT(0, "0.bias                 f32    5                 20  in 2 pieces\n", "show",
         folder_at(3));
    CKPT(0, "60  in pieces, by columns\n", "show", folder_at(4));
    CKPT(0, "app.optim.state.2.weight.step        f32    scalar             4\n27 tensors", "show",
         folder_at(5));
    CKPT(0, "stage3: weights in a folder of DeepSpeed\n", "show", folder_at(10));
    CKPT(0, "2.bias                 f32    2                  8  in 2 pieces\n9 tensors", "show",
         folder_at(10));
}

static void whole_folders_are_verified(void **state)
{
    (void)state;
    CKPT(0,
         ": 9 tensors, 216 bytes, 0 damaged, 0 with NaN or Inf; it has no checksums to compare\n",
         "verify", folder_at(0));
    for (size_t k = 1; k < N_FOLDERS; k++)
        CKPT(0, " bytes, 0 damaged, 0 with NaN or Inf\n", "verify", folder_at(k));
    CKPT(0, "zero_pp_rank_1_mp_rank_00_optim_states.pt: 2 tensors, 80 bytes, 0 damaged", "verify",
         folder_at(7));
}

static uint64_t hash_of(const char *path)
{
    tri_module *net = tri_nn_sequential(tri_nn_linear(3, 5, NULL), tri_nn_batch_norm1d(5, NULL),
                                        tri_nn_linear(5, 2, NULL));
    uint64_t hash;

    CHECK_OK(tri_load(net, path, &(tri_load_options){.convert = true}));
    CHECK_OK(tri_module_hash(net, &hash));
    tri_module_destroy(net);
    return hash;
}

static void folders_are_converted(void **state)
{
    static const char *const kinds[] = {"--to=safetensors", "--to=torch", "--to=hub"};

    (void)state;
    for (size_t k = 0; k < N_FOLDERS; k++) {
        scratch s;

        scratch_begin(&s);
        for (size_t i = 0; i < 3; i++) {
            const char *to = scratch_path(&s, kinds[i] + 5);

            CKPT(0, "9 tensors, 216 bytes in ", "convert", folder_at(k), to, kinds[i]);
            assert_int_equal(hash_of(to), hash_of(folder_at(k)));
        }
        scratch_end(&s);
    }
}

static void what_is_no_weight_is_left_out(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    CKPT(0, "18 left out: not below app.model. (--all takes everything)\n", "convert", folder_at(5),
         scratch_path(&s, "a.pth"));
    CKPT(0, "27 tensors, 576 bytes in ", "convert", folder_at(5), scratch_path(&s, "b.pth"),
         "--all");
    CKPT(0, "18 tensors, 360 bytes in ", "convert", folder_at(5), scratch_path(&s, "c.pth"),
         "--prefix=app.optim.state.");
    scratch_end(&s);
}

static void folders_for_hubs_are_written(void **state)
{
    static const char index[] = "{\n"
                                "  \"metadata\": {\n"
                                "    \"total_size\": 216\n"
                                "  },\n"
                                "  \"weight_map\": {\n"
                                "    \"0.bias\": \"model-00001-of-00003.safetensors\",\n"
                                "    \"0.weight\": \"model-00001-of-00003.safetensors\",\n"
                                "    \"1.bias\": \"model-00002-of-00003.safetensors\",\n";
    char *text, dir[200];
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    snprintf(dir, sizeof(dir), "%s/model/", s.dir);
    CKPT(0, "9 tensors, 216 bytes in ", "convert", folder_at(10), dir, "--to=hub",
         "--shard-size=100");
    text = scratch_read(scratch_path(&s, "model/model.safetensors.index.json"), &n);
    assert_memory_equal(text, index, sizeof(index) - 1);
    assert_string_equal(text + n - 4, "}\n}\n");
    free(text);
    assert_int_equal(scratch_count(dir), 4);
    CKPT(0, "  format: pt\n", "show", scratch_path(&s, "model/model-00003-of-00003.safetensors"));
    /* One file needs no index, and a tensor that is larger than a file has one alone. */
    CKPT(0, "9 tensors", "convert", dir, scratch_path(&s, "one"), "--to=hub", "--shard-size=216");
    assert_int_equal(scratch_count(scratch_path(&s, "one")), 1);
    CKPT(0, "9 tensors", "convert", dir, scratch_path(&s, "many"), "--to=hub", "--shard-size=1");
    assert_int_equal(scratch_count(scratch_path(&s, "many")), 10);
    assert_int_equal(hash_of(scratch_path(&s, "many")), hash_of(folder_at(10)));
    /* An empty folder is taken, one that is not stays as it is. */
    assert_int_equal(mkdir(scratch_path(&s, "empty"), 0777), 0);
    CKPT(0, "0 tensors, 0 bytes in ", "convert", golden_path("safetensors/none.safetensors"),
         scratch_path(&s, "empty"), "--to=hub");
    CKPT(1, "many: it is there, and no empty folder", "convert", dir, scratch_path(&s, "many"),
         "--to=hub");
    CKPT(1, "no empty folder", "convert", dir, scratch_path(&s, "one/model.safetensors"),
         "--to=hub");
    CKPT(1, "nowhere", "convert", dir, scratch_path(&s, "nowhere/x"), "--to=hub");
    assert_int_equal(scratch_count(s.dir), 4);
    scratch_end(&s);
}

static void copy_states(scratch *s, const char *name)
{
    char from[128], *bytes;
    size_t n;

    snprintf(from, sizeof(from), "folders/deepspeed-stage1/global_step0/%s", name);
    bytes = scratch_read(golden_path(from), &n);
    scratch_file(s, name, bytes, n);
    free(bytes);
}

static void damaged_folders_are_named(void **state)
{
    static const char zero0[] = "zero_pp_rank_0_mp_rank_00_optim_states.pt",
                      zero1[] = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
    static const unsigned char first[] = {0, 0, 0x48, 0xc2}; /* -50: of 0.weight */
    char *bytes, *at;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    copy_states(&s, "mp_rank_00_model_states.pt");
    copy_states(&s, zero0);
    CKPT(1, zero1, "verify", s.dir); /* is missing */
    CKPT(1, "not all ranks' files are there", "show", s.dir);
    CKPT(1, "not all ranks' files are there", "convert", s.dir, scratch_path(&s, "x.pth"));
    copy_states(&s, zero1);
    CKPT(0, "0 damaged", "verify", s.dir);
    bytes = scratch_read(scratch_path(&s, zero0), &n);
    at = memmem(bytes, n, first, sizeof(first));
    assert_non_null(at);
    *at ^= 1;
    scratch_file(&s, zero0, bytes, n);
    CKPT(1, "tensor 0.weight: ", "verify", s.dir);
    CKPT(1, zero0, "verify", s.dir);
    CKPT(1, "are damaged: their CRC-32", "convert", s.dir, scratch_path(&s, "x.pth"));
    scratch_file(&s, zero0, bytes, n / 2);
    CKPT(1, "is it cut short?", "verify", s.dir);
    free(bytes);
    assert_int_equal(scratch_count(s.dir), 3);
    scratch_end(&s);
}

/* As tri_engine_save_checkpoint leaves it. */
static void the_checkpoint_that_latest_names_is_taken(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(symlink(golden_path("checkpoint"), scratch_path(&s, "tag")), 0);
    scratch_file(&s, "latest", "tag\n", 4);
    CKPT(0, "step 3, epoch 1, save 0 of its folder\n", "show", s.dir);
    CKPT(0, "tag/step-000000000003: whole, step 3\n", "verify", s.dir);
    CKPT(0, "4 tensors, 332 bytes in ", "convert", s.dir, scratch_path(&s, "x.pth"));
    scratch_file(&s, "latest", "gone", 4);
    CKPT(1, "gone", "show", s.dir);
    scratch_end(&s);
}

static void what_is_only_read_is_told(void **state)
{
    (void)state;
    CKPT(2, "dcp is read, not written: ", "convert", "x", "y", "--to=dcp");
    CKPT(2, "deepspeed is read, not written: ", "convert", "x", "y", "--to=deepspeed");
    CKPT(2, "trireme is read, not written: ", "convert", "x", "y", "--to=trireme");
    CKPT(2, "did you mean hub?", "convert", "x", "y", "--to=hob");
    CKPT(2, "--shard-size is for --to hub", "convert", "x", "y.pth", "--shard-size=5GB");
    CKPT(2, "--shard-size 0: bytes", "convert", "x", "y", "--to=hub", "--shard-size=0");
    CKPT(2, "--shard-size -1: bytes", "convert", "x", "y", "--to=hub", "--shard-size=-1");
    CKPT(2, "--shard-size 5XB: bytes", "convert", "x", "y", "--to=hub", "--shard-size=5XB");
    CKPT(2, "bytes, such as", "convert", "x", "y", "--to=hub", "--shard-size=99999999999GB");
    CKPT(1, "No such file", "convert", "/nowhere/x", "y", "--to=hub", "--shard-size=2gib");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(folders_are_shown),
    cmocka_unit_test(whole_folders_are_verified),
    cmocka_unit_test(folders_are_converted),
    cmocka_unit_test(what_is_no_weight_is_left_out),
    cmocka_unit_test(folders_for_hubs_are_written),
    cmocka_unit_test(damaged_folders_are_named),
    cmocka_unit_test(the_checkpoint_that_latest_names_is_taken),
    cmocka_unit_test(what_is_only_read_is_told),
};
TEST_MAIN(tests)
