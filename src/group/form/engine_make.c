/*
 * engine_make.c - makes the engine of a group: the one that the user names, else the first that
 * serves all ranks. Ranks agree on each step through the store, so that all of them take the same
 * turn; what the ranks of a plug-in must have in common they compare here, by one exchange.
 */
/* build: leaf */
#include "group/form/engine_make.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "group/form/choose.h"
#include "group/group_internal.h"
#include "group/plugin.h"
#include "store/exchange.h"

#define PLUGIN_STEP "plugin" /* the step of plug-ins, whatever their names */

/* --- ranks that have chosen different engines ----------------------------- */

/* What rank 0 writes first with each engine. */
static const struct {
    const char *engine, *key, *words;
} firsts[] = {{"shm", "shm/at/0", "engine shm"},
              {"hierarchy", "hierarchy/host/0", "engine hierarchy"},
              {"tcp", "tcp/net/0", "engine tcp"},
              {"", PLUGIN_STEP "/" PLUGIN_STEP "/0", "the engine of a plug-in"}};

enum { N_FIRSTS = TRII_COUNT_OF(firsts), PLUGIN_FIRST = N_FIRSTS - 1, LOOKS_A_CHECK = 4 };

/* args->is_over_arg while the engine is made: asks the caller's is_over, and compares engines. */
typedef struct engine_watch {
    tri_store *store; /* the group's */
    int rank;
    bool (*is_over)(void *arg);
    void *is_over_arg;
    bool tried[N_FIRSTS];
    int own;       /* the one of them that this rank tries; -1 = rank 0 does so too */
    int n_looks;   /* not every one asks the store */
    char line[96]; /* "" = no difference was found */
} engine_watch;

/* If rank 0 has begun with an engine that this rank has not tried, and not with this rank's, each
 * would wait for the other. */
static void compare_engines(engine_watch *w)
{
    trii_store_call calls[N_FIRSTS];
    const char *keys[N_FIRSTS];
    int at[N_FIRSTS], n = 0, other = -1;

    for (int i = 0; i < N_FIRSTS; i++) {
        if (!w->tried[i])
            at[n++] = i;
    }
    at[n++] = w->own; /* read last: it may have come meanwhile */
    for (int i = 0; i < n; i++)
        keys[i] = firsts[at[i]].key;
    if (trii_store_peek(w->store, keys, calls, n) != TRI_OK)
        return;
    for (int i = 0; i + 1 < n; i++) { /* why it refuses the group it writes with each of them */
        if (calls[i].value != NULL && calls[i].value[0] == '0')
            other = at[i];
    }
    if (calls[n - 1].value != NULL)
        w->own = -1;
    else if (other >= 0)
        snprintf(w->line, sizeof(w->line), "rank 0 has %s, rank %d has %s", firsts[other].words,
                 w->rank, firsts[w->own].words);
    trii_store_calls_free(calls, n);
}

static bool watch(void *arg)
{
    engine_watch *w = arg;

    if (w->is_over != NULL && w->is_over(w->is_over_arg))
        return true;
    if (w->rank > 0 && w->own >= 0 && w->line[0] == '\0' && ++w->n_looks % LOOKS_A_CHECK == 0)
        compare_engines(w);
    return w->line[0] != '\0';
}

static void note_attempt(const trii_group_args *args, const char *engine)
{
    engine_watch *w = args->is_over_arg;

    for (w->own = 0; w->own < PLUGIN_FIRST && strcmp(firsts[w->own].engine, engine) != 0;)
        w->own++;
    w->tried[w->own] = true;
}

/* --- attempts ------------------------------------------------------------- */

static bool is_built_in(const trii_engine *engine)
{
    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (*e == engine)
            return true;
    }
    return false;
}

/* One attempt with one engine, under keys of its own. */
static tri_status create_with(const trii_engine *engine, tri_store *store, trii_group_args *args,
                              trii_made_engine *made_out)
{
    tri_status status;

    if (engine->abi != TRII_ENGINE_ABI || engine->size != sizeof(*engine))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "engine %s: built for another version (abi %u)",
                         engine->name, engine->abi);
    args->store = NULL;
    if (store != NULL) {
        status = trii_group_view(engine->name, store, &args->store);
        if (status != TRI_OK)
            return status;
    }
    if (is_built_in(engine) && args->size > 1)
        note_attempt(args, engine->name);
    status = engine->create(args, &made_out->self);
    tri_store_unref(args->store);
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

/* The view in which ranks that name a plug-in agree. */
static tri_status plugin_view(tri_store *store, trii_group_args *args)
{
    return trii_group_view(PLUGIN_STEP, store, &args->store);
}

/* Of a rank that cannot choose as the others do: gives `why`, with the line, in the first step of
 * plug-ins and of each engine that is built in, where the others may wait for it. Returns it; waits
 * for nobody. */
