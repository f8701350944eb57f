/*
 * param.c - see param.h.
 */
#include "base/param.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* The only values of a setting; NULL = any text or number. */
static const char *const *const choices_of[TRII_PARAM_COUNT] = {
    [TRII_PARAM_CHECK] = (const char *const[]){"nan", NULL},
    [TRII_PARAM_ISA] = (const char *const[]){"portable", "avx2", "avx512", NULL},
};

static const trii_param_info params[TRII_PARAM_COUNT] = {
    [TRII_PARAM_CHAOS] =
        {"TRI_CHAOS", "",
         "faults on purpose: seed=N,delay=P:MS,kill=P,stop=P,drop=P,half=P,rank=LIST"},
    [TRII_PARAM_CHECK] = {"TRI_CHECK", "", "nan: stop at the first operation that makes a NaN"},
    [TRII_PARAM_EAGER] = {"TRI_EAGER", "0", "1: run every operation when it is recorded"},
    [TRII_PARAM_ENGINE] = {"TRI_ENGINE", "", "engine of every group: self, shm, hierarchy or tcp"},
    [TRII_PARAM_HEARTBEAT_MS] = {"TRI_HEARTBEAT_MS", "1000",
                                 "tcp: how long another host may be silent before it is lost; 0 = "
                                 "for ever"},
    [TRII_PARAM_HOSTS] = {"TRI_HOSTS", "",
                          "pretended hosts of a group's ranks, \"0,0,1,1\": for tests"},
    [TRII_PARAM_INIT] = {"TRI_INIT", "env://", "how tri_init finds the world"},
    [TRII_PARAM_JOB_KEY_FILE] = {"TRI_JOB_KEY_FILE", "",
                                 "file with a secret that every connection of the job must prove"},
    [TRII_PARAM_LOG] = {"TRI_LOG", "warn", "level, or list of component:level"},
    [TRII_PARAM_NOTE_MS] = {"TRI_NOTE_MS", "60000",
                            "how often a rank that still waits for others says for whom"},
    [TRII_PARAM_NUM_THREADS] = {"TRI_NUM_THREADS", "",
                                "threads of one process (default: "
                                "OMP_NUM_THREADS, else allowed cores / local ranks)"},
    [TRII_PARAM_PLUGIN_PATH] =
        {"TRI_PLUGIN_PATH", "",
         "folders with engines as plug-ins, before those beside the library"},
    [TRII_PARAM_RUN_DIR] = {"TRI_RUN_DIR", "", "folder of the running job (set by trirun)"},
    [TRII_PARAM_SHM_CMA] = {"TRI_SHM_CMA", "1",
                            "0: ranks of a host do not read each other's heap memory"},
    [TRII_PARAM_SPIN_US] = {"TRI_SPIN_US", "",
                            "how long a waiting rank spins before it sleeps "
                            "(default: adapts to cores per rank)"},
    [TRII_PARAM_TIMEOUT_MS] = {"TRI_TIMEOUT_MS", "600000", "deadline of every wait for peers"},
    [TRII_PARAM_ISA] = {"TRI_ISA", "", "limit kernels to portable, avx2 or avx512"},
    [TRII_PARAM_OMP_NUM_THREADS] = {"OMP_NUM_THREADS", "",
                                    "threads of one process if TRI_NUM_THREADS is unset"},
    [TRII_PARAM_LOCAL_WORLD_SIZE] = {"LOCAL_WORLD_SIZE", "",
                                     "ranks that share this host's cores (set by launchers)"},
};

const trii_param_info *trii_param_describe(trii_param param)
{
    return &params[param];
}

const char *trii_param_text(trii_param param)
{
    const char *text = getenv(params[param].name);

    return text != NULL && *text != '\0' ? text : NULL;
}

tri_status trii_parse_i64(const char *text, const char *what, int64_t min, int64_t max,
                          int64_t *value_out)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s is no integer", what, text);
    if (value < min || value > max)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s is outside %" PRId64 " to %" PRId64, what,
                         text, min, max);
    *value_out = value;
    return TRI_OK;
}

tri_status trii_param_i64(trii_param param, int64_t fallback, int64_t min, int64_t max,
                          int64_t *value_out)
{
    const char *text = trii_param_text(param);

    if (text == NULL) {
        *value_out = fallback;
        return TRI_OK;
    }
    return trii_parse_i64(text, params[param].name, min, max, value_out);
}

/* "a, b or c" */
static void list_choices(const char *const *choices, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; choices[i] != NULL && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 i == 0                   ? ""
                                 : choices[i + 1] == NULL ? " or "
                                                          : ", ",
                                 choices[i]);
}

tri_status trii_param_choice(trii_param param, int *index_out)
{
    const char *const *choices = choices_of[param];
    const char *text = trii_param_text(param);
    char allowed[200];

    if (text == NULL || choices == NULL) {
        *index_out = -1;
        return TRI_OK;
    }
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(text, choices[i]) == 0) {
            *index_out = i;
            return TRI_OK;
        }
    }
    list_choices(choices, allowed, sizeof(allowed));
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s must be %s", params[param].name, text, allowed);
}
