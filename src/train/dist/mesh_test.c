/* mesh_test.c - meshes of 1 to 8 ranks: who is in which group, parts, and what is refused. */
/* ctest: start=first also=TRI_CHECK=order */
#include <trireme/mesh.h>
#include <trireme/pipeline.h>
#include <trireme/trireme.h>

#include "testing/check.h"
#include "testing/ranks.h"

static const char *const cube[] = {"pipeline", "data", "tensor"};

/* Every rank of the group adds a bit: the mask of the whole's ranks that are in it. */
static tri_status members(tri_group *group, int rank, int32_t *mask_out)
{
    int32_t mask = 1 << rank;
    tri_status status = tri_all_reduce(group, &mask, &mask, 1, TRI_DTYPE_I32, TRI_REDOP_SUM, NULL);

    *mask_out = mask;
    return status;
}

#define EXPECT(env, condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return RANK_FAIL(env, "rank %d, line %d: %s: %s", (env)->rank, __LINE__, #condition,   \
                             tri_last_error());                                                    \
    } while (0)

static const char *expect_members(rank_env *env, tri_group *group, int32_t wanted)
{
    int32_t mask = 0;

    EXPECT(env, group != NULL);
    RANK_TRY(env, members(group, env->rank, &mask));
    if (mask != wanted)
        return RANK_FAIL(env, "rank %d: its group is %x, not %x", env->rank, (unsigned)mask,
                         (unsigned)wanted);
    return NULL;
}

/* A group of no such axis is not the world: every call with it fails, and says which there are. */
static const char *refuse_unknown(rank_env *env, tri_group *group, const char *line)
{
    tri_module *model = tri_ddp(tri_nn_linear(1, 1, NULL), &(tri_ddp_options){.group = group});
    tri_module *pipe, *stage = tri_nn_tanh();
    tri_group *parts = NULL;
    int32_t one = 1;

    RANK_FAILS(env, tri_module_status(model), TRI_ERR_INVALID_ARG, line);
    tri_module_destroy(model);
    model = tri_zero(tri_nn_linear(1, 1, NULL), &(tri_zero_options){.group = group});
    RANK_FAILS(env, tri_module_status(model), TRI_ERR_INVALID_ARG, line);
    tri_module_destroy(model);
    pipe = tri_pipeline(&stage, 1, &(tri_pipeline_options){.group = group});
    RANK_FAILS(env, tri_module_status(pipe), TRI_ERR_INVALID_ARG, line);
    tri_module_destroy(pipe);
    model = tri_nn_tanh();
    RANK_FAILS(env, tri_parallelize(model, group, NULL, 0), TRI_ERR_INVALID_ARG, line);
    tri_module_destroy(model);
    RANK_FAILS(env, tri_all_reduce(group, &one, &one, 1, TRI_DTYPE_I32, TRI_REDOP_SUM, NULL),
               TRI_ERR_INVALID_ARG, line);
    RANK_FAILS(env, tri_group_status(group), TRI_ERR_INVALID_ARG, line);
    RANK_FAILS(env, tri_group_split(group, 0, 0, NULL, &parts), TRI_ERR_INVALID_ARG, line);
    EXPECT(env, tri_group_rank(group) == -1 && tri_group_size(group) == 0);
    tri_group_abort(group, "not known");
    tri_group_unref(tri_group_ref(group));
    return NULL;
}

