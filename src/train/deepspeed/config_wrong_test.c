/* config_wrong_test.c - configurations with a mistake: each gets a line that names place, key,
 * value and what is allowed. And configurations that look odd and are right. */
#include "base/compiler.h"
#include "testing/check.h"
#include "train/deepspeed/engine_config.h"

#define GOOD "\"train_batch_size\": 8"

typedef struct wrong {
    const char *config, *line;
} wrong;

static const wrong syntax[] = {
    {"{", "config:1:1: this { has no closing }"},
    {"{" GOOD, "config:1:1: this { has no closing }"},
    {"{" GOOD "} x", "config:1:25: the end of the text is expected, not 'x'"},
    {"{\n\"train_batch_size\" 8}", "config:2:20: a colon after the key is expected, not '8'"},
    {"{\"a\": [1, 2}", "config:1:12: a comma or ] is expected, not '}'"},
    {"{\"train_batch_size\": 8 \"fp16\": {}}", "config:1:24: a comma or } is expected, not '\"'"},
    {"{\"train_batch_size\": eight}", "config:1:22: eight is not a value: texts have quotes"},
    {"{\"train_batch_size\": True}", "config:1:22: True is not a value"},
    {"{\"train_batch_size\": }", "config:1:22: a value is expected, not '}'"},
    {"{,}", "config:1:2: a key or } is expected, not ','"},
    {"{\"optimizer", "config:1:2: this text has no closing quote"},
    {"{\"optimizer\n\": {}}", "config:1:2: this text has no closing quote"},
    {"{\"\\q\": 1}", "a text of JSON does not have this character or escape"},
    {"{" GOOD ", /* \n }", "config:1:25: this comment has no end"},
    {"{" GOOD ",\n\n" GOOD "}", "config:3: train_batch_size is there twice, in line 1, too"},
    {"{" GOOD ", \"fp16\": {\"enabled\": true,\n\"enabled\": false}}",
     "config:2: enabled is there twice, in line 1, too: remove one"},
    {"{" GOOD ",\n\"csv_monitor\": {\"job_name\": \"\xe9\"}}",
     "config:2:29: this text is not UTF-8"},
};

static const wrong keys[] = {
    {"{" GOOD ",\n\"zero_optimisation\": {}}",
     "config:2: zero_optimisation: not a key: did you mean zero_optimization?"},
    {"{\"train_batchsize\": 8}", "train_batchsize: not a key: did you mean train_batch_size?"},
    {"{\"train_micro_batch_size_per_device\": 8}",
     "not a key: did you mean train_micro_batch_size_per_gpu?"},
    {"{" GOOD ", \"grad_clipping\": 1}", "did you mean gradient_clipping?"},
    {"{" GOOD ", \"stage\": 2}",
     "config:1: stage: not a key: it belongs in zero_optimization.stage"},
    {"{" GOOD ", \"fp16\": {\"train_batch_size\": 8}}", "it belongs in the outermost block"},
    {"{" GOOD ", \"zero_optimization\": {\"stgae\": 2}}",
     "zero_optimization.stgae: not a key of zero_optimization: did you mean stage?"},
    {"{" GOOD ", \"zero_optimization\": {\"offload_param\": {\"devise\": \"cpu\"}}}",
     "zero_optimization.offload_param.devise: not a key of zero_optimization.offload_param: did "
     "you mean device?"},
    {"{" GOOD ", \"fp16\": {\"enable\": true}}", "did you mean enabled?"},
    {"{" GOOD ", \"xyzzy\": 1}", "xyzzy: not a key that DeepSpeed 0.19.8 has: remove it"},
    {"{" GOOD ", \"fp16.enabled\": true}", "fp16.enabled: not a key"},
    {"{" GOOD ", \"nebula\": {}}", "nebula: removed in DeepSpeed 0.19.8"},
    {"{" GOOD ", \"amp\": {\"enabled\": true}}", "write \"bf16\": {\"enabled\": true}"},
    {"{" GOOD ", \"elasticity\": {}}", "trirun --nnodes MIN:MAX"},
    {"{" GOOD ", \"sparse_gradients\": true}", "sparse_gradients: removed in DeepSpeed 0.19.8"},
    {"{" GOOD ", \"curriculum_learning\": {}}", "removed in DeepSpeed 0.19.8"},
    {"{" GOOD ", \"bfloat16\": {\"enabled\": true}}", "replaced by \"bf16\""},
    {"{" GOOD ", \"zero_optimization\": {\"mics_shard_size\": 2}}",
     "zero_optimization.mics_shard_size: removed"},
    {"{" GOOD ", \"zero_optimization\": {\"zero_quantized_weights\": true}}",
     "zero_optimization.zero_quantized_weights: true is not supported"},
    {"{" GOOD ", \"zero_optimization\": {\"zero_hpz_partition_size\": 4}}", "4 is not supported"},
    {"{" GOOD ", \"wandb\": {\"enabled\": true}}",
     "wandb: {..} is not supported: write \"tensorboard\" or \"csv_monitor\""},
    {"{" GOOD ", \"pipeline\": {\"stages\": 2}}", "pipeline: {..} is not supported"},
    {"{" GOOD ", \"fp16\": {\"fp16_master_weights_and_grads\": true}}", "weights stay f32"},
    {"{" GOOD ", \"data_efficiency\": {\"enabled\": true}}", "data_efficiency: {..} is not"},
};

