/* parallelize_test.c - networks whose layers are cut over ranks train as one process: all sizes of
 * parts, styles and optimizers, with clipping, dropout and replicas; and what is refused. */
/* ctest: also=TRI_CHECK=order */
#include "testing/cut_ranks.h"

#define STEPS 10

/* --- the problem ---------------------------------------------------------- */

typedef struct job {
    const tri_parallel_rule *rules;
    int n_rules;
    bool adamw;
    double clip; /* 0: none */
    bool recompute, scaler, ema;
    bool drops;           /* on a mesh: with dropout, and no comparison with one process */
    int n_data, n_tensor; /* of the mesh; n_data 0: the group itself */
    double want[NUMBERS], loss, input[ROWS * IN];
    double got[RANKS_MAX][NUMBERS]; /* each rank's whole parameters, at their places */
    bool is_whole[NUMBERS];
} job;

static tri_status train(const job *j, tri_module *model, int first, int n, double *loss_out,
                        double *input)
{
    tri_optimizer *opt = j->adamw ? tri_adamw(model, 0.02, NULL)
                                  : tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    tri_tensor *x = rows(first, n, IN), *y = rows(first, n, OUT);
    tri_grad_scaler *scaler = NULL;
    tri_ema *ema = NULL;
    tri_status status =
        tri_grad_scaler_create(&(tri_grad_scaler_options){.init_scale = TRI_SET(1024)}, &scaler);

    if (status == TRI_OK)
        status = tri_ema_create(model, 0.8, &ema);
    tri_module_set_recompute(tri_module_submodule(model, "0"), j->recompute);
    tri_module_set_recompute(tri_module_submodule(model, "2"), j->recompute);
    tri_requires_grad(x, input != NULL);
    for (int s = 0; s < STEPS && status == TRI_OK; s++) {
        tri_tensor *y_here, *loss;

        if (j->recompute)
            tri_recompute_begin();
        y_here = tri_forward(model, x);
        if (j->recompute)
            tri_recompute_end();
        loss = tri_keep(tri_mse_loss(y_here, y, NULL));
        tri_backward(j->scaler ? tri_grad_scaler_scale(scaler, loss) : loss);
        if (j->scaler)
            tri_grad_scaler_unscale(scaler, opt);
        if (j->clip > 0)
            (void)tri_clip_grad_norm(opt, j->clip);
        status = j->scaler ? tri_grad_scaler_step(scaler, opt) : tri_optimizer_step(opt);
        if (status == TRI_OK && j->scaler)
            status = tri_grad_scaler_update(scaler);
        if (status == TRI_OK && j->ema)
            status = tri_ema_update(ema);
        if (status == TRI_OK)
            status = tri_item_status(loss, loss_out);
        if (status == TRI_OK && input != NULL)
            status = tri_tensor_copy_out(tri_grad(x), input, (size_t)(n * IN) * sizeof(double));
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    if (status == TRI_OK && j->ema)
        status = tri_ema_swap(ema);
    if (status != TRI_OK)
        tri_step_end();
    tri_ema_destroy(ema);
    tri_grad_scaler_destroy(scaler);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    return status;
}

static void one_process(job *j)
{
    tri_module *net = build(3);
    bool is_whole[NUMBERS];

    CHECK_OK(train(j, net, 0, ROWS, &j->loss, j->input));
    CHECK_OK(put(net, j->want, is_whole));
    tri_module_destroy(net);
}

/* --- as one process ------------------------------------------------------- */

static const char *train_rank(rank_env *env)
{
    job *j = env->arg;
    tri_group *world = NULL, *tensor;
    tri_mesh *mesh = NULL;
    tri_module *model = build(env->rank == 0 ? 3 : 40 + (uint64_t)env->rank);
    double loss = 0, input[ROWS * IN], *got = j->got[env->rank];
    bool is_whole[NUMBERS] = {false};
    const char *wrong = NULL;
    int data = 0;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &world));
    tensor = world;
    if (j->n_data > 0) {
        RANK_TRY(env, tri_mesh_create(world, TRI_SHAPE(j->n_data, j->n_tensor),
                                      (const char *[]){"data", "tensor"}, &mesh));
        tensor = tri_mesh_group(mesh, "tensor");
        data = tri_mesh_coordinate(mesh, "data");
    }
    RANK_TRY(env, tri_parallelize(model, tensor, j->rules, j->n_rules));
    if (mesh != NULL) {
        model = tri_ddp(model, &(tri_ddp_options){.group = tri_mesh_group(mesh, "data")});
        /* 4 rows and 2 */
        tri_module_train(model, j->drops);
        RANK_TRY(env, train(j, model, data * 4, data == 0 ? 4 : 2, &loss, NULL));
    } else {
        RANK_TRY(env, train(j, model, 0, ROWS, &loss, input));
    }
    if (!j->drops)
        memcpy(got, j->want, sizeof(j->got[0]));
    RANK_TRY(env, put(model, got, is_whole));
    if (env->rank == 0)
        memcpy(j->is_whole, is_whole, sizeof(is_whole));
    if (!j->drops)
        wrong = far_from(env, "weight", got, j->want, NUMBERS);
    if (wrong == NULL && mesh == NULL)
        wrong = far_from(env, "loss", &loss, &j->loss, 1);
    if (wrong == NULL && mesh == NULL)
        wrong = far_from(env, "gradient of the input", input, j->input, ROWS * IN);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    tri_group_unref(world);
    return wrong;
}

