/*
 * param.c - see param.h.
 */
/* build: leaf */
#include "base/param.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/err.h"

/* The only values of a setting; NULL = any text or number. */
static const char *const *const choices_of[TRII_PARAM_COUNT] = {
    [TRII_PARAM_CHECK] = (const char *const[]){"nan", "order", NULL},
    [TRII_PARAM_ISA] = (const char *const[]){"portable", "avx2", "avx512", NULL},
};

/* The least and the largest value of a number; both 0 = no number. What launchers set is checked
 * where it is read (comm/group/join/env.c), and a list of OpenMP's by libgomp. */
static const struct {
    int64_t min, max;
} ranges[TRII_PARAM_COUNT] = {
    [TRII_PARAM_BREAK] = {0, 1},
    [TRII_PARAM_CGROUP] = {0, 1},
    [TRII_PARAM_CHECK_CALLS] = {0, 1},
    [TRII_PARAM_CPU_DEVICES] = {1, 1000},
    [TRII_PARAM_EAGER] = {0, 1},
    [TRII_PARAM_HEARTBEAT_MS] = {0, INT64_MAX / 1000000000},
    [TRII_PARAM_NOTE_MS] = {1, INT32_MAX},
    [TRII_PARAM_NUM_THREADS] = {1, 1024},
    [TRII_PARAM_RPC_THREADS] = {1, 1024},
    [TRII_PARAM_SHM_CMA] = {0, 2},
    [TRII_PARAM_SPIN_US] = {0, 1000000},
    [TRII_PARAM_STOP_GRACE] = {0, INT64_MAX / 1000000},
    [TRII_PARAM_TIMEOUT_MS] = {-1, INT64_MAX / 1000000},
};

/* What begins with TRI_ and is none of the library's: tests, benchmarks and ./run read them. */
static const char *const foreign_names[] = {
    "TRI_BENCH_", "TRI_BUILD",  "TRI_CHECK_ROOT", "TRI_FUZZ_",    "TRI_HOME",
    "TRI_JOBS",   "TRI_MPIRUN", "TRI_PEER_",      "TRI_SANITIZE", "TRI_TEST_"};

static const trii_param_info params[TRII_PARAM_COUNT] = {
    [TRII_PARAM_AGENT_STORE] = {"TRI_AGENT_STORE", "",
                                "where the launcher serves the workers' store (set by trirun)"},
    [TRII_PARAM_BREAK] = {"TRI_BREAK", "0",
                          "1: SIGTRAP in the operation that fails, for debuggers"},
    [TRII_PARAM_CGROUP] = {"TRI_CGROUP", "1", "0: trirun puts its workers in no control group"},
    [TRII_PARAM_CHAOS] =
        {"TRI_CHAOS", "",
         "faults on purpose: seed=N,delay=P:MS,kill=P,stop=P,drop=P,half=P,rank=N"},
    [TRII_PARAM_CHECK] = {"TRI_CHECK", "",
                          "nan: stop at the first operation that makes a NaN; order: compare which "
                          "recorded operations the ranks start"},
    [TRII_PARAM_CHECK_CALLS] = {"TRI_CHECK_CALLS", "0",
                                "1: the ranks' calls are compared under plug-ins too, before each"},
    [TRII_PARAM_CPU_DEVICES] = {"TRI_CPU_DEVICES", "1",
                                "devices among which the process's threads are shared out"},
    [TRII_PARAM_EAGER] = {"TRI_EAGER", "0", "1: run every operation when it is recorded"},
    [TRII_PARAM_ENGINE] =
        {"TRI_ENGINE", "",
         "engine of the groups: self, shm, hierarchy, tcp, or a plug-in: mpi, mpich, gloo, nccl"},
    [TRII_PARAM_HEARTBEAT_MS] = {"TRI_HEARTBEAT_MS", "21000",
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
                                "OMP_NUM_THREADS, else allowed cores (affinity, quota of "
                                "the control group) / local ranks)"},
    [TRII_PARAM_PLUGIN_PATH] =
        {"TRI_PLUGIN_PATH", "",
         "folders with engines as plug-ins, before those beside the library"},
    [TRII_PARAM_RPC_THREADS] = {"TRI_RPC_THREADS", "",
                                "handlers of calls between workers that run at a time "
                                "(default: TRI_NUM_THREADS, else allowed cores)"},
    [TRII_PARAM_STOP_GRACE] = {"TRI_STOP_GRACE_MS", "", "from SIGTERM to SIGKILL (set by trirun)"},
    [TRII_PARAM_RUN_DIR] = {"TRI_RUN_DIR", "", "folder of the running job (set by trirun)"},
    [TRII_PARAM_SHM_CMA] = {"TRI_SHM_CMA", "1",
                            "0: ranks of a host do not read each other's heap memory; 2: also "
                            "where staging is faster, as where ranks share cores"},
    [TRII_PARAM_SPIN_US] = {"TRI_SPIN_US", "",
                            "how long a waiting rank spins before it sleeps "
                            "(default: adapts to cores per rank)"},
    [TRII_PARAM_TIMEOUT_MS] = {"TRI_TIMEOUT_MS", "600000", "deadline of every wait for peers"},
    [TRII_PARAM_TRACE] = {"TRI_TRACE", "",
                          "file for what ran when (a Chrome trace; trireme plot --timeline)"},
    [TRII_PARAM_VISIBLE_DEVICES] = {"TRI_VISIBLE_DEVICES", "",
                                    "devices that are there, in this order: cpu:2,cpu:0"},
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
    while (end != text && isspace((unsigned char)*end))
        end++;
    if (end == text || *end != '\0' || errno != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s is not an integer", what, text);
    if (value < min || value > max)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s is outside %" PRId64 " to %" PRId64, what,
                         text, min, max);
    *value_out = value;
    return TRI_OK;
}