static const wrong values[] = {
    {"{}", "config: neither train_batch_size nor train_micro_batch_size_per_gpu is given"},
    {"{\"gradient_accumulation_steps\": 4}", "neither train_batch_size nor"},
    {"{\"train_batch_size\": 0}", "config:1: train_batch_size: 0 is not allowed: at least 1"},
    {"{\"train_batch_size\": -8}", "train_batch_size: -8 is not allowed: at least 1"},
    {"{\"train_batch_size\": 8.5}", "train_batch_size: 8.5 is not a whole number"},
    {"{\"train_batch_size\": \"many\"}", "train_batch_size: \"many\" is not a number"},
    {"{\"train_batch_size\": \"auto\"}",
     "train_batch_size: \"auto\" is filled in by transformers alone: write the number, such as 8"},
    {"{" GOOD ", \"gradient_clipping\": \"auto\"}", "gradient_clipping: \"auto\" is filled in by"},
    {"{" GOOD
     ", \"gradient_clipping\": \"auto\",\n\"steps_per_print\": \"auto\", \"optimizer\": {\n"
     "\"type\": \"Adam\",\n\"params\": {\"lr\": \"auto\", \"eps\": \"auto\",\n\"betas\": "
     "\"auto\"}}}",
     "or leave the key out for its default; also in lines 2, 4, 5"},
    {"{" GOOD ", \"bf16\": {\"enabled\": \"auto\"}}", "bf16.enabled: \"auto\" is filled in by"},
    {"{\"train_batch_size\": true}", "train_batch_size: true is not a number"},
    {"{\"train_batch_size\": [8]}", "train_batch_size: [..] is not a number"},
    {"{" GOOD ", \"gradient_clipping\": -1}", "gradient_clipping: -1 is not allowed: at least 0"},
    {"{" GOOD ", \"gradient_clipping\": \"x\"}", "gradient_clipping: \"x\" is not a number"},
    {"{" GOOD ", \"zero_optimization\": {\"stage\": 4}}",
     "zero_optimization.stage: 4 is not allowed: 0 to 3"},
    {"{" GOOD ", \"zero_optimization\": 2}", "zero_optimization: 2 is not a block: {..}"},
    {"{" GOOD ", \"zero_optimization\": {\"reduce_bucket_size\": 0}}", "at least 1"},
    {"{" GOOD ", \"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\"}}}",
     "zero_optimization.offload_optimizer.device: \"nvme\" is not allowed: none|cpu"},
    {"{" GOOD ", \"fp16\": true}", "fp16: true is not a block: {..}"},
    {"{" GOOD ", \"fp16\": {\"enabled\": 1}}", "fp16.enabled: 1 is not a switch: true or false"},
    {"{" GOOD ", \"fp16\": {\"enabled\": true},\n\"bf16\": {\"enabled\": true}}",
     "config:1: fp16 and bf16 are both enabled: enable one precision"},
    {"{" GOOD ", \"fp16\": {\"loss_scale_window\": 0}}", "fp16.loss_scale_window: 0 is not"},
    {"{" GOOD ", \"data_types\": {\"grad_accum_dtype\": \"xx\"}}",
     "data_types.grad_accum_dtype: \"xx\" is not allowed: fp32"},
    {"{" GOOD ", \"communication_data_type\": \"f8\"}", "is not allowed: fp32|fp16|bf16"},
    {"{" GOOD ", \"communication_data_type\": \"fp32|fp16\"}",
     "\"fp32|fp16\" is not allowed: fp32|fp16|bf16"},
    {"{\"train_micro_batch_size_per_gpu\": 2147483647, \"gradient_accumulation_steps\": "
     "2147483647}",
     "train_micro_batch_size_per_gpu 2147483647 and gradient_accumulation_steps 2147483647: at "
     "most"},
    {"{\"train_batch_size\": "
     "10000000000000000000000000000000000000000000000000000000000000000000001}",
     "is not allowed: 1 to 9.0072e+15"},
    {"{" GOOD ", \"checkpoint\": {\"tag_validation\": \"MAYBE\"}}",
     "checkpoint.tag_validation: \"MAYBE\" is not allowed: Warn|"},
    {"{" GOOD ", \"tensorboard\": {\"output_path\": 5}}", "5 is not a text in quotes"},
    {"{" GOOD ", \"scheduler\": {\"type\": \"StepLR\"}}",
     "scheduler.type: \"StepLR\" is not allowed: LRRangeTest, OneCycle,"},
    {"{" GOOD ", \"scheduler\": {}}", "config:1: scheduler: \"type\" is missing"},
    {"{" GOOD ", \"scheduler\": {\"type\": \"WarmupDecayLR\"}}",
     "scheduler: WarmupDecayLR needs params.total_num_steps"},
    {"{" GOOD ", \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0}}}",
     "scheduler: OneCycle needs params.cycle_max_lr"},
    {"{" GOOD ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_steps\": 5}}}",
     "scheduler.params.warmup_steps: not a key of scheduler.params: did you mean"},
    {"{" GOOD ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 0}}}",
     "scheduler.params.warmup_num_steps: 0 is not allowed: at least 1"},
    {"{" GOOD ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"cos\"}}}",
     "scheduler.params.warmup_type: \"cos\" is not allowed: log|linear"},
    {"{" GOOD ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": 3}}",
     "scheduler.params: 3 is not a block"},
};

