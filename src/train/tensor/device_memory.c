/*
 * device_memory.c - see device_memory.h: calls the table of the device's kind; between two kinds of
 * devices contents go through the host.
 */
#include "train/tensor/device_memory.h"

#include <string.h>

#include "base/alloc.h"

static void *host_buffer(size_t bytes)
{
    return trii_alloc_aligned(TRII_CACHE_LINE, bytes, "contents on their way");
}

/* Between two kinds of devices, neither of which knows the other. */
static tri_status copy_by_host(tri_device dst_device, void *dst, tri_device src_device,
                               const void *src, size_t bytes)
{
    void *host = host_buffer(bytes);
    tri_status status = TRI_ERR_NO_MEMORY;

    if (host != NULL)
        status = trii_memory_copy(TRI_CPU(0), host, src_device, src, bytes);
    if (status == TRI_OK)
        status = trii_memory_copy(dst_device, dst, TRI_CPU(0), host, bytes);
    trii_free(host);
    return status;
}

tri_status trii_memory_copy(tri_device dst_device, void *dst, tri_device src_device,
                            const void *src, size_t bytes)
{
    bool to_host = trii_is_host(dst_device), from_host = trii_is_host(src_device);

    if (bytes == 0)
        return TRI_OK;
    if (to_host && from_host) {
        memcpy(dst, src, bytes);
        return TRI_OK;
    }
    if (to_host)
        return trii_memory_of(src_device)->read(trii_device_index_of(src_device), dst, src, bytes);
    if (from_host)
        return trii_memory_of(dst_device)->write(trii_device_index_of(dst_device), dst, src, bytes);
    if (trii_device_kind_of(dst_device) != trii_device_kind_of(src_device))
        return copy_by_host(dst_device, dst, src_device, src, bytes);
    return trii_memory_of(dst_device)
        ->copy(trii_device_index_of(dst_device), dst, trii_device_index_of(src_device), src, bytes);
}

tri_status trii_memory_read(tri_device device, const trii_layout *layout, const void *src,
                            void *plain, size_t bytes)
{
    void *host;
    tri_status status;

    if (layout == NULL)
        return trii_memory_copy(TRI_CPU(0), plain, device, src, bytes);
    if (trii_is_host(device))
        return layout->to_plain(layout, src, plain);
    host = host_buffer(layout->bytes);
    status = host != NULL ? trii_memory_copy(TRI_CPU(0), host, device, src, layout->bytes)
                          : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = layout->to_plain(layout, host, plain);
    trii_free(host);
    return status;
}

tri_status trii_memory_write(tri_device device, const trii_layout *layout, const void *plain,
                             void *dst, size_t bytes)
{
    void *host;
    tri_status status;

    if (layout == NULL)
        return trii_memory_copy(device, dst, TRI_CPU(0), plain, bytes);
    if (trii_is_host(device))
        return layout->from_plain(layout, plain, dst);
    host = host_buffer(layout->bytes);
    status = host != NULL ? layout->from_plain(layout, plain, host) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = trii_memory_copy(device, dst, TRI_CPU(0), host, layout->bytes);
    trii_free(host);
    return status;
}
