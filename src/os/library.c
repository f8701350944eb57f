/*
 * library.c - see library.h.
 */
#include "os/library.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

tri_status trii_library_load(const char *path, void **library_out)
{
    void *library;

    if (access(path, R_OK) != 0)
        return TRII_FAIL(TRI_ERR_NOT_FOUND, "%s does not exist", path);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL)
        return TRII_FAIL(TRI_ERR_IO, "%s", dlerror());
    *library_out = library;
    return TRI_OK;
}

void *trii_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

bool trii_library_folder(const void *address, char *path_out, size_t bytes)
{
    Dl_info info;
    char own[512];
    const char *file, *slash;
    ssize_t n;

    if (dladdr(address, &info) == 0 || info.dli_fname == NULL)
        return false;
    file = info.dli_fname;
    if (strchr(file, '/') == NULL) { /* the program itself, as it was called */
        n = readlink("/proc/self/exe", own, sizeof(own) - 1);
        if (n <= 0)
            return false;
        own[n] = '\0';
        file = own;
    }
    slash = strrchr(file, '/');
    if (slash == NULL || (size_t)(slash - file) + 1 > bytes)
        return false;
    memcpy(path_out, file, (size_t)(slash - file));
    path_out[slash - file] = '\0';
    return true;
}
