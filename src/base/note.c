/*
 * note.c - see note.h.
 */
/* build: leaf */
#include "base/note.h"

#include "base/param.h"

int64_t trii_note_next(int64_t now_ns)
{
    int64_t every_ms = 0;

    if (trii_param_i64(TRII_PARAM_NOTE_MS, 60000, &every_ms) != TRI_OK)
        every_ms = 60000; /* who checks the settings has warned */
    return now_ns + every_ms * 1000000;
}
