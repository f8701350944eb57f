/*
 * choose.c - see choose.h: reading what the user says, and making one engine.
 */
/* build: leaf */
#include "group/form/choose.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "group/group_internal.h"
#include "group/plugin.h"

/* --- reading --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t kinds;
} operations[] = {
    {"all_reduce", 1u << TRII_KIND_ALL_REDUCE},
    {"reduce", 1u << TRII_KIND_REDUCE},
    {"reduce_scatter", 1u << TRII_KIND_REDUCE_SCATTER | 1u << TRII_KIND_REDUCE_SCATTER_V},
    {"all_gather", 1u << TRII_KIND_ALL_GATHER | 1u << TRII_KIND_ALL_GATHER_V},
    {"broadcast", 1u << TRII_KIND_BROADCAST},
    {"gather", 1u << TRII_KIND_GATHER},
    {"scatter", 1u << TRII_KIND_SCATTER},
    {"all_to_all", 1u << TRII_KIND_ALL_TO_ALL | 1u << TRII_KIND_ALL_TO_ALL_V},
    {"barrier", 1u << TRII_KIND_BARRIER},
    {"send", TRII_KINDS_PAIR},
    {"cpu", TRII_KINDS_COLLECTIVE | TRII_KINDS_PAIR},
    {"", TRII_KINDS_COLLECTIVE},
};

/* INVALID_ARG: the item, and what is wrong with it. */
static tri_status bad(const char *item, const char *what)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "engine \"%s\" (tri_group_options or TRI_ENGINE): %s; it is "
                     "[GROUP@]ENGINE or [GROUP@][OPERATION][>=BYTES][<BYTES]:ENGINE",
                     item, what);
}

/* "64K": moves *at behind it. False: that is not a number of bytes. */
static bool read_bytes(const char **at, size_t *bytes_out)
{
    static const char units[] = "KMG";
    const char *unit;
    char *end;
    unsigned long long n;
    unsigned shift = 0;

    if (!isdigit((unsigned char)**at))
        return false;
    n = strtoull(*at, &end, 10);
    unit = *end != '\0' ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit != NULL) {
        shift = 10u * (unsigned)(unit - units + 1);
        end++;
    }
    if (n > (SIZE_MAX >> 1) >> shift)
        return false;
    *at = end;
    *bytes_out = (size_t)n << shift;
    return true;
}

/* "all_reduce>=1M" of the item. */
static tri_status read_condition(const char *item, const char *text, trii_rule *rule)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
    bool sized = text[length] != '\0';

    rule->kinds = 0;
    for (size_t i = 0; i < TRII_COUNT_OF(operations); i++) {
        if (strlen(operations[i].name) == length && strncmp(operations[i].name, text, length) == 0)
            rule->kinds = operations[i].kinds;
    }
    if (length == 4 && strncmp(text, "cuda", length) == 0)
        return bad(item, "what is in a GPU's memory needs a group of its own, with engine nccl");
    if (rule->kinds == 0)
        return bad(item, "there is no such operation");
    for (text += length; *text != '\0';) {
        bool least = strncmp(text, ">=", 2) == 0;
        size_t *bytes = least ? &rule->least : &rule->below;

        if (!least && *text != '<')
            return bad(item, "a size is >=BYTES or <BYTES");
        text += least ? 2 : 1;
        if (!read_bytes(&text, bytes) || (!least && *bytes == 0))
            return bad(item, "that is not a number of bytes");
    }
    if (sized && (rule->kinds & TRII_KINDS_PAIR) != 0)
        return bad(item, "messages go one way whatever their size");
    if (sized) /* all ranks must know the size */
        rule->kinds &= ~(1u << TRII_KIND_ALL_TO_ALL_V);
    if (rule->below != 0 && rule->below <= rule->least)
        return bad(item, "no size fits");
    return TRI_OK;
}