static void check_wrong(const wrong *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        trii_engine_config c;

        if (trii_engine_config_init(&c, list[i].config, 1) == TRI_OK)
            fail_msg("%s: taken instead of \"%s\"", list[i].config, list[i].line);
        if (strstr(tri_last_error(), list[i].line) == NULL)
            fail_msg("%s: %s\ninstead of  %s", list[i].config, tri_last_error(), list[i].line);
        trii_engine_config_fini(&c);
    }
}

static void mistakes_of_the_language_are_named(void **state)
{
    (void)state;
    check_wrong(syntax, TRII_COUNT_OF(syntax));
}

static void keys_that_do_not_exist_are_named(void **state)
{
    (void)state;
    check_wrong(keys, TRII_COUNT_OF(keys));
}

static void values_that_are_not_allowed_are_named(void **state)
{
    (void)state;
    check_wrong(values, TRII_COUNT_OF(values));
}

/* `trireme info` says so, too; a program may have an optimizer of its own. */
static void mistakes_in_the_optimizer_are_named(void **state)
{
    static const wrong list[] = {
        {"{\"optimizer\": {\"type\": \"Lamb\"}}",
         "optimizer.type: \"Lamb\" is not allowed: Adam, AdamW, SGD, RMSprop or Adagrad; others"},
        {"{\"optimizer\": {\"params\": {}}}", "config:1: optimizer: \"type\" is missing"},
        {"{\"optimizer\": {\"type\": \"adam\", \"params\": {\"max_grad_norm\": 1}}}",
         "optimizer.params.max_grad_norm: write \"gradient_clipping\" in the outermost block"},
        {"{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentun\": 1}}}",
         "optimizer.params.momentun: not a key of optimizer.params: did you mean momentum?"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9, 1]}}}",
         "optimizer.params.betas: [..] is not allowed: two numbers from 0 to below 1"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"bias_correction\": false}}}",
         "optimizer.params.bias_correction: false is not supported"},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(list); i++) {
        trii_engine_config c;

        if (trii_engine_config_check(&c, list[i].config) == TRI_OK)
            fail_msg("%s: taken instead of \"%s\"", list[i].config, list[i].line);
        if (strstr(tri_last_error(), list[i].line) == NULL)
            fail_msg("%s: %s\ninstead of  %s", list[i].config, tri_last_error(), list[i].line);
        trii_engine_config_fini(&c);
    }
}

/* --- batch sizes ---------------------------------------------------------- */

