/*
 * choose.c - reads the text of choose.h, and finds the rule for a call.
 */
/* build: leaf */
#include "group/form/choose.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

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
