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

/* --- storages ------------------------------------------------------------- */

/* ('storage', class, key, device, numel), and in legacy files a sixth: None, or (key of the view,
 * first element, numel of the view). */
tri_status trii_pickle_persistent(trii_pickle *p, const trii_value *id, trii_value **made_out)
{
    const trii_value *class = trii_value_item(id, 1), *key = trii_value_item(id, 2),
                     *numel = trii_value_item(id, 4), *view = trii_value_item(id, 5);
    trii_value *made;

    if (!trii_value_is(id, TRI_TORCH_TUPLE) ||
        !trii_value_is(trii_value_item(id, 0), TRI_TORCH_TEXT))
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "not the id of a storage");
    if (strcmp(trii_value_item(id, 0)->v.text, "module") ==
        0) { /* legacy: a class, with its source text */
        made = trii_value_new(p, TRI_TORCH_OBJECT);
        if (made == NULL)
            return TRI_ERR_NO_MEMORY;
        if (!trii_value_is(class, TRI_TORCH_OBJECT))
            return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "not the id of a class");
        *made = *class;
        *made_out = made;
        return TRI_OK;
    }
    if (strcmp(trii_value_item(id, 0)->v.text, "storage") != 0 ||
        !trii_value_is(class, TRI_TORCH_OBJECT) || !trii_value_is(key, TRI_TORCH_TEXT) ||
        !trii_value_is(numel, TRI_TORCH_INT) || numel->v.integer < 0)
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
    made->storage->is_unknown = made->storage->dtype == NULL &&
                                strcmp(class->v.text, "torch.storage.UntypedStorage") != 0 &&
                                strcmp(class->v.text, "torch.UntypedStorage") != 0;
    if (trii_value_is(view, TRI_TORCH_TUPLE)) {
        const trii_value *first = trii_value_item(view, 1), *length = trii_value_item(view, 2);

        if (!trii_value_is(first, TRI_TORCH_INT) || first->v.integer < 0 ||
            !trii_value_is(length, TRI_TORCH_INT) || length->v.integer < 0 ||
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

/* --- containers ----------------------------------------------------------- */

/* A list, set or tuple of what the first argument holds; empty without one. */
static tri_status make_sequence(trii_pickle *p, const trii_value *args, tri_torch_kind kind,
                                trii_value **made_out)
{
    const trii_value *from = trii_value_item(args, 0);
    trii_value *made = trii_value_new(p, kind);
    tri_status status =
        made != NULL ? trii_pickle_copies(p, from != NULL ? from->v.n : 0) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK && from != NULL &&
        (from->v.kind < TRI_TORCH_TUPLE || from->v.kind > TRI_TORCH_SET))
        status = TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "a sequence that is made of a single value");
    for (int64_t i = 0; status == TRI_OK && from != NULL && i < from->v.n; i++)
        status = trii_value_add(p, made, trii_value_item(from, i));
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
        const trii_value *item = trii_value_item(from, i);

        if (from->v.kind == TRI_TORCH_DICT) {
            status = trii_value_add(p, made, item);
            continue;
        }
        if ((item->v.kind != TRI_TORCH_TUPLE && item->v.kind != TRI_TORCH_LIST) || item->v.n != 2)
            return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "an item of a dictionary is not a pair");
        status = trii_value_add(p, made, trii_value_item(item, 0));
        if (status == TRI_OK)
            status = trii_value_add(p, made, trii_value_item(item, 1));
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
enum callee {
    DICT,
    DICT_OF_DEFAULT,
    LIST,
    TUPLE,
    SET,
    TENSOR,
    TENSOR_3,
    PARAMETER,
    OTHER_TENSOR,
    TYPED,
    BYTES
};
static const struct known {
    const char *name;
    enum callee callee;
    enum trii_other_tensor other;
} known[] = {
    {.name = "collections.OrderedDict", .callee = DICT},
    {.name = "collections.Counter", .callee = DICT},
    {.name = "builtins.dict", .callee = DICT},
    {.name = "__builtin__.dict", .callee = DICT},
    {.name = "collections.defaultdict", .callee = DICT_OF_DEFAULT},
    {.name = "builtins.list", .callee = LIST},
    {.name = "__builtin__.list", .callee = LIST},
    {.name = "torch.Size", .callee = TUPLE},
    {.name = "builtins.tuple", .callee = TUPLE},
    {.name = "builtins.set", .callee = SET},
    {.name = "__builtin__.set", .callee = SET},
    {.name = "builtins.frozenset", .callee = SET},
    {.name = "__builtin__.frozenset", .callee = SET},
    {.name = "torch._utils._rebuild_tensor", .callee = TENSOR},
    {.name = "torch._utils._rebuild_tensor_v2", .callee = TENSOR},
    {.name = "torch._utils._rebuild_tensor_v3", .callee = TENSOR_3},
    {.name = "torch._utils._rebuild_parameter", .callee = PARAMETER},
    {.name = "torch._utils._rebuild_parameter_with_state", .callee = PARAMETER},
    {"torch._utils._rebuild_qtensor", OTHER_TENSOR, TRII_TENSOR_QUANTIZED},
    {"torch._utils._rebuild_sparse_tensor", OTHER_TENSOR, TRII_TENSOR_SPARSE},
    {"torch._utils._rebuild_sparse_csr_tensor", OTHER_TENSOR, TRII_TENSOR_SPARSE},
    {"torch._utils._rebuild_nested_tensor", OTHER_TENSOR, TRII_TENSOR_NESTED},
    {"torch._utils._rebuild_meta_tensor_no_storage", OTHER_TENSOR, TRII_TENSOR_META},
    {"torch._utils._rebuild_wrapper_subclass", OTHER_TENSOR, TRII_TENSOR_WRAPPER},
    {"torch._utils._rebuild_device_tensor_from_cpu_tensor", OTHER_TENSOR, TRII_TENSOR_DEVICE},
    {"torch._utils._rebuild_device_tensor_from_numpy", OTHER_TENSOR, TRII_TENSOR_DEVICE},
    {"torch._utils._rebuild_xla_tensor", OTHER_TENSOR, TRII_TENSOR_DEVICE},
    {.name = "torch._tensor._rebuild_from_type", .callee = TYPED},
    {.name = "torch._tensor._rebuild_from_type_v2", .callee = TYPED},
    {.name = "_codecs.encode", .callee = BYTES},
};

