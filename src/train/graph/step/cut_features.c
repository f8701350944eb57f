/*
 * cut_features.c - see cut_features.h. The blocks of a network cut alike, so a few are all there
 * are.
 */
#include "train/graph/step/cut_features.h"

#include "train/graph/step/step.h"

#define MOST 16

static _Thread_local struct {
    uint64_t generation; /* of the step */
    int n;
    trii_cut_features features[MOST]; /* the last one last */
} noted;

static uint64_t generation_now(void)
{
    const trii_step *step = trii_step_current();

    return step != NULL ? step->generation : 0;
}

static int count_now(void)
{
    return noted.generation == generation_now() ? noted.n : 0;
}

trii_cut_features trii_cut_features_now(void)
{
    int n = count_now();

    return n > 0 ? noted.features[n - 1] : (trii_cut_features){.parts = 0};
}

static bool is_over(const trii_cut_features *f, const trii_cut_features *group)
{
    return (f->group == group->group || f->group == 0) && f->ranks == group->ranks &&
           f->rank == group->rank;
}

trii_cut_features trii_cut_features_over(const trii_cut_features *group)
{
    for (int i = count_now() - 1; i >= 0; i--) {
        if (noted.features[i].parts > 0 && is_over(&noted.features[i], group))
            return noted.features[i];
        if (noted.features[i].group == 0) /* a stage begins: what is before is of another one */
            break;
    }
    return (trii_cut_features){.parts = 0};
}

static bool are_same(const trii_cut_features *a, const trii_cut_features *b)
{
    return a->parts == b->parts && a->whole == b->whole && a->start == b->start && a->n == b->n &&
           a->group == b->group;
}

void trii_cut_features_note(const trii_cut_features *features)
{
    const trii_cut_features last = *features; /* it may be one of those below */
    int n = count_now(), kept = 0;

    for (int i = n == MOST; i < n; i++) {
        if (!are_same(&noted.features[i], &last))
            noted.features[kept++] = noted.features[i];
    }
    noted.features[kept++] = last;
    noted.n = kept;
    noted.generation = generation_now();
}

/* --- parts ---------------------------------------------------------------- */

/* Between a layer and the next are few values: enough for the activations that programs write. */
#define MOST_LOOKED_AT 64

/* What takes the outputs of a layer follows it. */
static _Thread_local struct {
    uint64_t generation; /* of the step */
    uint32_t n;
    trii_vid values[MOST];
} in_parts;

void trii_cut_parts_note(trii_vid value)
{
    if (in_parts.generation != generation_now())
        in_parts.n = 0;
    in_parts.generation = generation_now();
    in_parts.values[in_parts.n++ % MOST] = value;
}

static bool is_noted(trii_vid x)
{
    for (uint32_t i = 0; i < in_parts.n && i < MOST; i++) {
        if (in_parts.values[i] == x)
            return true;
    }
    return false;
}

static int64_t features_of(const trii_step *step, trii_vid x)
{
    const trii_type *type = trii_type_of(step, x);

    return type->ndim > 0 ? type->shape[type->ndim - 1] : 0;
}

static bool reaches(const trii_step *step, trii_vid x, int *looked_at)
{
    const trii_node *node;

    if (is_noted(x))
        return true;
    if (step->values[x].node < 0 || ++*looked_at > MOST_LOOKED_AT)
        return false;
    node = &step->nodes[step->values[x].node];
    if (node->op->op_class != TRII_CLASS_ELEMENTWISE && node->op->op_class != TRII_CLASS_VIEW)
        return false;
    for (int i = 0; i < node->n_in; i++) {
        trii_vid in = trii_node_in(step, node, i);

        if (in != TRII_NO_VALUE && features_of(step, in) == features_of(step, x) &&
            reaches(step, in, looked_at))
            return true;
    }
    return false;
}

bool trii_cut_parts_reach(trii_vid x)
{
    const trii_step *step = trii_step_current();
    int looked_at = 0;

    return step != NULL && in_parts.generation == step->generation && reaches(step, x, &looked_at);
}

/* --- inputs --------------------------------------------------------------- */

static _Thread_local struct {
    uint64_t generation; /* of the step */
    trii_vid value;
} input;

bool trii_cut_input_is_noted(void)
{
    return input.generation == generation_now();
}

void trii_cut_input_note(trii_vid x)
{
    input.generation = generation_now();
    input.value = x;
}

trii_vid trii_cut_input_now(void)
{
    return trii_cut_input_is_noted() ? input.value : TRII_NO_VALUE;
}

/* --- heads ---------------------------------------------------------------- */

static bool may_be(const trii_cut_features *f, int64_t heads, int64_t width)
{
    return f->n > 0 && width > 0 && f->n == heads * width && f->whole % width == 0;
}

/* Of the whole, the queries here are the part that the keys here are, or of one key some. */
static bool are_together(const trii_cut_features *queries, const trii_cut_features *keys,
                         bool is_one)
{
    int64_t before = queries->start * keys->whole - keys->start * queries->whole;
    int64_t after =
        (keys->start + keys->n) * queries->whole - (queries->start + queries->n) * keys->whole;

    return is_one ? before >= 0 && after >= 0 : before == 0 && after == 0;
}

bool trii_cut_heads_fit(const trii_cut_heads *heads, trii_cut_features *queries,
                        trii_cut_features *keys)
{
    bool fits = true;
    int n = count_now();

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n && may_be(&noted.features[i], heads->queries, heads->query_width);
             k++) {
            if (!may_be(&noted.features[k], heads->keys, heads->key_width))
                continue;
            if (are_together(&noted.features[i], &noted.features[k], heads->keys == 1))
                return true;
            fits = false;
            *queries = noted.features[i];
            *keys = noted.features[k];
        }
    }
    return fits;
}
