/*
 * nccl_order_test.c - the nccl plug-in, over a stand-in for CUDA and NCCL (fake_gpu.h): calls come
 * after what the calling thread has put on its queue of the GPU. The cases run with LOCAL_RANK=1,
 * so the group's GPU is cuda:1, and the thread's current one is cuda:0.
 */
#include "testing/check.h"

#include <cuda_runtime_api.h>
#include <trireme/comm.h>

#include "testing/fake_gpu/fake_gpu.h"

static const tri_group_options options = {.engine = "cuda:nccl", .timeout_ms = 20000};

typedef struct bench {
    tri_group *group;
    float *x, *y;   /* memory of cuda:1 */
    cudaStream_t a; /* a queue of cuda:1 */
} bench;

static void set_up(bench *b)
{
    CHECK_OK(tri_group_create(NULL, 0, 1, &options, &b->group));
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&b->x, 64), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&b->y, 64), cudaSuccess);
    b->a = fake_gpu_queue('a');
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    fake_gpu_clear_log();
}

static void tear_down(bench *b)
{
    int gpu = -1;

    assert_int_equal(cudaGetDevice(&gpu), cudaSuccess);
    assert_int_equal(gpu, 0); /* calls leave it as it was */
    CHECK_OK(tri_device_set_queue(TRI_CUDA(1), NULL));
    tri_group_unref(b->group);
    (void)cudaFree(b->x);
    (void)cudaFree(b->y);
    (void)cudaStreamDestroy(b->a);
}

static void expect_log(const char *wanted)
{
    char text[4096];

    fake_gpu_log(text, sizeof(text));
    assert_string_equal(text, wanted);
    fake_gpu_clear_log();
}

static tri_status reduce(const bench *b, tri_work **work_out)
{
    return tri_all_reduce(b->group, b->x, b->x, 16, TRI_DTYPE_F32, TRI_REDOP_SUM, work_out);
}

static void a_call_comes_after_what_is_on_the_threads_queue(void **state)
{
    bench b;
    tri_work *work = NULL;

    (void)state;
    set_up(&b);
    CHECK_OK(tri_device_set_queue(TRI_CUDA(1), b.a));
    fake_gpu_begin(b.a);
    CHECK_OK(reduce(&b, &work));
    CHECK_FAILS(tri_work_wait(work, 50), TRI_ERR_TIMEOUT, "still waiting");
    fake_gpu_end(b.a);
    CHECK_OK(tri_work_wait(work, 0));
    expect_log("record a, wait a, all_reduce, record nccl, ");
    tri_work_destroy(work);
    tear_down(&b);
}

static void a_call_waits_for_nothing_that_is_put_on_the_queue_after_it(void **state)
{
    bench b;
    tri_work *work = NULL;

    (void)state;
    set_up(&b);
    CHECK_OK(tri_device_set_queue(TRI_CUDA(1), b.a));
    CHECK_OK(reduce(&b, &work));
    fake_gpu_begin(b.a);
    CHECK_OK(tri_device_set_queue(TRI_CUDA(1), NULL)); /* nor does it look at the queue again */
    CHECK_OK(tri_work_wait(work, 0));
    expect_log("record a, wait a, all_reduce, record nccl, ");
    tri_work_destroy(work);
    fake_gpu_end(b.a);
    tear_down(&b);
}

static void without_a_name_it_is_the_default_queue_of_the_groups_gpu(void **state)
{
    bench b;

    (void)state;
    set_up(&b);
    CHECK_OK(tri_device_set_queue(TRI_CUDA(0), b.a)); /* of another GPU, so to speak */
    CHECK_OK(reduce(&b, NULL));
    expect_log("record 1, wait 1, all_reduce, record nccl, ");
    CHECK_OK(tri_device_set_queue(TRI_CUDA(0), NULL));
    tear_down(&b);
}