/* Text in the first 256 characters of Unicode, as bytes: how protocol 2 has bytes. */
static tri_status make_bytes(trii_pickle *p, const trii_value *args, trii_value **made_out)
{
    const trii_value *text = trii_value_item(args, 0);
    trii_value *made = trii_value_new(p, TRI_TORCH_BYTES);
    char *bytes;
    size_t n = 0;

    if (!trii_value_is(text, TRI_TORCH_TEXT))
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

/* NULL: it is none. */
static const struct known *find_known(const trii_value *callee)
{
    for (size_t i = 0; i < TRII_COUNT_OF(known) && trii_value_is(callee, TRI_TORCH_OBJECT); i++)
        if (callee->is_class && strcmp(known[i].name, callee->v.text) == 0)
            return &known[i];
    return NULL;
}

/* (function, class, arguments, state): a tensor of a class of its own. */
static tri_status call_typed(trii_pickle *p, const trii_value *class, const trii_value *args,
                             trii_value **made_out)
{
    const trii_value *function = trii_value_item(args, 0), *arguments = trii_value_item(args, 2);
    const struct known *row = find_known(function);
    tri_status status;

    if ((row != NULL && row->callee == TYPED) || !trii_value_is(function, TRI_TORCH_OBJECT) ||
        !trii_value_is(arguments, TRI_TORCH_TUPLE)) /* it must not lead to itself */
        return make_object(p, class, args, made_out);
    status = trii_pickle_call(p, function, arguments, made_out);
    if (status == TRI_OK && !trii_value_is(*made_out, TRI_TORCH_TENSOR))
        status = trii_pickle_other_tensor(p, TRII_TENSOR_TYPED, args, made_out);
    return status;
}

static tri_status call_known(trii_pickle *p, enum callee callee, const trii_value *class,
                             const trii_value *args, trii_value **made_out)
{
    switch (callee) {
    case DICT:
        return make_dict(p, trii_value_item(args, 0), made_out);
    case DICT_OF_DEFAULT:
        return make_dict(p, trii_value_item(args, 1), made_out);
    case LIST:
        return make_sequence(p, args, TRI_TORCH_LIST, made_out);
    case TUPLE:
        return make_sequence(p, args, TRI_TORCH_TUPLE, made_out);
    case SET:
        return make_sequence(p, args, TRI_TORCH_SET, made_out);
    case TENSOR:
        return trii_pickle_tensor(p, args, false, made_out);
    case TENSOR_3:
        return trii_pickle_tensor(p, args, true, made_out);
    case PARAMETER:
        return trii_pickle_parameter(p, args, made_out);
    case BYTES:
        return make_bytes(p, args, made_out);
    default:
        return call_typed(p, class, args, made_out);
    }
}

tri_status trii_pickle_call(trii_pickle *p, const trii_value *callee, const trii_value *args,
                            trii_value **made_out)
{
    const struct known *row = find_known(callee);

    if (!trii_value_is(callee, TRI_TORCH_OBJECT) || !callee->is_class)
        return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "what is called is not a class");
    if (row == NULL)
        return make_object(p, callee, args, made_out);
    if (row->callee == OTHER_TENSOR)
        return trii_pickle_other_tensor(p, row->other, args, made_out);
    return call_known(p, row->callee, callee, args, made_out);
}
