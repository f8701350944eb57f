/*
 * shm_strangers_test.c - processes of our own user, or of another, that connect to the sockets of a
 * group while it forms: they are closed, and the group forms.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "conformance/calls.h"

#include "base/alloc.h"
#include "os/clock.h"
#include "os/unix.h"

enum { STRANGERS = 90 };

static const tri_group_options shm_options = {.engine = "shm", .timeout_ms = 20000};

/* The socket that a rank has published under the key; false: none. */
static bool find_socket(tri_store *store, const char *key, char name_out[TRII_UNIX_NAME])
{
    char *value = NULL;
    size_t bytes = 0;
    bool found = tri_store_get(store, key, 0, (void **)&value, &bytes) == TRI_OK;
    const char *name = found ? strstr(value, " trireme-") : NULL;

    found = name != NULL && sscanf(name, "%63s", name_out) == 1;
    tri_store_free(value);
    return found;
}

/* Each of the lower ranks is called by many that are no ranks: silent ones, ones that talk, ones
 * that leave. They are all there before the last rank comes. */
static const char *call_all(rank_env *env, int *fds)
{
    int64_t deadline = trii_deadline_ms(20000);
    int n = 0;

    for (int found = 0; found < env->size - 1;) {
        char **keys = NULL, name[TRII_UNIX_NAME];
        int64_t n_keys = 0;

        found = 0;
        RANK_TRY(env, tri_store_list_keys(env->store, &keys, &n_keys));
        for (int64_t i = 0; i < n_keys; i++)
            found += find_socket(env->store, keys[i], name);
        for (int64_t i = 0; i < n_keys && found == env->size - 1; i++) {
            if (!find_socket(env->store, keys[i], name))
                continue;
            for (int k = 0; k < STRANGERS; k++, n++) {
                RANK_TRY(env, trii_unix_connect(name, deadline, &fds[n]));
                if (k % 3 == 1)
                    RANK_TRY(env,
                             trii_unix_send(fds[n], "I am no rank, I just talk", 25, -1, deadline));
                else if (k % 3 == 2)
                    trii_unix_close(fds[n]);
                if (k % 3 == 2)
                    fds[n] = -1;
            }
        }
        tri_store_free(keys);
        if (trii_now_ns() > deadline)
            return RANK_FAIL(env, "no sockets");
    }
    return NULL;
}

static const char *forms(rank_env *env)
{
    static int fds[8 * STRANGERS];
    tri_group *group = NULL;
    const char *failure = NULL;
    float x = 1;

    if (env->rank == env->size - 1) {
        failure = call_all(env, fds);
        if (failure != NULL)
            return failure;
    }
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_all_reduce(group, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    if (x != (float)env->size)
        return RANK_FAIL(env, "the sum is %g", (double)x);
    tri_group_unref(group);
    for (int i = 0; env->rank == env->size - 1 && i < (env->size - 1) * STRANGERS; i++)
        trii_unix_close(fds[i]);
    return NULL;
}

static void strangers_do_not_keep_a_group_from_forming(void **state)
{
    (void)state;
    run_threads(2, &shm_options, forms, NULL);
    run_threads(4, &shm_options, forms, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

/* As root the test is somebody else while it calls; another user cannot be, and calls as itself. */
static void accepting_looks_at_the_deadline(void **state)
{
    enum { CALLS = 20 };
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[TRII_UNIX_NAME], byte;
    int listener, got = -1, fds[CALLS], closed = 0;
    bool other = geteuid() == 0;
    tri_status st;

    (void)state;
    CHECK_OK(trii_unix_listen(&listener, name));
    if (other)
        assert_int_equal(seteuid(65534), 0);
    memcpy(address.sun_path + 1, name, strlen(name));
    for (int i = 0; i < CALLS; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(
            connect(fds[i], (const struct sockaddr *)&address,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))),
            0);
    }
    if (other)
        assert_int_equal(seteuid(0), 0);
    st = trii_unix_accept(listener, 0, &got);
    assert_int_equal(st, other ? TRI_ERR_TIMEOUT : TRI_OK);
    for (int i = 0; i < CALLS; i++) {
        closed += trii_unix_peek(fds[i], &byte, 1) < 0;
        trii_unix_close(fds[i]);
    }
    assert_int_equal(closed, other ? 1 : 0);
    trii_unix_close(got);
    trii_unix_close(listener);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(strangers_do_not_keep_a_group_from_forming),
    cmocka_unit_test(accepting_looks_at_the_deadline),
};

TEST_MAIN(tests)