static void calls_of_a_batch_are_ordered_one_by_one(void **state)
{
    bench b;

    (void)state;
    set_up(&b);
    CHECK_OK(tri_group_batch_begin(b.group));
    CHECK_OK(tri_device_set_queue(TRI_CUDA(1), b.a));
    CHECK_OK(reduce(&b, NULL));
    fake_gpu_begin(b.a);
    CHECK_OK(tri_device_set_queue(TRI_CUDA(1), NULL));
    CHECK_OK(reduce(&b, NULL));
    CHECK_OK(
        tri_group_batch_end(b.group, NULL)); /* nobody waits for what came after the first call */
    fake_gpu_end(b.a);
    tear_down(&b);
}

static void a_queue_of_another_gpu_is_refused(void **state)
{
    bench b;

    (void)state;
    set_up(&b);
    CHECK_OK(tri_device_set_queue(TRI_CUDA(1), fake_gpu_queue('b')));
    CHECK_FAILS(reduce(&b, NULL), TRI_ERR_INVALID_ARG,
                "this thread's queue of cuda:1 cannot be waited for: invalid resource handle; name "
                "one that exists (tri_device_set_queue)");
    CHECK_OK(tri_device_set_queue(TRI_CUDA(1), NULL));
    CHECK_OK(reduce(&b, NULL)); /* the group has not failed */
    tear_down(&b);
}

static void memory_of_the_host_or_of_another_gpu_is_refused(void **state)
{
    bench b, wrong;
    float on_host[16] = {0};

    (void)state;
    set_up(&b);
    wrong = b;
    wrong.x = on_host;
    CHECK_FAILS(reduce(&wrong, NULL), TRI_ERR_UNSUPPORTED,
                "its buffers must be memory of the group's GPU; engines shm and tcp have it");
    assert_int_equal(cudaMalloc((void **)&wrong.x, 64), cudaSuccess);
    CHECK_FAILS(reduce(&wrong, NULL), TRI_ERR_UNSUPPORTED, "memory of the group's GPU");
    (void)cudaFree(wrong.x);
    expect_log("");
    tear_down(&b);
}

static void objects_are_refused_and_the_group_goes_on(void **state)
{
    bench b;
    void *data = NULL;
    size_t bytes = 0;

    (void)state;
    set_up(&b);
    CHECK_FAILS(tri_all_gather_object(b.group, "object", 6, &data, &bytes), TRI_ERR_UNSUPPORTED,
                "its buffers must be memory of the group's GPU");
    CHECK_OK(reduce(&b, NULL));
    tear_down(&b);
}

/* Not "self", which would touch the memory by itself and wait for no queue. */
static void a_group_of_one_rank_has_the_engine_of_the_one_it_is_made_of(void **state)
{
    static const int ranks[] = {0};
    bench b, sub;

    (void)state;
    set_up(&b);
    sub = b;
    CHECK_OK(tri_group_new(b.group, ranks, 1, NULL, &sub.group));
    assert_string_equal(tri_group_engine(sub.group), "nccl");
    CHECK_OK(reduce(&sub, NULL));
    expect_log("record 1, wait 1, all_reduce, record nccl, ");
    tri_group_unref(sub.group);
    tear_down(&b);
}

static void a_reducer_is_refused_and_the_group_goes_on(void **state)
{
    bench b;
    tri_reducer *reducer = NULL;

    (void)state;
    set_up(&b);
    CHECK_FAILS(tri_reducer_create(&(tri_reducer_options){.group = b.group}, &reducer),
                TRI_ERR_UNSUPPORTED, "engine nccl takes memory of a device only");
    CHECK_OK(reduce(&b, NULL));
    tear_down(&b);
}

static void colors_are_refused_and_the_group_goes_on(void **state)
{
    bench b;
    tri_group *sub = NULL;

    (void)state;
    set_up(&b);
    CHECK_FAILS(tri_group_split(b.group, 0, 0, NULL, &sub), TRI_ERR_UNSUPPORTED,
                "group_split: engine nccl moves memory of a device only");
    CHECK_OK(reduce(&b, NULL));
    tear_down(&b);
}

