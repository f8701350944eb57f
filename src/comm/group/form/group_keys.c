/*
 * group_keys.c - the keys of a group that was made of another one. A job may make and leave groups
 * as long as it runs; the store shall not grow with it.
 *
 * While a group forms, each rank notes which keys it writes. When it leaves the group it writes
 * their names to left/R and counts itself in `left`, and the last rank deletes what all have named:
 * until then one that is late may still read it. Keys stay where a rank ended without leaving,
 * where the group failed, and where the store does not answer at once or did not a moment ago. What
 * is not noted stays, too: the counts of groups of listed ranks (tri_group_new), and which was
 * given up, once for each list and parent, and what TRI_CHECK=order counts. The file of a file
 * store is a log, which only grows.
 */
/* build: leaf */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "comm/group/group_internal.h"
#include "os/clock.h"

#define ANSWER_MS 1000
#define SILENT_MS 5000 /* no question after one that was not answered */
#define WHAT "keys of a group"

void trii_group_note_keys(tri_group *g)
{
    trii_store_note_keys(g->store, &g->keys);
}

void trii_group_stop_noting(tri_group *g)
{
    trii_store_note_keys(g->store, NULL);
}

/* What all ranks have noted, and what they wrote when they left. */
static tri_status list_all(const tri_group *g, trii_key_list *all)
{
    const char **left = trii_agree_keys("left", g->size);
    trii_store_call *calls = trii_alloc((size_t)g->size, sizeof(*calls), WHAT);
    tri_status status =
        left != NULL && calls != NULL ? trii_key_list_add(all, "left", 4) : TRI_ERR_NO_MEMORY;

    for (int r = 0; r < g->size && status == TRI_OK; r++) {
        calls[r] = (trii_store_call){.kind = TRII_STORE_READ, .key = left[r]};
        status = trii_key_list_add(all, left[r], strlen(left[r]));
    }
    if (status == TRI_OK)
        status = trii_store_calls(g->store, calls, g->size);
    for (int r = 0; r < g->size && status == TRI_OK; r++) {
        const char *name = calls[r].value != NULL ? calls[r].value : "";

        for (size_t n; (n = strcspn(name, "\n")) > 0 && status == TRI_OK;
             name += n + (name[n] == '\n'))
            status = trii_key_list_add(all, name, n);
    }
    if (calls != NULL)
        trii_store_calls_free(calls, g->size);
    trii_free(calls);
    trii_free(left);
    return status;
}

static tri_status delete_all(const tri_group *g)
{
    trii_key_list all = {0};
    trii_store_call *calls = NULL;
    tri_status status = list_all(g, &all);
    const char *name = all.text;

    if (status == TRI_OK) {
        calls = trii_alloc((size_t)all.n, sizeof(*calls), WHAT);
        status = calls != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    for (int64_t i = 0; i < all.n && status == TRI_OK; i++, name += strlen(name) + 1)
        calls[i] = (trii_store_call){.kind = TRII_STORE_DELETE, .key = name};
    if (status == TRI_OK)
        status = trii_store_calls(g->store, calls, (int)all.n);
    trii_free(calls);
    trii_free(all.text);
    return status;
}

void trii_group_delete_keys(tri_group *g)
{
    static _Atomic int64_t silent_until_ns; /* the groups of a job share their store */
    char own[32], line[TRII_ERR_BYTES];
    trii_store_call calls[] = {{.kind = TRII_STORE_SET, .key = own, .text = g->keys.text},
                               {.kind = TRII_STORE_ADD, .key = "left", .number = 1}};
    tri_status status;

    if (g->store == NULL || g->keys.n == 0 || trii_now_ns() < atomic_load(&silent_until_ns))
        return;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    snprintf(own, sizeof(own), "left/%d", g->rank);
    for (size_t i = 0; i + 1 < g->keys.used; i++) /* one text */
        g->keys.text[i] = (char)(g->keys.text[i] == '\0' ? '\n' : g->keys.text[i]);
    trii_store_hurry(g->store, ANSWER_MS);
    status = trii_store_calls(g->store, calls, 2);
    if (status == TRI_OK && calls[1].number == g->size)
        status = delete_all(g);
    if (status == TRI_ERR_TIMEOUT)
        atomic_store(&silent_until_ns, trii_deadline_ms(SILENT_MS));
    if (status != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "group", "%s: its keys stay: %s", g->name, tri_last_error());
    trii_err_set("%s", line);
}
