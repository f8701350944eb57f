/*
 * unit.c - a unit's life, and which gradients it makes whole: those of parameters that require one.
 * All others are watched: one that is unfrozen later must not be trained by each rank for itself,
 * so before the next synchronised forward it gets its view in the buckets, on all ranks.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "train/dist/unit_collective.h"
#include "train/graph/step/grads.h"

/* --- parameters ----------------------------------------------------------- */

tri_status trii_unit_room(trii_unit *unit, size_t room)
{
    unit->placed = trii_alloc(room, sizeof(*unit->placed), "parameters of a model");
    return unit->placed != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

void trii_unit_add(trii_unit *unit, const char *name, tri_tensor *param)
{
    for (int i = 0; i < unit->n_placed; i++)
        if (unit->placed[i].tensor == param)
            return;
    unit->placed[unit->n_placed++] =
        (trii_placed){.unit = unit, .tensor = tri_tensor_ref(param), .name = name};
}

/* Whether another living unit makes its gradient whole; one that only watches it does not. */
static bool is_trained_elsewhere(const trii_unit *unit, const tri_tensor *tensor)
{
    return trii_unit_of(tensor) != NULL && trii_unit_of(tensor) != unit &&
           tensor->placed->gradient == TRII_PLACEMENT_PARTIAL;
}

static bool is_trained(const trii_placed *placed)
{
    return placed->gradient == TRII_PLACEMENT_PARTIAL || placed->tensor->requires_grad;
}

static tri_status count_trained(const trii_unit *unit, int *n_out)
{
    *n_out = 0;
    for (int i = 0; i < unit->n_placed; i++) {
        const trii_placed *placed = &unit->placed[i];

        if (!is_trained(placed))
            continue;
        if (placed->tensor->dtype != TRI_DTYPE_F32 && placed->tensor->dtype != TRI_DTYPE_F64)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "%s is %s: what is trained must be f32 or f64 (tri_autocast_begin "
                             "computes in 16 bits)",
                             placed->name, tri_dtype_name(placed->tensor->dtype));
        if (is_trained_elsewhere(unit, placed->tensor))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s is trained by another model of %s, which averages its "
                             "gradients: two models may share what is frozen",
                             placed->name, trii_unit_of(placed->tensor)->call);
        ++*n_out;
    }
    return *n_out > 0 ? TRI_OK : TRII_FAIL(TRI_ERR_INVALID_ARG, "no parameter requires a gradient");
}

static void free_lists(trii_unit *unit)
{
    for (int i = 0; i < unit->n_params; i++)
        tri_tensor_unref(unit->params[i].bucket_view);
    trii_free(unit->params);
    trii_free(unit->observed);
    trii_free(unit->grad_of);
    trii_free(unit->map);
    unit->params = NULL;
    unit->observed = NULL;
    unit->grad_of = NULL;
    unit->map = NULL;
    unit->n_params = 0;
}

/* What a hook keeps of those that were listed before, which stay in one order. */
static tri_status carry_kept(trii_unit *unit, int count)
{
    trii_hook_memory *before = unit->averager.kept, *kept;
    int n = 0, k = 0;

    if (before == NULL)
        return TRI_OK;
    kept = trii_alloc((size_t)count, sizeof(*kept), "memory of a hook");
    if (kept == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < unit->n_placed; i++) {
        if (unit->placed[i].gradient == TRII_PLACEMENT_PARTIAL)
            kept[n] = before[k++];
        n += is_trained(&unit->placed[i]);
    }
    trii_free(before);
    unit->averager.kept = kept;
    unit->averager.n_items = count;
    return TRI_OK;
}

static tri_status make_lists(trii_unit *lists, size_t n)
{
    lists->params = trii_alloc(n, sizeof(*lists->params), "parameters of a model");
    lists->observed = trii_alloc(n, sizeof(*lists->observed), "order of gradients");
    lists->grad_of = trii_alloc(n, sizeof(*lists->grad_of), "gradients of a model");
    lists->map = trii_alloc(n, 1, "used parameters");
    return lists->params != NULL && lists->observed != NULL && lists->grad_of != NULL &&
                   lists->map != NULL
               ? TRI_OK
               : TRI_ERR_NO_MEMORY;
}

