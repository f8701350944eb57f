/*
 * load_state.c - loads contents into the parameters and buffers of a tree: which source belongs to
 * which entry, which differences are allowed, and the report of what did not fit. Called by
 * tri_module_load, and by checkpoint/ for the tensors of a file.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/log.h"
#include "base/option.h"
#include "base/param.h"
#include "train/nn/module.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/persistent.h"

#define LOAD_NAMES 4 /* so many names of each kind of mistake are in the error line */

/* Of the error line for all of them: advice follows, and must not be cut off. */
#define LIST_BYTES 200
#define MORE_BYTES 24 /* " and 8 more" */
#define ADVICE_BYTES 224

/* A growing "a, b, c", to become "a, b and 8 more". */
typedef struct names {
    const char *kind; /* for the report */
    char text[320];
    size_t used, ends[LOAD_NAMES]; /* of the names that are in the text */
    int n;
} names;

typedef struct loading {
    tri_module *module;
    const tri_state_source *sources;
    int64_t n;
    tri_load_options opt;
    int64_t *source_of;              /* [entries]: -1 none */
    int64_t set;                     /* entries that have one */
    size_t most;                     /* bytes of the largest entry that is converted */
    const trii_state_reader *reader; /* NULL: the sources have their data */
    char prefix[64];                 /* that the sources have in front of our names; "": none */
    bool may_convert;                /* a misfit in dtype alone, which the options could convert */
    const char *near[2];             /* a source's name that is like that of a missing entry */
    names missing, unexpected, misfit, left_out, converted;
} loading;

static void names_add(const loading *l, names *list, const char *name)
{
    if (l->opt.report != NULL)
        fprintf(l->opt.report, "%s: %s\n", list->kind, name);
    if (list->n < LOAD_NAMES && list->used < sizeof(list->text)) {
        int n = snprintf(list->text + list->used, sizeof(list->text) - list->used, "%s%s",
                         list->n > 0 ? ", " : "", name);

        list->used += n > 0 ? (size_t)n : 0;
    }
    if (list->n < LOAD_NAMES)
        list->ends[list->n] = list->used;
    list->n++;
}

/* As many whole names as fit into `room` bytes, at least a part of the first; and how many more
 * there are. */
static void names_end(names *list, size_t room)
{
    int shown = list->n < LOAD_NAMES ? list->n : LOAD_NAMES;
    size_t most;
    char more[MORE_BYTES] = "";

    room = room < sizeof(list->text) ? room : sizeof(list->text);
    most = room - sizeof(more);
    while (shown > 1 && list->ends[shown - 1] > most)
        shown--;
    if (list->n > shown)
        snprintf(more, sizeof(more), " and %d more", list->n - shown);
    if (shown > 0 && list->ends[shown - 1] < most)
        most = list->ends[shown - 1];
    snprintf(list->text + most, room - most, "%s", more);
}

static void shape_text(char *text, size_t bytes, tri_dtype dtype, const int64_t *shape, int ndim)
{
    size_t used = (size_t)snprintf(text, bytes, "%s[", tri_dtype_name(dtype));

    for (int d = 0; d < ndim && d < TRI_MAX_DIMS && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, d > 0 ? ", %lld" : "%lld",
                                 (long long)shape[d]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "]");
}

/* Of which this rank may have a part. */
static bool shapes_equal(const tri_tensor *tensor, const tri_state_source *source)
{
    const int64_t *shape = trii_whole_shape(tensor);

    if (tensor->ndim != source->ndim)
        return false;
    for (int d = 0; d < tensor->ndim; d++)
        if (shape[d] != source->shape[d])
            return false;
    return true;
}

static bool converts(tri_dtype dtype)
{
    return dtype == TRI_DTYPE_F16 || dtype == TRI_DTYPE_BF16 || dtype == TRI_DTYPE_F32 ||
           dtype == TRI_DTYPE_F64;
}