static bool names_group(const char *pattern, const char *group)
{
    size_t length = strlen(pattern);

    if (length > 0 && pattern[length - 1] == '*')
        return strncmp(pattern, group, length - 1) == 0;
    return strcmp(pattern, group) == 0;
}

static tri_status read_item(const char *item, const char *group, trii_choice *choice)
{
    char text[TRII_ENGINE_TEXT], *rest = text, *engine, *mark;
    trii_rule rule = {0};
    bool ours = true, plain;
    tri_status st = TRI_OK;

    snprintf(text, sizeof(text), "%s", item);
    mark = strchr(text, '@');
    if (mark != NULL) {
        *mark = '\0';
        rest = mark + 1;
        ours = names_group(text, group);
    }
    engine = strrchr(rest, ':');
    plain = engine == NULL || strncmp(rest, "cpu:", 4) == 0;
    if (engine != NULL) {
        *engine++ = '\0';
        st = read_condition(item, rest, &rule);
    } else {
        engine = rest;
    }
    if (st != TRI_OK)
        return st;
    if (*engine == '\0' || strlen(engine) >= TRII_ENGINE_NAME)
        return bad(item, "that is not the name of an engine");
    if (!ours)
        return TRI_OK;
    if (strcmp(engine, "auto") == 0)
        engine = text + strlen(text); /* "" */
    if (plain) {
        snprintf(choice->engine, sizeof(choice->engine), "%s", engine);
        return TRI_OK;
    }
    if (choice->n_rules == TRII_RULES)
        return bad(item, "there are too many");
    snprintf(rule.engine, sizeof(rule.engine), "%s", engine);
    choice->rules[choice->n_rules++] = rule;
    return TRI_OK;
}

tri_status trii_choice_parse(const char *text, const char *group, trii_choice *choice_out)
{
    trii_choice choice = {0};
    tri_status st = TRI_OK;

    if (text != NULL && strlen(text) >= TRII_ENGINE_TEXT)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "engine (tri_group_options or TRI_ENGINE): %zu bytes of text, at most %d",
                         strlen(text), TRII_ENGINE_TEXT - 1);
    while (text != NULL && st == TRI_OK) {
        int length = (int)strcspn(text, ",");
        char item[TRII_ENGINE_TEXT];

        snprintf(item, sizeof(item), "%.*s", length, text);
        st = read_item(item, group, &choice);
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    if (st == TRI_OK)
        *choice_out = choice;
    return st;
}

int trii_choice_rule(const trii_choice *choice, const trii_collective *call)
{
    for (int i = 0; i < choice->n_rules; i++) {
        const trii_rule *rule = &choice->rules[i];

        if (trii_kind_in(call->kind, rule->kinds) && call->bytes >= rule->least &&
            (rule->below == 0 || call->bytes < rule->below))
            return i;
    }
    return -1;
}

/* --- making ---------------------------------------------------------------------------------- */

/* One attempt with one engine, under keys of its own. */
static tri_status create_with(const trii_engine *engine, tri_store *store, trii_group_args *args,
                              void **self_out)
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
    st = engine->create(args, self_out);
    tri_store_unref(args->store);
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

tri_status trii_engine_refuse(tri_store *store, trii_group_args *args, tri_status why)
{
    trii_refusal refusal = {.status = why};
    const trii_refusal *before = args->refusal;

    if (store == NULL || args->size == 1)
        return why;
    snprintf(refusal.line, sizeof(refusal.line), "%s", tri_last_error());
    args->refusal = before != NULL ? before : &refusal;
    args->store = store;
    if (trii_group_say(args, TRII_MIXED_STEP, why) != TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "group", "%s: %s", args->name, tri_last_error());
    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        void *none = NULL;

        if (strcmp((*e)->name, "self") != 0 && create_with(*e, store, args, &none) == TRI_OK)
            (*e)->destroy(none);
    }
    args->refusal = before;
    return TRII_FAIL(why, "%s", refusal.line);
}

