/*
 * engine_make.c - makes the engine of a group: the one that the user names, else the first that
 * serves all ranks; several by rules become one (src/composites/routed.c), and one that does not
 * compare calls gets another beside it that does (checked.c). Ranks agree on each step through the
 * store, so that all of them take the same turn.
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

#define ROUTED_STEP "room" /* the first one of routed */

/* One attempt with one engine, under keys of its own. */
static tri_status create_with(const trii_engine *engine, tri_store *store, trii_group_args *args,
                              trii_child *child_out)
{
    tri_status st;

    if (engine->abi != TRII_ENGINE_ABI || engine->size != sizeof(*engine))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "engine %s: built for another version (abi %u)",
                         engine->name, engine->abi);
    args->store = NULL;
    if (store != NULL) {
        st = trii_group_view(engine->name, store, &args->store);
        if (st != TRI_OK)
            return st;
    }
    st = engine->create(args, &child_out->self);
    tri_store_unref(args->store);
    if (st == TRI_OK)
        child_out->engine = engine;
    return st;
}

static bool is_built_in(const trii_engine *engine)
{
    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (*e == engine)
            return true;
    }
    return false;
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

/* Of a rank that cannot choose as the others do: gives `why`, with the line, in the first step of
 * routed and of each engine that is built in, where the others may wait for it. Returns it; waits
 * for nobody. */
static tri_status refuse(tri_store *store, trii_group_args *args, tri_status why)
{
    trii_refusal refusal = {.status = why};
    const trii_refusal *before = args->refusal;

    if (store == NULL || args->size == 1)
        return why;
    snprintf(refusal.line, sizeof(refusal.line), "%s", tri_last_error());
    args->refusal = before != NULL ? before : &refusal;
    args->store = store;
    if (trii_agree_report(args, ROUTED_STEP, why) != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "group", "%s: %s", args->name, tri_last_error());
    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        trii_child none = {0};

        if (strcmp((*e)->name, "self") != 0 && create_with(*e, store, args, &none) == TRI_OK)
            none.engine->destroy(none.self);
    }
    args->refusal = before;
    return TRII_FAIL(why, "%s", refusal.line);
}

/* A named engine: built in, or a plug-in, which some rank may lack. That one says so and waits
 * for nobody, since the name may be a mistake of its own; the others learn it. */
static tri_status create_named(const char *name, tri_store *store, trii_group_args *args,
                               trii_child *child_out)
{
    const trii_engine *engine = NULL;
    tri_store *own = NULL;
    tri_status st = trii_engine_find(name, &engine);

    if (st == TRI_OK && is_built_in(engine))
        return create_with(engine, store, args, child_out);
    if (st == TRI_OK && args->size > 1)
        warn_of_no_proof(name);
    if (store != NULL && args->size > 1) {
        char why[TRII_ERR_BYTES];
        tri_status said;

        snprintf(why, sizeof(why), "%s", st != TRI_OK ? tri_last_error() : "");
        said = trii_group_view("plugin", store, &own);
        args->store = own;
        if (said == TRI_OK && st != TRI_OK)
            said = trii_agree_report(args, name, st);
        else if (said == TRI_OK)
            said = trii_group_agree(args, name, st);
        tri_store_unref(own);
        if (st == TRI_OK)
            st = said;
        else
            trii_err_set("%s", why);
    }
    if (engine == NULL)
        return refuse(store, args, st);
    return st == TRI_OK ? create_with(engine, store, args, child_out) : st;
}

/* The first that serves all ranks. create() agrees between the ranks, so that all of them go on to
 * the next one together. */
static tri_status make_auto(tri_store *store, trii_group_args *args, trii_child *child_out)
{
    tri_status st = TRI_ERR_UNSUPPORTED;
    char tried[TRII_ERR_BYTES / 2] = "";

    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (strcmp((*e)->name, "self") == 0)
            continue;
        if (strcmp((*e)->name, "shm") == 0 && trii_param_text(TRII_PARAM_HOSTS) != NULL)
            continue; /* it would see through the pretence */
        st = create_with(*e, store, args, child_out);
        if (st != TRI_ERR_UNSUPPORTED)
            return st;
        TRII_LOG(TRII_LOG_INFO, "group", "%s: not %s: %s", args->name, (*e)->name,
                 tri_last_error());
        snprintf(tried + strlen(tried), sizeof(tried) - strlen(tried), "%s%s: %s",
                 tried[0] != '\0' ? "; " : "", (*e)->name, tri_last_error());
    }
    return TRII_FAIL(st, "no engine serves all %d ranks: %s", args->size, tried);
}

/* Whether TRI_CHECK_CALLS asks for calls of this engine to be compared. Only engines that were
 * asked for by name: those of this library compare by themselves. */
static tri_status wants_comparing(const trii_engine *engine, int size, bool *wants_out)
{
    int choice = 0; /* "0", "1", "all" */
    tri_status st = trii_param_choice(TRII_PARAM_CHECK_CALLS, &choice);

    *wants_out = size > 1 && (choice == 2 || (choice == 1 && !is_built_in(engine)));
    return st;
}

