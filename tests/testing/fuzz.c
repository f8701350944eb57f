/*
 * fuzz.c - see tests/fuzz/fuzz.h.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "testing/check.h"

#define MAX_FILES 64

typedef struct corpus {
    uint8_t *data[MAX_FILES];
    size_t bytes[MAX_FILES];
    int n;
} corpus;

/* splitmix64: one stream per case, so that each can be run alone. */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* not the locale's order */
}

static void load(const fuzz_target *target, corpus *c)
{
    struct dirent **names = NULL;
    char folder[512], path[900];
    int n;

    memset(c, 0, sizeof(*c));
    snprintf(folder, sizeof(folder), "%s/tests/fuzz/corpus/%s", getenv("TRI_TEST_SOURCE"),
             target->name);
    n = scandir(folder, &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", folder, names[i]->d_name);
        file = names[i]->d_name[0] != '.' && c->n < MAX_FILES ? fopen(path, "rb") : NULL;
        if (file != NULL) {
            c->data[c->n] = malloc(FUZZ_MAX_BYTES);
            assert_non_null(c->data[c->n]);
            c->bytes[c->n] = fread(c->data[c->n], 1, FUZZ_MAX_BYTES, file);
            fclose(file);
            c->n++;
        }
        free(names[i]);
    }
    free(names);
    if (c->n == 0)
        fail_msg("no corpus in %s", folder);
}

static void unload(corpus *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->data[i]);
}

/* In memory of its exact size, so that a read past its end is seen. */
static void run_exact(const fuzz_target *target, const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes + (bytes == 0));

    assert_non_null(copy);
    memcpy(copy, data, bytes);
    target->run(copy, bytes);
    free(copy);
}

static void run_corpus(const fuzz_target *target, bool cut)
{
    corpus c;

    load(target, &c);
    if (target->begin != NULL)
        target->begin();
    for (int i = 0; i < c.n; i++) {
        for (size_t bytes = cut ? 0 : c.bytes[i]; bytes <= c.bytes[i]; bytes++)
            run_exact(target, c.data[i], bytes);
    }
    if (target->end != NULL)
        target->end();
    unload(&c);
}

void fuzz_corpus(const fuzz_target *target)
{
    run_corpus(target, true);
}

void fuzz_whole(const fuzz_target *target)
{
    run_corpus(target, false);
}

static const uint64_t numbers[] = {0,
                                   1,
                                   7,
                                   8,
                                   255,
                                   256,
                                   8192,
                                   8193,
                                   65535,
                                   65536,
                                   131073,
                                   UINT64_C(0x7fffffff),
                                   UINT64_C(0x80000000),
                                   UINT64_C(0xffffffff),
                                   UINT64_C(0x100000000),
                                   UINT64_C(0x7fffffffffffffff),
                                   UINT64_C(0x8000000000000000),
                                   UINT64_C(0xffffffffffffffff),
                                   UINT64_C(0xfffffffffffffff8)};

static size_t mutate_once(uint8_t *data, size_t bytes, const corpus *c, uint64_t *state)
{
    size_t at = bytes > 0 ? draw(state) % bytes : 0, n = 1 + draw(state) % 16;
    uint64_t number = numbers[draw(state) % (sizeof(numbers) / sizeof(numbers[0]))];
    int other = (int)(draw(state) % (uint64_t)c->n);

    switch (draw(state) % 9) {
    case 0: /* a bit */
        if (bytes > 0)
            data[at] ^= (uint8_t)(1u << draw(state) % 8);
        return bytes;
    case 1: /* a byte */
        if (bytes > 0)
            data[at] = (uint8_t)draw(state);
        return bytes;
    case 2: /* a number, 1 to 8 bytes wide, of either order */
        n = (size_t)1 << draw(state) % 4;
        for (size_t i = 0; i < n && at + i < bytes; i++)
            data[at + i] = (uint8_t)(number >> 8 * (draw(state) % 8 == 0 ? n - 1 - i : i));
        return bytes;
    case 3: /* cut */
        return at;
    case 4: /* take out */
        n = at + n > bytes ? bytes - at : n;
        memmove(data + at, data + at + n, bytes - at - n);
        return bytes - n;
    case 5: /* put in */
        n = bytes + n > FUZZ_MAX_BYTES ? FUZZ_MAX_BYTES - bytes : n;
        memmove(data + at + n, data + at, bytes - at);
        for (size_t i = 0; i < n; i++)
            data[at + i] = (uint8_t)draw(state);
        return bytes + n;
    case 6: /* say it twice */
        n = at + n > bytes ? bytes - at : n;
        n = bytes + n > FUZZ_MAX_BYTES ? FUZZ_MAX_BYTES - bytes : n;
        memmove(data + at + n, data + at, bytes - at);
        return bytes + n;
    case 7: /* go on with another file */
        n = c->bytes[other] > FUZZ_MAX_BYTES - at ? FUZZ_MAX_BYTES - at : c->bytes[other];
        memcpy(data + at, c->data[other], n);
        return at + n;
    default: /* nothing but noise */
        if (draw(state) % 8 != 0)
            return bytes;
        for (size_t i = 0; i < bytes; i++)
            data[i] = (uint8_t)draw(state);
        return bytes;
    }
}

static void run_case(const fuzz_target *target, const corpus *c, uint64_t seed, long number)
{
    static uint8_t data[FUZZ_MAX_BYTES];
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)number;
    int file = (int)(draw(&state) % (uint64_t)c->n);
    size_t bytes = c->bytes[file];
    uint64_t rounds = 1 + draw(&state) % 5;

    memcpy(data, c->data[file], bytes);
    while (rounds-- > 0)
        bytes = mutate_once(data, bytes, c, &state);
    run_exact(target, data, bytes);
}

void fuzz_mutations(const fuzz_target *target, long n)
{
    const char *seed_text = getenv("TRI_FUZZ_SEED"), *case_text = getenv("TRI_FUZZ_CASE");
    uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 10) : 1;
    long first = case_text != NULL ? strtol(case_text, NULL, 10) : 0;
    corpus c;

    load(target, &c);
    if (target->begin != NULL)
        target->begin();
    for (long i = first; i < (case_text != NULL ? first + 1 : n); i++) {
        /* where a crash was: TRI_FUZZ_CASE from there on */
        if (i % 4096 == 0 || case_text != NULL)
            fprintf(stderr, "%s: seed %llu, from case %ld\n", target->name,
                    (unsigned long long)seed, i);
        run_case(target, &c, seed, i);
    }
    if (target->end != NULL)
        target->end();
    unload(&c);
}
