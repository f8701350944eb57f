/*
 * pickle_calls.c - what the calls in torch's files stand for (pickle.h): tensors, storages,
 * dictionaries. Any other is not made: it becomes an object that says what it would be.
 *
 * Tensors: torch/_utils.py, _rebuild_tensor_v2 and its kin.
 */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "train/torch/pickle.h"
#include "train/torch/torch_dtype.h"

static const trii_value *arg(const trii_value *args, int64_t i)
{
    return i < args->v.n ? (const trii_value *)args->v.items[i] : NULL;
}

static bool is_kind(const trii_value *value, tri_torch_kind kind)
{
    return value != NULL && value->v.kind == kind;
}

static bool is_class(const trii_value *value, const char *name)
{
    return is_kind(value, TRI_TORCH_OBJECT) && value->is_class && strcmp(value->v.text, name) == 0;
}

/* --- storages ------------------------------------------------------------- */

/* ('storage', class, key, device, numel), and in legacy files a sixth: None, or (key of the view,
 * first element, numel of the view). */
tri_status trii_pickle_persistent(trii_pickle *p, const trii_value *id, trii_value **made_out)
{
    const trii_value *class = arg(id, 1), *key = arg(id, 2), *numel = arg(id, 4),
                     *view = arg(id, 5);
    trii_value *made;

    if (!is_kind(id, TRI_TORCH_TUPLE) || !is_kind(arg(id, 0), TRI_TORCH_TEXT))
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "not the id of a storage");
    if (strcmp(arg(id, 0)->v.text, "module") == 0) { /* legacy: a class, with its source text */
        made = trii_value_new(p, TRI_TORCH_OBJECT);
        if (made == NULL)
            return TRI_ERR_NO_MEMORY;
        if (!is_kind(class, TRI_TORCH_OBJECT))
            return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "not the id of a class");
        *made = *class;
        *made_out = made;
        return TRI_OK;
    }
    if (strcmp(arg(id, 0)->v.text, "storage") != 0 || !is_kind(class, TRI_TORCH_OBJECT) ||
        !is_kind(key, TRI_TORCH_TEXT) || !is_kind(numel, TRI_TORCH_INT) || numel->v.integer < 0)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "not the id of a storage");
    made = trii_value_new(p, TRI_TORCH_OBJECT);
    if (made == NULL)
        return TRI_ERR_NO_MEMORY;
    made->storage = trii_arena_take(p->arena, 1, sizeof(*made->storage));
    if (made->storage == NULL)
        return TRI_ERR_NO_MEMORY;
    *made->storage = (trii_torch_storage){.key = key->v.text,
                                          .dtype = trii_torch_dtype_of_storage(class->v.text),
                                          .numel = (uint64_t)numel->v.integer};
    made->v.text = class->v.text;
    made->v.bytes = class->v.bytes;
    if (made->storage->dtype == NULL &&
        strcmp(class->v.text, "torch.storage.UntypedStorage") != 0 &&
        strcmp(class->v.text, "torch.UntypedStorage") != 0)
        return TRII_PICKLE_FAIL(p, TRI_ERR_UNSUPPORTED, "a storage of class %.80s", class->v.text);
    if (is_kind(view, TRI_TORCH_TUPLE)) {
        const trii_value *first = arg(view, 1), *length = arg(view, 2);

        if (!is_kind(first, TRI_TORCH_INT) || first->v.integer < 0 ||
            !is_kind(length, TRI_TORCH_INT) || length->v.integer < 0 ||
            first->v.integer > numel->v.integer ||
            length->v.integer > numel->v.integer - first->v.integer)
            return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a view that its storage does not hold");
        made->storage->first = (uint64_t)first->v.integer;
    }
    if (__builtin_mul_overflow(made->storage->numel,
                               made->storage->dtype != NULL ? made->storage->dtype->size : 1,
                               &made->storage->bytes))
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a storage whose size no number holds");
    made->storage->next = p->storages;
    p->storages = made->storage;
    *made_out = made;
    return TRI_OK;
}

/* --- tensors -------------------------------------------------------------- */

