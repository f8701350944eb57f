/*
 * reserved_words_test.c - reserved words of structs that lie in others, or that no parameter names,
 * are looked at, too. (misuse_test.c finds all other takers in the headers.)
 */
#include <math.h>

#include <trireme/trireme.h>

#include "testing/check.h"

#define REFUSES(call, type)                                                                        \
    CHECK_FAILS(call, TRI_ERR_INVALID_ARG, type ": reserved[1] is not 0: zero the struct")

static void group_options_within_other_options_are_looked_at(void **state)
{
    tri_init_options init = {.group = {.reserved = {0, 1}}};
    tri_group_shrink_options shrink = {.group = {.reserved = {0, 1}}};
    tri_group *group;

    (void)state;
    REFUSES(tri_init(&init), "tri_group_options");
    assert_false(tri_is_initialized());
    REFUSES(tri_group_shrink(NULL, &shrink, &group), "tri_group_options");
}

static tri_status read_nothing(tri_dataset *self, const tri_request *request, void *const *slots)
{
    (void)self, (void)request, (void)slots;
    return TRI_OK;
}

static void a_newer_data_set_or_class_is_refused(void **state)
{
    const tri_dataset_class fine = {.name = "mine", .read = read_nothing},
                            newer = {.name = "mine", .read = read_nothing, .reserved = {0, 1}};
    tri_dataset mine = {
        .cls = &newer, .length = 1, .n_fields = 1, .fields = {{.dtype = TRI_DTYPE_F32}}};
    tri_loader *loader;

    (void)state;
    REFUSES(tri_loader_create(&mine, NULL, 1, NULL, &loader), "tri_dataset_class");
    mine.cls = &fine;
    mine.reserved[1] = 1;
    REFUSES(tri_loader_create(&mine, NULL, 1, NULL, &loader), "tri_dataset");
    mine.reserved[1] = 0;
    CHECK_OK(tri_loader_create(&mine, NULL, 1, NULL, &loader));
    tri_loader_destroy(loader);
}

static tri_status draw_zeros(tri_sampler *self, int64_t epoch, int64_t *indices)
{
    (void)epoch;
    for (int64_t i = 0; i < self->length; i++)
        indices[i] = 0;
    return TRI_OK;
}

static void a_newer_sampler_or_class_is_refused(void **state)
{
    const tri_sampler_class fine = {.name = "mine", .draw = draw_zeros},
                            newer = {.name = "mine", .draw = draw_zeros, .reserved = {0, 1}};
    tri_sampler *mine = calloc(1, sizeof(*mine));

    (void)state;
    assert_non_null(mine);
    mine->cls = &newer;
    mine->length = 1;
    REFUSES(tri_sampler_set_epoch(mine, 0), "tri_sampler_class");
    mine->cls = &fine;
    mine->reserved[1] = 1;
    REFUSES(tri_sampler_set_epoch(mine, 0), "tri_sampler");
    mine->reserved[1] = 0;
    CHECK_OK(tri_sampler_set_epoch(mine, 0));
    tri_sampler_destroy(mine);
    free(mine);
}

static void newer_options_of_a_collate_function_are_refused(void **state)
{
    float number = 1;
    const tri_sample sample = {
        .n_fields = 1, .fields = {{.dtype = TRI_DTYPE_F32}}, .data = {&number}};
    tri_collate_pad_options pad = {.reserved = {0, 1}};
    tri_sample batch = {0};

    (void)state;
    REFUSES(tri_collate_pad(&sample, 1, &batch, &pad), "tri_collate_pad_options");
    tri_sample_clear(&batch);
}

static tri_status newer_shape(const tri_function_call *call, tri_function_array *out)
{
    out[0] = call->in[0];
    out[0].reserved[1] = 1;
    return TRI_OK;
}

static tri_status forward_nothing(const tri_function_call *call)
{
    (void)call;
    return TRI_OK;
}

static void a_newer_result_of_a_function_is_refused(void **state)
{
    static const tri_function_class mine = {
        .name = "mine", .shape = newer_shape, .forward = forward_nothing};
    tri_tensor *x = tri_zeros(TRI_SHAPE(2), TRI_DTYPE_F32), *y;

    (void)state;
    tri_function_apply(&mine, NULL, &x, 1, &y, 1);
    CHECK_FAILS(tri_tensor_status(y), TRI_ERR_INVALID_ARG,
                "tri_function_array: reserved[1] is not 0: zero the struct");
    tri_step_end();
}

static void schedules_give_no_number_for_newer_options(void **state)
{
    const tri_schedule_one_cycle_options cycle = {.reserved = {0, 1}};
    const tri_schedule_part part = {.reserved = {0, 1}};

    (void)state;
    assert_true(isnan(tri_schedule_one_cycle(0.1, 10, 2, &cycle).lr));
    assert_true(isnan(tri_schedule_sequential(0.1, &part, 1, 2)));
    assert_true(isnan(tri_schedule_chained(0.1, &part, 1, 2)));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(group_options_within_other_options_are_looked_at),
    cmocka_unit_test(a_newer_data_set_or_class_is_refused),
    cmocka_unit_test(a_newer_sampler_or_class_is_refused),
    cmocka_unit_test(newer_options_of_a_collate_function_are_refused),
    cmocka_unit_test(a_newer_result_of_a_function_is_refused),
    cmocka_unit_test(schedules_give_no_number_for_newer_options),
};

TEST_MAIN(tests)
