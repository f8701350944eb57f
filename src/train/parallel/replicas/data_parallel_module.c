/*
 * data_parallel_module.c - one process, several devices: the batch is cut, each device runs the
 * network on its piece, and the results are put together again. All of it is recorded: the plan
 * lets devices work at the same time since their pieces do not depend on each other.
 */
#include <stdatomic.h>
#include <string.h>

#include <trireme/data_parallel.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/option.h"
#include "base/param.h"
#include "train/graph/record/replica.h"
#include "train/nn/module.h"
#include "train/parallel/pipeline/pipeline_internal.h"
#include "train/tensor/device_list.h"
#include "train/tensor/persistent.h"

typedef struct data_parallel {
    tri_module *net;
    tri_device *devices; /* owned [n_devices]; the first is where the network lies */
    int n_devices;
    tri_device output;
    int dim;
} data_parallel;

static void data_parallel_destroy(tri_module *self)
{
    trii_free(((data_parallel *)tri_module_data(self))->devices);
}

/* --- scatter -------------------------------------------------------------- */

static tri_status check_home(const data_parallel *dp)
{
    for (int64_t i = 0; i < tri_module_state_count(dp->net); i++) {
        tri_state_entry entry = tri_module_state(dp->net, i);
        tri_device device = tri_tensor_device(entry.tensor);
        char home[16];

        if (device == dp->devices[0])
            continue;
        snprintf(home, sizeof(home), "%s", tri_device_text(dp->devices[0]));
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "data_parallel: %s lies on %s, and device_ids[0] is %s: tri_module_to "
                         "moves the network there; one that spans several devices cannot be "
                         "copied to each (wrap parts that lie on one, or use tri_ddp)",
                         entry.name, tri_device_text(device), home);
    }
    return TRI_OK;
}

/* How many pieces the inputs are cut into: all into as many. One that is left out (NULL) is so for
 * each replica. */
static tri_status count_pieces(const data_parallel *dp, tri_tensor *const *in, int n_in, int *n_out)
{
    int64_t rows = -1;
    int first = 0;

    for (int i = 0; i < n_in; i++) {
        tri_status status = in[i] != NULL ? tri_tensor_status(in[i]) : TRI_OK;
        int ndim = in[i] != NULL && status == TRI_OK ? tri_tensor_ndim(in[i]) : 0;
        int dim = dp->dim < 0 ? dp->dim + ndim : dp->dim;

        if (status != TRI_OK)
            return status;
        if (in[i] == NULL)
            continue;
        if (dim < 0 || dim >= ndim)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "data_parallel: input %d has %d dimensions, and is to be cut along "
                             "dimension %d (dim)",
                             i, ndim, dp->dim);
        if (rows >= 0 && tri_tensor_size(in[i], dim) != rows)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "data_parallel: input %d has %lld samples in dimension %d, input %d "
                             "%lld: all are cut alike",
                             i, (long long)tri_tensor_size(in[i], dim), dim, first,
                             (long long)rows);
        first = rows < 0 ? i : first;
        rows = tri_tensor_size(in[i], dim);
    }
    *n_out = 1;
    if (rows > 0) {
        int64_t piece = (rows + dp->n_devices - 1) / dp->n_devices;

        *n_out = (int)((rows + piece - 1) / piece);
    }
    return TRI_OK;
}

/* --- parallel apply ------------------------------------------------------- */

static void name_replica(const data_parallel *dp, int r, tri_tensor *const *in, int n_in,
                         tri_tensor **out, int n_out)
{
    for (int i = 0; i < n_in; i++)
        if (in[i] != NULL && tri_tensor_status(in[i]) < 0)
            return; /* it has come with the input */
    for (int o = 0; o < n_out; o++) {
        tri_status status = tri_tensor_status(out[o]);

        if (status != TRI_OK)
            out[o] = trii_forward_failed(
                TRII_FAIL_CTX(status, "replica %d on %s", r, tri_device_text(dp->devices[r])));
    }
}

/* in: the replica's pieces, which have been brought to its device. */
static void run_replica(const data_parallel *dp, trii_step *step, int r, tri_tensor *const *in,
                        int n_in, tri_tensor **out, int n_out)
{
    trii_replica before =
        trii_replica_enter(step, (trii_replica){.home = dp->devices[0], .device = dp->devices[r]});

    tri_device_begin(dp->devices[r]);
    tri_forward_n(dp->net, in, n_in, out, n_out);
    tri_device_end();
    trii_replica_leave(step, before);
    name_replica(dp, r, in, n_in, out, n_out);
}

