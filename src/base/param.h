/*
 * param.h - every setting from the environment, in one table: `trireme info` prints it.
 *
 * A room that needs a new setting adds a line to the table in param.c, for a number its range, and
 * an enum value here. A value that is not understood is never passed over in silence: the code that
 * reads the setting fails or warns with the line that these functions leave. What launchers say of
 * rank and world is read in one other place, comm/group/join/env.c.
 */
#ifndef TRII_PARAM_H
#define TRII_PARAM_H

#include <trireme/status.h>

typedef enum trii_param {
    TRII_PARAM_AGENT_STORE,  /* TRI_AGENT_STORE */
    TRII_PARAM_BREAK,        /* TRI_BREAK */
    TRII_PARAM_CGROUP,       /* TRI_CGROUP */
    TRII_PARAM_CHAOS,        /* TRI_CHAOS */
    TRII_PARAM_CHECK,        /* TRI_CHECK */
    TRII_PARAM_CHECK_CALLS,  /* TRI_CHECK_CALLS */
    TRII_PARAM_CPU_DEVICES,  /* TRI_CPU_DEVICES */
    TRII_PARAM_EAGER,        /* TRI_EAGER */
    TRII_PARAM_ENGINE,       /* TRI_ENGINE */
    TRII_PARAM_HEARTBEAT_MS, /* TRI_HEARTBEAT_MS */
    TRII_PARAM_HOSTS,        /* TRI_HOSTS */
    TRII_PARAM_INIT,         /* TRI_INIT */
    TRII_PARAM_JOB_KEY_FILE, /* TRI_JOB_KEY_FILE */
    TRII_PARAM_LOG,          /* TRI_LOG */
    TRII_PARAM_NOTE_MS,      /* TRI_NOTE_MS */
    TRII_PARAM_NUM_THREADS,  /* TRI_NUM_THREADS */
    TRII_PARAM_PLUGIN_PATH,  /* TRI_PLUGIN_PATH */
    TRII_PARAM_RPC_THREADS,  /* TRI_RPC_THREADS */
    TRII_PARAM_STOP_GRACE,   /* TRI_STOP_GRACE_MS */
    TRII_PARAM_RUN_DIR,      /* TRI_RUN_DIR */
    TRII_PARAM_SHM_CMA,      /* TRI_SHM_CMA */
    TRII_PARAM_SPIN_US,      /* TRI_SPIN_US */
    TRII_PARAM_TIMEOUT_MS,   /* TRI_TIMEOUT_MS */
    TRII_PARAM_TRACE,        /* TRI_TRACE */
    TRII_PARAM_VISIBLE_DEVICES,
    TRII_PARAM_ISA, /* TRI_ISA */
    TRII_PARAM_OMP_NUM_THREADS,
    TRII_PARAM_LOCAL_WORLD_SIZE,
    TRII_PARAM_COUNT
} trii_param;

typedef struct trii_param_info {
    const char *name;          /* environment variable */
    const char *default_value; /* as text; "" = unset */
    const char *help;
} trii_param_info;

const trii_param_info *trii_param_describe(trii_param param);
/* The environment's text, or NULL if unset or empty. Reads the environment each time. */
const char *trii_param_text(trii_param param);
/* `fallback` if unset. INVALID_ARG names the variable, the value and the range in the table. */
tri_status trii_param_i64(trii_param param, int64_t fallback, int64_t *value_out) TRI_MUST_CHECK;
/* The number of the value among the setting's choices; -1 if it is unset or has none. INVALID_ARG
 * names the variable, the value and the choices. */
tri_status trii_param_choice(trii_param param, int *index_out) TRI_MUST_CHECK;
/* INVALID_ARG if what is set is none of the setting's choices or outside its range; OK for text. */
tri_status trii_param_check(trii_param param) TRI_MUST_CHECK;
tri_status trii_param_check_all(void) TRI_MUST_CHECK; /* the first one that fails */
/* Whether an entry of the environment, "NAME=value", begins with TRI_ and nothing reads it; says
 * so with the name that is most like it. */
#define TRII_PARAM_UNKNOWN 160
bool trii_param_unknown(const char *entry, char text_out[TRII_PARAM_UNKNOWN]);
/* How many letters of the name of n_a letters must be put in, taken out, replaced or swapped with
 * the next one to make it b. Of more than 40 letters: 40, far. */
int trii_name_distance(const char *a, size_t n_a, const char *b);
/* Of names[0 .. n): the one that is most like the name of n_given letters, a likely slip; NULL if
 * none is. */
static inline const char *trii_name_nearest(const char *given, size_t n_given,
                                            const char *const *names, int n)
{
    int best_distance = n_given < 6 ? 2 : n_given < 12 ? 4 : 5;
    const char *best = NULL;

    for (int i = 0; i < n; i++) {
        int d = trii_name_distance(given, n_given, names[i]);

        if (d < best_distance) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}
/* The whole text must be a decimal integer of [min, max]; `what` names it in the message. */
tri_status trii_parse_i64(const char *text, const char *what, int64_t min, int64_t max,
                          int64_t *value_out) TRI_MUST_CHECK;

#endif