static void check_equal_bits(const job *j, int size)
{
    int n = 0;

    for (int i = 0; i < NUMBERS; i++) {
        n += j->is_whole[i];
        for (int r = 1; r < size && j->is_whole[i]; r++)
            assert_memory_equal(&j->got[r][i], &j->got[0][i], sizeof(double));
    }
    assert_true(n > 0);
}

static void train_on(job *j, int least, int most)
{
    const tri_group_options shm = {.engine = "shm"};

    one_process(j);
    for (int size = least; size <= most; size++) {
        run_threads(size, &shm, train_rank, j);
        check_equal_bits(j, size);
    }
}

static void pairs_of_layers_train_as_one_process(void **state)
{
    static job j;

    (void)state;
    for (int adamw = 0; adamw < 2; adamw++) {
        j = (job){.rules = pairs, .n_rules = 4, .adamw = adamw == 1};
        train_on(&j, 1, 4);
    }
}

static void layers_that_stand_alone_train_as_one_process(void **state)
{
    static const tri_parallel_rule rules[] = {
        {.module = "0", .style = TRI_COLWISE, .output = TRI_WHOLE},
        {.module = "2", .style = TRI_ROWWISE, .input = TRI_WHOLE, .output = TRI_WHOLE},
        {.module = "5", .style = TRI_ROWWISE, .input = TRI_WHOLE, .output = TRI_SHARDED},
        {.module = "7", .style = TRI_COLWISE, .input = TRI_SHARDED, .output = TRI_WHOLE}};
    static job j;

    (void)state;
    j = (job){.rules = rules, .n_rules = 4};
    train_on(&j, 2, 4);
}

static void a_norm_counts_each_parameter_once(void **state)
{
    static job j;

    (void)state;
    j = (job){.rules = pairs, .n_rules = 2, .clip = 0.05};
    train_on(&j, 2, 3);
    j = (job){.rules = pairs, .n_rules = 4, .clip = 0.05, .adamw = true};
    train_on(&j, 2, 4);
}

static void recomputation_scaling_and_averages_go_together(void **state)
{
    static job j;

    (void)state;
    j = (job){.rules = pairs, .n_rules = 4, .recompute = true};
    train_on(&j, 2, 3);
    j = (job){.rules = pairs, .n_rules = 4, .scaler = true, .clip = 0.05, .ema = true};
    train_on(&j, 2, 3);
}

/* As one process without dropout, which is of another stream on each rank of the data. */
static void replicas_of_parts_train_as_one_process(void **state)
{
    const tri_group_options shm = {.engine = "shm"};
    static job j;
    tri_module *net = build(3);
    bool is_whole[NUMBERS];

    (void)state;
    j = (job){.rules = pairs, .n_rules = 4, .n_data = 2, .n_tensor = 2, .clip = 0.05};
    tri_module_train(net, false);
    CHECK_OK(train(&j, net, 0, ROWS, &j.loss, NULL));
    CHECK_OK(put(net, j.want, is_whole));
    tri_module_destroy(net);
    run_threads(4, &shm, train_rank, &j);
    check_equal_bits(&j, 4);
    j = (job){.rules = pairs, .n_rules = 2, .n_data = 2, .n_tensor = 2, .drops = true};
    run_threads(4, &shm, train_rank, &j); /* ranks of a tensor group drop the same */
    check_equal_bits(&j, 4);
}

