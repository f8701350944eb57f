/*
 * served_table.c - all that this process serves, so that a request for an object of another kind is
 * refused, and how long each of it lives.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/parallel/rpc/served_run.h"

static trii_mutex table_lock = TRII_MUTEX_INITIALIZER;
static trii_served *table;

/* --- references ----------------------------------------------------------- */

void trii_served_free(trii_served *s)
{
    trii_mutex_lock(&s->lock); /* its thread may be about to unlock it, see end_service */
    trii_mutex_unlock(&s->lock);
    trii_mutex_fini(&s->lock);
    trii_cond_fini(&s->work);
    trii_cond_fini(&s->ended);
    trii_free(s);
}

void trii_served_unref(trii_served *s)
{
    if (atomic_fetch_sub(&s->refs, 1) == 1)
        trii_served_free(s);
}

trii_served *trii_served_ref(trii_served *s)
{
    atomic_fetch_add(&s->refs, 1);
    return s;
}

void trii_served_leave(trii_served *s)
{
    trii_served **at = &table;

    trii_mutex_lock(&table_lock);
    while (*at != NULL && *at != s)
        at = &(*at)->next;
    if (*at != NULL)
        *at = s->next;
    trii_mutex_unlock(&table_lock);
}

trii_served *trii_served_find(const void *object)
{
    trii_served *s;

    trii_mutex_lock(&table_lock);
    s = table;
    while (s != NULL && s != object)
        s = s->next;
    if (s != NULL)
        trii_served_ref(s);
    trii_mutex_unlock(&table_lock);
    return s;
}

trii_served *trii_served_named(const tri_rpc *rpc, const char *name)
{
    trii_served *s;

    trii_mutex_lock(&table_lock);
    s = table;
    while (s != NULL && (s->rpc != rpc || strcmp(s->name, name) != 0))
        s = s->next;
    if (s != NULL)
        trii_served_ref(s);
    trii_mutex_unlock(&table_lock);
    return s;
}

/* Locked. */
static bool has_session(const trii_served *s, const void *object)
{
    const trii_session *session = s->sessions;

    while (session != NULL && session != object)
        session = session->next;
    return session != NULL;
}

trii_served *trii_served_of_session(const void *object)
{
    trii_served *s;
    bool found = false;

    trii_mutex_lock(&table_lock);
    for (s = table; s != NULL; s = s->next) {
        trii_mutex_lock(&s->lock);
        found = has_session(s, object);
        trii_mutex_unlock(&s->lock);
        if (found)
            break;
    }
    if (s != NULL)
        trii_served_ref(s);
    trii_mutex_unlock(&table_lock);
    return s;
}

/* Locked. */
static tri_status check_free(const trii_served *s, const char *call)
{
    for (const trii_served *other = table; other != NULL; other = other->next) {
        if (s->module != NULL && other->module == s->module)
            return TRII_FAIL(TRI_ERR_STATE, "%s: the module is served already, as %s", call,
                             other->name);
        if (s->optimizer != NULL && other->optimizer == s->optimizer)
            return TRII_FAIL(TRI_ERR_STATE, "%s: the optimizer is that of %s already", call,
                             other->name);
    }
    return TRI_OK;
}

tri_status trii_served_start(trii_served *s, const char *call, void (*run)(void *served))
{
    tri_status status;

    trii_mutex_lock(&table_lock);
    status = check_free(s, call);
    if (status == TRI_OK) {
        trii_served_ref(s);
        status = trii_thread_start(&s->thread, "tri-remote", run, s);
        if (status == TRI_OK) {
            s->next = table;
            table = s;
        } else {
            trii_served_unref(s);
        }
    }
    trii_mutex_unlock(&table_lock);
    return status;
}
