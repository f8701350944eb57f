/*
 * sampler.c - one replica's share of an epoch: PyTorch's DistributedSampler, index for index.
 *
 * order = randperm(length) seeded by seed + epoch, or 0, 1, 2, ...; continued from its own start
 * (or cut) to a multiple of the replicas; replica r takes every n_replicas-th from r on.
 */
#include <inttypes.h>

#include <trireme/data.h>
#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/mt19937.h"

struct tri_sampler {
    int64_t length, share; /* samples of the set; of this replica */
    int n_replicas, rank;
    bool sequential;
    uint64_t seed;
    int64_t *order;   /* [length]; NULL if sequential */
    int64_t *indices; /* [share] */
};

tri_status tri_sampler_create(int64_t length, const tri_sampler_options *opt,
                              tri_sampler **sampler_out)
{
    static const tri_sampler_options defaults;
    tri_status status = trii_need(sampler_out, "tri_sampler_create", "sampler_out");
    int n_replicas, rank;
    tri_sampler *s;

    if (status != TRI_OK)
        return status;
    if (opt == NULL)
        opt = &defaults;
    n_replicas = opt->n_replicas == 0 ? tri_world_size() : opt->n_replicas;
    rank = opt->n_replicas == 0 ? tri_rank() : opt->rank;
    if (length < 1 || length > INT64_MAX / 16)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "sampler_create: length is %" PRId64 " samples, at least 1 is needed",
                         length);
    if (opt->n_replicas == 0 && opt->rank != 0 && opt->rank != rank)
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "sampler: rank %d without n_replicas: set both, or neither for the world's "
            "(here rank %d of %d)",
            opt->rank, rank, n_replicas);
    if (n_replicas < 1 || rank < 0 || rank >= n_replicas)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "sampler: rank %d of %d replicas", rank, n_replicas);

    s = trii_alloc(1, sizeof(*s), "sampler");
    if (s == NULL)
        return TRI_ERR_NO_MEMORY;
    s->length = length;
    s->n_replicas = n_replicas;
    s->rank = rank;
    s->sequential = opt->sequential;
    s->seed = opt->seed;
    s->share = opt->drop_last ? length / n_replicas : (length - 1) / n_replicas + 1;
    s->indices = trii_alloc((size_t)s->share, sizeof(*s->indices), "sampler's indices");
    if (!s->sequential)
        s->order = trii_alloc((size_t)length, sizeof(*s->order), "sampler's permutation");
    if (s->indices == NULL || (!s->sequential && s->order == NULL)) {
        tri_sampler_destroy(s);
        return TRI_ERR_NO_MEMORY;
    }
    tri_sampler_set_epoch(s, 0);
    *sampler_out = s;
    return TRI_OK;
}

void tri_sampler_destroy(tri_sampler *sampler)
{
    if (sampler == NULL)
        return;
    trii_free(sampler->order);
    trii_free(sampler->indices);
    trii_free(sampler);
}

void tri_sampler_set_epoch(tri_sampler *sampler, int64_t epoch)
{
    if (sampler == NULL)
        return;
    if (!sampler->sequential) {
        trii_mt19937 mt;

        trii_mt_seed(&mt, sampler->seed + (uint64_t)epoch);
        trii_mt_randperm(&mt, sampler->length, sampler->order);
    }
    for (int64_t i = 0; i < sampler->share; i++) {
        int64_t at = (i * sampler->n_replicas + sampler->rank) % sampler->length;

        sampler->indices[i] = sampler->sequential ? at : sampler->order[at];
    }
}

int64_t tri_sampler_length(const tri_sampler *sampler)
{
    return sampler != NULL ? sampler->share : 0;
}

const int64_t *tri_sampler_indices(const tri_sampler *sampler)
{
    return sampler != NULL ? sampler->indices : NULL;
}
