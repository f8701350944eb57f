/*
 * ranks_text.c - see ranks_text.h.
 */
/* build: leaf */
#include "base/ranks_text.h"

#include <stdio.h>

size_t trii_ranks_text(const int *ranks, int n, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, n == 1 ? "rank" : "ranks");

    for (int i = 0; i < n && used < size; i++) {
        int last = i;

        while (last + 1 < n && ranks[last + 1] == ranks[last] + 1)
            last++;
        used += (size_t)snprintf(text + used, size - used, "%s%d", i > 0 ? ", " : " ", ranks[i]);
        if (last > i && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%d", last > i + 1 ? "-" : ", ",
                                     ranks[last]);
        i = last;
    }
    return used < size ? used : size - 1;
}
