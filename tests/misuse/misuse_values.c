/*
 * misuse_values.c - arguments for every type of parameter in the public headers, bad ones and good
 * ones, of which the objects, structures and files are made beside.
 */
#include <limits.h>
#include <math.h>

#include "misuse/misuse_internal.h"

#define SCRATCH ((size_t)1 << 16)

/* Longer than any name, path or line that somebody reserved room for. */
static const char *long_text(void)
{
    static char text[5000];

    if (text[0] == '\0')
        memset(text, 'x', sizeof(text) - 1);
    return text;
}

static bool is_pointer(const char *type)
{
    return strchr(type, '*') != NULL;
}

/* --- bad ones ------------------------------------------------------------- */

static const char *const bad_texts[] = {NULL, "", "\n\x01 %%", "\xff\xfe", "long"};
static const int64_t bad_shapes[][4] = {
    {-1, -1, -1, -1}, {INT64_MAX, INT64_MAX, 2, 2}, {0, 0, 0, 0}, {INT64_MIN, 1, 1, 1}};
static const int64_t bad_integers[] = {-1, 0, INT64_MIN, INT64_MAX};
#define N_LARGE 1 /* at their end */
static const int64_t bad_enums[] = {-1, 999, 0, INT_MAX};
static const double bad_reals[] = {NAN, -1.0, INFINITY, -INFINITY, 0.0};

static bool is_struct(const char *type);

static bool is_enum(const char *type)
{
    static const char *const enums[] = {"tri_dtype",       "tri_redop",     "tri_status",
                                        "tri_hyper",       "tri_gelu_form", "tri_reduction",
                                        "tri_device_kind", "tri_fan_mode"};

    for (int i = 0; i < COUNT(enums); i++) {
        if (is(type, enums[i]))
            return true;
    }
    return false;
}

static int kinds_of(const misuse_parameter *parameter)
{
    const char *type = parameter->type;

    if (is(type, "callback"))
        return 0; /* always NULL */
    if (is(type, "const char *"))
        return COUNT(bad_texts);
    if (is(type, "const int64_t *"))
        return 1 + COUNT(bad_shapes);
    if (is_struct(type))
        return 2;
    if (is_pointer(type))
        return 1;
    if (is(type, "double") || is(type, "float") || is(type, "tri_opt"))
        return COUNT(bad_reals);
    if (is_enum(type))
        return COUNT(bad_enums);
    if (is(type, "bool"))
        return 0;
    if (is(type, "size_t") || is(type, "uint64_t"))
        return 1;
    /* no length that is more than its buffer has */
    if (is(parameter->name, "n") || strncmp(parameter->name, "n_", 2) == 0)
        return COUNT(bad_integers) - N_LARGE;
    return COUNT(bad_integers);
}

static const misuse_growing *growing(const misuse_parameter *parameter)
{
    for (int s = 0; s < misuse_n_growing; s++) {
        if (is(parameter->type, misuse_growing_structs[s].type))
            return &misuse_growing_structs[s];
    }
    return NULL;
}

int misuse_kinds(const misuse_parameter *parameter)
{
    return kinds_of(parameter) + (growing(parameter) != NULL);
}

bool misuse_is_newer(const misuse_pick *p)
{
    const misuse_parameter *bad = p->bad >= 0 ? &p->row->parameters[p->bad] : NULL;

    return bad != NULL && growing(bad) != NULL && p->kind == kinds_of(bad);
}

static bool is_bad(const misuse_pick *p, int i, int *kind_out)
{
    *kind_out = p->bad == i ? p->kind : 0;
    return p->bad == i || (p->bad == -2 && misuse_kinds(&p->row->parameters[i]) > 0);
}

/* --- good ones ------------------------------------------------------------ */

static void *good_list(const misuse_pick *p, int i)
{
    static const char *texts[2] = {"a", "b"};
    static const tri_rpc_function *const functions[2] = {&misuse_good_rpc_function,
                                                         &misuse_good_rpc_function};
    static char room[2][SCRATCH];
    static void *lists[16][2]; /* one for each parameter: a call may have several */
    void **objects = lists[i % 16];
    const char *type = p->row->parameters[i].type;

    if (is(type, "const char *const *"))
        return texts;
    if (is(type, "const tri_rpc_function *const *"))
        return (void *)(uintptr_t)functions;
    for (int k = 0; k < 2; k++)
        objects[k] = strstr(type, "void") != NULL ? (void *)room[k] : misuse_good_object(p, i);
    return objects;
}

static bool is_struct(const char *type)
{
    if (is(type, "tri_deepspeed_args *"))
        return false; /* an output */
    return strstr(type, "options") != NULL || strstr(type, "_args") != NULL ||
           misuse_good_struct(type) != NULL;
}

