/*
 * pipeline_order_test.c - a pipeline of two stages whose weights change their layout for the
 * backward pass: the first piece of a batch goes back alone, not layer by layer with all others.
 */
#include <trireme/models.h>
#include <trireme/nn.h>
#include <trireme/ops.h>
#include <trireme/optim.h>

#include "train/plan/plan.h"
#include "testing/check.h"

#define PIECES 4

static int n_looked_at, entries_before, entries_of_queue;

/* Of queue 1, before the first that goes back. */
static int32_t forward_entries(const trii_plan *plan, const trii_step *step,
                               const trii_segment *segment)
{
    const trii_plan_queue *queue = &plan->queues[1];

    for (int32_t i = 0; i < queue->n_entries; i++) {
        int32_t node = plan->entries[queue->entries[i]].node;

        if (node >= 0 && step->nodes[segment->first_node + node].backward)
            return i;
    }
    return queue->n_entries;
}

/* What queue 1 has done when queue 0 can begin to go back. */
static tri_status look(trii_step *step, const trii_segment *segment)
{
    trii_plan *plan;
    tri_status status = trii_plan_create(step, segment, &trii_plan_device, false, &plan);
    int32_t until = 0, forward = 0;

    if (status != TRI_OK)
        return status;
    if (plan->n_queues > 1)
        forward = forward_entries(plan, step, segment);
    for (int32_t i = 0; plan->n_queues > 1 && i < plan->queues[0].n_entries && until == 0; i++) {
        int32_t e = plan->queues[0].entries[i];

        if (plan->first_wait[e] < plan->first_wait[e + 1] &&
            plan->waits[plan->first_wait[e]].count > forward)
            until = plan->waits[plan->first_wait[e]].count;
    }
    if (until > 0) {
        n_looked_at++;
        entries_before = until;
        entries_of_queue = plan->queues[1].n_entries;
    }
    trii_plan_destroy(plan);
    return trii_executor_plan.run(step, segment);
}

static const trii_executor looking = {.name = "looking", .run = look, .release = NULL};

static void a_piece_goes_back_before_the_next_one_does(void **state)
{
    static const char *const second_half[] = {"layer3", "layer4", "fc"};
    tri_tensor *x, *target, *pieces[PIECES];
    tri_optimizer *opt;
    tri_module *net;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    net = tri_model_resnet_of_width(50, 4, 1000);
    for (int i = 0; i < 3; i++)
        CHECK_OK(tri_module_to(tri_module_submodule(net, second_half[i]), TRI_CPU(1)));
    opt = tri_sgd(net, 0.01, NULL);
    x = tri_tensor_create(TRI_SHAPE(2 * PIECES, 3, 64, 64), TRI_DTYPE_F32);
    CHECK_OK(tri_init_uniform(x, -1, 1));
    target = tri_tensor_create(TRI_SHAPE(2 * PIECES, 1000), TRI_DTYPE_F32);
    trii_executor_set(&looking);
    for (int step = 0; step < 2; step++) { /* the first may still change layouts for good */
        for (int i = 0; i < PIECES; i++) {
            tri_tensor *half =
                tri_model_resnet_first_half(net, tri_narrow(x, 0, (int64_t)2 * i, 2));

            pieces[i] = tri_model_resnet_second_half(net, tri_to(half, TRI_CPU(1)));
        }
        tri_backward(tri_mse_loss(tri_concat(pieces, PIECES, 0), tri_to(target, TRI_CPU(1)), NULL));
        CHECK_OK(tri_optimizer_step(opt));
        CHECK_OK(tri_step_end_status());
    }
    trii_executor_set(NULL);
    assert_int_equal(n_looked_at, 2);
    /* all that goes forward and one of the pieces that go back, which are the larger part */
    assert_in_range(entries_before, 1, entries_of_queue * 2 / 3);
    tri_tensor_unref(x);
    tri_tensor_unref(target);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_piece_goes_back_before_the_next_one_does),
};

TEST_MAIN(tests)