/* --- the cut -------------------------------------------------------------- */

static const char *cut_rank(rank_env *env)
{
    job *j = env->arg;
    tri_module *net = build(env->rank == 0 ? 3 : 9), *two;
    tri_group *group = NULL, *alone = NULL;
    double got[NUMBERS];
    bool is_whole[NUMBERS];
    tri_tensor *weight = tri_module_find(net, "0.weight");

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, pairs, 4));
    if (weight != tri_module_find(net, "0.weight") ||
        tri_tensor_size(weight, 0) != (env->rank == 0 ? 3 : 2) || tri_tensor_size(weight, 1) != IN)
        return RANK_FAIL(env, "rank %d has %s", env->rank, tri_tensor_shape_text(weight));
    memcpy(got, j->want, sizeof(got));
    RANK_TRY(env, put(net, got, is_whole));
    if (memcmp(got, j->want, sizeof(got)) != 0)
        return RANK_FAIL(env, "rank %d has other values", env->rank);
    tri_module_destroy(net);
    /* a group of one, for each */
    two = build(5);
    RANK_TRY(env, tri_group_split(group, env->rank, 0, NULL, &alone));
    RANK_TRY(env, tri_parallelize(two, alone, pairs, 4));
    if (tri_tensor_size(tri_module_find(two, "0.weight"), 0) != 7)
        return RANK_FAIL(env, "a group of one was cut");
    tri_module_destroy(two);
    tri_group_unref(alone);
    tri_group_unref(group);
    return NULL;
}

static void parts_are_of_rank_0s_values(void **state)
{
    static job j;
    tri_module *net = build(3);
    bool is_whole[NUMBERS];

    (void)state;
    CHECK_OK(put(net, j.want, is_whole));
    tri_module_destroy(net);
    run_threads(3, &(tri_group_options){.engine = "shm"}, cut_rank, &j);
}

static const char *wildcards_rank(rank_env *env)
{
    tri_module *inner = tri_nn_sequential(tri_nn_sequential(tri_nn_linear(4, 4, NULL)),
                                          tri_nn_sequential(tri_nn_linear(4, 4, NULL)));
    tri_module *net = tri_nn_sequential(inner, tri_nn_linear(4, 4, NULL));
    tri_group *group = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env,
             tri_parallelize(net, group,
                             (tri_parallel_rule[]){
                                 {.module = "0.*.0", .style = TRI_COLWISE, .output = TRI_WHOLE}},
                             1));
    if (tri_tensor_size(tri_module_find(net, "0.0.0.weight"), 0) != 2 ||
        tri_tensor_size(tri_module_find(net, "0.1.0.weight"), 0) != 2 ||
        tri_tensor_size(tri_module_find(net, "1.weight"), 0) != 4)
        return RANK_FAIL(env, "other layers were cut");
    tri_module_destroy(net);
    net = tri_nn_linear(4, 4, NULL); /* itself */
    RANK_TRY(env, tri_parallelize(net, group,
                                  (tri_parallel_rule[]){{.module = "", .style = TRI_ROWWISE}}, 1));
    if (tri_tensor_size(tri_module_find(net, "weight"), 1) != 2)
        return RANK_FAIL(env, "the module itself was not cut");
    tri_module_destroy(net);
    tri_group_unref(group);
    return NULL;
}

static void rules_name_modules_by_wildcards(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm"}, wildcards_rank, NULL);
}

/* --- what is refused ------------------------------------------------------ */

#define REFUSED(status, text, ...)                                                                 \
    RANK_FAILS(env,                                                                                \
               tri_parallelize(                                                                    \
                   net, group, (tri_parallel_rule[]){__VA_ARGS__},                                 \
                   (int)(sizeof((tri_parallel_rule[]){__VA_ARGS__}) / sizeof(tri_parallel_rule))), \
               status, text)