static const char *cube_of_eight(rank_env *env)
{
    const int r = env->rank;
    const int32_t data = 1 << (r & ~2) | 1 << (r | 2), tensor = 1 << (r & ~1) | 1 << (r | 1);
    const char *failure;
    tri_group *group = NULL, *unknown;
    tri_mesh *mesh = NULL, *sub = NULL, *flat = NULL, *again = NULL;

    RANK_TRY(env, tri_group_create(env->store, r, env->size, env->options, &group));
    RANK_TRY(env, tri_mesh_create(group, (const int64_t[]){2, 2, 2}, 3, cube, &mesh));
    EXPECT(env, tri_mesh_axis_count(mesh) == 3);
    EXPECT(env, strcmp(tri_mesh_axis_name(mesh, 2), "tensor") == 0);
    EXPECT(env, tri_mesh_axis_name(mesh, 3) == NULL && tri_mesh_axis_name(mesh, -1) == NULL);
    EXPECT(env, tri_mesh_coordinate(mesh, "pipeline") == r / 4);
    EXPECT(env, tri_mesh_coordinate(mesh, "data") == r / 2 % 2);
    EXPECT(env, tri_mesh_coordinate(mesh, "tensor") == r % 2);
    EXPECT(env, tri_mesh_size(mesh, "data") == 2);
    EXPECT(env, tri_group_rank(tri_mesh_group(mesh, "data")) == r / 2 % 2);
    failure = expect_members(env, tri_mesh_group(mesh, "data"), data);
    if (failure == NULL)
        failure = expect_members(env, tri_mesh_group(mesh, "tensor"), tensor);
    if (failure == NULL)
        failure = expect_members(env, tri_mesh_group(mesh, "pipeline"), 1 << r | 1 << (r ^ 4));
    if (failure != NULL)
        return failure;
    RANK_TRY(env, tri_mesh_submesh(mesh, cube + 1, 2, &sub));
    EXPECT(env, tri_mesh_axis_count(sub) == 2);
    EXPECT(env, tri_mesh_group(sub, "data") == tri_mesh_group(mesh, "data"));
    RANK_FAILS(env, tri_mesh_submesh(mesh, (const char *[]){"tensor", "data"}, 2, &flat),
               TRI_ERR_INVALID_ARG, "\"data\" comes after \"tensor\"");
    RANK_FAILS(env, tri_mesh_submesh(mesh, (const char *[]){"data", "data"}, 2, &flat),
               TRI_ERR_INVALID_ARG, "each once");
    /* the part outlives the mesh, and is made flat over the whole group */
    tri_mesh_destroy(mesh);
    RANK_TRY(env, tri_mesh_flatten(sub, cube + 1, 2, "dp_tp", &flat));
    EXPECT(env, tri_mesh_coordinate(flat, NULL) == r % 4 && tri_mesh_size(flat, NULL) == 4);
    failure = expect_members(env, tri_mesh_group(flat, "dp_tp"), r < 4 ? 0x0f : 0xf0);
    if (failure != NULL)
        return failure;
    /* once more, of what is flat already */
    RANK_TRY(env, tri_mesh_flatten(flat, (const char *[]){"dp_tp"}, 1, "all", &again));
    failure = expect_members(env, tri_mesh_group(again, NULL), r < 4 ? 0x0f : 0xf0);
    if (failure != NULL)
        return failure;
    unknown = tri_mesh_group(sub, NULL);
    failure = refuse_unknown(env, tri_mesh_group(sub, "tensro"),
                             "no axis is called \"tensro\" (axes: \"data\", \"tensor\")");
    if (failure == NULL) /* each keeps its reason */
        failure = refuse_unknown(env, unknown, "which of the axes \"data\", \"tensor\"?");
    if (failure == NULL)
        failure = refuse_unknown(env, tri_mesh_group(NULL, "data"), "the mesh is NULL");
    if (failure != NULL)
        return failure;
    EXPECT(env, tri_mesh_coordinate(sub, "pipeline") == -1);
    EXPECT(env, strstr(tri_last_error(),
                       "no axis is called \"pipeline\" (axes: \"data\", \"tensor\")") != NULL);
    tri_mesh_destroy(sub);
    tri_mesh_destroy(flat);
    tri_mesh_destroy(again);
    tri_group_unref(group);
    return NULL;
}

static void eight_ranks_form_a_cube(void **state)
{
    (void)state;
    run_threads(8, NULL, cube_of_eight, NULL);
}

/* Axes that are not next to each other become one, whose ranks are not evenly spaced. */
static const char *outer_and_inner(rank_env *env)
{
    const int r = env->rank, middle = r / 2 % 3;
    const int32_t wanted =
        1 << (2 * middle) | 1 << (2 * middle + 1) | 1 << (6 + 2 * middle) | 1 << (7 + 2 * middle);
    const char *failure;
    tri_group *group = NULL;
    tri_mesh *mesh = NULL, *flat = NULL;

    RANK_TRY(env, tri_group_create(env->store, r, env->size, env->options, &group));
    RANK_TRY(env, tri_mesh_create(group, (const int64_t[]){2, 3, 2}, 3, cube, &mesh));
    RANK_TRY(env, tri_mesh_flatten(mesh, (const char *[]){"pipeline", "tensor"}, 2, "both", &flat));
    failure = expect_members(env, tri_mesh_group(flat, "both"), wanted);
    if (failure != NULL)
        return failure;
    EXPECT(env, tri_group_rank(tri_mesh_group(flat, "both")) == r / 6 * 2 + r % 2);
    tri_mesh_destroy(mesh);
    tri_mesh_destroy(flat);
    tri_group_unref(group);
    return NULL;
}

