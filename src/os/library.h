/*
 * library.h - shared libraries that are loaded while the program runs.
 */
#ifndef TRII_LIBRARY_H
#define TRII_LIBRARY_H

#include <trireme/status.h>

/* The library of a vendor by the first of its names (the list ends with NULL) that can be loaded;
 * it stays for the life of the process. NULL if none can. */
void *trii_library_open(const char *const *names);
/* The address of a function; NULL if it has none of this name. */
void *trii_library_symbol(void *library, const char *name);
/* Keeps what `address` is in where it is, whatever a program that loaded it closes: for a thread
 * that may outlive its wish to. */
void trii_library_stay(const void *address);
/* The folder of the file that holds `address`: of our library, or of a program that has us inside.
 * False if it is not known. */
bool trii_library_folder(const void *address, char *path_out, size_t bytes);

/**
 * Loads a plug-in of this library by its file's name: from the folders of TRI_PLUGIN_PATH, from
 * trireme/ beside our library, or from where that lies for a program that has us inside.
 *
 * Errors: NOT_FOUND (places_out, of so many bytes, has where it was looked for), IO.
 */
tri_status trii_library_load_plugin(const char *file, char *places_out, size_t bytes,
                                    void **library_out) TRI_MUST_CHECK;

#endif