static const char *refused_rank(rank_env *env)
{
    tri_module *net = build(3), *wide = tri_nn_linear(20, 20, NULL), *words;
    tri_group *group = NULL;
    tri_optimizer *opt;
    tri_tensor *weight, *x = rows(0, ROWS, IN);
    int first = env->rank == 0 ? TRI_COLWISE : TRI_ROWWISE;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    REFUSED(TRI_ERR_INVALID_ARG, "did you mean \"7\"", {.module = "77", .style = TRI_COLWISE});
    REFUSED(TRI_ERR_INVALID_ARG, "names no module", {.module = "far.away", .style = TRI_COLWISE});
    REFUSED(TRI_ERR_INVALID_ARG, "both name 0", {.module = "0", .style = TRI_COLWISE},
            {.module = "*0", .style = TRI_ROWWISE});
    REFUSED(TRI_ERR_INVALID_ARG, "a Tanh cannot be cut", {.module = "1", .style = TRI_COLWISE});
    REFUSED(TRI_ERR_INVALID_ARG, "a LayerNorm cannot", {.module = "3", .style = TRI_COLWISE});
    REFUSED(TRI_ERR_INVALID_ARG, "7: 4 outputs are fewer than 5 ranks",
            {.module = "7", .style = TRI_COLWISE});
    REFUSED(TRI_ERR_INVALID_ARG, "4: a Dropout takes and gives this rank's part of the features",
            {.module = "4", .style = TRI_COLWISE, .output = TRI_WHOLE});
    REFUSED(TRI_ERR_INVALID_ARG, "style 0: TRI_COLWISE, TRI_ROWWISE, TRI_HEADS", {.module = "0"});
    REFUSED(TRI_ERR_INVALID_ARG, "module is NULL", {.style = TRI_COLWISE});
    REFUSED(TRI_ERR_INVALID_ARG, "input 7",
            {.module = "0", .style = TRI_COLWISE, .input = (tri_parallel_value)7});
    for (int k = 0; k < 2; k++) /* what would be joined, or added up, in another order */
        RANK_FAILS(env,
                   tri_parallelize(wide, group,
                                   &(tri_parallel_rule){.module = "",
                                                        .style = k == 0 ? TRI_COLWISE : TRI_ROWWISE,
                                                        .parts = 2,
                                                        .input = TRI_WHOLE,
                                                        .output = TRI_WHOLE},
                                   1),
                   TRI_ERR_INVALID_ARG, "parts 2: only outputs that stay cut are in parts");
    tri_module_destroy(wide);
    RANK_FAILS(env, tri_parallelize(net, group, NULL, 1), TRI_ERR_INVALID_ARG, "1 rules at NULL");
    RANK_FAILS(env, tri_parallelize(NULL, group, NULL, 0), TRI_ERR_INVALID_ARG, "module is NULL");
    REFUSED(TRI_ERR_MISMATCH, "0 by rows", {.module = "0", .style = (tri_parallel_style)first});
    if (env->rank == 2)
        REFUSED(TRI_ERR_INVALID_ARG, "names no module", {.module = "x", .style = TRI_COLWISE});
    else
        REFUSED(TRI_ERR_MISMATCH, "rank 2 has a call that fails",
                {.module = "0", .style = TRI_COLWISE});
    RANK_FAILS(env,
               tri_parallelize(env->rank == 2 ? NULL : net, group,
                               &(tri_parallel_rule){.module = "0", .style = TRI_COLWISE}, 1),
               env->rank == 2 ? TRI_ERR_INVALID_ARG : TRI_ERR_MISMATCH,
               env->rank == 2 ? "module is NULL" : "rank 2 has a call that fails");
    /* in use */
    opt = tri_sgd(net, 0.1, NULL);
    REFUSED(TRI_ERR_STATE, "0: weight: something else refers to it",
            {.module = "0", .style = TRI_COLWISE});
    tri_optimizer_destroy(opt);
    words = tri_nn_embedding(20, 4, NULL);
    weight = tri_tensor_ref(tri_module_find(words, "weight"));
    RANK_FAILS(
        env,
        tri_parallelize(words, group, &(tri_parallel_rule){.module = "", .style = TRI_ROWWISE}, 1),
        TRI_ERR_STATE, "a head that has the same weight calls tri_nn_embedding_scores instead");
    tri_tensor_unref(weight);
    tri_module_destroy(words);
    (void)tri_forward(net, x);
    REFUSED(TRI_ERR_STATE, "something else refers to it", {.module = "0", .style = TRI_COLWISE});
    tri_step_end();
    tri_backward(tri_mean(tri_forward(net, x), NULL, 0, false));
    RANK_TRY(env, tri_step_end_status());
    REFUSED(TRI_ERR_STATE, "it has had a gradient", {.module = "0", .style = TRI_COLWISE});
    tri_module_destroy(net);
    /* nothing of this has changed the group, or a network */
    net = build(3);
    weight = tri_module_find(net, "0.weight");
    REFUSED(TRI_ERR_INVALID_ARG, "a Tanh cannot be cut", {.module = "0", .style = TRI_COLWISE},
            {.module = "1", .style = TRI_COLWISE});
    if (tri_tensor_size(weight, 0) != 7)
        return RANK_FAIL(env, "a call that failed has cut");
    RANK_TRY(env, tri_parallelize(net, group,
                                  (tri_parallel_rule[]){{.module = "0", .style = TRI_COLWISE}}, 1));
    REFUSED(TRI_ERR_STATE, "it is cut already", {.module = "0", .style = TRI_COLWISE});
    REFUSED(TRI_ERR_STATE, "0.weight has been cut by an earlier call",
            {.module = "5", .style = TRI_COLWISE});
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void mistakes_are_refused_on_all_ranks(void **state)
{
    (void)state;
    run_threads(5, &(tri_group_options){.engine = "shm"}, refused_rank, NULL);
}

static const char *unwrapped_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_module *net, *model;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int kind = 0; kind < 3; kind++) {
        net = build(3);
        RANK_TRY(env, tri_parallelize(net, group, pairs, 4));
        if (kind == 0) {
            RANK_FAILS(env, tri_module_broadcast(net, group, 0), TRI_ERR_INVALID_ARG,
                       "another axis of the mesh");
        }
        model = kind == 0   ? tri_ddp(net, &(tri_ddp_options){.group = group})
                : kind == 1 ? tri_zero(net, &(tri_zero_options){.group = group})
                            : tri_data_parallel(net, NULL);
        RANK_FAILS(
            env, tri_module_status(model), kind == 2 ? TRI_ERR_UNSUPPORTED : TRI_ERR_INVALID_ARG,
            kind == 2 ? "would communicate once for each device" : "another axis of the mesh");
        tri_module_destroy(model);
    }
    net = build(3);
    RANK_TRY(env, tri_parallelize(net, group, pairs, 4));
    model =
        tri_pipeline_split(net, (const char *[]){"3"}, 2, &(tri_pipeline_options){.group = group});
    RANK_FAILS(env, tri_module_status(model), TRI_ERR_INVALID_ARG,
               "weight of a Linear is cut over ranks of this group");
    tri_module_destroy(model);
    tri_group_unref(group);
    return NULL;
}

