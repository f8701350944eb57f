/*
 * kernel.c - the engine, and kernels that run a primitive.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/param.h"
#include "train/device/cpu/cpu_parallel.h"
#include "train/device/cpu/onednn/handles.h"
#include "os/cpu.h"
#include "os/thread.h"

/* Made once and kept until the process ends: the library cannot be used without it. */
static struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    dnnl_status_t status;
} global;

static trii_once global_once = TRII_ONCE_INITIALIZER;

static void global_init(void)
{
    static const dnnl_cpu_isa_t limits[TRII_ISA_COUNT] = {
        [TRII_ISA_PORTABLE] = dnnl_cpu_isa_sse41,
        [TRII_ISA_AVX2] = dnnl_cpu_isa_avx2,
        [TRII_ISA_AVX512] = dnnl_cpu_isa_all,
    };

    /* Without TRI_ISA the library detects by itself what the processor has, within
     * ONEDNN_MAX_CPU_ISA. Refused if the program itself used the library before: then its choice
     * stands. */
    if (trii_param_text(TRII_PARAM_ISA) != NULL && trii_cpu_isa() != TRII_ISA_AVX512)
        global.status = dnnl_set_max_cpu_isa(limits[trii_cpu_isa()]);
    global.status = dnnl_engine_create(&global.engine, dnnl_cpu, 0);
    if (global.status == dnnl_success)
        global.status =
            dnnl_stream_create(&global.stream, global.engine, dnnl_stream_default_flags);
    if (global.status == dnnl_success)
        global.status = dnnl_primitive_attr_create(&global.attr);
    if (global.status == dnnl_success)
        global.status =
            dnnl_primitive_attr_set_scratchpad_mode(global.attr, dnnl_scratchpad_mode_user);
}

tri_status trii_onednn_status(dnnl_status_t status, const char *what)
{
    switch (status) {
    case dnnl_success:
        return TRI_OK;
    case dnnl_out_of_memory:
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "oneDNN: %s: out of memory", what);
    case dnnl_unimplemented:
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "oneDNN: %s: not implemented", what);
    default:
        return TRII_FAIL(TRI_ERR_INTERNAL, "oneDNN: %s: status %d", what, (int)status);
    }
}

tri_status trii_onednn_engine(dnnl_engine_t *engine_out)
{
    tri_status status;

    trii_once_run(&global_once, global_init);
    /* Primitives are made for a number of threads, and their sums depend on it: the first plan must
     * be compiled for the same number as all later ones. */
    trii_parallel_adopt_thread();
    status = trii_onednn_status(global.status, "engine");
    if (status == TRI_OK)
        *engine_out = global.engine;
    return status;
}

bool trii_onednn_has_bf16(void)
{
    dnnl_engine_t engine;

    /* The first use of the engine sets the limit. */
    return trii_onednn_engine(&engine) == TRI_OK &&
           (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

tri_status trii_onednn_attr(dnnl_primitive_attr_t *attr_out)
{
    dnnl_engine_t engine;
    tri_status status = trii_onednn_engine(&engine);

    if (status == TRI_OK)
        *attr_out = global.attr;
    return status;
}

typedef struct primitive {
    trii_kernel base;
    char name[64];
    trii_onednn_primitive *shared;
    dnnl_primitive_t primitive;                 /* shared */
    dnnl_exec_arg_t args[TRII_ONEDNN_ARGS + 1]; /* and the scratchpad */
    int index[TRII_ONEDNN_ARGS + 1];
    void *data[TRII_ONEDNN_ARGS + 1]; /* the pointers that the memories have now */
    int n;
} primitive;

static tri_status primitive_run(const trii_kernel *kernel, void *const *args, const trii_run *run)
{
    /* The memories belong to the kernel; a plan runs on one thread at a time. */
    primitive *p = (primitive *)(uintptr_t)kernel;
    dnnl_status_t status = dnnl_success;

    (void)run;
    for (int i = 0; i < p->n && status == dnnl_success; i++) {
        void *data = args[p->index[i]];

        if (p->data[i] == data)
            continue;
        status = dnnl_memory_set_data_handle(p->args[i].memory, data);
        p->data[i] = data;
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(p->primitive, global.stream, p->n, p->args);
    return status == dnnl_success ? TRI_OK : trii_onednn_status(status, p->name);
}

static void primitive_destroy(trii_kernel *kernel)
{
    primitive *p = (primitive *)kernel;

    for (int i = 0; i < p->n; i++) {
        if (p->args[i].memory != NULL)
            dnnl_memory_destroy(p->args[i].memory);
    }
    trii_onednn_primitive_unref(p->shared);
    trii_free(p);
}

static dnnl_status_t add_arg(primitive *p, int arg, const dnnl_memory_desc_t *md, int index)
{
    p->args[p->n].arg = arg;
    p->index[p->n] = index;
    return dnnl_memory_create(&p->args[p->n++].memory, md, global.engine, DNNL_MEMORY_NONE);
}

tri_status trii_onednn_kernel(const_dnnl_primitive_desc_t pd, const char *prefix,
                              const trii_onednn_arg *args, int n_operands, int n_args,
                              trii_kernel **kernel_out)
{
    primitive *p = trii_alloc(1, sizeof(*p), "kernel");
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    const char *info = "";
    dnnl_status_t status;

    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    status = dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&info);
    snprintf(p->name, sizeof(p->name), "%s:%s", prefix, status == dnnl_success ? info : "?");
    p->base = (trii_kernel){.name = p->name, .run = primitive_run, .destroy = primitive_destroy};
    status = trii_onednn_primitive_get(pd, args, n_operands, &p->shared);
    if (status == dnnl_success)
        p->primitive = trii_onednn_primitive_of(p->shared);
    for (int i = 0; i < n_operands && status == dnnl_success; i++)
        status = add_arg(p, args[i].arg, args[i].md, args[i].index);
    if (status == dnnl_success && scratch != NULL)
        p->base.scratch_bytes = dnnl_memory_desc_get_size(scratch);
    if (status == dnnl_success && p->base.scratch_bytes > 0)
        status = add_arg(p, DNNL_ARG_SCRATCHPAD, scratch, n_args);
    if (status != dnnl_success) {
        primitive_destroy(&p->base);
        return trii_onednn_status(status, prefix);
    }
    *kernel_out = &p->base;
    return TRI_OK;
}
