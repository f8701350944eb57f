/*
 * ranks.h - several ranks in one test: as threads of this process over an in-process store,
 * or as forked processes over a TCP store. Tests only.
 *
 * A rank's function returns NULL or says what went wrong; nothing is asserted on its thread.
 */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <trireme/comm.h>

#include "os/thread.h"
#include "testing/test_fork.h"

#define RANKS_MAX 16
#define RANKS_TEXT 1024

typedef struct rank_env {
    int rank;
    int size;
    tri_store *store;
    const tri_group_options *options;
    void *arg;
    char text[RANKS_TEXT]; /* room for what went wrong */
    const char *(*main)(struct rank_env *env);
    const char *failure;
} rank_env;

/* Gives up the rank's function with a line. */
#define RANK_FAIL(env, ...) (snprintf((env)->text, RANKS_TEXT, __VA_ARGS__), (env)->text)
#define RANK_TRY(env, call)                                                                        \
    do {                                                                                           \
        tri_status rank_status_ = (call);                                                          \
        if (rank_status_ != TRI_OK)                                                                \
            return RANK_FAIL(env, "rank %d, line %d: %s: %s: %s", (env)->rank, __LINE__, #call,    \
                             tri_status_name(rank_status_), tri_last_error());                     \
    } while (0)
/* The call must fail with this status and a line that contains the text. */
#define RANK_FAILS(env, call, status, part)                                                        \
    do {                                                                                           \
        tri_status rank_status_ = (call);                                                          \
        if (rank_status_ != (status) || strstr(tri_last_error(), part) == NULL)                    \
            return RANK_FAIL(env, "rank %d, line %d: %s: %s instead of %s with \"%s\": %s",        \
                             (env)->rank, __LINE__, #call, tri_status_name(rank_status_),          \
                             tri_status_name(status), part, tri_last_error());                     \
    } while (0)

/* Returns when all ranks but `gone` (-1 = all come) are at this point, which `where` names in at
 * most eight characters; over the store, so that the group is not touched. A rank that dies, leaves
 * or aborts at once ends calls of others that it has ended itself: what must be whole for all meets
 * here first. */
static inline tri_status ranks_meet(rank_env *env, const char *where, int gone)
{
    char text[RANKS_MAX][32];
    const char *keys[RANKS_MAX];
    int n = 0;

    for (int r = 0; r < env->size; r++) {
        snprintf(text[r], sizeof(text[r]), "met/%.8s/%d", where, r);
        if (r != gone)
            keys[n++] = text[r];
    }
    if (env->rank != gone && tri_store_set(env->store, text[env->rank], "", 0) != TRI_OK)
        return TRI_ERR_IO;
    return tri_store_wait(env->store, keys, n, 20000);
}

static inline void rank_thread(void *arg)
{
    rank_env *env = arg;

    env->failure = env->main(env);
}

/* Runs `main` as `size` threads over one in-process store. False: `failure` is the first one. */
static inline bool ranks_run(int size, const tri_group_options *options,
                             const char *(*main)(rank_env *env), void *arg,
                             char failure[RANKS_TEXT])
{
    rank_env *envs = calloc(RANKS_MAX, sizeof(*envs));
    trii_thread threads[RANKS_MAX];
    tri_store *store = NULL;
    int n = 0;

    failure[0] = '\0';
    if (envs == NULL || tri_store_hash(&store) != TRI_OK)
        snprintf(failure, RANKS_TEXT, "no store: %s", tri_last_error());
    for (; failure[0] == '\0' && n < size; n++) {
        envs[n] = (rank_env){
            .rank = n, .size = size, .store = store, .options = options, .arg = arg, .main = main};
        if (trii_thread_start(&threads[n], "rank", rank_thread, &envs[n]) != TRI_OK) {
            snprintf(failure, RANKS_TEXT, "no thread for rank %d: %s", n, tri_last_error());
            break;
        }
    }
    for (int r = 0; r < n; r++) {
        trii_thread_join(&threads[r]);
        if (envs[r].failure != NULL && failure[0] == '\0')
            snprintf(failure, RANKS_TEXT, "%s", envs[r].failure);
    }
    tri_store_unref(store);
    free(envs);
    return failure[0] == '\0';
}

/* The same; fails the test with the first failure. */
static inline void run_threads(int size, const tri_group_options *options,
                               const char *(*main)(rank_env *env), void *arg)
{
    char failure[RANKS_TEXT];

    if (!ranks_run(size, options, main, arg, failure))
        fail_msg("%s", failure);
}

/* How run_processes judges the end of a rank. */
typedef struct rank_end {
    int exit_code; /* expected; 0 = the function returned NULL */
    int signal;    /* expected, or 0 */
} rank_end;

/* Runs `main` as `size` forked processes over a TCP store that this process serves; the caller
 * has no threads. Each rank has `ends[r]` (NULL = all end well) to come to. A watchdog kills
 * all after seconds. */
static inline void run_processes(int size, const tri_group_options *options,
                                 const char *(*main)(rank_env *env), void *arg,
                                 const rank_end *ends, unsigned seconds)
{
    tri_store *store = NULL;
    pid_t pids[RANKS_MAX];
    int tell[2];
    bool bad = false;

    /* Children wait for the port: the server's thread must not exist when they are forked. */
    assert_int_equal(pipe(tell), 0);
    fflush(NULL);
    for (int r = 0; r < size; r++) {
        pids[r] = test_fork();
        if (pids[r] == 0) {
            rank_env env = {.rank = r, .size = size, .options = options, .arg = arg};
            const char *failure = "no port";
            int port;

            alarm(TEST_SANITIZED ? 5 * seconds : seconds); /* as for cases: TriremeTests.cmake */
            close(tell[1]);
            if (read(tell[0], &port, sizeof(port)) == (ssize_t)sizeof(port)) {
                close(tell[0]);
                failure = tri_store_tcp("127.0.0.1", port, NULL, &env.store) == TRI_OK
                              ? main(&env)
                              : tri_last_error();
                tri_store_unref(env.store);
            }
            if (failure != NULL)
                fprintf(stderr, "%s\n", failure);
            fflush(NULL);
            _exit(failure != NULL);
        }
    }
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &(tri_store_tcp_options){.serve = true}, &store));
    for (int r = 0; r < size; r++) {
        int port = tri_store_port(store);

        assert_int_equal(write(tell[1], &port, sizeof(port)), sizeof(port));
    }
    close(tell[0]);
    close(tell[1]);
    for (int r = 0; r < size; r++) {
        int status = 0;
        rank_end end = ends != NULL ? ends[r] : (rank_end){0};

        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        if (end.signal != 0 ? !WIFSIGNALED(status) || WTERMSIG(status) != end.signal
                            : !WIFEXITED(status) || WEXITSTATUS(status) != end.exit_code) {
            fprintf(stderr, "rank %d ended with status %#x\n", r, (unsigned)status);
            bad = true;
        }
    }
    tri_store_unref(store);
    assert_false(bad);
}

#endif