/* On failure those of before are still there: a forward that was recorded may go back yet. */
tri_status trii_unit_list(trii_unit *unit)
{
    static _Atomic uint32_t last_id;
    trii_unit made = {.n_params = 0}; /* of which only the lists count */
    int count = 0;
    tri_status status = count_trained(unit, &count);

    if (status == TRI_OK)
        status = make_lists(&made, (size_t)count);
    if (status == TRI_OK)
        status = carry_kept(unit, count);
    if (status != TRI_OK) {
        free_lists(&made);
        return status;
    }
    free_lists(unit);
    unit->params = made.params;
    unit->observed = made.observed;
    unit->grad_of = made.grad_of;
    unit->map = made.map;
    for (int i = 0; i < unit->n_placed; i++) {
        trii_placed *placed = &unit->placed[i];

        if (!is_trained(placed))
            continue;
        placed->gradient = TRII_PLACEMENT_PARTIAL;
        placed->index = unit->n_params;
        unit->params[unit->n_params++] = (trii_unit_param){
            .name = placed->name, .tensor = placed->tensor, .home = placed->tensor, .place = i};
    }
    unit->has_observed = unit->rebuilt = unit->any_layout = false;
    unit->id = ++last_id;
    return TRI_OK;
}

void trii_unit_place(trii_unit *unit)
{
    for (int i = 0; i < unit->n_placed; i++) {
        const trii_placed *placed = &unit->placed[i];

        if (placed->tensor->placed != placed &&
            (placed->gradient == TRII_PLACEMENT_PARTIAL || placed->tensor->placed == NULL))
            placed->tensor->placed = placed;
        if (placed->piece != NULL)
            placed->piece->placed = placed;
    }
}

bool trii_unit_grew(const trii_unit *unit)
{
    for (int i = 0; i < unit->n_placed; i++)
        if (TRII_UNLIKELY(unit->placed[i].gradient == TRII_PLACEMENT_WHOLE &&
                          unit->placed[i].tensor->requires_grad))
            return true;
    return false;
}

bool trii_unit_have_grads(const trii_unit *unit)
{
    for (int i = 0; i < unit->n_placed; i++) {
        const trii_placed *placed = &unit->placed[i];

        if (trii_has_grad(placed->tensor) ||
            (placed->piece != NULL && trii_has_grad(placed->piece)))
            return true;
    }
    return false;
}

static void free_placed(trii_unit *unit)
{
    for (int i = 0; i < unit->n_placed; i++) {
        tri_tensor *tensor = unit->placed[i].tensor;

        if (trii_unit_of(tensor) == unit) {
            tensor->placed = NULL;
            trii_grad_promise(tensor, false);
        }
        tri_tensor_unref(tensor);
    }
    trii_free(unit->placed);
}

/* --- life ----------------------------------------------------------------- */

static tri_status make_one(tri_dtype dtype, const void *one, tri_tensor **one_out)
{
    tri_status status = trii_tensor_create(dtype, NULL, 0, TRI_CPU(0), one_out);

    return status == TRI_OK ? tri_tensor_copy_in(*one_out, one, tri_dtype_size(dtype)) : status;
}

tri_status trii_unit_set_up(trii_unit *unit)
{
    tri_status status = make_one(TRI_DTYPE_F32, &(const float){1}, &unit->one[0]);

    if (status == TRI_OK)
        status = make_one(TRI_DTYPE_F64, &(const double){1}, &unit->one[1]);
    if (status == TRI_OK)
        status = trii_unit_buckets_make(unit);
    return status == TRI_OK && unit->stage > 0 ? trii_unit_shard(unit) : status;
}

void trii_unit_free(trii_unit *unit)
{
    trii_unit_shards_free(unit);
    trii_unit_buckets_free(unit);
    trii_unit_colls_free(unit->headers);
    trii_unit_colls_free(unit->counts);
    trii_unit_steps_free(unit);
    tri_tensor_unref(unit->one[0]);
    tri_tensor_unref(unit->one[1]);
    free_placed(unit);
    free_lists(unit);
    tri_group_unref(unit->apart);
    tri_group_unref(unit->within);
    tri_group_unref(unit->across);
    tri_group_unref(unit->axis);
    tri_group_unref(unit->group);
}