/* --- gather --------------------------------------------------------------- */

static void warn_of_scalars(void)
{
    static atomic_bool warned;

    if (!atomic_exchange(&warned, true))
        TRII_LOG(TRII_LOG_WARN, "data_parallel",
                 "the network gives scalars (a loss, say): they are gathered into a vector of one "
                 "element a replica, whose mean is not that of the samples if pieces differ");
}

/* Result `o` of all replicas, as one. */
static tri_tensor *gather(const data_parallel *dp, int o, tri_tensor **pieces, int n)
{
    tri_tensor *all;
    tri_status status;
    bool scalars = tri_tensor_status(pieces[0]) == TRI_OK && tri_tensor_ndim(pieces[0]) == 0;

    for (int r = 0; r < n; r++)
        pieces[r] = tri_to(pieces[r], dp->output);
    if (n == 1)
        return pieces[0];
    for (int r = 0; r < n && scalars; r++)
        pieces[r] = tri_unsqueeze(pieces[r], 0);
    if (scalars)
        warn_of_scalars();
    for (int r = 0; r < n; r++)
        if (tri_tensor_status(pieces[r]) < 0)
            return pieces[r];
    all = tri_concat(pieces, n, scalars ? 0 : dp->dim);
    status = tri_tensor_status(all);
    if (status != TRI_OK)
        all = trii_forward_failed(TRII_FAIL_CTX(
            status,
            "data_parallel: result %d of the replicas is put together along dimension %d (dim)", o,
            dp->dim));
    return all;
}

/* --- forward -------------------------------------------------------------- */

/* in[i] of replica r stands at pieces[r * n_in + i], out[o] at results[o * n + r]. */
static tri_status run_pieces(const data_parallel *dp, tri_tensor *const *in, int n_in,
                             tri_tensor **out, int n_out, int n)
{
    size_t n_pieces = (size_t)n * (size_t)n_in, n_results = (size_t)n * (size_t)n_out;
    trii_step *step = trii_step_current();
    /* a chunk that fails fills as many places as it was asked for */
    size_t n_cut = (size_t)dp->n_devices;
    tri_tensor **memory =
        trii_alloc(n_pieces + n_results + n_cut + (size_t)n_out, sizeof(*memory), "pieces");
    tri_tensor **results = memory + n_pieces, **cut = results + n_results, **made = cut + n_cut;

    if (memory == NULL || step == NULL) {
        trii_free(memory);
        return TRI_ERR_NO_MEMORY;
    }
    for (int i = 0; i < n_in; i++) {
        cut[0] = in[i]; /* one piece is the plain network, of inputs of any kind */
        if (n > 1 && in[i] != NULL)
            (void)tri_chunk(in[i], dp->n_devices, dp->dim, cut);
        for (int r = 0; r < n; r++)
            memory[r * n_in + i] = in[i] != NULL ? tri_to(cut[r], dp->devices[r]) : NULL;
    }
    for (int r = 0; r < n; r++) {
        run_replica(dp, step, r, memory + (size_t)r * (size_t)n_in, n_in, made, n_out);
        for (int o = 0; o < n_out; o++)
            results[o * n + r] = made[o];
    }
    for (int o = 0; o < n_out; o++)
        out[o] = gather(dp, o, results + (size_t)o * (size_t)n, n);
    trii_free(memory);
    return TRI_OK;
}

static void data_parallel_forward(tri_module *self, tri_tensor *const *in, int n_in,
                                  tri_tensor **out, int n_out)
{
    const data_parallel *dp = tri_module_data(self);
    tri_status status = check_home(dp);
    int n = 1;

    if (status == TRI_OK && dp->n_devices > 1)
        status = count_pieces(dp, in, n_in, &n);
    if (status == TRI_OK)
        status = run_pieces(dp, in, n_in, out, n_out, n);
    for (int o = 0; o < n_out && status != TRI_OK; o++)
        out[o] = trii_forward_failed(status);
}

/* --- construction --------------------------------------------------------- */

static const tri_module_class data_parallel_class = {.name = "DataParallel",
                                                     .size = sizeof(data_parallel),
                                                     .forward = data_parallel_forward,
                                                     .destroy = data_parallel_destroy};

static tri_device home_of(tri_module *net)
{
    return tri_module_state_count(net) > 0 ? tri_tensor_device(tri_module_state(net, 0).tensor)
                                           : tri_current_device();
}

