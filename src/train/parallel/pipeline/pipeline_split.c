/*
 * pipeline_split.c - a sequential network, cut into stages at modules that are named or where the
 * stages' operations or parameters are most equal.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/nn/module.h"
#include "train/parallel/pipeline/pipeline_internal.h"

/* The network's modules, at which it can be cut: those of tri_nn_sequentials inside of it, too. */
typedef struct parts {
    tri_module **modules; /* [n] */
    char **names;         /* owned, as their elements are: paths, "h.2" */
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

static bool is_sequence(const tri_module *module)
{
    return strcmp(tri_module_type(module), "Sequential") == 0;
}

/* It does nothing but run its modules, so they can run without it. */
static bool is_only_sequence(const tri_module *module)
{
    return is_sequence(module) && module->n_children > 0 && module->hooks.n == 0 &&
           !module->recompute && module->cut == NULL && module->parameters.n == 0 &&
           module->buffers.n == 0;
}

static int count_parts(const tri_module *net)
{
    int n = 0;

    for (int i = 0; i < net->n_children; i++)
        n += is_only_sequence(net->children[i]) ? count_parts(net->children[i]) : 1;
    return n;
}

static tri_status add_part(parts *t, tri_module *module, const char *path)
{
    size_t bytes = strlen(path) + 1;

    t->names[t->n] = trii_alloc(bytes, 1, "stages");
    if (t->names[t->n] == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(t->names[t->n], path, bytes);
    t->modules[t->n++] = module;
    return TRI_OK;
}

static tri_status list_parts(parts *t, const tri_module *net, const char *path)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < net->n_children && status == TRI_OK; i++) {
        tri_module *child = net->children[i];
        char below[TRI_STATE_NAME_MAX];

        (void)snprintf(below, sizeof(below), "%s%s%s", path, path[0] != '\0' ? "." : "",
                       tri_module_name(child));
        status = is_only_sequence(child) ? list_parts(t, child, below) : add_part(t, child, below);
    }
    return status;
}

static tri_status check_net(const tri_module *net)
{
    tri_status status =
        net != NULL ? tri_module_status(net) : TRII_FAIL(TRI_ERR_INVALID_ARG, "own_net is NULL");

    if (status != TRI_OK)
        return status;
    if (!is_sequence(net))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "the network is a %s: a tri_nn_sequential can be cut between its modules; "
                         "give stages of others to tri_pipeline",
                         tri_module_type(net));
    if (net->parent != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the network is a part of another module");
    if (net->parameters.n + net->buffers.n > 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "the network has %s of its own, which no stage would have: register it in "
                         "one of its modules",
                         net->parameters.n > 0 ? net->parameters.items[0].name
                                               : net->buffers.items[0].name);
    if (net->cut != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "a rule of tri_parallelize (\"\") is for the network itself, which its "
                         "stages run without: name its modules");
    return TRI_OK;
}

static tri_status find_parts(parts *t, const tri_module *net, int stages)
{
    int n = count_parts(net);

    if (stages < 1 || stages > n)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d stages of a network of %d modules", stages, n);
    t->modules = trii_alloc((size_t)n, sizeof(tri_module *), "stages");
    t->names = trii_alloc((size_t)n, sizeof(char *), "stages");
    t->first = trii_alloc((size_t)stages + 1, sizeof(*t->first), "stages");
    if (t->modules == NULL || t->names == NULL || t->first == NULL)
        return TRI_ERR_NO_MEMORY;
    return list_parts(t, net, "");
}

/* --- where ---------------------------------------------------------------- */

/* What cannot be found: most often it is inside of a module that has a forward of its own. */
static tri_status no_place(const parts *t, int cut, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (trii_path_after(name, t->names[i]) != NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "cuts[%d]: \"%s\" is inside of \"%s\", which is a %s: only a "
                             "tri_nn_sequential is cut inside, between its modules",
                             cut, name, t->names[i], tri_module_type(t->modules[i]));
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "cuts[%d]: no module of the network is called \"%s\" (\"%s\" to \"%s\")", cut,
                     name, t->names[0], t->names[t->n - 1]);
}

