/*
 * engine_make.c - makes the engine of a group: the one that the user names, else the first that
 * serves all ranks. Ranks agree on each step through the store, so that all of them take the same
 * turn. The first step of an attempt is the same for all engines (trii_group_begin), so that ranks
 * that have chosen different ones find that.
 */
/* build: leaf */
#include "comm/group/form/engine_make.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "comm/group/form/choose.h"
#include "comm/group/group_internal.h"
#include "comm/group/plugin.h"

/* --- attempts ------------------------------------------------------------- */

static bool is_built_in(const trii_engine *engine)
{
    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (*e == engine)
            return true;
    }
    return false;
}

/* The keys of the n-th engine that the ranks try: whichever it is, they meet there. */
static tri_status open_attempt(tri_store *store, int n, trii_group_args *args)
{
    char key[16];

    args->store = NULL;
    if (store == NULL)
        return TRI_OK;
    snprintf(key, sizeof(key), "%d", n);
    return trii_group_view(key, store, &args->store);
}

static tri_status create_with(const trii_engine *engine, trii_group_args *args,
                              trii_made_engine *made_out)
{
    tri_status status = engine->create(args, &made_out->self);

    if (status == TRI_OK)
        made_out->engine = engine;
    return status;
}

/* Once: a plug-in's library makes its connections itself. */
static void warn_of_no_proof(const char *name)
{
    static atomic_bool warned;

    if (trii_param_text(TRII_PARAM_JOB_KEY_FILE) != NULL && !atomic_exchange(&warned, true))
        TRII_LOG(TRII_LOG_WARN, "group",
                 "engine %s: its connections do not prove the key of TRI_JOB_KEY_FILE, only the "
                 "store's do",
                 name);
}

/* Of a rank that cannot choose as the others do: gives `why`, with the line, where they begin each
 * attempt that there may be. Returns it; waits for nobody. */
static tri_status refuse(tri_store *store, trii_group_args *args, tri_status why)
{
    char line[TRII_ERR_BYTES];

    if (store == NULL || args->size == 1)
        return why;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    for (int n = 1; trii_engines()[n - 1] != NULL; n++) {
        if (open_attempt(store, n, args) != TRI_OK || trii_agree_refuse(args, why, line) != TRI_OK)
            TRII_LOG(TRII_LOG_INFO, "group", "%s: %s", args->name, tri_last_error());
        tri_store_unref(args->store);
    }
    return TRII_FAIL(why, "%s", line);
}

/* That all ranks have the plug-in, and want the same of it. */
static tri_status begin_plugin(const char *name, bool checks, const trii_group_args *args)
{
    char what[TRII_ENGINE_NAME + 64];
    char **texts = trii_alloc((size_t)args->size, sizeof(*texts), "ranks that agree");
    tri_status status = texts != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    snprintf(what, sizeof(what), "engine %s and TRI_CHECK_CALLS=%d", name, checks);
    status = trii_group_begin(args, &(trii_engine_id){.what = what}, status, "", texts);
    for (int r = 0; r < args->size && status == TRI_OK && texts != NULL; r++)
        tri_store_free(texts[r]);
    trii_free(texts);
    return status;
}

static tri_status find_named(const trii_choice *choice, const trii_engine **engine_out)
{
    tri_status status = trii_engine_find(choice->engine, engine_out);

    return status == TRI_OK ? trii_choice_fits(choice, *engine_out) : status;
}

/* A named engine: built in, or a plug-in, which some rank may lack. That one says so and waits
 * for nobody, since the name may be a mistake of its own; the others learn it. */
static tri_status create_named(const trii_choice *choice, bool checks, tri_store *store,
                               trii_group_args *args, trii_made_engine *made_out)
{
    const trii_engine *engine = NULL;
    tri_status status = find_named(choice, &engine);
    bool agreed;

    if (status != TRI_OK)
        return refuse(store, args, status);
    status = open_attempt(store, 1, args);
    if (status != TRI_OK)
        return status;
    if (!is_built_in(engine) && args->size > 1) {
        warn_of_no_proof(engine->name);
        status = begin_plugin(choice->engine, checks, args);
    }
    agreed = status == TRI_OK;
    if (status == TRI_OK)
        status = create_with(engine, args, made_out);
    tri_store_unref(args->store);
    /* "self" and "hierarchy" find that in the options alone, and others may have another engine */
    return agreed && status == TRI_ERR_UNSUPPORTED ? refuse(store, args, status) : status;
}

/* The first that serves all ranks. create() agrees between the ranks, so that all of them go on to
 * the next one together. */
static tri_status make_auto(tri_store *store, trii_group_args *args, trii_made_engine *made_out)
{
    tri_status status = TRI_ERR_UNSUPPORTED;
    char tried[TRII_ERR_BYTES / 2] = "";
    int n = 0;

    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (strcmp((*e)->name, "self") == 0)
            continue;
        if (strcmp((*e)->name, "shm") == 0 && trii_param_text(TRII_PARAM_HOSTS) != NULL)
            continue; /* it would see through the pretence */
        if (strcmp((*e)->name, "hierarchy") == 0 && args->size < 3)
            continue; /* it would meet nobody, and the attempts of the ranks must be the same */
        status = open_attempt(store, ++n, args);
        if (status == TRI_OK)
            status = create_with(*e, args, made_out);
        tri_store_unref(args->store);
        if (status != TRI_ERR_UNSUPPORTED)
            return status;
        TRII_LOG(TRII_LOG_INFO, "group", "%s: not %s: %s", args->name, (*e)->name,
                 tri_last_error());
        snprintf(tried + strlen(tried), sizeof(tried) - strlen(tried), "%s%s: %s",
                 tried[0] != '\0' ? "; " : "", (*e)->name, tri_last_error());
    }
    return TRII_FAIL(status, "no engine serves all %d ranks: %s", args->size, tried);
}

/* Whether the group compares the calls of this engine for it. Those of this library do it
 * themselves, at no cost. */
static bool needs_check(const trii_engine *engine)
{
    static atomic_bool warned;

    if (engine->device != NULL && !atomic_exchange(&warned, true))
        TRII_LOG(
            TRII_LOG_WARN, "group",
            "engine %s: TRI_CHECK_CALLS cannot compare its calls, whose buffers are in a GPU's "
            "memory",
            engine->name);
    return engine->device == NULL && !is_built_in(engine);
}

tri_status trii_engine_make(const char *text, tri_status mine, tri_store *store,
                            trii_group_args *args, trii_made_engine *made_out)
{
    trii_choice choice = {0};
    int64_t checks = 0;
    tri_status status = mine == TRI_OK ? trii_choice_parse(text, &choice) : mine;

    if (status == TRI_OK)
        status = trii_param_i64(TRII_PARAM_CHECK_CALLS, 0, &checks);
    if (status == TRI_OK && choice.engine[0] == '\0' && args->size == 1)
        snprintf(choice.engine, sizeof(choice.engine), "self");
    if (status != TRI_OK)
        status = refuse(store, args, status);
    else if (choice.engine[0] == '\0')
        status = make_auto(store, args, made_out);
    else
        status = create_named(&choice, checks != 0, store, args, made_out);
    made_out->checks_calls =
        status == TRI_OK && checks != 0 && args->size > 1 && needs_check(made_out->engine);
    return status;
}
