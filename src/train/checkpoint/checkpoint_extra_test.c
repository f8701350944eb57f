/* checkpoint_extra_test.c - what a checkpoint holds beside weights and optimizer, which ones stay,
 * and those that earlier releases wrote (tests/golden/checkpoint). */
#include <inttypes.h>

#include <trireme/checkpoint.h>
#include <trireme/nn.h>
#include <trireme/optim.h>

#include "base/alloc.h"
#include "train/checkpoint/format.h"
#include "testing/golden.h"
#include "testing/scratch.h"

/* An extra of two tensors that have this value. */
typedef struct extra {
    tri_state_entry entries[2];
    tri_checkpoint_extra extra;
} extra;

static void extra_begin(extra *e, const char *name, double value)
{
    e->entries[0] = (tri_state_entry){.name = "w"};
    e->entries[1] = (tri_state_entry){.name = "n"};
    e->entries[0].tensor = tri_tensor_create(TRI_SHAPE(3, 2), TRI_DTYPE_F32);
    e->entries[1].tensor = tri_tensor_create(NULL, 0, TRI_DTYPE_F64);
    for (int i = 0; i < 2; i++)
        CHECK_OK(tri_init_constant(e->entries[i].tensor, value));
    e->extra = (tri_checkpoint_extra){.name = name, .entries = e->entries, .n = 2};
}

static void extra_end(extra *e)
{
    for (int i = 0; i < 2; i++)
        tri_tensor_unref(e->entries[i].tensor);
}

static void check_extra(const extra *e, double value)
{
    float w[6];

    CHECK_OK(tri_tensor_copy_out(e->entries[0].tensor, w, sizeof(w)));
    for (int i = 0; i < 6; i++)
        assert_true((double)w[i] == value);
    assert_true(tri_item(e->entries[1].tensor) == value);
}

static void extras_and_texts_come_back(void **state)
{
    tri_module *net = tri_nn_linear(2, 2, NULL);
    tri_checkpoint *checkpoint;
    extra ema, scaler;
    scratch s;

    (void)state;
    scratch_begin(&s);
    extra_begin(&ema, "ema", 2);
    extra_begin(&scaler, "grad_scaler", 3);
    CHECK_OK(tri_checkpoint_save(
        s.dir, net, NULL,
        &(tri_checkpoint_info){
            .step = 4,
            .extras =
                (const tri_checkpoint_extra[]){ema.extra,
                                               {.name = "trainer", .text = "{\"epoch\": 3}\n"},
                                               scaler.extra,
                                               {.name = "empty", .text = ""}},
            .n_extras = 4},
        NULL));
    extra_end(&ema);
    extra_end(&scaler);
    assert_int_equal(scratch_count(scratch_path(&s, "step-000000000004")), 6);

    extra_begin(&ema, "ema", 0);
    extra_begin(&scaler, "grad_scaler", 0);
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    assert_string_equal(tri_checkpoint_text(checkpoint, "trainer"), "{\"epoch\": 3}\n");
    assert_string_equal(tri_checkpoint_text(checkpoint, "empty"), "");
    assert_null(tri_checkpoint_text(checkpoint, "other"));
    assert_null(tri_checkpoint_text(checkpoint, NULL));
    assert_true(tri_checkpoint_has(checkpoint, "ema"));
    assert_true(tri_checkpoint_has(checkpoint, "model"));
    assert_false(tri_checkpoint_has(checkpoint, "optimizer"));
    assert_false(tri_checkpoint_has(checkpoint, "trainer"));
    assert_false(tri_checkpoint_has(checkpoint, NULL));
    CHECK_OK(tri_checkpoint_restore_extra(checkpoint, "ema", ema.entries, 2));
    CHECK_OK(tri_checkpoint_restore_extra(checkpoint, "grad_scaler", scaler.entries, 2));
    check_extra(&ema, 2);
    check_extra(&scaler, 3);

    /* What does not fit changes nothing. */
    CHECK_FAILS(tri_checkpoint_restore_extra(checkpoint, "swa", ema.entries, 2), TRI_ERR_NOT_FOUND,
                "has no swa.safetensors");
    CHECK_FAILS(tri_checkpoint_restore_extra(checkpoint, "grad_scaler", ema.entries, 1),
                TRI_ERR_FORMAT, "2 tensors, the grad_scaler has 1");
    ema.entries[1].name = "m";
    CHECK_FAILS(tri_checkpoint_restore_extra(checkpoint, "grad_scaler", ema.entries, 2),
                TRI_ERR_FORMAT, "no tensor m");
    check_extra(&ema, 2);
    tri_checkpoint_close(checkpoint);
    extra_end(&ema);
    extra_end(&scaler);
    tri_module_destroy(net);
    scratch_end(&s);
}

