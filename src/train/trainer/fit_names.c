/*
 * fit_names.c - names of strategies, precisions and accelerators: Lightning's, those of FSDP and of
 * DeepSpeed, and what they are here. Case does not matter: torch writes FULL_SHARD.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "train/trainer/trainer_internal.h"

typedef struct known_name {
    const char *name;
    int value;
} known_name;

/* What is listed in messages comes first, up to the first alias. */
static const known_name strategies[] = {
    {"auto", TRII_STRATEGY_AUTO},
    {"single", TRII_STRATEGY_SINGLE},
    {"ddp", TRII_STRATEGY_DDP},
    {"zero1", TRII_STRATEGY_ZERO1},
    {"zero2", TRII_STRATEGY_ZERO2},
    {"zero3", TRII_STRATEGY_ZERO3},
    {"data_parallel", TRII_STRATEGY_DATA_PARALLEL},
    {"single_device", TRII_STRATEGY_SINGLE},
    {"dp", TRII_STRATEGY_DATA_PARALLEL},
    {"ddp_spawn", TRII_STRATEGY_DDP},
    {"ddp_fork", TRII_STRATEGY_DDP},
    {"ddp_notebook", TRII_STRATEGY_DDP},
    {"ddp_find_unused_parameters_true", TRII_STRATEGY_DDP},
    {"ddp_find_unused_parameters_false", TRII_STRATEGY_DDP},
    {"ddp_spawn_find_unused_parameters_true", TRII_STRATEGY_DDP},
    {"ddp_spawn_find_unused_parameters_false", TRII_STRATEGY_DDP},
    {"ddp_fork_find_unused_parameters_true", TRII_STRATEGY_DDP},
    {"ddp_fork_find_unused_parameters_false", TRII_STRATEGY_DDP},
    {"ddp_notebook_find_unused_parameters_true", TRII_STRATEGY_DDP},
    {"ddp_notebook_find_unused_parameters_false", TRII_STRATEGY_DDP},
    {"fsdp", TRII_STRATEGY_ZERO3},
    {"fully_shard", TRII_STRATEGY_ZERO3},
    {"full_shard", TRII_STRATEGY_ZERO3},
    {"shard_grad_op", TRII_STRATEGY_ZERO2},
    {"no_shard", TRII_STRATEGY_DDP},
    {"deepspeed", TRII_STRATEGY_ZERO2}, /* the stage that Lightning takes without a number */
    {"deepspeed_stage_1", TRII_STRATEGY_ZERO1},
    {"deepspeed_stage_2", TRII_STRATEGY_ZERO2},
    {"deepspeed_stage_3", TRII_STRATEGY_ZERO3},
    /* Parameters and states lie in the host's memory anyway. */
    {"fsdp_cpu_offload", TRII_STRATEGY_ZERO3},
    {"deepspeed_stage_1_offload", TRII_STRATEGY_ZERO1},
    {"deepspeed_stage_2_offload", TRII_STRATEGY_ZERO2},
    {"deepspeed_stage_3_offload", TRII_STRATEGY_ZERO3},
};
#define N_STRATEGIES_LISTED 7

/* What is known and not to be had here, and why. */
static const struct {
    const char *name, *why;
} refused_strategies[] = {
    {"hsdp", "the trainer divides over all ranks: use \"zero3\""},
    {"hybrid_shard", "the trainer divides over all ranks: use \"zero3\""},
    {"_hybrid_shard_zero2", "the trainer divides over all ranks: use \"zero2\""},
    {"deepspeed_stage_3_offload_nvme",
     "nothing is moved to disks: use \"zero3\", which divides the parameters over the ranks"},
};

static const known_name precisions[] = {
    {"32-true", TRII_PRECISION_32},  {"bf16-mixed", TRII_PRECISION_BF16},
    {"16-mixed", TRII_PRECISION_16}, {"64-true", TRII_PRECISION_64},
    {"auto", TRII_PRECISION_AUTO},   {"32", TRII_PRECISION_32},
    {"bf16", TRII_PRECISION_BF16},   {"16", TRII_PRECISION_16},
    {"64", TRII_PRECISION_64},
};
#define N_PRECISIONS_LISTED 5

const char *trii_fit_call_name(trii_fit_call call)
{
    static const char *const names[] = {"tri_fit", "tri_validate", "tri_test", "tri_predict"};

    return names[call];
}