/* On failure the engine is as it was. */
static tri_status make_checked(tri_store *store, trii_group_args *args, trii_child *engine_inout)
{
    const trii_composites *composites = trii_composites_get();
    void *checked = composites->checked_alloc();
    tri_store *own = NULL;
    trii_child guard = {0};
    tri_status st = checked != NULL ? tri_store_prefix("guard", store, &own) : TRI_ERR_NO_MEMORY;

    args->store = store;
    st = trii_group_agree(args, "comparing", st);
    if (st == TRI_OK)
        st = make_auto(own, args, &guard);
    tri_store_unref(own);
    if (st == TRI_OK && checked != NULL)
        composites->checked_init(checked, args, *engine_inout, guard, engine_inout);
    else
        trii_free(checked);
    return st;
}

/* name: NULL = the best that serves all ranks. */
static tri_status make_one(const char *name, tri_store *store, trii_group_args *args,
                           trii_child *child_out)
{
    bool wants = false;
    tri_status st;

    if (name == NULL && args->size == 1)
        name = "self";
    if (name == NULL)
        return make_auto(store, args, child_out);
    st = create_named(name, store, args, child_out);
    if (st != TRI_OK)
        return st;
    st = wants_comparing(child_out->engine, args->size, &wants);
    if (st == TRI_OK && wants)
        st = make_checked(store, args, child_out);
    if (st != TRI_OK)
        child_out->engine->destroy(child_out->self);
    return st;
}

/* --- several by rules ----------------------------------------------------- */

typedef struct routes {
    trii_child children[1 + TRII_RULES]; /* the group's own one first */
    int n_children;
    int of_rule[TRII_RULES];
} routes;

/* All ranks must have the same rules: else their calls would go different ways. */
static tri_status compare_texts(const char *text, const trii_group_args *args)
{
    char *first = NULL;
    tri_status st = TRI_OK;

    if (args->rank == 0)
        st = tri_store_set(args->store, "rules", text, strlen(text));
    else
        st = tri_store_get(args->store, "rules", trii_group_left_ms(args), (void **)&first, NULL);
    if (st == TRI_OK && first != NULL && strcmp(first, text) != 0)
        st = TRII_FAIL(TRI_ERR_INVALID_ARG,
                       "engine (tri_group_options or TRI_ENGINE): rank 0 says \"%s\", rank %d says "
                       "\"%s\"",
                       first, args->rank, text);
    tri_store_free(first);
    return trii_group_agree(args, "same rules", st);
}

/* The engine of this name, made if it is the first of it; "" = auto. */
static tri_status route_to(routes *r, const trii_choice *choice, const char *name, tri_store *store,
                           trii_group_args *args, int *child_out)
{
    trii_child *c = &r->children[r->n_children];
    tri_store *own = NULL;
    char key[16];
    tri_status st;

    for (int i = 0; i < r->n_children && *name != '\0'; i++) {
        if (strcmp(r->children[i].engine->name, name) == 0) {
            *child_out = i;
            return TRI_OK;
        }
    }
    if (*name == '\0' && r->n_children > 0) { /* auto, as the group's own */
        *child_out = 0;
        return choice->engine[0] == '\0'
                   ? TRI_OK
                   : TRII_FAIL(TRI_ERR_INVALID_ARG,
                               "engine (tri_group_options or TRI_ENGINE): a rule cannot mean auto "
                               "where the group's engine is named");
    }
    snprintf(key, sizeof(key), "mixed/%d", r->n_children);
    st = trii_group_view(key, store, &own);
    if (st != TRI_OK)
        return st;
    st = make_one(*name != '\0' ? name : NULL, own, args, c);
    tri_store_unref(own);
    if (st == TRI_OK && c->engine->on_device) {
        st = TRII_FAIL(TRI_ERR_UNSUPPORTED,
                       "engine %s: what is in a device's memory needs a group of its own",
                       c->engine->name);
        c->engine->destroy(c->self);
    }
    if (st == TRI_OK)
        *child_out = r->n_children++;
    return st;
}

static tri_status make_routed(const trii_choice *choice, const char *text, tri_store *store,
                              trii_group_args *args, trii_child *routed_out)
{
    const trii_composites *composites = trii_composites_get();
    void *routed = composites->routed_alloc();
    routes r = {.n_children = 0};
    tri_status st;
    int own = 0;

    args->store = store;
    st = trii_group_agree(args, ROUTED_STEP, routed != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
    if (st == TRI_OK)
        st = compare_texts(text, args);
    if (st == TRI_OK)
        st = route_to(&r, choice, choice->engine, store, args, &own);
    for (int i = 0; i < choice->n_rules && st == TRI_OK; i++)
        st = route_to(&r, choice, choice->rules[i].engine, store, args, &r.of_rule[i]);
    if (st == TRI_OK && routed != NULL) {
        composites->routed_init(routed, args, choice, r.of_rule, r.children, r.n_children,
                                routed_out);
        return TRI_OK;
    }
    for (int i = r.n_children - 1; i >= 0; i--)
        r.children[i].engine->destroy(r.children[i].self);
    trii_free(routed);
    return st;
}

tri_status trii_engine_make(const char *text, tri_store *store, trii_group_args *args,
                            trii_child *engine_out)
{
    trii_choice choice = {0};
    tri_status st = trii_choice_parse(text, args->name, &choice);

    if (st != TRI_OK)
        return refuse(store, args, st);
    if (choice.n_rules > 0 && args->size > 1)
        return make_routed(&choice, text, store, args, engine_out);
    return make_one(choice.engine[0] != '\0' ? choice.engine : NULL, store, args, engine_out);
}