static tri_status refuse(tri_store *store, trii_group_args *args, tri_status why)
{
    trii_refusal refusal = {.status = why};
    const trii_refusal *before = args->refusal;

    if (store == NULL || args->size == 1)
        return why;
    snprintf(refusal.line, sizeof(refusal.line), "%s", tri_last_error());
    args->refusal = before != NULL ? before : &refusal;
    if (plugin_view(store, args) != TRI_OK ||
        trii_group_gather(args, PLUGIN_STEP, why, NULL, NULL) != why)
        TRII_LOG(TRII_LOG_INFO, "group", "%s: %s", args->name, tri_last_error());
    tri_store_unref(args->store);
    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        trii_made_engine none = {0};

        if (strcmp((*e)->name, "self") != 0 && create_with(*e, store, args, &none) == TRI_OK)
            none.engine->destroy(none.self);
    }
    args->refusal = before;
    return TRII_FAIL(why, "%s", refusal.line);
}

/* texts: what each rank says. The first that is not as rank 0's is named on all ranks alike. */
static tri_status compare_texts(const trii_group_args *args, char **texts)
{
    tri_status status = TRI_OK;

    for (int r = 1; r < args->size && status == TRI_OK; r++) {
        if (strcmp(texts[0], texts[r]) != 0)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                               "the ranks want different groups: rank 0 has %s, rank %d has %s",
                               texts[0], r, texts[r]);
    }
    return status;
}

/* That all ranks have the plug-in, and want the same of it. */
static tri_status agree_on_plugin(const char *name, bool checks, tri_store *store,
                                  trii_group_args *args)
{
    char own[TRII_ENGINE_NAME + 64], **texts;
    tri_status status = plugin_view(store, args);

    if (status != TRI_OK)
        return status;
    texts = trii_alloc((size_t)args->size, sizeof(*texts), "ranks that agree");
    snprintf(own, sizeof(own), "engine %s and TRI_CHECK_CALLS=%d", name, checks);
    note_attempt(args, name);
    status = trii_group_gather(args, PLUGIN_STEP, texts != NULL ? TRI_OK : TRI_ERR_NO_MEMORY, own,
                               texts);
    tri_store_unref(args->store);
    if (status == TRI_OK && texts != NULL) {
        status = compare_texts(args, texts);
        for (int r = 0; r < args->size; r++)
            tri_store_free(texts[r]);
    }
    trii_free(texts);
    return status;
}

/* A named engine: built in, or a plug-in, which some rank may lack. That one says so and waits
 * for nobody, since the name may be a mistake of its own; the others learn it. */
static tri_status create_named(const trii_choice *choice, bool checks, tri_store *store,
                               trii_group_args *args, trii_made_engine *made_out)
{
    const trii_engine *engine = NULL;
    tri_status status = trii_engine_find(choice->engine, &engine);

    if (status == TRI_OK)
        status = trii_choice_fits(choice, engine);
    if (status != TRI_OK)
        return refuse(store, args, status);
    if (!is_built_in(engine) && args->size > 1) {
        warn_of_no_proof(engine->name);
        status = agree_on_plugin(choice->engine, checks, store, args);
    }
    if (status != TRI_OK)
        return status;
    status = create_with(engine, store, args, made_out);
    /* "self" and "hierarchy" find that in the options alone, and others may have another engine */
    return status == TRI_ERR_UNSUPPORTED ? refuse(store, args, status) : status;
}

/* The first that serves all ranks. create() agrees between the ranks, so that all of them go on to
 * the next one together. */
static tri_status make_auto(tri_store *store, trii_group_args *args, trii_made_engine *made_out)
{
    tri_status status = TRI_ERR_UNSUPPORTED;
    char tried[TRII_ERR_BYTES / 2] = "";

    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (strcmp((*e)->name, "self") == 0)
            continue;
        if (strcmp((*e)->name, "shm") == 0 && trii_param_text(TRII_PARAM_HOSTS) != NULL)
            continue; /* it would see through the pretence */
        status = create_with(*e, store, args, made_out);
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

    if (engine->on_device && !atomic_exchange(&warned, true))
        TRII_LOG(
            TRII_LOG_WARN, "group",
            "engine %s: TRI_CHECK_CALLS cannot compare its calls, whose buffers are in a GPU's "
            "memory",
            engine->name);
    return !engine->on_device && !is_built_in(engine);
}

tri_status trii_engine_make(const char *text, tri_store *store, trii_group_args *args,
                            trii_made_engine *made_out)
{
    engine_watch w = {.store = store,
                      .rank = args->rank,
                      .is_over = args->is_over,
                      .is_over_arg = args->is_over_arg};
    trii_choice choice = {0};
    int64_t checks = 0;
    tri_status status = trii_choice_parse(text, &choice);

    args->is_over = watch;
    args->is_over_arg = &w;
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
    if (status != TRI_OK && w.line[0] != '\0')
        status =
            refuse(store, args,
                   TRII_FAIL(TRI_ERR_INVALID_ARG, "the ranks want different groups: %s", w.line));
    made_out->checks_calls =
        status == TRI_OK && checks != 0 && args->size > 1 && needs_check(made_out->engine);
    return status;
}
