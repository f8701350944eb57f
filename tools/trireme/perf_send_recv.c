/*
 * perf_send_recv.c - see perf_send_recv.h.
 */
#include "perf_send_recv.h"

int perf_outstanding = 1;

tri_status perf_send_recv(const void *src, void *dst, size_t count, tri_dtype dtype)
{
    int size = tri_world_size(), rank = tri_rank(), n = perf_outstanding;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    size_t bytes = count * tri_dtype_size(dtype);
    static tri_work *works[2 * PERF_MOST_OUTSTANDING];
    int n_works = 0;
    tri_status status = TRI_OK;

    for (int tag = 0; tag < n && status == TRI_OK; tag++) {
        status = tri_send(NULL, src, count, dtype, next, tag, &works[n_works]);
        n_works += status == TRI_OK;
    }
    for (int tag = n - 1; tag >= 0 && status == TRI_OK; tag--) {
        status = tri_recv(NULL, (char *)dst + (size_t)tag * bytes, count, dtype, before, tag,
                          &works[n_works]);
        n_works += status == TRI_OK;
    }
    for (int i = n_works - 1; i >= 0; i--) {
        if (status == TRI_OK)
            status = tri_work_wait(works[i], 0);
        tri_work_destroy(works[i]);
    }
    return status;
}