static void *good_pointer(const misuse_pick *p, int i)
{
    static const int64_t shape[8] = {2, 3, 1, 1, 1, 1, 1, 1};
    static const int ranks[8] = {0};
    static const int64_t dims[8] = {1, 0};
    static const int64_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const size_t counts[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const double box[4] = {0, 0, 1, 1};
    static const double weights[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static _Alignas(64) char scratch[16][SCRATCH];
    static int turn;
    const char *type = p->row->parameters[i].type, *name = p->row->parameters[i].name;

    if (is(type, "const char *"))
        return (void *)(uintptr_t)misuse_good_text(p, i);
    if (is(type, "const int64_t *"))
        return (void *)(uintptr_t)(is(name, "dims")                      ? dims
                                   : is(p->row->name, "tri_mesh_create") ? ones
                                                                         : shape);
    if (is(type, "const int *"))
        return (void *)(uintptr_t)ranks;
    if (is(type, "const size_t *"))
        return (void *)(uintptr_t)counts;
    if (is(p->row->name, "tri_image_decode") && is(name, "bytes"))
        return (void *)(uintptr_t)misuse_good_png;
    if (is(type, "const double *") && is(name, "box"))
        return (void *)(uintptr_t)box;
    if (is(type, "const double *"))
        return (void *)(uintptr_t)weights;
    if (strstr(type, "*const *") != NULL)
        return good_list(p, i);
    if (strstr(type, "FILE") != NULL)
        return fopen("/dev/null", "w");
    if (is(p->row->name, "tri_store_free") || is(p->row->name, "tri_object_free") ||
        (is(p->row->name, "tri_group_free") && is(name, "p")))
        return NULL; /* else what another call gave */
    if (is(p->row->name, "tri_bucket_hook_power_sgd") && is(name, "state"))
        return NULL;
    if (is(p->row->name, "tri_device_set_queue"))
        return NULL; /* a cpu device has no other */
    if (is(type, "const tri_batch_norm_args *"))
        return (void *)(uintptr_t)misuse_good_norm();
    if (is_struct(type))
        return (void *)(uintptr_t)misuse_good_struct(type);
    if (strncmp(type, "const tri_", 10) == 0 || strncmp(type, "tri_", 4) == 0) {
        const char *first = strchr(type, '*');

        if (first[1] == '\0' && !is(type, "tri_batch *") && !is(type, "tri_sample *") &&
            !is(type, "tri_image *") && !is(type, "tri_rpc_message *") &&
            !is(type, "tri_deepspeed_args *") &&
            strstr(type, "_stats *") == NULL) /* else an output */
            return misuse_good_object(p, i);
    }
    turn = (turn + 1) % 16; /* no two buffers of a call are the same */
    memset(scratch[turn], 0, SCRATCH);
    return scratch[turn];
}

/* What a program passes that was compiled for a newer library and sets a field that is new there.
 */
static void *newer_struct(const misuse_pick *p, int i)
{
    static _Alignas(64) char copies[4][16384];
    static int turn;
    const misuse_growing *s = growing(&p->row->parameters[i]);
    const void *good = good_pointer(p, i);
    char *copy = copies[turn = (turn + 1) % 4];

    memset(copy, 0, sizeof(copies[0]));
    if (good != NULL)
        memcpy(copy, good, s->bytes);
    copy[s->at + s->room - 1] = 1;
    return copy;
}

void *misuse_pointer(const misuse_pick *p, int i)
{
    static _Alignas(64) char zeros[16384];
    const char *type = p->row->parameters[i].type;
    int kind;

    if (!is_bad(p, i, &kind))
        return good_pointer(p, i);
    if (p->bad == i && misuse_is_newer(p))
        return newer_struct(p, i);
    if (is(type, "const char *"))
        return (void *)(uintptr_t)(kind == COUNT(bad_texts) - 1 ? long_text() : bad_texts[kind]);
    if (is(type, "const int64_t *") && kind > 0)
        return (void *)(uintptr_t)bad_shapes[kind - 1];
    return kind == 1 && is_struct(type) ? zeros : NULL; /* zeros: nothing filled in */
}

static int64_t good_integer(const misuse_pick *p, int i)
{
    static const char *const zero[] = {"rank",  "root",      "peer", "index",      "dim",
                                       "first", "start_dim", "port", "world_rank", "group"};
    const char *name = p->row->parameters[i].name, *type = p->row->parameters[i].type;

    for (int z = 0; z < COUNT(zero); z++) {
        if (is(name, zero[z]))
            return 0;
    }
    if (is(type, "tri_dtype"))
        return is(p->row->name, "tri_autocast_begin") ? TRI_DTYPE_BF16 : TRI_DTYPE_F32;
    if (strncmp(type, "tri_device", 10) == 0)
        return TRI_CPU(0);
    if (is(type, "tri_redop"))
        return TRI_REDOP_SUM;
    if (is(p->row->name, "tri_image_decode"))
        return (int64_t)misuse_good_png_bytes;
    if (is(name, "high"))
        return 8;
    if (is(name, "depth"))
        return 18;
    if (is(p->row->name, "tri_dist_cross_entropy") && is(name, "classes"))
        return 3;
    if (is(p->row->name, "tri_pad") && is(name, "n"))
        return 2;
    if (is(p->row->name, "tri_slice_scatter") && (is(name, "start") || is(name, "end")))
        return is(name, "start") ? 0 : 2;
    if (is(name, "timeout_ms"))
        return 50;
    if (is(name, "ndim"))
        return 2;
    if (is(p->row->name, "tri_torch_read"))
        return 24;
    return strncmp(p->row->name, "tri_tensor_copy_", 16) == 0 ? 24 : 1;
}

int64_t misuse_integer(const misuse_pick *p, int i)
{
    const char *type = p->row->parameters[i].type;
    int kind;

    if (!is_bad(p, i, &kind))
        return good_integer(p, i);
    if (is_enum(type))
        return bad_enums[kind];
    if (is(type, "size_t") || is(type, "uint64_t"))
        return 0;
    if (is(type, "int") && kind > 1)
        return bad_integers[kind] < 0 ? INT_MIN : INT_MAX;
    return bad_integers[kind];
}

double misuse_real(const misuse_pick *p, int i)
{
    int kind;

    return is_bad(p, i, &kind) ? bad_reals[kind] : 0.5;
}
