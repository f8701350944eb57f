/*
 * served_stay.c - results that other owners read, and not the caller: they stay in tensors of their
 * own, from the run that makes them until the last reader has them, their call is released, or the
 * caller is gone. Another owner asks the object of the module for one: a thread that receives
 * answers, so a reader never waits for the thread of that module, which may be reading something
 * itself.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/parallel/rpc/remote_internal.h"

/* To this size the thread that receives requests copies it. */
#define SMALL ((size_t)64 << 10)

/* --- what stays here ------------------------------------------------------ */

tri_status trii_stay_record(trii_step *step, trii_vid id, tri_tensor **tensor_out)
{
    bool requires_grad = step->values[id].requires_grad;
    const trii_type *type;
    tri_status status = TRI_OK;
    trii_vid here = id;

    if (step->values[id].type.device != TRI_CPU(0))
        status = trii_record_to(step, id, TRI_CPU(0), &here);
    if (status != TRI_OK)
        return status;
    type = &step->values[here].type;
    status = trii_tensor_create(type->dtype, type->shape, type->ndim, type->device, tensor_out);
    if (status != TRI_OK)
        return status;
    (*tensor_out)->stays_plain = true; /* others read it as it lies */
    status = trii_bind(step, here, *tensor_out);
    step->values[id].requires_grad =
        requires_grad; /* the tensor has none: its readers are others */
    return status;
}

static tri_status add(trii_served *s, uint64_t session, uint64_t number, uint32_t result,
                      tri_tensor *tensor)
{
    trii_stay *stay = trii_alloc(1, sizeof(*stay), "result for other workers");

    if (stay == NULL)
        return TRI_ERR_NO_MEMORY;
    *stay = (trii_stay){NULL, session, number, result, tri_tensor_ref(tensor)};
    trii_mutex_lock(&s->lock);
    stay->next = s->stays;
    s->stays = stay;
    trii_mutex_unlock(&s->lock);
    return TRI_OK;
}

static void free_list(trii_stay *list)
{
    while (list != NULL) {
        trii_stay *next = list->next;

        tri_tensor_unref(list->tensor);
        trii_free(list);
        list = next;
    }
}

void trii_stays_drop(trii_served *s, uint64_t session, uint64_t number)
{
    trii_stay **at = &s->stays, *dropped = NULL;

    trii_mutex_lock(&s->lock);
    while (*at != NULL) {
        trii_stay *stay = *at;

        if ((session != 0 && stay->session != session) || (number != 0 && stay->number != number)) {
            at = &stay->next;
            continue;
        }
        *at = stay->next;
        stay->next = dropped;
        dropped = stay;
    }
    trii_mutex_unlock(&s->lock);
    free_list(dropped);
}

tri_status trii_stays_add(trii_served *s, uint64_t session, uint64_t number,
                          tri_tensor *const stay[TRI_REMOTE_TENSORS])
{
    tri_status status = TRI_OK;

    for (int k = 0; k < TRI_REMOTE_TENSORS && status == TRI_OK; k++) {
        if (stay[k] != NULL)
            status = add(s, session, number, (uint32_t)k, stay[k]);
    }
    if (status != TRI_OK)
        trii_stays_drop(s, session, number);
    return status;
}

void trii_stays_unref(tri_tensor *stay[TRI_REMOTE_TENSORS])
{
    for (int k = 0; k < TRI_REMOTE_TENSORS; k++)
        tri_tensor_unref(stay[k]);
}

/* A reference; NULL: it is not here (error line). */
static tri_tensor *find(trii_served *s, const trii_remote_source *source)
{
    trii_stay **at = &s->stays, *stay, *last = NULL;
    tri_tensor *tensor = NULL;

    trii_mutex_lock(&s->lock);
    while (*at != NULL && ((*at)->session != source->session || (*at)->number != source->number ||
                           (*at)->result != source->result))
        at = &(*at)->next;
    stay = *at;
    if (stay != NULL)
        tensor = tri_tensor_ref(stay->tensor);
    s->n_read += stay != NULL;
    if (stay != NULL && (source->flags & TRII_REMOTE_LAST) != 0) {
        *at = stay->next;
        stay->next = NULL;
        last = stay;
    }
    trii_mutex_unlock(&s->lock);
    free_list(last);
    if (tensor == NULL)
        trii_err_set("result %u of a call of %s has been dropped", source->result, s->name);
    return tensor;
}