/* "auto", "single", .. and, of a likely slip, what was meant. */
static tri_status refuse(const char *call, const char *option, const char *given,
                         const known_name *names, int n, int n_listed)
{
    const char *all[64], *near;
    char list[TRII_ERR_BYTES / 2] = "";
    size_t used = 0;

    for (int i = 0; i < n; i++)
        all[i] = names[i].name;
    near = trii_name_nearest(given, strlen(given), all, n);
    for (int i = 0; i < n_listed && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s\"%s\"", i > 0 ? ", " : "",
                                 names[i].name);
    if (near != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s \"%.64s\": did you mean \"%s\"? There are %s",
                         call, option, given, near, list);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s \"%.64s\": there are %s", call, option, given,
                     list);
}

static bool is_same(const char *a, const char *b)
{
    while (*a != '\0' && tolower((unsigned char)*a) == tolower((unsigned char)*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

static const known_name *find(const known_name *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (is_same(names[i].name, name))
            return &names[i];
    return NULL;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

tri_status trii_fit_strategy(const char *name, const char *call, trii_strategy *strategy_out)
{
    const int n = (int)TRII_COUNT_OF(strategies);
    const known_name *known;

    name = name != NULL ? name : "auto";
    known = find(strategies, n, name);
    if (known != NULL) {
        *strategy_out = (trii_strategy)known->value;
        return TRI_OK;
    }
    for (size_t i = 0; i < TRII_COUNT_OF(refused_strategies); i++)
        if (is_same(refused_strategies[i].name, name))
            return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s: strategy \"%s\": %s", call, name,
                             refused_strategies[i].why);
    return refuse(call, "strategy", name, strategies, n, N_STRATEGIES_LISTED);
}

const char *trii_fit_strategy_name(trii_strategy strategy)
{
    for (int i = 0; i < N_STRATEGIES_LISTED; i++)
        if (strategies[i].value == (int)strategy)
            return strategies[i].name;
    return "?";
}

tri_status trii_fit_zero_stage(int stage, const char *call, trii_strategy *strategy_out)
{
    if (stage < 0 || stage > 3)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: zero->stage %d: 1 to 3 (0 = 1)", call, stage);
    *strategy_out = (trii_strategy)(TRII_STRATEGY_ZERO1 + (stage > 0 ? stage - 1 : 0));
    return TRI_OK;
}

tri_status trii_fit_precision(const char *name, const char *call, trii_fit_numbers *precision_out)
{
    const int n = (int)TRII_COUNT_OF(precisions);
    const known_name *known;

    name = name != NULL ? name : "32-true";
    known = find(precisions, n, name);
    if (known != NULL) {
        *precision_out = (trii_fit_numbers)known->value;
        return TRI_OK;
    }
    if (strcmp(name, "16-true") == 0 || strcmp(name, "bf16-true") == 0)
        return TRII_FAIL(
            TRI_ERR_UNSUPPORTED,
            "%s: precision \"%s\": weights stay f32 here, since updates below 1/256 of "
            "a weight would be lost in 16 bits: use \"%s\"",
            call, name, begins(name, "bf16") ? "bf16-mixed" : "16-mixed");
    if (begins(name, "transformer-engine"))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: precision \"%.64s\" needs a GPU of NVIDIA's: use \"bf16-mixed\"",
                         call, name);
    return refuse(call, "precision", name, precisions, n, N_PRECISIONS_LISTED);
}

tri_status trii_fit_accelerator(const char *name, const char *call)
{
    static const known_name names[] = {{"auto", 0}, {"cpu", 0}};

    if (name == NULL || find(names, 2, name) != NULL)
        return TRI_OK;
    if (strcmp(name, "cuda") == 0 || strcmp(name, "gpu") == 0 || strcmp(name, "mps") == 0 ||
        strcmp(name, "tpu") == 0)
        return TRII_FAIL(
            TRI_ERR_UNSUPPORTED,
            "%s: accelerator \"%s\": this build has \"cpu\" alone: use \"auto\", which "
            "takes what there is",
            call, name);
    return refuse(call, "accelerator", name, names, 2, 2);
}

tri_status trii_fit_mode(const char *mode, const char *option, bool *max_out)
{
    *max_out = mode != NULL && strcmp(mode, "max") == 0;
    if (mode == NULL || *max_out || strcmp(mode, "min") == 0)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_fit: %s \"%.20s\": is \"min\" or \"max\"", option,
                     mode);
}