/* [n] numbers that are not negative. */
static tri_status read_sizes(trii_pickle *p, const trii_value *tuple, const char *what,
                             int64_t *sizes, int *n_out)
{
    if (!is_kind(tuple, TRI_TORCH_TUPLE) && !is_kind(tuple, TRI_TORCH_LIST))
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "the %s of a tensor is not a tuple", what);
    if (tuple->v.n > TRI_MAX_DIMS)
        return TRII_PICKLE_FAIL(p, TRI_ERR_UNSUPPORTED,
                                "a tensor of %" PRId64 " dimensions, at most %d are allowed",
                                tuple->v.n, TRI_MAX_DIMS);
    for (int64_t i = 0; i < tuple->v.n; i++) {
        const trii_value *size = arg(tuple, i);

        if (!is_kind(size, TRI_TORCH_INT) || size->v.integer < 0)
            return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT,
                                    "number %" PRId64 " of a tensor's %s is not a size", i, what);
        sizes[i] = size->v.integer;
    }
    *n_out = (int)tuple->v.n;
    return TRI_OK;
}

/* Elements, bytes, and whether the storage has all that the strides lead to. */
static tri_status check_extent(trii_pickle *p, tri_torch_tensor *t, const trii_torch_dtype *dtype,
                               const trii_torch_storage *storage)
{
    uint64_t numel = 1, last, room = storage->bytes / dtype->size;
    bool fits = !__builtin_add_overflow(t->offset, (int64_t)storage->first, &t->offset);

    for (int d = 0; d < t->ndim; d++)
        fits = fits && !__builtin_mul_overflow(numel, (uint64_t)t->shape[d], &numel);
    if (!fits || __builtin_mul_overflow(numel, (uint64_t)dtype->size, &t->bytes))
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a tensor whose size no number holds");
    t->storage_bytes = storage->bytes;
    last = (uint64_t)t->offset;
    if (numel == 0)
        return TRI_OK;
    for (int d = 0; d < t->ndim; d++) {
        uint64_t step;

        fits = fits &&
               !__builtin_mul_overflow((uint64_t)t->shape[d] - 1, (uint64_t)t->stride[d], &step) &&
               !__builtin_add_overflow(last, step, &last);
    }
    if (!fits || last >= room)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT,
                                "a tensor of which element %" PRIu64
                                " of storage %.40s is a part, which has %" PRIu64,
                                last, storage->key, room);
    return TRI_OK;
}

/* Values that torch changes only when they are read: conj(), and .imag of that. */
static tri_status check_bits(trii_pickle *p, const trii_value *bits)
{
    static const char *const names[] = {"conj", "neg"};

    for (size_t i = 0; i < TRII_COUNT_OF(names) && bits != NULL; i++) {
        const tri_torch_value *bit = tri_torch_item(&bits->v, names[i]);

        if (bit != NULL && (bit->kind != TRI_TORCH_BOOL || bit->integer != 0))
            return TRII_PICKLE_FAIL(p, TRI_ERR_UNSUPPORTED,
                                    "a tensor with the %s bit set: save its resolve_%s()", names[i],
                                    names[i]);
    }
    return TRI_OK;
}

/* (storage, offset, size, stride, requires_grad, hooks), in version 3 a dtype, and the bits. */
static tri_status make_tensor(trii_pickle *p, const trii_value *args, bool has_dtype,
                              trii_value **made_out)
{
    const trii_value *storage = arg(args, 0), *offset = arg(args, 1), *named = arg(args, 6);
    const trii_torch_dtype *dtype = NULL;
    trii_value *made = trii_value_new(p, TRI_TORCH_TENSOR);
    tri_torch_tensor *t = trii_arena_take(p->arena, 1, sizeof(*t));
    int n_strides = 0;
    tri_status status;

    if (made == NULL || t == NULL)
        return TRI_ERR_NO_MEMORY;
    if (!is_kind(storage, TRI_TORCH_OBJECT) || storage->storage == NULL)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a tensor without a storage");
    if (!is_kind(offset, TRI_TORCH_INT) || offset->v.integer < 0)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a tensor's offset is not a size");
    if (!has_dtype)
        dtype = storage->storage->dtype != NULL ? storage->storage->dtype
                                                : trii_torch_dtype_of(TRI_DTYPE_U8);
    else if (is_kind(named, TRI_TORCH_OBJECT))
        dtype = trii_torch_dtype_named(named->v.text);
    if (dtype == NULL)
        return TRII_PICKLE_FAIL(p, TRI_ERR_UNSUPPORTED, "a tensor of dtype %.80s",
                                is_kind(named, TRI_TORCH_OBJECT) ? named->v.text : "(none)");
    t->offset = offset->v.integer;
    status = read_sizes(p, arg(args, 2), "size", t->shape, &t->ndim);
    if (status == TRI_OK)
        status = read_sizes(p, arg(args, 3), "stride", t->stride, &n_strides);
    if (status == TRI_OK && n_strides != t->ndim)
        status = TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a tensor of %d sizes and %d strides", t->ndim,
                                  n_strides);
    if (status == TRI_OK)
        status = check_extent(p, t, dtype, storage->storage);
    if (status == TRI_OK)
        status = check_bits(p, arg(args, has_dtype ? 7 : 6));
    if (status != TRI_OK)
        return status;
    t->dtype = dtype->dtype;
    t->type_name = dtype->name;
    t->element_bytes = dtype->size;
    t->storage = storage->storage->key;
    t->requires_grad = is_kind(arg(args, 4), TRI_TORCH_BOOL) && arg(args, 4)->v.integer != 0;
    made->v.tensor = made->tensor = t;
    *made_out = made;
    return TRI_OK;
}

