/*
 * config_keys.c - the table of config_keys.h, in the order of DeepSpeed's documentation.
 */
#include "train/deepspeed/config_keys.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

/* clang-format off */
#define MANY 9007199254740992.0 /* 2^53 */
#define ANY INFINITY
#define BLOCK(path) {path, TRII_KEY_BLOCK, TRII_KEY_TAKEN, 0, 0, NULL, NULL}
#define SWITCH(path) {path, TRII_KEY_SWITCH, TRII_KEY_TAKEN, 0, 0, NULL, NULL}
#define WHOLE(path, least, most) {path, TRII_KEY_WHOLE, TRII_KEY_TAKEN, least, most, NULL, NULL}
#define NUMBER(path, least, most) {path, TRII_KEY_NUMBER, TRII_KEY_TAKEN, least, most, NULL, NULL}
#define TEXT(path) {path, TRII_KEY_TEXT, TRII_KEY_TAKEN, 0, 0, NULL, NULL}
#define CHOICE(path, choices) {path, TRII_KEY_CHOICE, TRII_KEY_TAKEN, 0, 0, choices, NULL}
#define IDLE(path, kind, note) {path, kind, TRII_KEY_IDLE, -ANY, ANY, NULL, note}
#define IDLE_SWITCH(path, note) IDLE(path, TRII_KEY_SWITCH, note)
#define IDLE_WHOLE(path, note) IDLE(path, TRII_KEY_WHOLE, note)
#define IDLE_ANY(path, note) IDLE(path, TRII_KEY_FREE, note)
#define OFF(path, note) {path, TRII_KEY_FREE, TRII_KEY_OFF, 0, 0, NULL, note}
#define REFUSED(path, note) {path, TRII_KEY_FREE, TRII_KEY_REFUSED, 0, 0, NULL, note}

#define ALWAYS "buckets are summed while backward runs, whatever this says"
#define IN_PLACE "gradients lie in their buckets"
#define HOST "all lies in the host's memory"
#define MEMORY "memory is planned for the whole step"
#define ZEROPP "ZeRO++ is not here: leave it out"
#define MICS "removed in DeepSpeed 0.19.8: leave it out; a mesh of tri_zero_options divides within hosts"
#define GONE "removed in DeepSpeed 0.19.8: leave it out"
#define TRACE "TRI_TRACE=FILE writes a Chrome trace of each operation"
#define LOOK "`trireme why` and tri_ddp_stats show what ranks exchange"
#define FOLDER "checkpoints are folders that any number of ranks reads"
#define NO_MONITOR "write \"tensorboard\" or \"csv_monitor\""

