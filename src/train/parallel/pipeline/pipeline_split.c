/*
 * pipeline_split.c - a sequential network, cut into stages at modules that are named or where the
 * stages' parameters are most equal.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/nn/module.h"
#include "train/parallel/pipeline/pipeline_internal.h"

/* The network's modules, taken out of it. */
typedef struct parts {
    tri_module **modules; /* owned [n] */
    char **names;         /* owned, as their elements are */
    int *first;           /* owned [stages + 1] */
    int n;
} parts;

static void parts_fini(parts *t)
{
    for (int i = 0; i < t->n && t->names != NULL; i++)
        trii_free(t->names[i]);
    trii_free(t->modules);
    trii_free(t->names);
    trii_free(t->first);
}

static tri_status check_net(const tri_module *net, int stages)
{
    tri_status status =
        net != NULL ? tri_module_status(net) : TRII_FAIL(TRI_ERR_INVALID_ARG, "own_net is NULL");

    if (status != TRI_OK)
        return status;
    if (strcmp(tri_module_type(net), "Sequential") != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "the network is a %s: a tri_nn_sequential can be cut between its modules; "
                         "give stages of others to tri_pipeline",
                         tri_module_type(net));
    if (net->parent != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the network is a part of another module");
    if (stages < 1 || stages > net->n_children)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d stages of a network of %d modules", stages,
                         net->n_children);
    return TRI_OK;
}

/* --- where ---------------------------------------------------------------- */

static tri_status cut_at(const tri_module *net, const char *const *cuts, int stages, int *first)
{
    for (int s = 1; s < stages; s++) {
        int at = 0;

        if (cuts[s - 1] == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "cuts[%d] is NULL", s - 1);
        while (at < net->n_children && strcmp(tri_module_name(net->children[at]), cuts[s - 1]) != 0)
            at++;
        if (at == net->n_children)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "cuts[%d]: no module of the network is called \"%s\" (\"%s\" to "
                             "\"%s\")",
                             s - 1, cuts[s - 1], tri_module_name(net->children[0]),
                             tri_module_name(net->children[at - 1]));
        if (at <= first[s - 1])
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "cuts[%d]: stage %d cannot begin with \"%s\", since the stage before "
                             "begins with \"%s\"",
                             s - 1, s, cuts[s - 1], tri_module_name(net->children[first[s - 1]]));
        first[s] = at;
    }
    return TRI_OK;
}

static int64_t weigh(tri_module *module)
{
    int64_t n = 0;

    for (int64_t i = 0; i < tri_module_state_count(module); i++)
        n += tri_tensor_numel(tri_module_state(module, i).tensor);
    return n;
}

/* Fills stages from the front with at most `most` elements each, but for a stage of one module, and
 * leaves one module at least for each that follows. False: the last one has more than that. */
static bool fill(const int64_t *weights, int n, int stages, int64_t most, int *first)
{
    int at = 0;

    for (int s = 0; s < stages; s++) {
        int64_t sum = weights[at];

        first[s] = at++;
        while (at < n - (stages - 1 - s) && (s == stages - 1 || sum + weights[at] <= most))
            sum += weights[at++];
        if (sum > most)
            return false;
    }
    return true;
}

/* The smallest bound that some cut keeps to, by halves. */
static void balance(const int64_t *weights, int n, int stages, int *first)
{
    int64_t low = 0, high = 0;

    for (int i = 0; i < n; i++)
        high += weights[i];
    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (fill(weights, n, stages, middle, first))
            high = middle;
        else
            low = middle + 1;
    }
    (void)fill(weights, n, stages, high, first);
}

static tri_status cut_evenly(const tri_module *net, int stages, int *first)
{
    int n = net->n_children;
    int64_t *weights = trii_alloc((size_t)n, sizeof(*weights), "stages");

    if (weights == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < n; i++)
        weights[i] = weigh(net->children[i]);
    balance(weights, n, stages, first);
    trii_free(weights);
    return TRI_OK;
}

/* --- taking it apart ------------------------------------------------------ */

/* What is left of the network has no modules. */
static tri_status take_apart(tri_module *net, parts *t)
{
    int n = net->n_children;

    t->modules = trii_alloc((size_t)n, sizeof(tri_module *), "stages");
    t->names = trii_alloc((size_t)n, sizeof(char *), "stages");
    if (t->modules == NULL || t->names == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < n; i++) {
        t->modules[i] = net->children[i];
        t->names[i] = net->children[i]->name;
        net->children[i]->name = NULL;
        net->children[i]->parent = NULL;
    }
    t->n = n;
    net->n_children = 0;
    return TRI_OK;
}

tri_module *(tri_pipeline_split)(tri_module *own_net, const char *const *cuts, int n_stages,
                                 const tri_pipeline_options *opt)
{
    trii_pipeline_recipe recipe = {.call = "tri_pipeline_split", .options = opt};
    parts t = {.n = 0};
    tri_module *model;

    recipe.status = TRII_CHECK_RESERVED(tri_pipeline_options, opt);
    if (recipe.status == TRI_OK)
        recipe.status = check_net(own_net, n_stages);
    if (recipe.status == TRI_OK) {
        t.first = trii_alloc((size_t)n_stages + 1, sizeof(*t.first), "stages");
        recipe.status = t.first != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    if (recipe.status == TRI_OK)
        recipe.status = cuts != NULL ? cut_at(own_net, cuts, n_stages, t.first)
                                     : cut_evenly(own_net, n_stages, t.first);
    if (recipe.status == TRI_OK)
        recipe.status = take_apart(own_net, &t);
    if (recipe.status == TRI_OK) {
        t.first[n_stages] = t.n;
        recipe.modules = t.modules;
        recipe.names = (const char *const *)t.names;
        recipe.first = t.first;
        recipe.stages = n_stages;
    }
    model = trii_pipeline_make(&recipe);
    tri_module_destroy(own_net);
    parts_fini(&t);
    return model;
}