/* Every byte of every file is under a checksum. */
static void damage_to_extras_and_texts_is_seen(void **state)
{
    static const char *const files[] = {"ema.safetensors", "trainer.json"};
    tri_module *net = tri_nn_linear(2, 2, NULL);
    tri_checkpoint *checkpoint;
    extra ema;
    scratch s;

    (void)state;
    scratch_begin(&s);
    extra_begin(&ema, "ema", 2);
    for (int64_t step = 1; step <= 2; step++)
        CHECK_OK(tri_checkpoint_save(
            s.dir, net, NULL,
            &(tri_checkpoint_info){
                .step = step,
                .extras =
                    (const tri_checkpoint_extra[]){ema.extra, {.name = "trainer", .text = "{}"}},
                .n_extras = 2},
            NULL));
    for (int f = 0; f < 2; f++) {
        char name[96];
        size_t n;
        char *bytes;

        snprintf(name, sizeof(name), "step-000000000002/%s", files[f]);
        bytes = scratch_read(scratch_path(&s, name), &n);
        for (size_t at = 0; at < n; at += 1 + n / 40) {
            bytes[at] ^= 4;
            scratch_file(&s, name, bytes, n);
            CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
            assert_int_equal(tri_checkpoint_step(checkpoint), 1);
            tri_checkpoint_close(checkpoint);
            CHECK_FAILS(tri_checkpoint_open(scratch_path(&s, "step-000000000002"), &checkpoint),
                        TRI_ERR_FORMAT, files[f]);
            bytes[at] ^= 4;
        }
        scratch_file(&s, name, bytes, n);
        CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
        assert_int_equal(tri_checkpoint_step(checkpoint), 2);
        tri_checkpoint_close(checkpoint);
        assert_int_equal(unlink(scratch_path(&s, name)), 0);
        CHECK_FAILS(tri_checkpoint_open(scratch_path(&s, "step-000000000002"), &checkpoint),
                    TRI_ERR_FORMAT, files[f]);
        scratch_file(&s, name, bytes, n);
        free(bytes);
    }
    extra_end(&ema);
    tri_module_destroy(net);
    scratch_end(&s);
}

static tri_status save(const char *folder, tri_module *net, int64_t step, int keep,
                       const int64_t *steps, int n_steps)
{
    return tri_checkpoint_save(
        folder, net, NULL, &(tri_checkpoint_info){.step = step},
        &(tri_checkpoint_save_options){.keep = keep, .keep_steps = steps, .n_keep_steps = n_steps});
}

static bool has_step(scratch *s, int64_t step)
{
    char name[32];

    snprintf(name, sizeof(name), "step-%012" PRId64, step);
    return access(scratch_path(s, name), F_OK) == 0;
}

static void steps_that_are_named_stay(void **state)
{
    static const int64_t best[] = {20, 10, 99};
    tri_module *net = tri_nn_linear(2, 2, NULL);
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int64_t step = 10; step <= 60; step += 10)
        CHECK_OK(save(s.dir, net, step, 2, best, 3));
    assert_int_equal(scratch_count(s.dir), 4);
    assert_true(has_step(&s, 10) && has_step(&s, 20) && has_step(&s, 50) && has_step(&s, 60));
    CHECK_OK(save(s.dir, net, 70, 1, best, 1)); /* 10 is among the best no more */
    assert_int_equal(scratch_count(s.dir), 2);
    assert_true(has_step(&s, 20) && has_step(&s, 70));
    CHECK_OK(save(s.dir, net, 80, 1, NULL, 0));
    assert_int_equal(scratch_count(s.dir), 1);
    tri_module_destroy(net);
    scratch_end(&s);
}

/* A writer that was killed among its files leaves no manifest but that of a checkpoint to be; one
 * that was killed while it removed leaves the manifest. What the user has put aside stays. */
static void what_a_killed_writer_leaves_goes(void **state)
{
    tri_module *net = tri_nn_linear(2, 2, NULL);
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(mkdir(scratch_path(&s, ".tmp-step-000000000005"), 0777), 0);
    scratch_file(&s, ".tmp-step-000000000005/manifest.json", TRII_NO_MANIFEST_YET,
                 strlen(TRII_NO_MANIFEST_YET));
    scratch_file(&s, ".tmp-step-000000000005/ema.safetensors", "x", 1);
    assert_int_equal(mkdir(scratch_path(&s, ".tmp-step-000000000006"), 0777), 0);
    scratch_file(&s, ".tmp-step-000000000006/ema.safetensors", "x", 1);
    CHECK_OK(save(s.dir, net, 1, 1, NULL, 0));
    assert_int_equal(access(scratch_path(&s, ".tmp-step-000000000005"), F_OK), -1);
    assert_int_equal(access(scratch_path(&s, ".tmp-step-000000000006/ema.safetensors"), F_OK), 0);
    CHECK_FAILS(save(s.dir, net, 6, 1, NULL, 0), TRI_ERR_IO, "move it away");
    assert_int_equal(access(scratch_path(&s, ".tmp-step-000000000006/ema.safetensors"), F_OK), 0);

    assert_int_equal(unlink(scratch_path(&s, "step-000000000001/model.safetensors")), 0);
    scratch_file(&s, "step-000000000001/ema.safetensors", "x", 1);
    CHECK_OK(save(s.dir, net, 2, 1, NULL, 0));
    assert_false(has_step(&s, 1));
    assert_true(has_step(&s, 2));
    tri_module_destroy(net);
    scratch_end(&s);
}