static void add_differing(const loading *l, names *list, const tri_state_entry *entry,
                          const tri_state_source *source, const char *between, const char *behind)
{
    const tri_tensor *tensor = entry->tensor;
    char ours[64], theirs[64], line[TRI_STATE_NAME_MAX + 320];

    shape_text(ours, sizeof(ours), tensor->dtype, trii_whole_shape(tensor), tensor->ndim);
    shape_text(theirs, sizeof(theirs), source->dtype, source->shape, source->ndim);
    if (source->dtype == TRI_DTYPE_NONE && l->reader != NULL)
        snprintf(line, sizeof(line), "%s is %s in the model, and what is loaded is %s", entry->name,
                 ours, l->reader->type_of(l->reader->arg, source - l->sources));
    else
        snprintf(line, sizeof(line), "%s is %s%s %s%s", entry->name, ours, between, theirs, behind);
    names_add(l, list, line);
}

/* --- which source belongs to which entry ---------------------------------- */

/* The name that a source has here, or NULL. */
static const char *name_here(const loading *l, const tri_state_source *source, char *room)
{
    size_t drop = l->opt.prefix != NULL ? strlen(l->opt.prefix) : 0;

    if (drop > 0 && strncmp(source->name, l->opt.prefix, drop) != 0)
        return NULL;
    return l->opt.rename != NULL ? l->opt.rename(source->name + drop, room, l->opt.arg)
                                 : source->name + drop;
}

static tri_status match_one(loading *l, int64_t s)
{
    const tri_state_source *source = &l->sources[s];
    char room[TRI_STATE_NAME_MAX] = "";
    const char *name = name_here(l, source, room);
    const tri_state_entry *entry;
    bool converted;
    int64_t at;

    if (name == NULL) {
        names_add(l, &l->left_out, source->name);
        return TRI_OK;
    }
    at = trii_module_entry(l->module, name);
    if (at < 0) {
        names_add(l, trii_module_others_have(l->module, name) ? &l->left_out : &l->unexpected,
                  name);
        return TRI_OK;
    }
    entry = &l->module->state[at];
    if (l->source_of[at] >= 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "unexpected: %s, and again from %s", entry->name,
                         source->name);
    if (l->reader == NULL && source->data == NULL && trii_tensor_bytes(entry->tensor) > 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "module_load: the data of %s is NULL", source->name);
    converted = entry->tensor->dtype != source->dtype;
    l->source_of[at] = s;
    if (!shapes_equal(entry->tensor, source) ||
        (converted &&
         !(l->opt.convert && converts(entry->tensor->dtype) && converts(source->dtype)))) {
        add_differing(l, &l->misfit, entry, source, " in the model,", " in what is loaded");
        l->may_convert |= shapes_equal(entry->tensor, source) && converts(entry->tensor->dtype) &&
                          converts(source->dtype);
        l->source_of[at] = INT64_MAX; /* found, but left out */
        return TRI_OK;
    }
    l->set++;
    if (converted) {
        add_differing(l, &l->converted, entry, source, ", converted from", "");
        if (trii_whole_bytes(entry->tensor) > l->most)
            l->most = trii_whole_bytes(entry->tensor);
    }
    return TRI_OK;
}

/* Room that one list leaves is for the others. */
static void lists_end(names **lists, int n)
{
    size_t left = LIST_BYTES;

    for (int i = 0; i < n; i++) {
        size_t later = 0, kinds = 1, share;

        if (lists[i]->n == 0)
            continue;
        for (int k = i + 1; k < n; k++) {
            later += lists[k]->n > 0 ? lists[k]->used + MORE_BYTES : 0;
            kinds += lists[k]->n > 0;
        }
        share = left / kinds;
        names_end(lists[i], later < left - share ? left - later : share);
        left -= strlen(lists[i]->text);
    }
}