static void axes_that_are_apart_become_one(void **state)
{
    (void)state;
    run_threads(12, NULL, outer_and_inner, NULL);
}

static const char *axes_of_one_and_of_all(rank_env *env)
{
    tri_group *group = NULL;
    tri_mesh *mesh = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_mesh_create(group, (const int64_t[]){1, env->size, 1}, 3, cube, &mesh));
    EXPECT(env, tri_mesh_group(mesh, "data") == group || env->size == 1);
    EXPECT(env, tri_group_size(tri_mesh_group(mesh, "tensor")) == 1);
    EXPECT(env, tri_mesh_coordinate(mesh, "data") == env->rank);
    EXPECT(env, tri_mesh_coordinate(mesh, "tensor") == 0);
    tri_mesh_destroy(mesh);
    tri_mesh_destroy(NULL);
    tri_group_unref(group);
    return NULL;
}

static void an_axis_may_hold_one_rank_or_all(void **state)
{
    (void)state;
    run_threads(1, NULL, axes_of_one_and_of_all, NULL);
    run_threads(3, NULL, axes_of_one_and_of_all, NULL);
}

/* What is wrong is refused on every rank, and the group goes on. */
static const char *wrong_meshes(rank_env *env)
{
    static const char *const twice[] = {"data", "data"};
    static const char *const nameless[] = {"data", ""};
    static const char *const swapped[] = {"data", "pipeline"};
    static const char *const other[] = {"data", "model"};
    static const char *const longest[] = {"a_name_of_31_bytes_is_not_so_lo", "b"};
    static const char *const longer[] = {"a_name_of_31_bytes_is_not_so_lon", "b"};
    tri_group *group = NULL;
    tri_mesh *mesh = NULL, *turned = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_FAILS(env, tri_mesh_create(group, (const int64_t[]){2, 3}, 2, cube, &mesh),
               TRI_ERR_INVALID_ARG,
               "the sizes 2 x 3 need as many ranks as their product; the group has 4");
    RANK_FAILS(env, tri_mesh_create(group, (const int64_t[]){2, 1}, 2, cube, &mesh),
               TRI_ERR_INVALID_ARG, "the sizes 2 x 1 need as many ranks");
    RANK_FAILS(env, tri_mesh_create(group, (const int64_t[]){INT64_MAX, INT64_MAX}, 2, cube, &mesh),
               TRI_ERR_INVALID_ARG, "the group has 4");
    RANK_FAILS(env, tri_mesh_create(group, (const int64_t[]){4, 0}, 2, cube, &mesh),
               TRI_ERR_INVALID_ARG, "axis \"data\" has 0 ranks; at least 1 is needed");
    RANK_FAILS(env, tri_mesh_create(group, (const int64_t[]){2, 2}, 2, twice, &mesh),
               TRI_ERR_INVALID_ARG, "two axes have the name \"data\"");
    RANK_FAILS(env, tri_mesh_create(group, (const int64_t[]){2, 2}, 2, nameless, &mesh),
               TRI_ERR_INVALID_ARG, "1 to 31 bytes, not 0");
    RANK_FAILS(env, tri_mesh_create(group, (const int64_t[]){2, 2}, 9, cube, &mesh),
               TRI_ERR_INVALID_ARG, "9 axes; 1 to 8");
    RANK_FAILS(env,
               tri_mesh_create(group,
                               env->rank == 2 ? (const int64_t[]){4, 1} : (const int64_t[]){2, 2},
                               2, cube, &mesh),
               TRI_ERR_MISMATCH, "rank 2 has axis 0 \"pipeline\" of 4; rank 0 has");
    RANK_FAILS(env,
               tri_mesh_create(group, (const int64_t[]){2, 2}, 2, env->rank == 3 ? other : cube + 1,
                               &mesh),
               TRI_ERR_MISMATCH, "rank 3 has axis 1 \"model\" of 2; rank 0 has axis 1 \"tensor\"");
    RANK_FAILS(
        env,
        tri_mesh_create(group, (const int64_t[]){2, 2, 1}, env->rank == 1 ? 3 : 2, cube, &mesh),
        TRI_ERR_MISMATCH, "rank 1 has axis 2 \"tensor\" of 1; rank 0 has 2 axes");
    RANK_FAILS(env,
               tri_mesh_create(group, (const int64_t[]){2, 2}, 2, env->rank == 2 ? longer : longest,
                               &mesh),
               TRI_ERR_MISMATCH, "rank 2 has axis 0 \"a_name_of_31_bytes_is_not_so_lon\" of 2");
    RANK_FAILS(env, tri_mesh_create(group, (const int64_t[]){2, 2}, 2, longer, &mesh),
               TRI_ERR_INVALID_ARG, "1 to 31 bytes, not 32");
    /* what a rank does wrong alone ends the call of all */
    RANK_FAILS(
        env,
        tri_mesh_create(group, (const int64_t[]){2, 2}, 2, env->rank == 1 ? NULL : cube, &mesh),
        env->rank == 1 ? TRI_ERR_INVALID_ARG : TRI_ERR_MISMATCH,
        env->rank == 1 ? "names is NULL" : "rank 1 has a call with bad arguments");
    RANK_FAILS(env,
               tri_mesh_create(group, (const int64_t[]){2, 2}, env->rank == 0 ? 0 : 2, cube, &mesh),
               env->rank == 0 ? TRI_ERR_INVALID_ARG : TRI_ERR_MISMATCH,
               env->rank == 0 ? "0 axes; 1 to 8" : "rank 0 has a call with bad arguments");
    EXPECT(env, mesh == NULL);
    RANK_TRY(env, tri_mesh_create(group, (const int64_t[]){2, 2}, 2, longest, &mesh));
    EXPECT(env, strcmp(tri_mesh_axis_name(mesh, 0), longest[0]) == 0);
    tri_mesh_destroy(mesh);
    mesh = NULL;
    EXPECT(env, mesh == NULL);
    RANK_TRY(env, tri_mesh_create(group, (const int64_t[]){2, 2}, 2, cube, &mesh));
    RANK_FAILS(
        env,
        tri_mesh_flatten(mesh, env->rank == 1 ? cube + 1 : cube, 1, "flat", &(tri_mesh *){NULL}),
        TRI_ERR_MISMATCH, "rank 1 has axis 0 \"data\" of 2; rank 0 has axis 0 \"pipeline\" of 2");
    RANK_FAILS(env,
               tri_mesh_flatten(mesh, cube, 1, env->rank == 1 ? "f" : "flat", &(tri_mesh *){NULL}),
               TRI_ERR_MISMATCH, "rank 1 has 1 axes to become f; rank 0");
    RANK_FAILS(env, tri_mesh_flatten(mesh, cube + 2, 1, "flat", &(tri_mesh *){NULL}),
               TRI_ERR_INVALID_ARG, "no axis is called \"tensor\"");
    RANK_FAILS(env,
               tri_mesh_flatten(mesh, cube, 1, env->rank == 3 ? NULL : "flat", &(tri_mesh *){NULL}),
               env->rank == 3 ? TRI_ERR_INVALID_ARG : TRI_ERR_MISMATCH,
               env->rank == 3 ? "name is NULL" : "rank 3 has a call with bad arguments");
    /* an axis of the same name and size of another mesh */
    RANK_TRY(env, tri_mesh_create(group, (const int64_t[]){2, 2}, 2, swapped, &turned));
    RANK_FAILS(
        env, tri_mesh_flatten(env->rank == 2 ? turned : mesh, cube, 1, "flat", &(tri_mesh *){NULL}),
        TRI_ERR_MISMATCH, "rank 2 has axis 0 \"pipeline\" of 2 of another mesh; rank 0 has");
    tri_mesh_destroy(turned);
    tri_mesh_destroy(mesh);
    RANK_TRY(env, tri_barrier(group, NULL));
    tri_group_unref(group);
    return NULL;
}

static void what_is_wrong_is_refused_on_all_ranks(void **state)
{
    (void)state;
    run_threads(4, NULL, wrong_meshes, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(eight_ranks_form_a_cube),
    cmocka_unit_test(axes_that_are_apart_become_one),
    cmocka_unit_test(an_axis_may_hold_one_rank_or_all),
    cmocka_unit_test(what_is_wrong_is_refused_on_all_ranks),
};

TEST_MAIN(tests)