/* Without trirun, too. */
static void the_gpu_is_that_of_the_ranks_number_on_its_host(void **state)
{
    bench b;

    (void)state;
    assert_int_equal(unsetenv("LOCAL_RANK"), 0);
    assert_int_equal(setenv("SLURM_LOCALID", "1", 1), 0);
    set_up(&b);
    CHECK_OK(reduce(&b, NULL));
    expect_log("record 1, wait 1, all_reduce, record nccl, ");
    tear_down(&b);
}

static tri_status many_calls(const bench *b, int which)
{
    const size_t counts[] = {16};

    if (which == 0)
        return tri_gather(b->group, b->x, b->x, 16, TRI_DTYPE_F32, 0, NULL);
    if (which == 1)
        return tri_all_to_all(b->group, b->x, b->y, 16, TRI_DTYPE_F32, NULL);
    return tri_all_gather_v(b->group, b->x, b->x, counts, TRI_DTYPE_F32, NULL);
}

static void calls_that_are_many_of_nccl_are_one_group_of_them(void **state)
{
    static const char *const wanted[] = {"send, recv", "send, recv", "broadcast"};
    bench b;
    char log[128];

    (void)state;
    for (int i = 0; i < 3; i++) {
        set_up(&b);
        CHECK_OK(many_calls(&b, i));
        snprintf(log, sizeof(log), "record 1, wait 1, group, %s, end, record nccl, ", wanted[i]);
        expect_log(log);
        tear_down(&b);
    }
}

static void a_group_that_nccl_does_not_begin_is_an_error_and_is_not_ended(void **state)
{
    bench b;

    (void)state;
    for (int i = 0; i < 3; i++) {
        set_up(&b);
        fake_gpu_refuse_groups(true);
        CHECK_FAILS(many_calls(&b, i), TRI_ERR_PEER_LOST, "nccl: some NCCL error");
        fake_gpu_refuse_groups(false);
        expect_log("record 1, wait 1, no group, ");
        tear_down(&b);
    }
}

static void a_plugin_of_another_version_is_not_available(void **state)
{
    static const char *const spellings[] = {"old", "cuda:old", "cpu:old"};
    tri_group *group = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        const tri_group_options old = {.engine = spellings[i]};

        CHECK_FAILS(tri_group_create(NULL, 0, 1, &old, &group), TRI_ERR_UNSUPPORTED,
                    "engine old: engine-old.so was built for another version of the library (abi "
                    "8, here ");
    }
    assert_false(tri_engine_is_available("old"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_call_comes_after_what_is_on_the_threads_queue),
    cmocka_unit_test(a_call_waits_for_nothing_that_is_put_on_the_queue_after_it),
    cmocka_unit_test(without_a_name_it_is_the_default_queue_of_the_groups_gpu),
    cmocka_unit_test(calls_of_a_batch_are_ordered_one_by_one),
    cmocka_unit_test(a_queue_of_another_gpu_is_refused),
    cmocka_unit_test(objects_are_refused_and_the_group_goes_on),
    cmocka_unit_test(a_reducer_is_refused_and_the_group_goes_on),
    cmocka_unit_test(colors_are_refused_and_the_group_goes_on),
    cmocka_unit_test(a_group_of_one_rank_has_the_engine_of_the_one_it_is_made_of),
    cmocka_unit_test(calls_that_are_many_of_nccl_are_one_group_of_them),
    cmocka_unit_test(a_group_that_nccl_does_not_begin_is_an_error_and_is_not_ended),
    cmocka_unit_test(a_plugin_of_another_version_is_not_available),
    cmocka_unit_test(the_gpu_is_that_of_the_ranks_number_on_its_host),
    cmocka_unit_test(memory_of_the_host_or_of_another_gpu_is_refused),
};

TEST_MAIN(tests)
