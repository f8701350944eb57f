/*
 * config_check.c - each key of a configuration is one that is known, and has a value that it may
 * have. What is wrong is named with file, line, path, value and what is allowed.
 */
#include "train/deepspeed/config_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/err.h"

#define MAX_PATH 128
#define MAX_NAMES 256

/* --- names that are near -------------------------------------------------- */

/* Letters to insert, remove or change until one is the other; at most 99. */
static int distance(const char *a, const char *b)
{
    int row[MAX_PATH], n = (int)strlen(b);

    if (n >= MAX_PATH)
        return 99;
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; *a != '\0'; a++, i++) {
        int before = row[0];

        row[0] = i;
        for (int j = 1; j <= n; j++) {
            const int above = row[j];
            int least = before + (*a != b[j - 1]);

            least = above + 1 < least ? above + 1 : least;
            row[j] = row[j - 1] + 1 < least ? row[j - 1] + 1 : least;
            before = above;
        }
    }
    return row[n] < 99 ? row[n] : 99;
}

const char *trii_conf_nearest(const char *key, const char *const *names, int n)
{
    const int length = (int)strlen(key);
    int best = length > 12 ? length / 3 + 1 : length / 2 + 1;
    const char *nearest = NULL;

    for (int i = 0; i < n; i++) {
        const int d = distance(key, names[i]);

        if (d < best) {
            best = d;
            nearest = names[i];
        }
    }
    return nearest;
}

/* --- one value ------------------------------------------------------------ */

static bool is_choice(const char *choices, const char *text)
{
    const size_t n = strcspn(text, "|");

    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, text, n) == 0 && (at[n] == '|' || at[n] == '\0'))
            return n > 0 && text[n] == '\0';
    }
    return false;
}

static tri_status check_number(const trii_engine_config *c, const trii_conf *value,
                               const trii_key *key)
{
    const bool whole = key->kind == TRII_KEY_WHOLE;
    double number = 0;

    if (!trii_conf_number(value, &number))
        return trii_conf_refuse(c, value, key->path, "is not a number");
    if (whole && number != floor(number))
        return trii_conf_refuse(c, value, key->path, "is not a whole number");
    if (number >= key->least && number <= key->most)
        return TRI_OK;
    if (number < key->least && key->most > 1e15)
        return trii_conf_refuse(c, value, key->path, "is not allowed: at least %g", key->least);
    return trii_conf_refuse(c, value, key->path, "is not allowed: %g to %g", key->least, key->most);
}

static tri_status check_off(const trii_engine_config *c, const trii_conf *value,
                            const trii_key *key)
{
    const trii_conf *enabled = trii_conf_member(value, "enabled");
    double number = 0;
    bool off = value->kind == TRII_CONF_BOOL && value->number == 0;

    if (value->kind == TRII_CONF_BLOCK)
        off = value->child == NULL ||
              (enabled != NULL && enabled->kind == TRII_CONF_BOOL && enabled->number == 0);
    else if (trii_conf_number(value, &number))
        off = number == 0 || number == 1; /* a size of one divides nothing */
    else if (value->kind == TRII_CONF_TEXT)
        off = strcmp(value->text, "none") == 0;
    return off ? TRI_OK : trii_conf_refuse(c, value, key->path, "is not supported: %s", key->note);
}

/* transformers writes these values before DeepSpeed sees the file. */
static bool is_auto(const trii_conf *value)
{
    return value->kind == TRII_CONF_TEXT && strcmp(value->text, "auto") == 0;
}

/* The next line below `line` that has one; 0: there is none. */
static int next_auto(const trii_conf *block, int line)
{
    int nearest = 0;

    for (const trii_conf *c = block->child; c != NULL; c = c->next) {
        int found = is_auto(c) && c->line > line ? c->line : next_auto(c, line);

        if (found > 0 && (nearest == 0 || found < nearest))
            nearest = found;
    }
    return nearest;
}

static tri_status check_auto(const trii_engine_config *c, const trii_conf *value, const char *path)
{
    const bool is_batch = strcmp(path, "train_micro_batch_size_per_gpu") == 0 ||
                          strcmp(path, "train_batch_size") == 0;
    char others[120] = "";

    if (!is_auto(value))
        return TRI_OK;
    for (int line = next_auto(c->root, value->line), n = 0;
         line > 0 && n < (int)sizeof(others) - 16; line = next_auto(c->root, line))
        n += snprintf(others + n, sizeof(others) - (size_t)n, "%s%d",
                      n > 0 ? ", " : "; also in lines ", line);
    return trii_conf_refuse(c, value, path, "is filled in by transformers alone: %s%s",
                            is_batch ? "write the number, such as 8"
                                     : "write the value, or leave the key out for its default",
                            others);
}