static tri_status cut_at(const parts *t, const char *const *cuts, int stages)
{
    for (int s = 1; s < stages; s++) {
        int at = 0;

        if (cuts[s - 1] == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "cuts[%d] is NULL", s - 1);
        /* a sequence begins with its first module */
        while (at < t->n && trii_path_after(t->names[at], cuts[s - 1]) == NULL)
            at++;
        if (at == t->n)
            return no_place(t, s - 1, cuts[s - 1]);
        if (at <= t->first[s - 1])
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "cuts[%d]: stage %d cannot begin with \"%s\", since the stage before "
                             "begins with \"%s\"",
                             s - 1, s, cuts[s - 1], t->names[t->first[s - 1]]);
        t->first[s] = at;
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

/* Fills stages from the front with at most `most` each, but for a stage of one module, and
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

/* example: NULL, or what a micro-batch looks like. */
static tri_status cut_evenly(const parts *t, tri_module *net, tri_tensor *example, int stages)
{
    int64_t *weights = trii_alloc((size_t)t->n, sizeof(*weights), "stages");
    tri_status status = TRI_OK;

    if (weights == NULL)
        return TRI_ERR_NO_MEMORY;
    if (example != NULL)
        status = trii_pipeline_costs(net, t->modules, t->n, example, weights);
    else
        for (int i = 0; i < t->n; i++)
            weights[i] = weigh(t->modules[i]);
    if (status == TRI_OK)
        balance(weights, t->n, stages, t->first);
    trii_free(weights);
    return status;
}

static tri_tensor *example_of(const tri_pipeline_options *opt)
{
    return opt != NULL ? opt->example : NULL;
}

/* --- taking it apart ------------------------------------------------------ */

/* What is left of the network has no modules but empty sequences. */
static void take_apart(tri_module *net)
{
    int left = 0;

    for (int i = 0; i < net->n_children; i++) {
        tri_module *child = net->children[i];

        if (is_only_sequence(child)) {
            take_apart(child);
            net->children[left++] = child;
            continue;
        }
        trii_free(child->name);
        child->name = NULL;
        child->parent = NULL;
    }
    net->n_children = left;
}

/* A program may still use the network by mistake, to make an optimizer of it, say. It stays as a
 * failed module for as long as the pipeline, which owns it from here on. */
static void keep_failed(tri_module *model, tri_module *own_net)
{
    trii_pipeline *p = trii_pipeline_of(model);
    tri_status status = tri_module_status(model);
    char line[TRII_ERR_BYTES];

    if (p == NULL || own_net == NULL || own_net->parent != NULL || trii_module_is_shared(own_net)) {
        tri_module_destroy(own_net);
        return;
    }
    (void)snprintf(line, sizeof(line), "%s", tri_last_error());
    if (status == TRI_OK)
        status = TRII_FAIL(TRI_ERR_STATE, "tri_pipeline_split has taken this network apart: use "
                                          "the module that it returned");
    trii_module_fail(own_net, status);
    trii_err_set("%s", line); /* that the pipeline has not failed */
    p->taken_apart = own_net;
}

tri_module *(tri_pipeline_split)(tri_module *own_net, const char *const *cuts, int n_stages,
                                 const tri_pipeline_options *opt)
{
    trii_pipeline_recipe recipe = {.call = "tri_pipeline_split", .options = opt};
    parts t = {.n = 0};
    tri_module *model;

    recipe.status = TRII_CHECK_RESERVED(tri_pipeline_options, opt);
    if (recipe.status == TRI_OK)
        recipe.status = check_net(own_net);
    if (recipe.status == TRI_OK)
        recipe.status = find_parts(&t, own_net, n_stages);
    if (recipe.status == TRI_OK)
        recipe.status = cuts != NULL ? cut_at(&t, cuts, n_stages)
                                     : cut_evenly(&t, own_net, example_of(opt), n_stages);
    if (recipe.status == TRI_OK) {
        for (int i = 0; i < t.n && own_net->recompute; i++)
            tri_module_set_recompute(t.modules[i], true);
        take_apart(own_net);
        t.first[n_stages] = t.n;
        recipe.modules = t.modules;
        recipe.names = (const char *const *)t.names;
        recipe.first = t.first;
        recipe.stages = n_stages;
    }
    model = trii_pipeline_make(&recipe);
    keep_failed(model, own_net);
    parts_fini(&t);
    return model;
}
