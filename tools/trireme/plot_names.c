/*
 * plot_names.c - see plot_names.h.
 */
#include "plot_names.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* --- paths ---------------------------------------------------------------- */

/* Bytes of the first name of a path with the slashes after it. */
static size_t first_name(const char *path)
{
    size_t n = strcspn(path, "/");

    return n + strspn(path + n, "/");
}

/* Where the last name of path[0 .. end) begins. */
static size_t last_name(const char *path, size_t end)
{
    while (end > 0 && path[end - 1] != '/')
        end--;
    return end;
}

static size_t without_slashes(const char *path, size_t end)
{
    while (end > 0 && path[end - 1] == '/')
        end--;
    return end;
}

/* Moves *begin over the folders that all paths begin with. */
static void skip_common_folders(const char *const *files, int n, const char *mine, size_t *begin)
{
    for (;;) {
        size_t name = first_name(mine + *begin);

        if (name == 0 || mine[*begin + name] == '\0')
            return;
        for (int i = 0; i < n; i++) {
            if (strncmp(files[i], mine, *begin + name) != 0)
                return;
        }
        *begin += name;
    }
}

/* Whether all paths end in the last `bytes` bytes of mine, as whole names. */
static bool all_end_in(const char *const *files, int n, const char *tail, size_t bytes)
{
    for (int i = 0; i < n; i++) {
        size_t length = strlen(files[i]);

        if (length < bytes || strcmp(files[i] + length - bytes, tail) != 0 ||
            (length > bytes && files[i][length - bytes - 1] != '/'))
            return false;
    }
    return true;
}

void plot_name_file(const char *const *files, int n_files, int index, char *out, size_t bytes)
{
    const char *mine = files[index];
    size_t begin = 0, length = strlen(mine), end = length;

    skip_common_folders(files, n_files, mine, &begin);
    for (;;) {
        size_t at = last_name(mine, without_slashes(mine, end));

        if (at <= begin || !all_end_in(files, n_files, mine + at, length - at))
            break;
        end = without_slashes(mine, at);
    }
    if (end <= begin) { /* the same file twice, say */
        begin = last_name(mine, length);
        end = length;
    }
    if (end - begin >= bytes) /* the end says more than the beginning */
        begin = end - (bytes - 1);
    while (begin < end && ((unsigned char)mine[begin] & 0xc0u) == 0x80)
        begin++;
    snprintf(out, bytes, "%.*s", (int)(end - begin), mine + begin);
    plot_make_utf8(out);
}

void plot_make_utf8(char *text)
{
    while (*text != '\0') {
        size_t n = trii_utf8_character(text);

        if (n == 0 || (n == 1 && ((unsigned char)*text < ' ' || *text == 0x7f)))
            *text = '?';
        text += n > 0 ? n : 1;
    }
}