tri_status trii_param_i64(trii_param param, int64_t fallback, int64_t *value_out)
{
    const int64_t min = ranges[param].min, max = ranges[param].max;
    const char *text = trii_param_text(param), *name = params[param].name;
    const char *unit = strstr(name, "_MS") != NULL ? " (ms)" : strstr(name, "_US") ? " (us)" : "";

    if (text == NULL) {
        *value_out = fallback;
        return TRI_OK;
    }
    if (trii_parse_i64(text, name, min, max, value_out) == TRI_OK)
        return TRI_OK;
    if (max > INT32_MAX)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s must be an integer%s from %" PRId64, name,
                         text, unit, min);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s=%s must be an integer%s from %" PRId64 " to %" PRId64,
                     name, text, unit, min, max);
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

tri_status trii_param_check(trii_param param)
{
    int64_t number;
    int choice;

    return ranges[param].max > 0 ? trii_param_i64(param, 0, &number)
                                 : trii_param_choice(param, &choice);
}

tri_status trii_param_check_all(void)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < TRII_PARAM_COUNT && status == TRI_OK; i++)
        status = trii_param_check((trii_param)i);
    return status;
}

/* --- names that nobody reads ---------------------------------------------- */

int trii_name_distance(const char *a, size_t n_a, const char *b)
{
    enum { LONGEST = 40 };
    int rows[3][LONGEST + 1]; /* of the letters of a: before the last, the last, this one */
    size_t n_b = strlen(b);

    if (n_a > LONGEST || n_b > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= n_b; j++)
        rows[2][j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        memmove(rows[0], rows[1], 2 * sizeof(rows[0]));
        rows[2][0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int best = rows[1][j - 1] + (a[i - 1] != b[j - 1]);

            best = rows[1][j] + 1 < best ? rows[1][j] + 1 : best;
            best = rows[2][j - 1] + 1 < best ? rows[2][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                rows[0][j - 2] + 1 < best)
                best = rows[0][j - 2] + 1;
            rows[2][j] = best;
        }
    }
    return rows[2][n_b];
}

static bool is_ours(const char *entry, size_t length)
{
    bool ours = strncmp(entry, "TRI_", 4) != 0;

    for (size_t i = 0; i < TRII_COUNT_OF(foreign_names); i++)
        ours = ours || strncmp(entry, foreign_names[i], strlen(foreign_names[i])) == 0;
    for (int i = 0; i < TRII_PARAM_COUNT; i++)
        ours = ours ||
               (strlen(params[i].name) == length && memcmp(params[i].name, entry, length) == 0);
    return ours;
}

bool trii_param_unknown(const char *entry, char text_out[TRII_PARAM_UNKNOWN])
{
    size_t length = strcspn(entry, "=");
    int best = 0, best_distance = INT32_MAX;

    if (is_ours(entry, length))
        return false;
    for (int i = 0; i < TRII_PARAM_COUNT; i++) {
        int d = strncmp(params[i].name, "TRI_", 4) == 0
                    ? trii_name_distance(entry, length, params[i].name)
                    : INT32_MAX;

        if (d < best_distance) {
            best = i;
            best_distance = d;
        }
    }
    snprintf(text_out, TRII_PARAM_UNKNOWN,
             "%.*s is not a setting of Trireme (did you mean %s? `trireme info` lists all)",
             (int)(length < 60 ? length : 60), entry, params[best].name);
    return true;
}
