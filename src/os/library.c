/*
 * library.c - see library.h.
 */
#include "os/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/err.h"
#include "base/log.h"
#include "base/param.h"

#ifndef TRII_LIBDIR
#define TRII_LIBDIR "lib" /* below the prefix; the build says which */
#endif

/* NOT_FOUND: there is no such file; IO: it cannot be loaded, the line has the loader's words. */
static tri_status load(const char *path, void **library_out)
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

void *trii_library_open(const char *const *names)
{
    void *library = NULL;

    for (; library == NULL && *names != NULL; names++)
        library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    return library;
}

void *trii_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

void trii_library_stay(const void *address)
{
    Dl_info info;

    /* No handle: what is the program itself needs none, and nothing closes it. */
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL ||
        dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) != NULL)
        return;
    /* What dlopen has noted of the failure, in the program itself, would look leaked if this thread
     * ended with the process: the second call frees what the first has given out. */
    (void)dlerror();
    (void)dlerror();
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

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);

    return length >= n && strcmp(text + length - n, end) == 0;
}

/* INPROGRESS if it is not there, and notes the place. */
static tri_status look_in(const char *folder, const char *file, char *places, size_t bytes,
                          void **library_out)
{
    char path[700];
    tri_status status;

    snprintf(path, sizeof(path), "%s/%s", folder, file);
    status = load(path, library_out);
    if (status == TRI_OK)
        TRII_LOG(TRII_LOG_INFO, "os", "loaded %s", path);
    if (status != TRI_ERR_NOT_FOUND)
        return status;
    snprintf(places + strlen(places), bytes - strlen(places), " %s", folder);
    return TRI_INPROGRESS;
}

tri_status trii_library_load_plugin(const char *file, char *places_out, size_t bytes,
                                    void **library_out)
{
    static const char *const beside[] = {"/trireme", "/../" TRII_LIBDIR "/trireme"};
    static const char anchor[] = ""; /* in our library, or the program */
    const char *path = trii_param_text(TRII_PARAM_PLUGIN_PATH);
    char own[512], folder[600];
    tri_status status = TRI_INPROGRESS;

    places_out[0] = '\0';
    while (path != NULL && *path != '\0' && status == TRI_INPROGRESS) {
        int length = (int)strcspn(path, ":");

        snprintf(folder, sizeof(folder), "%.*s", length, path);
        if (length > 0)
            status = look_in(folder, file, places_out, bytes, library_out);
        path += length + (path[length] == ':');
    }
    if (status == TRI_INPROGRESS && !trii_library_folder(anchor, own, sizeof(own)))
        own[0] = '\0';
    for (size_t i = 0; i < TRII_COUNT_OF(beside) && status == TRI_INPROGRESS; i++) {
        if (i > 0 && ends_with(own, "/" TRII_LIBDIR))
            break; /* the same folder */
        snprintf(folder, sizeof(folder), "%s%s", own, beside[i]);
        status = look_in(folder, file, places_out, bytes, library_out);
    }
    return status == TRI_INPROGRESS ? TRI_ERR_NOT_FOUND : status;
}