static trii_type type_of(const tri_tensor *tensor)
{
    trii_type type = {.dtype = tensor->dtype, .ndim = tensor->ndim};

    memcpy(type.shape, tensor->shape, sizeof(type.shape));
    return type;
}

static tri_status answer(tri_rpc_request *request, const tri_tensor *tensor)
{
    const trii_type type = type_of(tensor);
    const tri_rpc_part part = {trii_tensor_data(tensor), trii_tensor_bytes(tensor)};
    struct {
        trii_remote_results head;
        trii_remote_type type;
    } reply = {.head = {.magic = TRII_REMOTE_MAGIC, .n_types = 1}};

    trii_remote_type_put(&reply.type, &type);
    return tri_rpc_reply(
        request,
        &(tri_rpc_message){.data = &reply, .bytes = sizeof(reply), .parts = &part, .n_parts = 1});
}

static tri_status run_fetch(tri_rpc_request *request, void *object)
{
    const tri_rpc_message *in = tri_rpc_request_message(request);
    trii_remote_source source;
    trii_served *s;
    tri_tensor *tensor;
    tri_status status;

    if (in->bytes != sizeof(source))
        return trii_remote_refuse("fetch");
    memcpy(&source, in->data, sizeof(source));
    if (source.magic != TRII_REMOTE_MAGIC)
        return trii_remote_refuse("fetch");
    s = trii_served_find(object);
    if (s == NULL)
        return TRII_FAIL(TRI_ERR_STATE, "it is not a remote module, or is not served any more");
    tensor = find(s, &source);
    status = tensor != NULL ? answer(request, tensor) : TRI_ERR_STATE;
    tri_tensor_unref(tensor);
    trii_served_unref(s);
    return status;
}

#define ANY_PART (SIZE_MAX / 2)
const tri_rpc_function trii_remote_fetch = {
    .name = "remote.fetch", .max_part = SMALL, .flags = TRI_RPC_INLINE, .run = run_fetch};
const tri_rpc_function trii_remote_fetch_large = {
    .name = "remote.fetch_large", .max_part = ANY_PART, .run = run_fetch};

/* --- what stays elsewhere ------------------------------------------------- */

static tri_rpc_ref *place_of(const trii_session *session, const trii_remote_source *source)
{
    const trii_remote_place *place = session->places;

    while (place != NULL && place->session != source->session)
        place = place->next;
    return place != NULL ? place->ref : NULL;
}

tri_status trii_places_add(trii_session *session, const tri_rpc_message *m,
                           const trii_remote_source *sources, uint32_t n, uint64_t elsewhere)
{
    int used = 0;

    for (uint32_t i = 0; i < n; i++) {
        trii_remote_place *place;

        if ((elsewhere >> i & 1) == 0 || (sources[i].flags & TRII_REMOTE_WITH_REF) == 0)
            continue;
        if (used >= m->n_refs)
            return trii_remote_refuse("fewer references than sources");
        if (place_of(session, &sources[i]) != NULL) {
            used++;
            continue;
        }
        place = trii_alloc(1, sizeof(*place), "place of results");
        if (place == NULL)
            return TRI_ERR_NO_MEMORY;
        place->session = sources[i].session;
        place->ref = tri_rpc_ref_ref(m->refs[used++]);
        place->next = session->places;
        session->places = place;
    }
    return TRI_OK;
}

void trii_places_drop(trii_session *session)
{
    while (session->places != NULL) {
        trii_remote_place *place = session->places;

        session->places = place->next;
        tri_rpc_ref_unref(place->ref);
        trii_free(place);
    }
}

/* Replies that lie in the memory of other workers, which allow so many of any size at least. A
 * pipeline keeps the inputs of all its micro-batches until their backwards. */
#define HELD 8
static atomic_int n_held;

static void release_message(void *arg)
{
    tri_rpc_message_free(arg);
    trii_free(arg);
    atomic_fetch_sub(&n_held, 1);
}

static void release_tensor(void *arg)
{
    tri_tensor_unref(arg);
}

/* Where the contents lie now, until release(owner). */
static tri_tensor *wrap(const trii_type *type, const void *data, void (*release)(void *owner),
                        void *owner)
{
    tri_tensor *tensor = tri_tensor_wrap(type->shape, type->ndim, type->dtype,
                                         (void *)(uintptr_t)data, release, owner);

    if (tri_tensor_status(tensor) != TRI_OK)
        release(owner);
    return tensor;
}

