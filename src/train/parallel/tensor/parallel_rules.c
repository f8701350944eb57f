/*
 * parallel_rules.c - which modules of a network the rules of tri_parallelize name. A pattern is
 * held against paths name by name, as torch does.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/option.h"
#include "base/param.h"
#include "train/parallel/tensor/tensor_parallel.h"

/* Longest path or pattern. */
#define PATH_BYTES 512

static bool is_named(const char *pattern, const char *path)
{
    for (;;) {
        size_t n_pattern = strcspn(pattern, "."), n = strcspn(path, ".");

        if (!trii_name_matches(pattern, n_pattern, path, n) ||
            (pattern[n_pattern] == '\0') != (path[n] == '\0'))
            return false;
        if (path[n] == '\0')
            return true;
        pattern += n_pattern + 1;
        path += n + 1;
    }
}

/* --- the tree ------------------------------------------------------------- */

/* Every module, with its path, to be freed. */
typedef struct walk {
    trii_parallel_matches all;
    tri_status status;
} walk;

static void see(walk *w, tri_module *module, const char *path)
{
    if (w->status == TRI_OK)
        w->status = trii_array_grow(&w->all.list, &w->all.capacity, w->all.n, 16,
                                    sizeof(*w->all.list), "modules of a network");
    if (w->status != TRI_OK)
        return;
    w->all.list[w->all.n] = (trii_parallel_match){
        .module = module, .path = trii_strdup(path, "path of a module"), .rule = -1};
    if (w->all.list[w->all.n].path == NULL)
        w->status = TRI_ERR_NO_MEMORY;
    else
        w->all.n++;
    for (int i = 0; i < module->n_children; i++) {
        tri_module *child = module->children[i];
        char below[PATH_BYTES];
        int n = snprintf(below, sizeof(below), "%s%s%s", path,
                         path[0] != '\0' && child->name[0] != '\0' ? "." : "", child->name);

        if (n >= PATH_BYTES && w->status == TRI_OK)
            w->status = TRII_FAIL(TRI_ERR_INVALID_ARG, "the path of %s is longer than %d bytes",
                                  child->name, PATH_BYTES - 1);
        see(w, child, below);
    }
}

/* --- rules ---------------------------------------------------------------- */

/* A likely slip, or what there is. */
static tri_status names_nothing(const trii_parallel_matches *all, const tri_parallel_rule *rules,
                                int k)
{
    const char *pattern = rules[k].module, *near = NULL;
    const char **paths = trii_alloc((size_t)all->n, sizeof(*paths), "paths of modules");

    if (paths == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < all->n; i++)
        paths[i] = all->list[i].path;
    near = trii_name_nearest(pattern, strlen(pattern), paths, all->n);
    trii_free(paths);
    if (near != NULL && near[0] != '\0')
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "rules[%d], \"%.80s\", names no module: did you mean \"%s\"?", k, pattern,
                         near);
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "rules[%d], \"%.80s\", names no module (the first is \"%s\"; * matches any "
                     "characters of one name)",
                     k, pattern, all->n > 1 ? all->list[1].path : "");
}

static bool is_value(tri_parallel_value value)
{
    return value >= TRI_PARALLEL_DEFAULT && value <= TRI_SHARDED_SEQUENCE;
}