/* What can be done about it. */
static void advise(const loading *l, char text[ADVICE_BYTES])
{
    size_t used = 0;

    text[0] = '\0';
    if (l->prefix[0] != '\0') {
        snprintf(text, ADVICE_BYTES,
                 "; names that begin with \"%s\" fit without it: set tri_load_options.prefix",
                 l->prefix);
        return;
    }
    if (l->opt.rename == NULL && l->left_out.n > 0 && l->left_out.n == l->n) {
        snprintf(text, ADVICE_BYTES, "; no name begins with tri_load_options.prefix");
        return;
    }
    if (l->missing.n > 0 && l->unexpected.n > 0)
        used += (size_t)snprintf(
            text, ADVICE_BYTES,
            l->near[0] != NULL ? "; tri_load_options.rename maps names, such as %.40s to %.40s"
                               : "; tri_load_options.rename maps names to others",
            l->near[0], l->near[1]);
    if (l->may_convert)
        used += (size_t)snprintf(text + used, ADVICE_BYTES - used,
                                 "; tri_load_options.convert converts dtypes");
    if (l->set > 0 && !l->opt.partial)
        snprintf(text + used, ADVICE_BYTES - used,
                 "; tri_load_options.partial sets those that fit");
}

/* The error, or for a partial load only a warning. */
static tri_status judge(loading *l)
{
    names *lists[] = {&l->missing, &l->unexpected, &l->misfit};
    const char *type = tri_module_type(tri_module_unwrapped(l->module));
    char text[LIST_BYTES + 64] = "", advice[ADVICE_BYTES];
    size_t used = 0;
    int wrong = 0;

    for (int i = 0; i < 3; i++)
        wrong += lists[i]->n;
    lists_end(lists, 3);
    if (wrong == 0 || (l->opt.partial && l->set > 0)) {
        if (wrong > 0 && l->opt.report == NULL)
            TRII_LOG(TRII_LOG_WARN, "nn",
                     "module_load: %lld of %lld entries set; %d missing, %d unexpected, %d of "
                     "another kind (tri_load_options.report lists them)",
                     (long long)l->set, (long long)l->module->n_state, l->missing.n,
                     l->unexpected.n, l->misfit.n);
        return TRI_OK;
    }
    for (int i = 0; i < 3; i++) {
        if (lists[i]->n == 0)
            continue;
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s %s: %s", used > 0 ? ";" : "",
                                 lists[i]->kind, lists[i]->text);
    }
    advise(l, advice);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s %s:%s%s",
                     l->opt.partial ? "no part of the state fits" : "state does not fit", type,
                     text, advice);
}

/* Whether a source has the name of a missing entry after something: the remedy is to drop that. */
static void find_prefix(loading *l, const char *missing)
{
    size_t length = strlen(missing);

    if (l->opt.prefix != NULL || l->opt.rename != NULL)
        return;
    for (int64_t s = 0; s < l->n; s++) {
        size_t bytes = strlen(l->sources[s].name), more = bytes - length;

        if (bytes > length && more < sizeof(l->prefix) && l->sources[s].name[more - 1] == '.' &&
            strcmp(l->sources[s].name + more, missing) == 0) {
            memcpy(l->prefix, l->sources[s].name, more);
            return;
        }
    }
}

/* The last part of a name that differs from another, "0.weigth" from "0.weight". */
static const char *differing(const char *name, const char *other)
{
    const char *from = name;

    for (size_t i = 0; name[i] != '\0' && name[i] == other[i]; i++)
        if (name[i] == '.')
            from = name + i + 1;
    return from;
}

/* Finds a source that is meant for a missing entry, most likely: of its shape, under a name that is
 * misspelt or has another spelling. */
static void find_near(loading *l, int64_t entry)
{
    const tri_state_entry *missing = &l->module->state[entry];
    int best = INT32_MAX;

    if (l->opt.rename != NULL)
        return;
    for (int64_t s = 0; s < l->n; s++) {
        const char *name = name_here(l, &l->sources[s], NULL), *there, *here;

        if (name == NULL || !shapes_equal(missing->tensor, &l->sources[s]) ||
            trii_module_entry(l->module, name) >= 0)
            continue;
        there = differing(name, missing->name);
        here = differing(missing->name, name);
        if (trii_name_nearest(there, strlen(there), &here, 1) != NULL &&
            trii_name_distance(there, strlen(there), here) < best) {
            best = trii_name_distance(there, strlen(there), here);
            l->near[0] = name;
            l->near[1] = missing->name;
        }
    }
}

