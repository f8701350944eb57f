/*
 * shm_forming_test.c - a rank that goes while ranks of a host form a group: nobody waits for it,
 * nor for another that waits because of it.
 */
#include <trireme/comm.h>

#include "os/thread.h"
#include "testing/check.h"
#include "testing/hooked_store.h"

enum { N = 3, LEAVER = 1 };

typedef struct forming {
    tri_store *store;
    trii_mutex mutex;
    trii_cond changed;
    bool has_left;
} forming;

typedef struct rank {
    forming *all;
    hooked_store view;
    int number;
    tri_status status;
    char why[512];
    trii_thread thread;
} rank;

/* The one that goes has called last, so that it is the first to be answered. It ends when all have
 * said that they are connected, and says why; before that nobody goes on. */
static tri_status before_waiting(void *arg, const char *key)
{
    const char *const gone = "-2 it had none";
    const char *const first = "tri_group/1/1/connected/0";
    const char *const last = "tri_group/1/1/connected/2";
    rank *r = arg;
    forming *f = r->all;
    tri_status status = TRI_OK;

    if (r->number == LEAVER && strstr(key, "/engine/0") != NULL) {
        status = tri_store_wait(f->store, &last, 1, 20000);
    } else if (r->number == LEAVER && strstr(key, "/connected/0") != NULL) {
        status = tri_store_wait(f->store, &first, 1, 20000);
        if (status == TRI_OK)
            status = tri_store_set(f->store, "tri_group/1/1/mapped/end/1", gone, strlen(gone));
        if (status == TRI_OK)
            status = tri_store_set(f->store, "tri_group/1/1/mapped/failed", "", 0);
        status = status == TRI_OK ? TRI_ERR_NO_MEMORY : status;
    } else if (strstr(key, "/connected/0") != NULL) {
        trii_mutex_lock(&f->mutex);
        while (!f->has_left)
            trii_cond_wait(&f->changed, &f->mutex);
        trii_mutex_unlock(&f->mutex);
    }
    return status;
}

static void rank_main(void *arg)
{
    const tri_group_options options = {.engine = "shm", .timeout_ms = 300000};
    rank *r = arg;
    tri_group *group = NULL;

    r->status = tri_group_create(&r->view.base, r->number, N, &options, &group);
    snprintf(r->why, sizeof(r->why), "%s", tri_last_error());
    tri_group_unref(group);
    if (r->number != LEAVER)
        return;
    trii_mutex_lock(&r->all->mutex);
    r->all->has_left = true;
    trii_cond_broadcast(&r->all->changed);
    trii_mutex_unlock(&r->all->mutex);
}

static void a_rank_that_leaves_before_its_answer_is_not_waited_for(void **state)
{
    forming f = {0};
    rank ranks[N];

    (void)state;
    CHECK_OK(tri_store_hash(&f.store));
    trii_mutex_init(&f.mutex);
    trii_cond_init(&f.changed);
    for (int r = 0; r < N; r++) {
        ranks[r] = (rank){.all = &f, .number = r};
        hooked_store_init(&ranks[r].view, f.store, before_waiting, &ranks[r]);
        CHECK_OK(trii_thread_start(&ranks[r].thread, "rank", rank_main, &ranks[r]));
    }
    for (int r = 0; r < N; r++) {
        trii_thread_join(&ranks[r].thread);
        if (ranks[r].status != TRI_ERR_NO_MEMORY ||
            (r != LEAVER && strstr(ranks[r].why, "rank 1: it had none") == NULL))
            fail_msg("rank %d: %s: %s", r, tri_status_name(ranks[r].status), ranks[r].why);
    }
    tri_store_unref(f.store);
    trii_cond_fini(&f.changed);
    trii_mutex_fini(&f.mutex);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_that_leaves_before_its_answer_is_not_waited_for),
};

TEST_MAIN(tests)