const trii_key trii_keys[] = {
    WHOLE("train_batch_size", 1, MANY),
    WHOLE("train_micro_batch_size_per_gpu", 1, MANY),
    WHOLE("gradient_accumulation_steps", 1, MANY),
    NUMBER("gradient_clipping", 0, ANY),
    WHOLE("steps_per_print", 1, MANY),
    SWITCH("wall_clock_breakdown"),
    SWITCH("dataloader_drop_last"),
    IDLE_ANY("log_level", "TRI_LOG sets it"),
    IDLE_SWITCH("dump_state", "each checkpoint has the configuration"),
    IDLE_SWITCH("memory_breakdown", "tri_memory has the figures"),
    IDLE_SWITCH("disable_allgather", ALWAYS),
    IDLE_SWITCH("disable_python_gc", "there is none"),
    IDLE_SWITCH("prescale_gradients", "the loss is weighted before backward"),
    IDLE("gradient_predivide_factor", TRII_KEY_NUMBER, "the loss is weighted before backward"),
    CHOICE("gradient_allreduce_op", "mean"),
    CHOICE("communication_data_type", "fp32|fp16|bf16"),
    IDLE_ANY("seq_parallel_communication_data_type", "it counts with sequence parallelism alone"),
    IDLE_SWITCH("zero_allow_untested_optimizer", "each optimizer is allowed in each stage"),
    IDLE_SWITCH("zero_force_ds_cpu_optimizer", "there is one optimizer of each kind"),
    IDLE_SWITCH("use_data_before_expert_parallelism", "there are no experts"),
    IDLE_ANY("timers", "wall_clock_breakdown shows times"),
    SWITCH("managed_gradient_accumulation"),

    BLOCK("optimizer"),
    TEXT("optimizer.type"),
    {"optimizer.params", TRII_KEY_FREE, TRII_KEY_TAKEN, 0, 0, NULL, NULL},
    IDLE_SWITCH("optimizer.legacy_fusion", "updates are fused by the plan"),
    BLOCK("scheduler"),
    TEXT("scheduler.type"),
    {"scheduler.params", TRII_KEY_FREE, TRII_KEY_TAKEN, 0, 0, NULL, NULL},

    BLOCK("fp16"),
    SWITCH("fp16.enabled"),
    IDLE_SWITCH("fp16.auto_cast", "inputs are cast where an operation wants it"),
    NUMBER("fp16.loss_scale", 0, 1e38),
    NUMBER("fp16.initial_scale_power", 0, 126),
    WHOLE("fp16.loss_scale_window", 1, MANY),
    WHOLE("fp16.hysteresis", 1, 1e9),
    SWITCH("fp16.consecutive_hysteresis"),
    NUMBER("fp16.min_loss_scale", 0, 1e38),
    OFF("fp16.fp16_master_weights_and_grads", "weights stay f32: leave it out"),
    BLOCK("bf16"),
    SWITCH("bf16.enabled"),
    IDLE_SWITCH("bf16.immediate_grad_update", "gradients are f32"),
    SWITCH("bf16.check_grad_overflow"),
    OFF("bf16.bf16_master_weights_and_grads", "weights stay f32: leave it out"),
    OFF("bf16.bf16_optimizer_states", "the optimizer's state stays f32: leave it out"),
    BLOCK("torch_autocast"),
    SWITCH("torch_autocast.enabled"),
    CHOICE("torch_autocast.dtype", "bfloat16|float16|torch.bfloat16|torch.float16|bf16|fp16"),
    IDLE_ANY("torch_autocast.lower_precision_safe_modules", "operations decide"),
    BLOCK("data_types"),
    CHOICE("data_types.grad_accum_dtype", "fp32"),
    CHOICE("data_types.param_dtype", "fp32"),
    CHOICE("data_types.buffer_dtype", "fp32"),
    IDLE_ANY("data_types.keep_in_fp32_modules", "all parameters are f32"),

    BLOCK("zero_optimization"),
    WHOLE("zero_optimization.stage", 0, 3),
    WHOLE("zero_optimization.reduce_bucket_size", 1, MANY),
    WHOLE("zero_optimization.stage3_prefetch_bucket_size", 0, MANY),
    WHOLE("zero_optimization.stage3_param_persistence_threshold", 0, MANY),
    SWITCH("zero_optimization.compute_grad_norm"),
    IDLE_SWITCH("zero_optimization.overlap_comm", ALWAYS),
    IDLE_SWITCH("zero_optimization.contiguous_gradients", IN_PLACE),
    IDLE_SWITCH("zero_optimization.reduce_scatter", "each rank gets its part in stages 1 to 3"),
    IDLE_SWITCH("zero_optimization.use_multi_rank_bucket_allreduce", IN_PLACE),
    IDLE_SWITCH("zero_optimization.allgather_partitions", "parts are gathered by buckets"),
    IDLE_WHOLE("zero_optimization.allgather_bucket_size", "that of reduce_bucket_size"),
    IDLE_SWITCH("zero_optimization.round_robin_gradients", IN_PLACE),
    IDLE_WHOLE("zero_optimization.sub_group_size", "an update is one part of the plan"),
    IDLE_WHOLE("zero_optimization.stage3_max_live_parameters", "stage3_prefetch_bucket_size bounds it"),
    IDLE_WHOLE("zero_optimization.stage3_max_reuse_distance", "the step is known as a whole"),
    IDLE_WHOLE("zero_optimization.stage3_model_persistence_threshold", "stage3_param_persistence_threshold decides"),
    IDLE_SWITCH("zero_optimization.stage3_gather_16bit_weights_on_model_save", "tri_save and tri_torch_save write whole weights; all ranks call them"),
    IDLE_SWITCH("zero_optimization.gather_16bit_weights_on_model_save", "tri_save and tri_torch_save write whole weights; all ranks call them"),
    IDLE_SWITCH("zero_optimization.stage3_use_all_reduce_for_fetch_params", "parts are gathered"),
    IDLE_ANY("zero_optimization.stage3_module_granularity_threshold", "buckets decide"),
    IDLE_ANY("zero_optimization.module_granularity_threshold", "buckets decide"),
    IDLE_SWITCH("zero_optimization.ignore_unused_parameters", "parameters that a loss does not reach are found"),
    IDLE_SWITCH("zero_optimization.load_from_fp32_weights", "weights are f32"),
    IDLE_ANY("zero_optimization.elastic_checkpoint", FOLDER),
    IDLE_SWITCH("zero_optimization.pipeline_loading_checkpoint", FOLDER),
    IDLE_SWITCH("zero_optimization.legacy_stage1", "there is one stage 1"),
    IDLE_SWITCH("zero_optimization.stage3_allgather_sequential", "parts are gathered by buckets"),
    IDLE_SWITCH("zero_optimization.stage3_gather_fp16_weights_on_model_save", "tri_save and tri_torch_save write whole weights; all ranks call them"),
    IDLE_SWITCH("zero_optimization.log_trace_cache_warnings", "the step is known as a whole"),
    IDLE_SWITCH("zero_optimization.enable_sanity_checks", "TRI_CHECK has checks"),
    IDLE_SWITCH("zero_optimization.save_muon_momentum_buffer_in_memory", HOST),
    OFF("zero_optimization.zenflow", "not here: leave it out"),
    IDLE_SWITCH("zero_optimization.parameter_alignment", "parameters are aligned to 64 bytes"),
    IDLE_SWITCH("zero_optimization.memory_efficient_linear", MEMORY),
    IDLE_SWITCH("zero_optimization.fast_sharding_for_leaf_module", "no module has to be declared"),
    IDLE_ANY("zero_optimization.leaf_module", "no module has to be declared"),
    IDLE_SWITCH("zero_optimization.override_module_apply", "no module has to be declared"),
    IDLE_SWITCH("zero_optimization.cpu_offload", HOST),
    IDLE_SWITCH("zero_optimization.cpu_offload_param", HOST),
    IDLE_SWITCH("zero_optimization.cpu_offload_use_pin_memory", HOST),
    BLOCK("zero_optimization.offload_param"),
    CHOICE("zero_optimization.offload_param.device", "none|cpu"),
    IDLE_ANY("zero_optimization.offload_param.nvme_path", HOST),
    IDLE_WHOLE("zero_optimization.offload_param.buffer_count", HOST),
    IDLE_WHOLE("zero_optimization.offload_param.buffer_size", HOST),
    IDLE_WHOLE("zero_optimization.offload_param.max_in_cpu", HOST),
    IDLE_SWITCH("zero_optimization.offload_param.pin_memory", HOST),
    BLOCK("zero_optimization.offload_optimizer"),
    CHOICE("zero_optimization.offload_optimizer.device", "none|cpu"),
    IDLE_ANY("zero_optimization.offload_optimizer.nvme_path", HOST),
    IDLE_WHOLE("zero_optimization.offload_optimizer.buffer_count", HOST),
    IDLE_SWITCH("zero_optimization.offload_optimizer.pin_memory", HOST),
    IDLE_SWITCH("zero_optimization.offload_optimizer.pipeline_read", HOST),
    IDLE_SWITCH("zero_optimization.offload_optimizer.pipeline_write", HOST),
    IDLE_SWITCH("zero_optimization.offload_optimizer.fast_init", HOST),
    IDLE("zero_optimization.offload_optimizer.ratio", TRII_KEY_NUMBER, HOST),
    IDLE("zero_optimization.offload_optimizer.cpuadam_cores_perc", TRII_KEY_NUMBER, HOST),
    IDLE_SWITCH("zero_optimization.offload_optimizer.super_offload", HOST),
    OFF("zero_optimization.zero_hpz_partition_size", ZEROPP),
    OFF("zero_optimization.zero_quantized_weights", ZEROPP),
    OFF("zero_optimization.zero_quantized_nontrainable_weights", ZEROPP),
    OFF("zero_optimization.zero_quantized_gradients", "ZeRO++ is not here: \"communication_data_type\": \"bf16\" sends half"),
    REFUSED("zero_optimization.mics_shard_size", MICS),
    REFUSED("zero_optimization.mics_hierarchical_params_gather", MICS),
    REFUSED("zero_optimization.zeropp_loco_param", GONE),

    BLOCK("tensorboard"),
    SWITCH("tensorboard.enabled"),
    TEXT("tensorboard.output_path"),
    TEXT("tensorboard.job_name"),
    BLOCK("csv_monitor"),
    SWITCH("csv_monitor.enabled"),
    TEXT("csv_monitor.output_path"),
    TEXT("csv_monitor.job_name"),
    OFF("wandb", NO_MONITOR),
    OFF("comet", NO_MONITOR),
    IDLE_ANY("monitor_config", NO_MONITOR),
    IDLE_ANY("flops_profiler", TRACE),
    IDLE_ANY("comms_logger", LOOK),
    IDLE_ANY("comms_config", LOOK),
    IDLE_ANY("activation_checkpointing", "TRI_RECOMPUTE in the program, or tri_module_set_recompute, says what is computed again"),
    IDLE_ANY("aio", "there are no parts on disks"),
    BLOCK("checkpoint"),
    CHOICE("checkpoint.tag_validation", "Warn|Ignore|Fail|WARN|IGNORE|FAIL|warn|ignore|fail"),
    IDLE_SWITCH("checkpoint.load_universal", FOLDER),
    IDLE_SWITCH("checkpoint.use_node_local_storage", "tri_checkpoint_fetch brings one to hosts that lack it"),
    IDLE_ANY("checkpoint.parallel_write", "each rank writes its part"),
    IDLE_SWITCH("checkpoint.checkpoint_serialization", FOLDER),
    IDLE_ANY("checkpoint.writer", FOLDER),
    IDLE_ANY("compile", "each step is compiled"),
    OFF("pipeline", "stages of a network on several workers: tri_pipeline (docs/PARALLEL.md)"),
    OFF("tensor_parallel", "not here: leave it out"),
    OFF("autotp_size", "not here: leave it out"),
    OFF("expert_parallel", "not here: leave it out"),
    OFF("sequence_parallel_size", "not here: leave it out"),
    OFF("hybrid_engine", "not here: leave it out"),
    OFF("weight_quantization", "not here: leave it out"),
    OFF("data_efficiency", "not here: a tri_sampler of your own chooses samples"),
    OFF("autotuning", "not here: `./run bench` and tri_ddp_stats measure"),
    OFF("vocabulary_size", "not here: leave it out"),

    REFUSED("nebula", "removed in DeepSpeed 0.19.8: leave it out; saves are asynchronous by tri_checkpoint_writer"),
    REFUSED("compression_training", GONE),
    REFUSED("amp", "removed in DeepSpeed 0.19.8: write \"bf16\": {\"enabled\": true}, or \"fp16\""),
    REFUSED("quantize_training", GONE),
    REFUSED("sparse_gradients", GONE),
    REFUSED("eigenvalue", GONE),
    REFUSED("sparse_attention", GONE),
    REFUSED("elasticity", "removed in DeepSpeed 0.19.8: leave it out; trirun --nnodes MIN:MAX changes the number of ranks"),
    REFUSED("graph_harvesting", "removed in DeepSpeed 0.19.8: leave it out; steps are compiled"),
    REFUSED("curriculum_learning", GONE),
    REFUSED("progressive_layer_drop", GONE),
    REFUSED("fp32_allreduce", "replaced long ago: write \"communication_data_type\": \"fp32\""),
    REFUSED("zero_allow_comm_data_type_fp32", "replaced long ago: write \"communication_data_type\": \"fp32\""),
    REFUSED("bfloat16", "replaced by \"bf16\": {\"enabled\": true}"),
};
/* clang-format on */

const int trii_keys_count = (int)TRII_COUNT_OF(trii_keys);

const trii_key *trii_key_find(const char *path)
{
    for (int i = 0; i < trii_keys_count; i++)
        if (strcmp(trii_keys[i].path, path) == 0)
            return &trii_keys[i];
    return NULL;
}