static tri_status check_type(const trii_remote_source *source, const char *owner,
                             const trii_type *have, const trii_type *want)
{
    char have_text[TRII_TYPE_TEXT], want_text[TRII_TYPE_TEXT];

    if (have->dtype == want->dtype && trii_type_same_shape(have, want))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_MISMATCH,
                     "result %u of a module of worker %s is %s, and was %s when it was asked: the "
                     "types of a module's results may depend on those of its inputs alone",
                     source->result, owner, trii_type_text(have, have_text),
                     trii_type_text(want, want_text));
}

/* Of another module of this worker. */
static tri_tensor *read_here(trii_served *from, const trii_remote_source *source,
                             const trii_type *type)
{
    tri_tensor *tensor = find(from, source);
    trii_type have;
    tri_status status;

    if (tensor == NULL)
        return trii_tensor_failed(TRI_ERR_STATE);
    have = type_of(tensor);
    status = check_type(source, tri_rpc_name(from->rpc), &have, type);
    if (status == TRI_OK)
        return wrap(type, trii_tensor_data(tensor), release_tensor, tensor);
    tri_tensor_unref(tensor);
    return trii_tensor_failed(status);
}

/* Also ends when the caller of the request has gone. */
static tri_status call_and_wait(tri_rpc_ref *to, const tri_rpc_function *function,
                                tri_rpc_request *request, const trii_remote_source *source,
                                tri_rpc_message *reply)
{
    int64_t left = tri_rpc_request_left_ms(request);
    const tri_rpc_call_options options = {.timeout_ms = left > 0 || left == TRI_FOREVER ? left : 1};
    tri_rpc_call *call = NULL;
    int which;
    tri_status status =
        (tri_rpc_async)(to, function, &(tri_rpc_message){.data = source, .bytes = sizeof(*source)},
                        &options, &call);

    if (status != TRI_OK)
        return status;
    while (tri_rpc_wait_any(&call, 1, TRII_REMOTE_WATCH_MS, &which) != TRI_OK) {
        if (tri_rpc_request_is_cancelled(request))
            tri_rpc_call_cancel(call);
    }
    status = tri_rpc_call_test(call);
    if (status == TRI_OK)
        status = tri_rpc_call_take_reply(call, reply);
    tri_rpc_call_destroy(call);
    return status;
}

static tri_status fetch(tri_rpc_ref *from, tri_rpc_request *request,
                        const trii_remote_source *source, const trii_type *type,
                        tri_rpc_message *reply)
{
    const tri_rpc_function *function =
        trii_type_bytes(type) <= SMALL ? &trii_remote_fetch : &trii_remote_fetch_large;
    trii_remote_results head;
    trii_type have;
    tri_status status = call_and_wait(from, function, request, source, reply);

    /* NOT_FOUND would tell the caller that this module is not served any more */
    if (status != TRI_OK)
        return status == TRI_ERR_NOT_FOUND ? TRI_ERR_STATE : status;
    status = trii_remote_types_get(reply, sizeof(head), 1, 0, 0, &have);
    if (status == TRI_OK)
        status = check_type(source, tri_rpc_ref_owner(from), &have, type);
    if (status != TRI_OK)
        tri_rpc_message_free(reply);
    return status;
}

tri_tensor *trii_stay_read(const trii_session *session, tri_rpc_request *request,
                           const trii_remote_source *source, const trii_type *type)
{
    tri_rpc_ref *from = place_of(session, source);
    tri_rpc_message *reply;
    trii_served *here;
    tri_tensor *tensor;
    tri_status status;

    if ((source->flags & TRII_REMOTE_ZEROS) != 0)
        return trii_remote_untouched(type);
    if (from == NULL)
        return trii_tensor_failed(TRII_FAIL(TRI_ERR_STATE, "nobody has said where an operand is"));
    here = trii_served_find(tri_rpc_ref_object(from));
    if (here != NULL) {
        tensor = read_here(here, source, type);
        trii_served_unref(here);
        return tensor;
    }
    reply = trii_alloc(1, sizeof(*reply), "result of another worker");
    if (reply == NULL)
        return trii_tensor_failed(TRI_ERR_NO_MEMORY);
    status = fetch(from, request, source, type, reply);
    if (status != TRI_OK) {
        trii_free(reply);
        return trii_tensor_failed(status);
    }
    if (atomic_fetch_add(&n_held, 1) < HELD)
        return wrap(type, reply->parts[0].data, release_message, reply);
    tensor = tri_tensor_from(type->shape, type->ndim, type->dtype, reply->parts[0].data);
    release_message(reply);
    return tensor;
}
