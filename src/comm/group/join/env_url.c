/*
 * env_url.c - the URL of tri_init, as in torch.distributed: env:// (env.c), or tcp://HOST:PORT and
 * file:///PATH, each with an optional ?rank=R&world_size=W.
 */
/* build: leaf */
#include "comm/group/join/env.h"

#include <string.h>

#include "base/err.h"
#include "base/param.h"

typedef struct url_query {
    bool rank_seen, size_seen;
} url_query;

/* "name=number" at the head of `text`; moves *text_io past it and its &. */
static tri_status read_parameter(const char **text_io, trii_launch_env *env, url_query *query)
{
    char part[64];
    const char *value;
    size_t length = strcspn(*text_io, "&");
    int64_t number;
    tri_status status;

    snprintf(part, sizeof(part), "%.*s", (int)length, *text_io);
    *text_io += length + ((*text_io)[length] == '&');
    value = strchr(part, '=');
    if (value != NULL && strncmp(part, "rank=", 5) == 0) {
        status = trii_parse_i64(value + 1, "rank", 0, TRII_WORLD_MAX_RANKS, &number);
        query->rank_seen = true;
        env->rank = status == TRI_OK ? (int)number : 0;
    } else if (value != NULL && strncmp(part, "world_size=", 11) == 0) {
        status = trii_parse_i64(value + 1, "world_size", 1, TRII_WORLD_MAX_RANKS, &number);
        query->size_seen = true;
        env->size = status == TRI_OK ? (int)number : 0;
    } else if (value != NULL && strncmp(part, "use_libuv=", 10) == 0) {
        status = TRI_OK; /* PyTorch's choice of a server; means nothing here */
    } else {
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "unknown parameter \"%s\"", part);
    }
    return status;
}

/* Rank and size, from the URL or both from the environment. */
static tri_status read_query(const char *text, trii_launch_env *env)
{
    url_query query = {0};
    tri_status status = TRI_OK;

    while (status == TRI_OK && *text != '\0')
        status = read_parameter(&text, env, &query);
    if (status == TRI_OK && env->given && (query.rank_seen || query.size_seen))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "the URL and tri_init_options both say rank or world_size; one is "
                           "enough");
    if (status == TRI_OK && !query.rank_seen && !query.size_seen) {
        status = trii_launch_env_who(env, false);
        if (status != TRI_OK || env->size > 1)
            return status;
        if (env->given)
            return TRI_OK;
        env->size = 0; /* nobody says that it is alone */
    }
    if (status == TRI_OK && !query.rank_seen)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "rank parameter missing");
    if (status == TRI_OK && !query.size_seen)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "world size parameter missing");
    if (status != TRI_OK)
        return status;
    /* A URL says nothing of hosts, unless that there is only this one. */
    status = trii_launch_env_local(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    return status == TRI_OK ? trii_launch_env_check(env, "rank", "world_size") : status;
}

/* "HOST:PORT?...", HOST may be "[v6]". */
static tri_status read_tcp(const char *rest, trii_launch_env *env)
{
    size_t length = strcspn(rest, "?/"), host_length;
    const char *query = rest + length + (rest[length] == '/');
    const char *end = *rest == '[' ? memchr(rest, ']', length) : NULL;
    const char *colon =
        memchr(end != NULL ? end : rest, ':', length - (end != NULL ? (size_t)(end - rest) : 0));
    char port[16];
    int64_t number;
    tri_status status;

    if (colon == NULL || (end != NULL && colon != end + 1))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "port number missing");
    host_length = (size_t)(colon - rest);
    status = end != NULL ? trii_launch_env_set_host(env, rest + 1, host_length - 2)
                         : trii_launch_env_set_host(env, rest, host_length);
    if (status != TRI_OK)
        return status;
    env->by_url = true;
    snprintf(port, sizeof(port), "%.*s", (int)(length - host_length - 1), colon + 1);
    status = trii_parse_i64(port, "port", 1, 65535, &number);
    env->port = status == TRI_OK ? (int)number : 0;
    return status == TRI_OK ? read_query(query + (*query == '?'), env) : status;
}

/* "/PATH?..."; a host in front of the path may be no other than localhost. */
static tri_status read_file(const char *rest, trii_launch_env *env)
{
    size_t length;

    if (strncmp(rest, "localhost/", 10) == 0)
        rest += 9;
    if (*rest != '/')
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the path must be absolute: file:///PATH");
    length = strcspn(rest, "?");
    if (length >= sizeof(env->file) || rest[length - 1] == '/')
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%.80s is not the name of a file", rest);
    memcpy(env->file, rest, length);
    env->file[length] = '\0';
    return read_query(rest + length + (rest[length] == '?'), env);
}

static tri_status read_url(const char *url, trii_launch_env *env)
{
    tri_status status;

    if (strncmp(url, "tcp://", 6) == 0)
        status = read_tcp(url + 6, env);
    else if (strncmp(url, "file://", 7) == 0)
        status = read_file(url + 7, env);
    else
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: neither env:// nor tcp://HOST:PORT?... nor file:///PATH?...", url);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "%.120s", url);
}

tri_status trii_launch_env_read(const char *url, trii_launch_env *env_out)
{
    return trii_launch_env_read_as(url, 0, 0, env_out);
}

static tri_status check_given(int rank, int size)
{
    if (size < 0 || size > TRII_WORLD_MAX_RANKS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "world_size %d is outside 1 to %d", size,
                         TRII_WORLD_MAX_RANKS);
    if (size > 0 && (rank < 0 || rank >= size))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "rank %d is out of range (world_size %d)", rank,
                         size);
    return TRI_OK;
}

tri_status trii_launch_env_at_store(int rank, int size, trii_launch_env *env_out)
{
    trii_launch_env env = {.rank = rank, .size = size, .given = true};
    tri_status status = check_given(rank, size);

    if (status == TRI_OK)
        status = trii_launch_env_local(&env, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    if (status == TRI_OK)
        status = trii_launch_env_check(&env, "rank", "world_size");
    if (status == TRI_OK)
        *env_out = env;
    return status;
}

tri_status trii_launch_env_read_as(const char *url, int rank, int size, trii_launch_env *env_out)
{
    trii_launch_env env = {.rank = size > 0 ? rank : 0, .size = size, .given = size > 0};
    tri_status status = check_given(rank, size);

    if (status != TRI_OK)
        return status;
    if (url == NULL || strcmp(url, "env://") == 0)
        status = trii_launch_env_who(&env, true);
    else
        status = read_url(url, &env);
    if (status == TRI_OK)
        *env_out = env;
    return status;
}