/* A named engine: built in, or a plug-in, which some rank may lack. That one says so and waits
 * for nobody (the name may be a mistake of its own); those that have it hear it. */
static tri_status create_named(const char *name, tri_store *store, trii_group_args *args,
                               const trii_engine **engine_out, void **self_out)
{
    const trii_engine *engine = NULL;
    tri_store *own = NULL;
    tri_status st = trii_engine_find(name, &engine);

    *engine_out = engine;
    if (st == TRI_OK && is_built_in(engine))
        return create_with(engine, store, args, self_out);
    if (st == TRI_OK && args->size > 1)
        warn_of_no_proof(name);
    if (store != NULL && args->size > 1) {
        char why[TRII_ERR_BYTES];
        tri_status said;

        snprintf(why, sizeof(why), "%s", st != TRI_OK ? tri_last_error() : "");
        said = trii_group_view("plugin", store, &own);
        args->store = own;
        if (said == TRI_OK && st != TRI_OK)
            said = trii_group_say(args, name, st);
        else if (said == TRI_OK)
            said = trii_group_agree(args, name, st);
        tri_store_unref(own);
        if (st == TRI_OK)
            st = said;
        else
            trii_err_set("%s", why);
    }
    if (engine == NULL)
        return trii_engine_refuse(store, args, st);
    return st == TRI_OK ? create_with(engine, store, args, self_out) : st;
}

/* By name: does TRI_CHECK_CALLS want its calls compared? */
static tri_status wants_comparing(const trii_engine *engine, int size, bool *wants_out)
{
    int choice = 0; /* "0", "1", "all" */
    tri_status st = trii_param_choice(TRII_PARAM_CHECK_CALLS, &choice);

    *wants_out = size > 1 && (choice == 2 || (choice == 1 && !is_built_in(engine)));
    return st;
}

static tri_status make_named(const char *name, tri_store *store, trii_group_args *args,
                             const trii_engine **engine_out, void **self_out)
{
    const trii_engine *engine = NULL;
    void *self = NULL;
    bool wants = false;
    tri_status st = create_named(name, store, args, &engine, &self);

    if (st != TRI_OK)
        return st;
    st = wants_comparing(engine, args->size, &wants);
    if (st == TRI_OK && wants)
        st = trii_compared_make(store, args, &engine, &self);
    if (st != TRI_OK) {
        engine->destroy(self);
        return st;
    }
    *engine_out = engine;
    *self_out = self;
    return TRI_OK;
}

/* The named engine, or the first that serves all ranks. create() agrees between the ranks, so
 * that all of them take the same turn here. */
tri_status trii_engine_make(const char *name, tri_store *store, trii_group_args *args,
                            const trii_engine **engine_out, void **self_out)
{
    tri_status st = TRI_ERR_UNSUPPORTED;
    char tried[TRII_ERR_BYTES / 2] = "";

    if (name == NULL && args->size == 1)
        name = "self";
    if (name != NULL)
        return make_named(name, store, args, engine_out, self_out);
    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (strcmp((*e)->name, "self") == 0)
            continue;
        if (strcmp((*e)->name, "shm") == 0 && trii_param_text(TRII_PARAM_HOSTS) != NULL)
            continue; /* it would see through the pretence */
        *engine_out = *e;
        st = create_with(*e, store, args, self_out);
        if (st != TRI_ERR_UNSUPPORTED)
            return st;
        TRII_LOG(TRII_LOG_INFO, "group", "%s: not %s: %s", args->name, (*e)->name,
                 tri_last_error());
        snprintf(tried + strlen(tried), sizeof(tried) - strlen(tried), "%s%s: %s",
                 tried[0] != '\0' ? "; " : "", (*e)->name, tri_last_error());
    }
    return TRII_FAIL(st, "no engine serves all %d ranks: %s", args->size, tried);
}
