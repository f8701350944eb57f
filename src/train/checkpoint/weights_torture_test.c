/* weights_torture_test.c - files of weights where memory is out at each allocation in turn, and on
 * two threads at once. */
#include <trireme/checkpoint.h>
#include <trireme/nn.h>

#include "base/alloc.h"
#include "os/thread.h"
#include "testing/scratch.h"
#include "testing/torch_files.h"

/* Each allocation of tri_load fails in turn; a failed one leaves nothing, and the module whole. */
static void torture_load(const char *path)
{
    tri_module *net = tri_nn_linear(3, 2, NULL);
    tri_status status = TRI_ERR_NO_MEMORY;
    uint64_t before, after;
    long live;

    CHECK_OK(tri_module_hash(net, &before));
    live = trii_alloc_live();
    for (long n = 1; status != TRI_OK; n++) {
        trii_alloc_fail_at(n);
        status = tri_load(net, path, NULL);
        trii_alloc_fail_at(0);
        if (status != TRI_OK && status != TRI_ERR_NO_MEMORY)
            fail_msg("allocation %ld: %s", n, tri_last_error());
        if (status != TRI_OK) {
            CHECK_OK(tri_module_hash(net, &after));
            assert_int_equal(before, after);
        }
        assert_int_equal(trii_alloc_live(), live);
    }
    tri_module_destroy(net);
}

static void a_load_that_runs_out_of_memory_leaves_nothing(void **state)
{
    tri_module *net = tri_nn_linear(3, 2, NULL);
    scratch s;

    (void)state;
    torture_load(golden_path("state-2.13.pth"));
    torture_load(golden_path("state-legacy-2.13.pth"));
    torture_load(golden_path("epoch-2.13.pth"));
    scratch_begin(&s);
    CHECK_OK(tri_save(net, scratch_path(&s, "net.safetensors")));
    torture_load(scratch_path(&s, "net.safetensors"));
    scratch_end(&s);
    tri_module_destroy(net);
}

static void a_save_that_runs_out_of_memory_leaves_nothing(void **state)
{
    tri_module *net = tri_nn_linear(3, 2, NULL);
    tri_status status = TRI_ERR_NO_MEMORY;
    uint64_t hash;
    long live;
    scratch s;

    (void)state;
    CHECK_OK(tri_module_hash(net, &hash));
    live = trii_alloc_live();
    scratch_begin(&s);
    for (long n = 1; status != TRI_OK; n++) {
        trii_alloc_fail_at(n);
        status = tri_torch_save(net, scratch_path(&s, "net.pth"));
        trii_alloc_fail_at(0);
        assert_true(status == TRI_OK || status == TRI_ERR_NO_MEMORY);
        assert_int_equal(trii_alloc_live(), live);
        assert_int_equal(scratch_count(s.dir), status == TRI_OK ? 1 : 0);
    }
    scratch_end(&s);
    tri_module_destroy(net);
}

static void a_tensor_that_finds_no_memory_fails(void **state)
{
    static const char *const names[] = {"state_dict.plain", "state_dict.turned"};
    tri_torch_file *file;
    long live;

    (void)state;
    CHECK_OK(tri_torch_open(golden_path("everything-2.13.pth"), &file));
    live = trii_alloc_live();
    for (size_t k = 0; k < TRII_COUNT_OF(names); k++) {
        tri_status status = TRI_ERR_NO_MEMORY;

        for (long n = 1; status != TRI_OK; n++) {
            tri_tensor *tensor;

            trii_alloc_fail_at(n);
            tensor = tri_torch_tensor_named(file, names[k]);
            status = tri_tensor_status(tensor);
            trii_alloc_fail_at(0);
            assert_true(status == TRI_OK || status == TRI_ERR_NO_MEMORY);
            tri_tensor_unref(tensor);
            assert_int_equal(trii_alloc_live(), live);
        }
    }
    tri_torch_close(file);
}

typedef struct reader {
    trii_thread thread;
    char shared[512], own[512]; /* files */
    bool is_right;
} reader;

/* Opens, reads and closes the file that others have open too, and one that it writes. */
static bool read_and_write(const reader *r)
{
    static const float numbers[64] = {1, 2, 3};
    const tri_safetensors_entry entry = {.name = "a",
                                         .dtype = TRI_DTYPE_F32,
                                         .ndim = 1,
                                         .shape = {64},
                                         .data = numbers,
                                         .bytes = sizeof(numbers)};
    float data[64];
    tri_torch_file *file;
    bool right;

    if (tri_torch_open(r->shared, &file) != TRI_OK)
        return false;
    right = read_named(file, "weight", data, 24) == TRI_OK && (int)data[0] == value_of(1, 0);
    tri_torch_close(file);
    if (!right || tri_torch_write(r->own, &entry, 1) != TRI_OK ||
        tri_torch_open(r->own, &file) != TRI_OK)
        return false;
    right = read_named(file, "a", data, sizeof(data)) == TRI_OK &&
            memcmp(data, numbers, sizeof(data)) == 0;
    tri_torch_close(file);
    return right;
}

static void read_often(void *arg)
{
    reader *r = arg;

    r->is_right = true;
    for (int i = 0; i < 20 && r->is_right; i++)
        r->is_right = read_and_write(r);
}

static void two_threads_have_files_of_their_own(void **state)
{
    reader readers[2];
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int k = 0; k < 2; k++) {
        reader *r = &readers[k];

        snprintf(r->shared, sizeof(r->shared), "%s", golden_path("state-2.13.pth"));
        snprintf(r->own, sizeof(r->own), "%s", scratch_path(&s, k == 0 ? "a.pth" : "b.pth"));
        CHECK_OK(trii_thread_start(&r->thread, "reader", read_often, r));
    }
    for (int k = 0; k < 2; k++) {
        trii_thread_join(&readers[k].thread);
        assert_true(readers[k].is_right);
    }
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_load_that_runs_out_of_memory_leaves_nothing),
    cmocka_unit_test(a_save_that_runs_out_of_memory_leaves_nothing),
    cmocka_unit_test(a_tensor_that_finds_no_memory_fails),
    cmocka_unit_test(two_threads_have_files_of_their_own),
};
TEST_MAIN(tests)
