/*
 * limits.c - see limits.h.
 */
/* build: leaf */
#include "os/limits.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/err.h"

#define MOST ((rlim_t)1 << 20)
#define SPARE 64 /* descriptors that others of this process may open meanwhile; no more than n */

static _Atomic(rlim_t) original; /* soft limit before we raised it; 0 = we did not */

int trii_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1024;
    return (int)(limit.rlim_cur < MOST ? limit.rlim_cur : MOST);
}

int trii_descriptor_limit_raise(void)
{
    struct rlimit limit;
    rlim_t none = 0;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max &&
        limit.rlim_cur < MOST) {
        rlim_t before = limit.rlim_cur;

        limit.rlim_cur = limit.rlim_max < MOST ? limit.rlim_max : MOST;
        if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
            atomic_compare_exchange_strong(&original, &none, before);
    }
    return trii_descriptor_limit();
}

void trii_descriptor_limit_restore(void)
{
    struct rlimit limit;
    rlim_t before = atomic_load(&original);

    if (before == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = before < limit.rlim_max ? before : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* lowering is always allowed */
}

int trii_descriptors_share(int quarters, int keep, int least)
{
    int limit = trii_descriptor_limit_raise(), n = limit / 4 * quarters;

    if (n > limit - keep)
        n = limit - keep;
    return n > least ? n : least;
}

const char *trii_descriptors_hint(int error)
{
    return error == EMFILE ? ": this process may have no more; raise the limit (ulimit -n)" : "";
}

size_t trii_address_space_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return (size_t)limit.rlim_cur;
}

const char *trii_address_space_hint(int error, char text_out[40])
{
    size_t limit = trii_address_space_limit();

    text_out[0] = '\0';
    if (error == ENOMEM && limit != SIZE_MAX)
        snprintf(text_out, 40, " (limit: ulimit -v %zu)", limit >> 10);
    return text_out;
}

/* Without /proc nobody knows: few. */
static int open_now(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n;
}

tri_status trii_descriptors_want(int n, const char *what)
{
    int limit = trii_descriptor_limit(), wanted;

    if (n < limit / 2 - SPARE) /* the usual case, without a look at what is open */
        return TRI_OK;
    wanted = open_now() + n + (n < SPARE ? n : SPARE);
    if (wanted > limit)
        limit = trii_descriptor_limit_raise();
    if (wanted > limit)
        return TRII_FAIL(TRI_ERR_STATE,
                         "%s needs %d descriptors and this process may have %d: raise the limit "
                         "(ulimit -n %d, LimitNOFILE=, --ulimit nofile=)",
                         what, wanted, limit, wanted);
    return TRI_OK;
}
