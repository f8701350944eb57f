/*
 * ckpt_run.h - `trireme ckpt` run from outside. Tests only.
 */
#ifndef TEST_CKPT_RUN_H
#define TEST_CKPT_RUN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/check.h"
#include "testing/golden.h"
#include "testing/spawn.h"

/* Runs `trireme ckpt` with these words, up to the first NULL, looks for its exit status, and for a
 * text in what it prints. */
static inline void ckpt_expect(int status, const char *const words[6], const char *text)
{
    const char *argv[9] = {spawn_bin("trireme"), "ckpt"};
    spawn s;

    for (int i = 0; i < 6 && words[i] != NULL; i++)
        argv[2 + i] = words[i];
    spawn_start(&s, argv, NULL);
    if (spawn_wait(&s) != status)
        fail_msg("status %d instead of %d\n%s\n%s", s.status, status, SPAWN_OUT(&s), SPAWN_ERR(&s));
    if (strstr(SPAWN_OUT(&s), text) == NULL && strstr(SPAWN_ERR(&s), text) == NULL)
        fail_msg("no \"%s\" in:\n%s\n%s", text, SPAWN_OUT(&s), SPAWN_ERR(&s));
    spawn_free(&s);
}
#define CKPT(status, text, ...) ckpt_expect((status), (const char *const[6]){__VA_ARGS__}, (text))

#endif