static tri_status match(loading *l)
{
    int64_t missing = -1;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < l->module->n_state; i++)
        l->source_of[i] = -1;
    for (int64_t s = 0; s < l->n && status == TRI_OK; s++)
        status = match_one(l, s);
    if (status != TRI_OK)
        return status;
    for (int64_t i = 0; i < l->module->n_state; i++) {
        if (l->source_of[i] >= 0)
            continue;
        names_add(l, &l->missing, l->module->state[i].name);
        missing = missing >= 0 ? missing : i;
    }
    if (l->set == 0 && missing >= 0) /* only where it is the same for all */
        find_prefix(l, l->module->state[missing].name);
    if (missing >= 0 && l->unexpected.n > 0 && !l->opt.partial)
        find_near(l, missing);
    return judge(l);
}

static tri_status check_sources(const tri_state_source *sources, int64_t n)
{
    if (n < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "module_load: %lld sources", (long long)n);
    if (n > 0 && sources == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "module_load: sources are NULL");
    for (int64_t i = 0; i < n; i++) {
        tri_status status = TRII_CHECK_RESERVED(tri_state_source, &sources[i]);

        if (status != TRI_OK)
            return status;
        if (sources[i].name == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "module_load: source %lld has no name",
                             (long long)i);
        if (sources[i].ndim < 0 || sources[i].ndim > TRI_MAX_DIMS)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "module_load: %s has %d dimensions, 0 to %d are "
                             "allowed",
                             sources[i].name, sources[i].ndim, TRI_MAX_DIMS);
    }
    return TRI_OK;
}

/* Finds everything that can be wrong; release l->source_of with trii_free. Writes nothing. */
static tri_status prepare(loading *l, tri_module *module, const tri_state_source *sources,
                          int64_t n, const tri_load_options *opt, const trii_state_reader *reader)
{
    tri_status status = trii_module_flatten(module);

    *l = (loading){.module = module,
                   .sources = sources,
                   .n = n,
                   .opt = opt != NULL ? *opt : (tri_load_options){0},
                   .reader = reader,
                   .missing.kind = "missing",
                   .unexpected.kind = "unexpected",
                   .misfit.kind = "of another kind",
                   .left_out.kind = "left out",
                   .converted.kind = "converted"};
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_load_options, opt);
    if (status == TRI_OK)
        status = check_sources(sources, n);
    if (status != TRI_OK)
        return status;
    l->source_of = trii_alloc((size_t)module->n_state, sizeof(*l->source_of), "state match");
    if (l->source_of == NULL)
        return TRI_ERR_NO_MEMORY;
    status = match(l);
    if (status != TRI_OK) {
        trii_free(l->source_of);
        l->source_of = NULL;
    }
    return status;
}

tri_status trii_module_fits(tri_module *module, const tri_state_source *sources, int64_t n,
                            const tri_load_options *opt)
{
    loading l;
    tri_status status = prepare(&l, module, sources, n, opt, NULL);

    if (status == TRI_OK)
        trii_free(l.source_of);
    return status;
}

/* --- contents ------------------------------------------------------------- */

/* Element i of data that need not be aligned. */
static double read_number(tri_dtype dtype, const void *data, int64_t i)
{
    const char *at = (const char *)data + (size_t)i * tri_dtype_size(dtype);
    uint16_t half;
    float single;
    double number;

    switch (dtype) {
    case TRI_DTYPE_F16:
        memcpy(&half, at, sizeof(half));
        return (double)trii_f16_to_f32(half);
    case TRI_DTYPE_BF16:
        memcpy(&half, at, sizeof(half));
        return (double)trii_bf16_to_f32(half);
    case TRI_DTYPE_F32:
        memcpy(&single, at, sizeof(single));
        return (double)single;
    default:
        memcpy(&number, at, sizeof(number));
        return number;
    }
}