tri_status trii_conf_check_value(const trii_engine_config *c, const trii_conf *value,
                                 const trii_key *key)
{
    tri_status status;

    if (key->decision == TRII_KEY_REFUSED)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s:%d: %s: %s", c->name, value->line, key->path,
                         key->note);
    if (value->kind == TRII_CONF_NULL)
        return TRI_OK;
    status = check_auto(c, value, key->path);
    if (status != TRI_OK)
        return status;
    if (key->decision == TRII_KEY_OFF)
        return check_off(c, value, key);
    switch (key->kind) {
    case TRII_KEY_WHOLE:
    case TRII_KEY_NUMBER:
        return check_number(c, value, key);
    case TRII_KEY_SWITCH:
        return value->kind == TRII_CONF_BOOL
                   ? TRI_OK
                   : trii_conf_refuse(c, value, key->path, "is not a switch: true or false");
    case TRII_KEY_TEXT:
        return value->kind == TRII_CONF_TEXT
                   ? TRI_OK
                   : trii_conf_refuse(c, value, key->path, "is not a text in quotes");
    case TRII_KEY_CHOICE:
        return value->kind == TRII_CONF_TEXT && is_choice(key->choices, value->text)
                   ? TRI_OK
                   : trii_conf_refuse(c, value, key->path, "is not allowed: %s", key->choices);
    case TRII_KEY_BLOCK:
    case TRII_KEY_FREE:
        break;
    }
    return TRI_OK;
}

/* --- a block -------------------------------------------------------------- */

static tri_status unknown(const trii_engine_config *c, const trii_conf *member, const char *path,
                          const char *block, const char *nearest)
{
    char where[MAX_PATH] = "";

    if (block[0] != '\0')
        snprintf(where, sizeof(where), " of %s", block);
    for (int i = 0; i < trii_keys_count && nearest == NULL; i++) {
        const char *leaf = strrchr(trii_keys[i].path, '.');

        if (strcmp(leaf != NULL ? leaf + 1 : trii_keys[i].path, member->key) == 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s:%d: %s: not a key%s: it belongs in %s",
                             c->name, member->line, path, block[0] != '\0' ? where : "",
                             leaf != NULL ? trii_keys[i].path : "the outermost block");
    }
    return nearest != NULL
               ? TRII_FAIL(TRI_ERR_INVALID_ARG, "%s:%d: %s: not a key%s: did you mean %s?", c->name,
                           member->line, path, where, nearest)
               : TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "%s:%d: %s: not a key%s that DeepSpeed 0.19.8 has: remove it", c->name,
                           member->line, path, where);
}

tri_status trii_conf_check_block(const trii_engine_config *c, const char *path,
                                 const trii_key *keys, int n)
{
    const trii_conf *block = trii_conf_find(c->root, path);
    const char *names[MAX_NAMES];
    char full[MAX_PATH];

    if (block == NULL)
        return TRI_OK;
    if (block->kind != TRII_CONF_BLOCK)
        return trii_conf_refuse(c, block, path, "is not a block: {..}");
    for (int i = 0; i < n; i++)
        names[i] = keys[i].path;
    for (const trii_conf *m = block->child; m != NULL; m = m->next) {
        trii_key key = {0};
        tri_status status;

        snprintf(full, sizeof(full), "%s.%.63s", path, m->key);
        for (int i = 0; i < n && key.path == NULL; i++)
            if (strcmp(keys[i].path, m->key) == 0)
                key = keys[i];
        if (key.path == NULL)
            return unknown(c, m, full, path, trii_conf_nearest(m->key, names, n));
        key.path = full;
        status = trii_conf_check_value(c, m, &key);
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

/* --- all of it ------------------------------------------------------------ */

/* Names of the table that stand directly in a block. */
static int list_names(const char *block, const char **names)
{
    const size_t n = strlen(block);
    int count = 0;

    for (int i = 0; i < trii_keys_count && count < MAX_NAMES; i++) {
        const char *path = trii_keys[i].path;

        if (n > 0 && (strncmp(path, block, n) != 0 || path[n] != '.'))
            continue;
        path += n > 0 ? n + 1 : 0;
        if (strchr(path, '.') == NULL && trii_keys[i].decision != TRII_KEY_REFUSED)
            names[count++] = path;
    }
    return count;
}

/* "zero_optimization": true is stage 1, as DeepSpeed has it. */
static bool is_short_form(const trii_conf *value, const trii_key *key)
{
    return value->kind == TRII_CONF_BOOL && strcmp(key->path, "zero_optimization") == 0;
}

static tri_status check_members(const trii_engine_config *c, const trii_conf *block,
                                const char *path)
{
    const char *names[MAX_NAMES];
    const int n = list_names(path, names);
    char full[MAX_PATH];
    tri_status status = TRI_OK;

    for (const trii_conf *m = block->child; m != NULL && status == TRI_OK; m = m->next) {
        const trii_key *key;

        snprintf(full, sizeof(full), "%s%s%.63s", path, path[0] != '\0' ? "." : "", m->key);
        key = strchr(m->key, '.') == NULL ? trii_key_find(full) : NULL;
        if (key == NULL)
            return unknown(c, m, full, path, trii_conf_nearest(m->key, names, n));
        status = trii_conf_check_value(c, m, key);
        if (status != TRI_OK || key->kind != TRII_KEY_BLOCK || m->kind == TRII_CONF_NULL ||
            is_short_form(m, key))
            continue;
        status = m->kind == TRII_CONF_BLOCK ? check_members(c, m, full)
                                            : trii_conf_refuse(c, m, full, "is not a block: {..}");
    }
    return status;
}

tri_status trii_conf_check(const trii_engine_config *c)
{
    return check_members(c, c->root, "");
}