/* All devices of the kind, that of the network first. */
static tri_status list_all(data_parallel *dp)
{
    tri_device home = home_of(dp->net), first = home & ~0xffff; /* of its kind */
    int n = tri_device_count((tri_device_kind)(home >> 16));

    dp->devices = trii_alloc((size_t)n, sizeof(*dp->devices), "devices");
    if (dp->devices == NULL)
        return TRI_ERR_NO_MEMORY;
    dp->devices[dp->n_devices++] = home;
    for (int i = 0; i < n; i++)
        if (first + i != home)
            dp->devices[dp->n_devices++] = first + i;
    return TRI_OK;
}

static tri_status list_given(data_parallel *dp, const tri_data_parallel_options *opt)
{
    tri_status status = TRI_OK;

    if (opt->n_devices < 1 || opt->n_devices > TRI_MAX_DEVICES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "n_devices is %d: 1 to %d are allowed",
                         opt->n_devices, TRI_MAX_DEVICES);
    dp->devices = trii_alloc((size_t)opt->n_devices, sizeof(*dp->devices), "devices");
    if (dp->devices == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < opt->n_devices && status == TRI_OK; i++) {
        status = trii_device_check(opt->device_ids[i]);
        for (int before = 0; before < i && status == TRI_OK; before++)
            if (opt->device_ids[before] == opt->device_ids[i])
                status = TRII_FAIL(TRI_ERR_INVALID_ARG, "device_ids[%d] and [%d] are both %s",
                                   before, i, tri_device_text(opt->device_ids[i]));
        dp->devices[dp->n_devices++] = opt->device_ids[i];
    }
    return status;
}

/* What is called once for each piece cannot be what cuts batches, or what averages them. */
static tri_status check_inside(const data_parallel *dp)
{
    const tri_module *inside = trii_module_wrapper(dp->net, NULL);

    if (trii_pipeline_of(dp->net) != NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "the network is a pipeline, whose stages tri_pipeline_step runs one by "
                         "one: use tri_ddp or tri_zero, over another axis of the mesh");
    for (int64_t i = 0; i < tri_module_state_count(dp->net); i++) {
        tri_state_entry entry = tri_module_state(dp->net, i);

        if (trii_tensor_is_cut(entry.tensor))
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "%s is cut over ranks (tri_parallelize), which would communicate once "
                             "for each device: use tri_ddp, over another axis of the mesh",
                             entry.name);
    }
    if (inside == NULL)
        return TRI_OK;
    if (inside->type == &data_parallel_class)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "the network has a DataParallel inside (%s), which would cut each piece "
                         "again over devices that are in use: one of the two is enough",
                         inside->name[0] != '\0' ? inside->name : "itself");
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "the network has a %s inside (%s), which would run once for each device: put "
                     "it around tri_data_parallel",
                     inside->type->name, inside->name[0] != '\0' ? inside->name : "itself");
}

static tri_status set_up(data_parallel *dp, const tri_data_parallel_options *opt)
{
    tri_status status = TRII_CHECK_RESERVED(tri_data_parallel_options, opt);

    if (status != TRI_OK)
        return status;
    if (opt->device_ids == NULL && opt->n_devices != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d devices, but device_ids is NULL", opt->n_devices);
    status = opt->device_ids == NULL ? list_all(dp) : list_given(dp, opt);
    if (status != TRI_OK)
        return status;
    dp->dim = opt->dim;
    dp->output = opt->output_device != NULL ? *opt->output_device : dp->devices[0];
    return trii_device_check(dp->output);
}

tri_module *tri_data_parallel(tri_module *own_net, const tri_data_parallel_options *opt)
{
    static const tri_data_parallel_options defaults;
    tri_module *model = tri_module_create(&data_parallel_class);
    data_parallel *dp;
    tri_status status;

    if (tri_module_status(model) < 0) {
        tri_module_destroy(own_net);
        return model;
    }
    dp = tri_module_data(model);
    status = trii_need(own_net, "data_parallel", "own_net");
    if (status != TRI_OK)
        trii_module_fail(model, status);
    dp->net = trii_module_adopt(model, "", own_net);
    status = tri_module_status(model);
    if (status != TRI_OK)
        return model;
    status = trii_module_flatten(dp->net);
    if (status == TRI_OK)
        status = check_inside(dp);
    if (status == TRI_OK)
        status = set_up(dp, opt != NULL ? opt : &defaults);
    if (status != TRI_OK)
        trii_module_fail(model, TRII_FAIL_CTX(status, "tri_data_parallel"));
    return model;
}