static tri_status check_rule(const tri_parallel_rule *rule, int k)
{
    tri_status status = TRII_CHECK_RESERVED(tri_parallel_rule, rule);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "rules[%d]", k);
    if (rule->module == NULL || strlen(rule->module) >= PATH_BYTES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "rules[%d].module %s", k,
                         rule->module == NULL ? "is NULL (\"\" is the module itself)"
                                              : "is longer than any path");
    if (rule->style < TRI_COLWISE || rule->style > TRI_PREPARE)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "rules[%d], \"%.80s\": style %d: TRI_COLWISE, TRI_ROWWISE, TRI_HEADS, "
                         "TRI_SEQUENCE or TRI_PREPARE",
                         k, rule->module, (int)rule->style);
    if (!is_value(rule->input) || !is_value(rule->output) || !is_value(rule->wanted_input) ||
        !is_value(rule->wanted_output))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "rules[%d], \"%.80s\": input %d, output %d, wanted %d and %d: they are "
                         "TRI_WHOLE, TRI_SHARDED or TRI_SHARDED_SEQUENCE, or 0",
                         k, rule->module, (int)rule->input, (int)rule->output,
                         (int)rule->wanted_input, (int)rule->wanted_output);
    if (rule->style != TRI_PREPARE &&
        (rule->wanted_input != TRI_PARALLEL_DEFAULT || rule->wanted_output != TRI_PARALLEL_DEFAULT))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "rules[%d], \"%.80s\": wanted_input and wanted_output are TRI_PREPARE's",
                         k, rule->module);
    if (trii_option(rule->dim, 0) < -TRI_MAX_DIMS || trii_option(rule->dim, 0) >= TRI_MAX_DIMS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "rules[%d], \"%.80s\": dim %g: tensors have at most %d dimensions", k,
                         rule->module, rule->dim.value, TRI_MAX_DIMS);
    if (rule->parts < 0 || rule->block < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "rules[%d], \"%.80s\": parts %d, block %lld: neither may be negative", k,
                         rule->module, rule->parts, (long long)rule->block);
    return TRI_OK;
}

/* A module is the rule's. */
static tri_status claim(trii_parallel_match *at, const tri_parallel_rule *rules, int k)
{
    if (at->rule >= 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "rules[%d], \"%.80s\", and rules[%d], \"%.80s\", both name %s", at->rule,
                         rules[at->rule].module, k, rules[k].module,
                         at->path[0] != '\0' ? at->path : "the module itself");
    at->rule = k;
    return TRI_OK;
}

/* Attention's output projection is cut with it. It follows in the order of the tree. */
static tri_status claim_output(const trii_parallel_matches *all, int i,
                               const tri_parallel_rule *rules, int k)
{
    const tri_module *attention = all->list[i].module;
    trii_attention unused;

    if (rules[k].style != TRI_HEADS || !trii_attention_of(attention, &unused))
        return TRI_OK;
    while (all->list[i].module->parent != attention)
        i++;
    all->list[i].is_output = true;
    return claim(&all->list[i], rules, k);
}

/* Gives its modules to the rule. */
static tri_status apply(const trii_parallel_matches *all, const tri_parallel_rule *rules, int k)
{
    bool found = false;
    tri_status status;

    for (int i = 0; i < all->n; i++) {
        trii_parallel_match *at = &all->list[i];

        if (!is_named(rules[k].module, at->path))
            continue;
        status = claim(at, rules, k);
        if (status == TRI_OK)
            status = claim_output(all, i, rules, k);
        if (status != TRI_OK)
            return status;
        found = true;
    }
    return found ? TRI_OK : names_nothing(all, rules, k);
}

tri_status trii_parallel_match_all(tri_module *root, const tri_parallel_rule *rules, int n,
                                   trii_parallel_matches *matches)
{
    walk w = {.status = TRI_OK};
    int kept = 0;

    *matches = (trii_parallel_matches){0};
    if (n < 0 || (n > 0 && rules == NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d rules%s", n, rules == NULL ? " at NULL" : "");
    for (int k = 0; k < n && w.status == TRI_OK; k++)
        w.status = check_rule(&rules[k], k);
    if (w.status == TRI_OK)
        see(&w, root, "");
    *matches = w.all;
    for (int k = 0; k < n && w.status == TRI_OK; k++)
        w.status = apply(matches, rules, k);
    for (int i = 0; i < matches->n; i++) {
        if (matches->list[i].rule >= 0)
            matches->list[kept++] = matches->list[i];
        else
            trii_free(matches->list[i].path);
    }
    matches->n = kept;
    return w.status;
}

void trii_parallel_matches_fini(trii_parallel_matches *matches)
{
    for (int i = 0; i < matches->n; i++)
        trii_free(matches->list[i].path);
    trii_free(matches->list);
    *matches = (trii_parallel_matches){0};
}