static void what_needs_whole_parameters_is_refused(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm"}, unwrapped_rank, NULL);
}

/* On ranks of the second stage the layer that has cut it is gone, and its part would be a whole. */
static const char *shared_rank(rank_env *env)
{
    tri_module *net = build(3);
    tri_mesh *mesh;

    RANK_TRY(env, rank_mesh(env, TRI_SHAPE(2, 2), (const char *[]){"pipeline", "tensor"}, &mesh));
    RANK_TRY(env, tri_parallelize(net, tri_mesh_group(mesh, "tensor"), pairs, 4));
    tri_module_add_parameter(tri_module_submodule(net, "6"), "shared",
                             tri_tensor_ref(tri_module_find(net, "0.weight")));
    net = tri_pipeline_split(net, (const char *[]){"3"}, 2,
                             &(tri_pipeline_options){.group = tri_mesh_group(mesh, "pipeline")});
    RANK_FAILS(env, tri_module_status(net), TRI_ERR_UNSUPPORTED,
               "0.weight, which stages of several ranks share, is cut over ranks");
    tri_module_destroy(net);
    tri_mesh_destroy(mesh);
    return NULL;
}

static void a_part_that_stages_share_is_refused(void **state)
{
    (void)state;
    run_threads(4, &(tri_group_options){.engine = "shm"}, shared_rank, NULL);
}

/* The second layer of a pair has no rule. */
static const char *half_pair_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_module *net = build(3);
    tri_tensor *x = rows(0, ROWS, IN);

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, pairs, 1));
    RANK_FAILS(env, tri_tensor_status(tri_forward(net, x)), TRI_ERR_INVALID_ARG,
               env->rank == 0 ? "x has 4 features, this rank's part of the 7 of a layer that is "
                                "TRI_COLWISE, and the weight takes 7: make this layer TRI_ROWWISE"
                              : "x has 3 features, this rank's part of the 7");
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void a_layer_that_gets_a_part_and_no_rule_says_so(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm"}, half_pair_rank, NULL);
}

