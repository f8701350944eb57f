/*
 * fuzz.h - targets that take any bytes, the corpora that they start from, and mutations of
 * these by a seed: the same seed gives the same bytes everywhere. Tests only.
 *
 * A target must end with a status, whatever it gets, and checks what must hold of it.
 */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_MAX_BYTES 4096

typedef struct fuzz_target {
    const char *name; /* and of its folder below tests/fuzz/corpus */
    void (*begin)(void);
    void (*run)(const uint8_t *data, size_t bytes);
    void (*end)(void);
} fuzz_target;

/* Every file of the target's corpus, whole, and cut after each byte. */
void fuzz_corpus(const fuzz_target *target);
/* Every file of it, whole: for targets that take long. */
void fuzz_whole(const fuzz_target *target);
/* n mutations of the corpus. TRI_FUZZ_SEED sets another seed; a failure names the case, which
 * TRI_FUZZ_CASE then runs alone. */
void fuzz_mutations(const fuzz_target *target, long n);

#endif