static void convert(const tri_tensor *tensor, const tri_state_source *source, void *room)
{
    int64_t n = (int64_t)(trii_whole_bytes(tensor) / tri_dtype_size(tensor->dtype));

    for (int64_t i = 0; i < n; i++) {
        double number = read_number(source->dtype, source->data, i);

        if (tensor->dtype == TRI_DTYPE_F64)
            ((double *)room)[i] = number;
        else if (tensor->dtype == TRI_DTYPE_F32)
            ((float *)room)[i] = (float)number;
        else if (tensor->dtype == TRI_DTYPE_BF16)
            ((uint16_t *)room)[i] = trii_f32_to_bf16((float)number);
        else
            ((uint16_t *)room)[i] = trii_f32_to_f16((float)number);
    }
}

tri_status trii_module_agree(tri_module *module, tri_status status)
{
    tri_group *cut = NULL, *sharded = NULL;

    for (int64_t i = 0; i < tri_module_state_count(module); i++) {
        const tri_tensor *tensor = module->state[i].tensor;

        if (sharded == NULL && tensor->elsewhere != NULL && tensor->elsewhere->ranks != NULL)
            sharded = tensor->elsewhere->ranks(tensor);
        if (cut == NULL && trii_tensor_is_cut(tensor))
            cut = tensor->held->group;
    }
    status = trii_ranks_agree(cut, status);
    return trii_ranks_agree(sharded, status);
}

tri_status trii_module_load(tri_module *module, const tri_state_source *sources, int64_t n,
                            const tri_load_options *opt, const trii_state_reader *reader)
{
    loading l;
    trii_opened opened = {NULL, NULL, NULL};
    void *room = NULL;
    tri_status status = prepare(&l, module, sources, n, opt, reader);

    if (status == TRI_OK && l.most > 0) {
        room = trii_alloc_aligned(64, l.most, "converted state");
        status = room != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
    }
    status = trii_module_agree(module, status);
    if (status != TRI_OK) {
        trii_free(room);
        trii_free(l.source_of);
        return status;
    }
    assert(l.source_of != NULL); /* this rank has succeeded, too */
    for (int64_t i = 0; i < module->n_state; i++) {
        tri_tensor *tensor = module->state[i].tensor;
        tri_state_source source;
        const void *data;
        tri_status before = status;

        if (l.source_of[i] < 0 || l.source_of[i] == INT64_MAX)
            continue; /* keeps its value */
        source = sources[l.source_of[i]];
        if (status == TRI_OK && reader != NULL && trii_tensor_bytes(tensor) > 0)
            status = reader->data(reader->arg, l.source_of[i], &source.data);
        data = source.data;
        if (status == TRI_OK && source.dtype != tensor->dtype && trii_tensor_bytes(tensor) > 0) {
            assert(room != NULL); /* l.most counts this one too */
            convert(tensor, &source, room);
            data = room;
        }
        status = trii_opened_next(&opened, tensor, status);
        if (status == TRI_OK && trii_tensor_is_cut(tensor))
            status = trii_whole_take(tensor, data);
        else if (status == TRI_OK)
            status = tri_tensor_copy_in(tensor, data, trii_tensor_bytes(tensor));
        if (before == TRI_OK && status != TRI_OK)
            trii_err_prepend("%s", module->state[i].name);
    }
    status = trii_opened_end(&opened, status);
    trii_free(room);
    trii_free(l.source_of);
    return status;
}

tri_status(tri_module_load)(tri_module *module, const tri_state_source *sources, int64_t n,
                            const tri_load_options *opt)
{
    return trii_module_load(module, sources, n, opt, NULL);
}