static void checkpoints_of_earlier_releases_are_read(void **state)
{
    tri_module *net =
        tri_nn_sequential(tri_nn_linear(6, 8, NULL), tri_nn_relu(), tri_nn_linear(8, 3, NULL));
    tri_optimizer *opt = tri_adamw(net, 0.01, &(tri_adam_options){.amsgrad = true});
    tri_checkpoint *checkpoint;
    char text[24];
    uint64_t hash;

    (void)state;
    CHECK_OK(tri_checkpoint_open(golden_path("checkpoint"), &checkpoint));
    assert_int_equal(tri_checkpoint_step(checkpoint), 3);
    assert_int_equal(tri_checkpoint_epoch(checkpoint), 1);
    assert_string_equal(tri_checkpoint_metadata(checkpoint, "best"), "0.5");
    assert_null(tri_checkpoint_text(checkpoint, "trainer"));
    assert_false(tri_checkpoint_has(checkpoint, "ema"));
    CHECK_OK(tri_checkpoint_restore(checkpoint, net, opt));
    CHECK_OK(tri_module_hash(net, &hash));
    snprintf(text, sizeof(text), "%016" PRIx64, hash);
    assert_string_equal(tri_checkpoint_metadata(checkpoint, "hash"), text);
    assert_int_equal(tri_rng_state().seed, 7);
    assert_int_equal(tri_rng_state().step, 41);
    tri_checkpoint_close(checkpoint);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
}

static void what_cannot_be_saved_is_named(void **state)
{
    tri_module *net = tri_nn_linear(2, 2, NULL);
    tri_checkpoint_extra extras[17];
    extra ema;
    scratch s;

    (void)state;
    scratch_begin(&s);
    extra_begin(&ema, "ema", 2);
    extras[0] = extras[1] = ema.extra;
#define REFUSED(text, ...)                                                                         \
    CHECK_FAILS(tri_checkpoint_save(s.dir, net, NULL, &(tri_checkpoint_info){__VA_ARGS__}, NULL),  \
                TRI_ERR_INVALID_ARG, text)
    REFUSED("ema occurs twice", .extras = extras, .n_extras = 2);
    REFUSED("17 extras", .extras = extras, .n_extras = 17);
    REFUSED("-1 extras", .extras = extras, .n_extras = -1);
    REFUSED("extras is NULL", .n_extras = 1);
    extras[0].name = NULL;
    REFUSED("name of an extra is NULL", .extras = extras, .n_extras = 1);
    extras[0].name = "optimizer";
    REFUSED("optimizer is taken", .extras = extras, .n_extras = 1);
    extras[0].name = "../ema";
    REFUSED("name ../ema", .extras = extras, .n_extras = 1);
    extras[0].name = "ema";
    ema.entries[1].name = "w";
    REFUSED("tensor w of ema occurs twice", .extras = extras, .n_extras = 1);
    ema.entries[1] = (tri_state_entry){.name = "n"};
    REFUSED("entry 1 of ema has no name or no tensor", .extras = extras, .n_extras = 1);
    extras[0].n = -1;
    REFUSED("ema has -1 entries", .extras = extras, .n_extras = 1);
    extras[0] = (tri_checkpoint_extra){.name = "a", .text = "", .n = 1};
    REFUSED("a has both", .extras = extras, .n_extras = 1);
    extras[0] = (tri_checkpoint_extra){.name = "manifest", .text = ""};
    REFUSED("manifest is taken", .extras = extras, .n_extras = 1);
#undef REFUSED
    CHECK_FAILS(save(s.dir, net, 1, 1, NULL, 1), TRI_ERR_INVALID_ARG, "keep_steps is NULL");
    CHECK_FAILS(save(s.dir, net, 1, 1, NULL, -1), TRI_ERR_INVALID_ARG, "n_keep_steps -1");
    CHECK_FAILS(tri_checkpoint_restore_extra(NULL, "ema", NULL, 0), TRI_ERR_INVALID_ARG,
                "checkpoint is NULL");
    tri_tensor_unref(ema.entries[0].tensor);
    tri_module_destroy(net);
    assert_int_equal(scratch_count(s.dir), 0);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(extras_and_texts_come_back),
    cmocka_unit_test(damage_to_extras_and_texts_is_seen),
    cmocka_unit_test(steps_that_are_named_stay),
    cmocka_unit_test(what_a_killed_writer_leaves_goes),
    cmocka_unit_test(checkpoints_of_earlier_releases_are_read),
    cmocka_unit_test(what_cannot_be_saved_is_named),
};
TEST_MAIN(tests)