/* What takes the outputs of a layer in two parts for one part of all. */
static const tri_parallel_rule takers[] = {
    {.module = "3", .style = TRI_ROWWISE},
    {.module = "3", .style = TRI_COLWISE, .input = TRI_SHARDED},
    {.module = "3", .style = TRI_PREPARE, .input = TRI_SHARDED, .wanted_input = TRI_WHOLE},
    {.module = "1", .style = TRI_PREPARE, .output = TRI_SHARDED, .wanted_output = TRI_WHOLE}};

static const char *parts_rank(rank_env *env)
{
    tri_tensor *x = rows(0, ROWS, IN), *target = tri_tensor_create(TRI_SHAPE(ROWS), TRI_DTYPE_I64);
    tri_group *group = NULL, *other = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int k = 0; k <= (int)TRII_COUNT_OF(takers); k++) { /* the last one: a loss */
        bool loss = k == (int)TRII_COUNT_OF(takers);
        const tri_parallel_rule rules[] = {{.module = "0", .style = TRI_COLWISE, .parts = 2},
                                           takers[loss ? 0 : k]};
        tri_module *net;
        tri_tensor *y;

        trii_mutex_lock(&drawing);
        tri_set_default_dtype(TRI_DTYPE_F64);
        net = tri_nn_sequential(tri_nn_linear(IN, 8, NULL), tri_nn_gelu(TRI_GELU_TANH),
                                tri_nn_dropout(0.5),
                                loss ? tri_nn_identity() : tri_nn_linear(8, 3, NULL));
        tri_set_default_dtype(TRI_DTYPE_F32);
        trii_mutex_unlock(&drawing);
        RANK_TRY(env, tri_group_split(group, 0, env->rank, NULL, &other)); /* it will be aborted */
        RANK_TRY(env, tri_parallelize(net, other, rules, loss ? 1 : 2));
        y = tri_forward(net, x);
        if (loss)
            y = tri_dist_cross_entropy(y, target, 8, other, NULL);
        RANK_FAILS(env, tri_tensor_status(y), TRI_ERR_INVALID_ARG,
                   "this rank's part of each of several parts");
        tri_step_end();
        tri_module_destroy(net);
        tri_group_unref(other);
    }
    tri_tensor_unref(target);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return NULL;
}

static void parts_of_several_are_not_taken_for_one(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm"}, parts_rank, NULL);
}

static const char *wrong_input_rank(rank_env *env)
{
    tri_group *group = NULL;
    tri_module *net = build(3);
    tri_tensor *x = rows(0, ROWS, env->rank == 0 ? IN : IN + 1), *y;
    const char *wrong = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, pairs, 4));
    y = tri_forward(net, x);
    if ((env->rank == 1 ? tri_tensor_status(y) : tri_run()) == TRI_OK)
        wrong = RANK_FAIL(env, "rank %d has an output", env->rank);
    else if (env->rank == 1 && strstr(tri_last_error(), "must be 5, all of its 5 inputs") == NULL)
        wrong = RANK_FAIL(env, "%s", tri_last_error());
    tri_step_end();
    RANK_TRY(env, ranks_meet(env, "refused", -1));
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_group_unref(group);
    return wrong;
}

static void a_rank_with_another_input_leaves_nobody_waiting(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm", .timeout_ms = 20000}, wrong_input_rank,
                NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pairs_of_layers_train_as_one_process),
    cmocka_unit_test(layers_that_stand_alone_train_as_one_process),
    cmocka_unit_test(a_norm_counts_each_parameter_once),
    cmocka_unit_test(recomputation_scaling_and_averages_go_together),
    cmocka_unit_test(replicas_of_parts_train_as_one_process),
    cmocka_unit_test(parts_are_of_rank_0s_values),
    cmocka_unit_test(rules_name_modules_by_wildcards),
    cmocka_unit_test(mistakes_are_refused_on_all_ranks),
    cmocka_unit_test(what_needs_whole_parameters_is_refused),
    cmocka_unit_test(a_part_that_stages_share_is_refused),
    cmocka_unit_test(a_layer_that_gets_a_part_and_no_rule_says_so),
    cmocka_unit_test(parts_of_several_are_not_taken_for_one),
    cmocka_unit_test(a_rank_with_another_input_leaves_nobody_waiting),
};

TEST_MAIN(tests)
