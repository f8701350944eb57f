/*
 * distributed_sampler.c - one replica's share of an epoch: PyTorch's DistributedSampler, index for
 * index, over any order of samples.
 *
 * The order is extended from its own start (or cut) to a multiple of the replicas; replica r takes
 * every n_replicas-th index from r on.
 */
#include <inttypes.h>
#include <string.h>

#include <trireme/group.h>
#include <trireme/launch.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/data/sampler.h"

typedef struct share_sampler {
    tri_sampler base;
    tri_sampler *whole; /* owned */
    int n_replicas, rank;
    int64_t *order; /* [whole->length] */
} share_sampler;

static tri_status draw_share(tri_sampler *self, int64_t epoch, int64_t *indices)
{
    share_sampler *s = (share_sampler *)self;
    tri_status status = trii_sampler_draw(s->whole, epoch, s->order);

    for (int64_t i = 0; i < self->length && status == TRI_OK; i++)
        indices[i] = s->order[(i * s->n_replicas + s->rank) % s->whole->length];
    return status;
}

static void share_destroy(tri_sampler *self)
{
    share_sampler *s = (share_sampler *)self;

    tri_sampler_destroy(s->whole);
    trii_free(s->order);
    trii_free(s);
}

static const tri_sampler_class share_class = {
    .name = "distributed",
    .draw = draw_share,
    .destroy = share_destroy,
};

static tri_status make_share(tri_sampler *own_whole, const tri_sampler_share_options *opt,
                             tri_sampler **sampler_out)
{
    bool world = opt->n_replicas == 0;
    int n_replicas = world ? tri_world_size() : opt->n_replicas;
    int rank = world ? tri_rank() : opt->rank;
    int64_t length = own_whole->length;
    share_sampler *s;

    if (world && !tri_is_initialized() && strcmp(tri_launcher(), "none") != 0)
        return TRII_FAIL(TRI_ERR_STATE,
                         "sampler: this process is one of several (started by: %s) and would take "
                         "all samples: call tri_init before, or set n_replicas and rank",
                         tri_launcher());
    if (world && opt->rank != 0 && opt->rank != rank)
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "sampler: rank %d without n_replicas: set both, or neither for the world's "
            "(here rank %d of %d)",
            opt->rank, rank, n_replicas);
    if (n_replicas < 1 || rank < 0 || rank >= n_replicas)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "sampler: rank %d is out of range (%d replicas)",
                         rank, n_replicas);
    s = trii_alloc(1, sizeof(*s), "sampler");
    if (s == NULL)
        return TRI_ERR_NO_MEMORY;
    s->order = trii_alloc((size_t)length, sizeof(*s->order), "sampler's order");
    if (s->order == NULL) {
        trii_free(s);
        return TRI_ERR_NO_MEMORY;
    }
    s->base.cls = &share_class;
    s->base.length =
        opt->drop_last || length == 0 ? length / n_replicas : (length - 1) / n_replicas + 1;
    s->whole = own_whole;
    s->n_replicas = n_replicas;
    s->rank = rank;
    *sampler_out = &s->base;
    return TRI_OK;
}

tri_status tri_sampler_share(tri_sampler *own_base, const tri_sampler_share_options *opt,
                             tri_sampler **sampler_out)
{
    static const tri_sampler_share_options defaults;
    tri_status status = trii_sampler_check(own_base, "tri_sampler_share");

    if (status == TRI_OK)
        status = trii_need(sampler_out, "tri_sampler_share", "sampler_out");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_sampler_share_options, opt);
    if (status == TRI_OK)
        status = make_share(own_base, opt != NULL ? opt : &defaults, sampler_out);
    if (status != TRI_OK)
        tri_sampler_destroy(own_base);
    return status;
}

tri_status tri_sampler_distributed(int64_t length, const tri_sampler_distributed_options *opt,
                                   tri_sampler **sampler_out)
{
    static const tri_sampler_distributed_options defaults;
    tri_status status = trii_need(sampler_out, "tri_sampler_distributed", "sampler_out");
    tri_sampler *whole;

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_sampler_distributed_options, opt);
    if (status != TRI_OK)
        return status;
    if (opt == NULL)
        opt = &defaults;
    if (length < 1 || length > TRII_MAX_SAMPLES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "sampler_distributed: length is %" PRId64 " samples: must be at least 1",
                         length);
    status =
        opt->sequential
            ? tri_sampler_sequential(length, &whole)
            : tri_sampler_random(length, &(tri_sampler_random_options){.seed = opt->seed}, &whole);
    if (status != TRI_OK)
        return status;
    return tri_sampler_share(whole,
                             &(tri_sampler_share_options){.n_replicas = opt->n_replicas,
                                                          .rank = opt->rank,
                                                          .drop_last = opt->drop_last},
                             sampler_out);
}