/* (tensor, requires_grad, hooks): a tensor of its own, since the same may be shared. */
static tri_status make_parameter(trii_pickle *p, const trii_value *args, trii_value **made_out)
{
    const trii_value *tensor = arg(args, 0);
    trii_value *made = trii_value_new(p, TRI_TORCH_TENSOR);
    tri_torch_tensor *t = trii_arena_take(p->arena, 1, sizeof(*t));

    if (made == NULL || t == NULL)
        return TRI_ERR_NO_MEMORY;
    if (!is_kind(tensor, TRI_TORCH_TENSOR))
        return TRII_PICKLE_FAIL(p, TRI_ERR_UNSUPPORTED,
                                "a parameter that is of no plain tensor (sparse or quantized)");
    *t = *tensor->v.tensor;
    t->requires_grad = is_kind(arg(args, 1), TRI_TORCH_BOOL) && arg(args, 1)->v.integer != 0;
    made->v.tensor = made->tensor = t;
    *made_out = made;
    return TRI_OK;
}

/* --- containers ----------------------------------------------------------- */

/* A list, set or tuple of what the first argument holds; empty without one. */
static tri_status make_sequence(trii_pickle *p, const trii_value *args, tri_torch_kind kind,
                                trii_value **made_out)
{
    const trii_value *from = arg(args, 0);
    trii_value *made = trii_value_new(p, kind);
    tri_status status =
        made != NULL ? trii_pickle_copies(p, from != NULL ? from->v.n : 0) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK && from != NULL &&
        (from->v.kind < TRI_TORCH_TUPLE || from->v.kind > TRI_TORCH_SET))
        status = TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a sequence that is made of a single value");
    for (int64_t i = 0; status == TRI_OK && from != NULL && i < from->v.n; i++)
        status = trii_value_add(p, made, arg(from, i));
    *made_out = made;
    return status;
}

/* A dictionary of a dictionary's items, or of a sequence of pairs. */
static tri_status make_dict(trii_pickle *p, const trii_value *from, trii_value **made_out)
{
    trii_value *made = trii_value_new(p, TRI_TORCH_DICT);
    tri_status status =
        made != NULL ? trii_pickle_copies(p, from != NULL ? from->v.n : 0) : TRI_ERR_NO_MEMORY;

    for (int64_t i = 0; status == TRI_OK && from != NULL && i < from->v.n; i++) {
        const trii_value *item = arg(from, i);

        if (from->v.kind == TRI_TORCH_DICT) {
            status = trii_value_add(p, made, item);
            continue;
        }
        if ((item->v.kind != TRI_TORCH_TUPLE && item->v.kind != TRI_TORCH_LIST) || item->v.n != 2)
            return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "an item of a dictionary is not a pair");
        status = trii_value_add(p, made, arg(item, 0));
        if (status == TRI_OK)
            status = trii_value_add(p, made, arg(item, 1));
    }
    *made_out = made;
    return status;
}

static tri_status make_object(trii_pickle *p, const trii_value *class, const trii_value *args,
                              trii_value **made_out)
{
    trii_value *made = trii_value_new(p, TRI_TORCH_OBJECT);

    if (made == NULL)
        return TRI_ERR_NO_MEMORY;
    made->v.text = class->v.text;
    made->v.bytes = class->v.bytes;
    made->v.arguments = &args->v;
    *made_out = made;
    return TRI_OK;
}