static void batch_sizes_are_those_of_deepspeed(void **state)
{
    static const struct {
        int batch, micro, steps, world; /* 0: not given */
        int wanted[3];                  /* 0, 0, 0: refused */
        const char *line;
    } cases[] = {
        {16, 2, 4, 2, {16, 2, 4}, NULL},
        {16, 0, 0, 2, {16, 8, 1}, NULL},
        {0, 3, 0, 4, {12, 3, 1}, NULL},
        {0, 3, 5, 2, {30, 3, 5}, NULL},
        {16, 4, 0, 2, {16, 4, 2}, NULL},
        {16, 0, 2, 2, {16, 4, 2}, NULL},
        {16, 4, 2, 1, {0}, "16 is not 4 * 2 * 1; this would fit: 8 = 4 * 2 * 1"},
        {15, 4, 0, 2, {0}, "15 is not 4 * ? * 2; this would fit: 8 = 4 * 1 * 2"},
        {15, 0, 0, 2, {0}, "15 is not ? * ? * 2; this would fit: 14 = 7 * 1 * 2"},
        {3, 0, 0, 4, {0}, "3 is not ? * ? * 4; this would fit: 4 = 1 * 1 * 4"},
        {3, 8, 0, 2, {0}, "3 is not 8 * ? * 2; this would fit: 16 = 8 * 1 * 2"},
    };

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        static const char *const names[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                            "gradient_accumulation_steps"};
        const int sizes[] = {cases[i].batch, cases[i].micro, cases[i].steps};
        char text[256] = "{";
        trii_engine_config c;
        tri_status status;

        for (int k = 0; k < 3; k++)
            if (sizes[k] > 0)
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "\"%s\": %d,", names[k],
                         sizes[k]);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "}");
        status = trii_engine_config_init(&c, text, cases[i].world);
        if (cases[i].line != NULL) {
            assert_int_equal(status, TRI_ERR_INVALID_ARG);
            if (strstr(tri_last_error(), cases[i].line) == NULL)
                fail_msg("%s: %s\ninstead of  %s", text, tri_last_error(), cases[i].line);
        } else {
            CHECK_OK(status);
            assert_int_equal(c.train_batch, cases[i].wanted[0]);
            assert_int_equal(c.micro_batch, cases[i].wanted[1]);
            assert_int_equal(c.accumulate, cases[i].wanted[2]);
        }
        trii_engine_config_fini(&c);
    }
}

/* --- what is right -------------------------------------------------------- */

static void comments_commas_and_numbers_as_text_are_taken(void **state)
{
    static const char text[] =
        "\n{ # of a shell\n // of C++\n"
        "  train_batch_size: \"1.6e1\", /* {\n } */\n"
        "  \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": "
        "5e8, \"offload_param\": {\"device\": \"cpu\",},},\n"
        "  \"gradient_clipping\": null, \"wandb\": {\"enabled\": false},\n"
        "  \"tensorboard\": {\"job_name\": \"# no // comment /* \\u00e4\"},\n"
        "}\n\n";
    trii_engine_config c;

    (void)state;
    CHECK_OK(trii_engine_config_init(&c, text, 2));
    assert_int_equal(c.train_batch, 16);
    assert_int_equal(c.stage, 3);
    assert_true(c.bucket_elements == 5e8);
    assert_true(c.clip == 1 && !c.clip_given);
    assert_string_equal(trii_conf_get_text(&c, "tensorboard.job_name", ""),
                        "# no // comment /* \xC3\xA4");
    assert_int_equal(trii_conf_find(c.root, "tensorboard")->line, 8);
    trii_engine_config_fini(&c);
    CHECK_OK(trii_engine_config_init(&c, "{" GOOD ", \"zero_optimization\": true}", 1));
    assert_int_equal(c.stage, 1);
    trii_engine_config_fini(&c);
}

/* Whatever stands there, and wherever it ends. */
static void no_prefix_and_no_changed_byte_does_harm(void **state)
{
    static const char text[] =
        "{\"train_batch_size\": 8, # x\n \"fp16\": {\"enabled\": true, "
        "\"hysteresis\": \"2\"}, // y\n/* z */ \"scheduler\": {\"type\": "
        "\"WarmupLR\", \"params\": {}}, \"a\": [1, {\"b\\u0041\\n\": null}]}";
    char copy[sizeof(text)];
    trii_conf *root;

    (void)state;
    for (size_t n = 0; n < sizeof(text); n++) {
        if (trii_conf_parse("config", text, n, &root) == TRI_OK)
            trii_conf_free(root);
        for (int bit = 0; bit < 8 && n < sizeof(text) - 1; bit++) {
            memcpy(copy, text, sizeof(text));
            copy[n] = (char)(copy[n] ^ 1 << bit);
            if (trii_conf_parse("config", copy, sizeof(text) - 1, &root) == TRI_OK)
                trii_conf_free(root);
        }
    }
    assert_int_equal(trii_conf_parse("config", "", 0, &root), TRI_ERR_FORMAT);
}

static void a_file_that_is_not_there_is_named(void **state)
{
    trii_engine_config c;

    (void)state;
    assert_int_equal(trii_engine_config_init(&c, "no/such/ds_config.json", 1), TRI_ERR_NOT_FOUND);
    assert_non_null(strstr(tri_last_error(), "no/such/ds_config.json"));
    trii_engine_config_fini(&c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(mistakes_of_the_language_are_named),
    cmocka_unit_test(keys_that_do_not_exist_are_named),
    cmocka_unit_test(values_that_are_not_allowed_are_named),
    cmocka_unit_test(mistakes_in_the_optimizer_are_named),
    cmocka_unit_test(batch_sizes_are_those_of_deepspeed),
    cmocka_unit_test(comments_commas_and_numbers_as_text_are_taken),
    cmocka_unit_test(no_prefix_and_no_changed_byte_does_harm),
    cmocka_unit_test(a_file_that_is_not_there_is_named),
};

TEST_MAIN(tests)
