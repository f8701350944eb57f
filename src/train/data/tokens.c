/*
 * tokens.c - windows of a memory-mapped file of token numbers; the target of each token is the one
 * after it. Only the pages that are asked for are read, so a file may be larger than memory.
 */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/data/dataset.h"
#include "os/file.h"

typedef struct token_set {
    tri_dataset base;
    trii_mapping file;
    const unsigned char *tokens; /* offset in the file, after its header */
    int token_bytes;
    int64_t context, stride;
} token_set;

/* n numbers at any address, least significant byte first. */
static void widen(const unsigned char *src, int token_bytes, int64_t n, int64_t *dst)
{
    switch (token_bytes) {
    case 1:
        for (int64_t i = 0; i < n; i++)
            dst[i] = src[i];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++)
            dst[i] = src[2 * i] | src[2 * i + 1] << 8;
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            dst[i] = src[4 * i] | src[4 * i + 1] << 8 | src[4 * i + 2] << 16 |
                     (int64_t)src[4 * i + 3] << 24;
    }
}

static tri_status token_read(tri_dataset *self, const tri_request *request, void *const *slots)
{
    const token_set *set = (const token_set *)self;

    for (int64_t i = 0; i < request->n; i++) {
        const unsigned char *at =
            set->tokens + (size_t)(request->indices[i] * set->stride) * (size_t)set->token_bytes;

        for (int f = 0; f < 2; f++)
            widen(at + f * set->token_bytes, set->token_bytes, set->context,
                  (int64_t *)slots[f] + i * set->context);
    }
    return TRI_OK;
}

static void token_destroy(tri_dataset *self)
{
    trii_mapping_close(&((token_set *)self)->file);
    trii_free(self);
}

static const tri_dataset_class token_class = {
    .name = "tokens",
    .read = token_read,
    .destroy = token_destroy,
};

static tri_status check_windows(int token_bytes, int64_t context,
                                const tri_dataset_tokens_options *opt)
{
    if (token_bytes != 1 && token_bytes != 2 && token_bytes != 4)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "dataset_tokens: tokens of %d bytes (token_bytes): must be 1, 2 or 4",
                         token_bytes);
    if (context < 1 || context > INT64_MAX / 4096)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "dataset_tokens: windows of %" PRId64
                         " tokens (context): must be at least 1 and fit into memory",
                         context);
    if (opt->stride < 0 || opt->header_bytes < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "dataset_tokens: a stride of %" PRId64 " and a header of %" PRId64
                         " bytes: neither may be negative",
                         opt->stride, opt->header_bytes);
    return TRI_OK;
}

/* The number of tokens in the file; fails if there is not even one window of them. */
static tri_status count_tokens(const char *path, const token_set *set, int64_t header_bytes,
                               int64_t *n_out)
{
    int64_t bytes = (int64_t)set->file.bytes, n;

    if (header_bytes > bytes || (bytes - header_bytes) % set->token_bytes != 0)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: truncated, or not a file of such tokens: %" PRId64
                         " bytes are not a header of %" PRId64 " and tokens of %d bytes",
                         path, bytes, header_bytes, set->token_bytes);
    n = (bytes - header_bytes) / set->token_bytes;
    if (n <= set->context)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: %" PRId64 " tokens, but a window of %" PRId64
                         " and the token after it need %" PRId64,
                         path, n, set->context, set->context + 1);
    *n_out = n;
    return TRI_OK;
}

tri_status tri_dataset_tokens(const char *path, int token_bytes, int64_t context,
                              const tri_dataset_tokens_options *opt, tri_dataset **dataset_out)
{
    static const tri_dataset_tokens_options defaults;
    tri_status status = trii_need_text(path, "tri_dataset_tokens", "path");
    int64_t n = 0;
    token_set *set;

    if (opt == NULL)
        opt = &defaults;
    if (status == TRI_OK)
        status = trii_need(dataset_out, "tri_dataset_tokens", "dataset_out");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_dataset_tokens_options, opt);
    if (status == TRI_OK)
        status = check_windows(token_bytes, context, opt);
    if (status != TRI_OK)
        return status;
    set = trii_alloc(1, sizeof(*set), "data set");
    if (set == NULL)
        return TRI_ERR_NO_MEMORY;
    set->token_bytes = token_bytes;
    set->context = context;
    set->stride = opt->stride > 0 ? opt->stride : 1;
    status = trii_mapping_open(path, &set->file);
    if (status == TRI_OK)
        status = count_tokens(path, set, opt->header_bytes, &n);
    if (status != TRI_OK) {
        token_destroy(&set->base);
        return status;
    }
    set->tokens = (const unsigned char *)set->file.data + opt->header_bytes;
    set->base.cls = &token_class;
    set->base.length = (n - context - 1) / set->stride + 1;
    set->base.n_fields = 2;
    for (int f = 0; f < 2; f++)
        set->base.fields[f] = (tri_field){TRI_DTYPE_I64, 1, {context}};
    *dataset_out = &set->base;
    return TRI_OK;
}
