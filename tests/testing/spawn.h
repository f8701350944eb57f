/*
 * spawn.h - run a program from a test: its output is collected, and every wait has a deadline
 * after which the program is killed and the test fails. Tests only.
 */
#ifndef TEST_SPAWN_H
#define TEST_SPAWN_H

#include <stdbool.h>
#include <stddef.h>

#define SPAWN_DEADLINE_MS 30000
/* Every spawned process and its descendants carry this variable, so that what is left behind
 * can be found. */
#define SPAWN_MARK "TRI_TEST_MARK"

typedef struct spawn {
    int pid;
    char mark[64]; /* "TRI_TEST_MARK=..." of this one */
    int fd[2];     /* its stdout and stderr; -1 = ended */
    char *text[2]; /* what it printed there, zero at the end */
    size_t used[2];
    bool ended;
    int status;      /* once ended: exit code, or minus the signal */
    bool guarded;    /* trirun has started its guard, so it leaves nothing even if killed */
    int deadline_ms; /* of each wait; SPAWN_DEADLINE_MS until it is set after the start. Five times
                      * as long under a sanitizer */
} spawn;

#define SPAWN_OUT(s) ((s)->text[0])
#define SPAWN_ERR(s) ((s)->text[1])

/* argv[0] is a path or a name in PATH. env: entries "NAME=value" added to ours and "NAME"
 * taken away, ends with NULL; NULL = ours as it is. The program gets an own process group. */
void spawn_start(spawn *s, const char *const *argv, const char *const *env);
/* As spawn_start with no other environment than `env`. */
void spawn_start_bare(spawn *s, const char *const *argv, const char *const *env);
void spawn_signal(const spawn *s, int number);
/* Reads what is there, or comes in this time. */
void spawn_poll(spawn *s, int timeout_ms);
/* Reads on until stdout or stderr contains the text. */
void spawn_expect(spawn *s, const char *text);
/* Reads what comes for so long: that nothing happens takes its time. */
void spawn_read(spawn *s, int ms);
/* Reads until it has ended; returns status. */
int spawn_wait(spawn *s);
/* Waits until no process with our mark is alive; fails with a list of those that stay, and if a
 * control group of the program is left, as trirun makes them. A trirun that was killed may leave an
 * empty one, which the next takes away, unless it is guarded. */
void spawn_expect_no_process(const spawn *s);
/* It ends well, within so long, and no process is left. */
void spawn_succeeds(spawn *s, int deadline_ms);
/* How many processes with our mark are alive now. */
int spawn_count(const spawn *s);
void spawn_free(spawn *s); /* kills what is left of it */

/* $TRI_TEST_BIN/name: static text. */
const char *spawn_bin(const char *name);
/* A fresh folder below $TMPDIR or /tmp; remove it with spawn_remove_folder. */
void spawn_make_folder(char *path_out, size_t bytes);
void spawn_remove_folder(const char *path);
/* A port that was free a moment ago. */
int spawn_free_port(void);
/* Number of entries of a folder; 0 if it is not there. */
int spawn_count_entries(const char *path);

#endif