/* Classes and functions that are known. */
enum callee { DICT, DICT_OF_DEFAULT, LIST, TUPLE, SET, TENSOR, TENSOR_3, PARAMETER, TYPED, BYTES };
static const struct known {
    const char *name;
    enum callee callee;
} known[] = {
    {"collections.OrderedDict", DICT},
    {"collections.Counter", DICT},
    {"builtins.dict", DICT},
    {"__builtin__.dict", DICT},
    {"collections.defaultdict", DICT_OF_DEFAULT},
    {"builtins.list", LIST},
    {"__builtin__.list", LIST},
    {"torch.Size", TUPLE},
    {"builtins.tuple", TUPLE},
    {"builtins.set", SET},
    {"__builtin__.set", SET},
    {"builtins.frozenset", SET},
    {"__builtin__.frozenset", SET},
    {"torch._utils._rebuild_tensor", TENSOR},
    {"torch._utils._rebuild_tensor_v2", TENSOR},
    {"torch._utils._rebuild_tensor_v3", TENSOR_3},
    {"torch._utils._rebuild_parameter", PARAMETER},
    {"torch._utils._rebuild_parameter_with_state", PARAMETER},
    {"torch._tensor._rebuild_from_type_v2", TYPED},
    {"_codecs.encode", BYTES},
};

/* Text in the first 256 characters of Unicode, as bytes: how protocol 2 has bytes. */
static tri_status make_bytes(trii_pickle *p, const trii_value *args, trii_value **made_out)
{
    const trii_value *text = arg(args, 0);
    trii_value *made = trii_value_new(p, TRI_TORCH_BYTES);
    char *bytes;
    size_t n = 0;

    if (!is_kind(text, TRI_TORCH_TEXT))
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "bytes that are made of no text");
    if (trii_pickle_copies(p, (int64_t)text->v.bytes) != TRI_OK)
        return TRI_ERR_FORMAT;
    bytes = trii_arena_take(p->arena, text->v.bytes + 1, 1);
    if (made == NULL || bytes == NULL)
        return TRI_ERR_NO_MEMORY;
    for (size_t i = 0; i < text->v.bytes; i++) {
        unsigned char c = (unsigned char)text->v.text[i];

        if (c >= 0x80) { /* two bytes of UTF-8 */
            unsigned char next = i + 1 < text->v.bytes ? (unsigned char)text->v.text[++i] : 0;

            if ((c != 0xc2 && c != 0xc3) || (next & 0xc0) != 0x80)
                return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "bytes whose text is not in latin1");
            c = (unsigned char)((c & 3) << 6 | (next & 0x3f));
        }
        bytes[n++] = (char)c;
    }
    made->v.text = bytes;
    made->v.bytes = n;
    *made_out = made;
    return TRI_OK;
}

static tri_status call_known(trii_pickle *p, enum callee callee, const trii_value *class,
                             const trii_value *args, trii_value **made_out)
{
    switch (callee) {
    case DICT:
        return make_dict(p, arg(args, 0), made_out);
    case DICT_OF_DEFAULT:
        return make_dict(p, arg(args, 1), made_out);
    case LIST:
        return make_sequence(p, args, TRI_TORCH_LIST, made_out);
    case TUPLE:
        return make_sequence(p, args, TRI_TORCH_TUPLE, made_out);
    case SET:
        return make_sequence(p, args, TRI_TORCH_SET, made_out);
    case TENSOR:
        return make_tensor(p, args, false, made_out);
    case TENSOR_3:
        return make_tensor(p, args, true, made_out);
    case PARAMETER:
        return make_parameter(p, args, made_out);
    case BYTES:
        return make_bytes(p, args, made_out);
    default: /* (function, class, arguments, state): a tensor of a class of its own */
        if (is_class(arg(args, 0), "torch._tensor._rebuild_from_type_v2") ||
            !is_kind(arg(args, 0), TRI_TORCH_OBJECT) || !is_kind(arg(args, 2), TRI_TORCH_TUPLE))
            return make_object(p, class, args, made_out);
        return trii_pickle_call(p, arg(args, 0), arg(args, 2), made_out);
    }
}

tri_status trii_pickle_call(trii_pickle *p, const trii_value *callee, const trii_value *args,
                            trii_value **made_out)
{
    if (!is_kind(callee, TRI_TORCH_OBJECT) || !callee->is_class)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "what is called is not a class");
    for (size_t i = 0; i < TRII_COUNT_OF(known); i++)
        if (strcmp(known[i].name, callee->v.text) == 0)
            return call_known(p, known[i].callee, callee, args, made_out);
    return make_object(p, callee, args, made_out);
}
