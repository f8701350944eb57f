/*
 * witness.h - something outside of a step that has to know when the step fails, and when it ends:
 * a strategy gives back what it counted, and tells peers that wait.
 */
#ifndef TRII_WITNESS_H
#define TRII_WITNESS_H

struct trii_step;

typedef struct trii_witness {
    /* The step has failed, so what peers still expect from it will never come. Once for each
     * failure of a segment; never blocks. `why` is not the error line, which this may write. */
    void (*failed)(struct trii_witness *witness, const struct trii_step *step, const char *why);
    /* The step has ended, in any thread, and forgets the witness. */
    void (*ended)(struct trii_witness *witness);
    struct trii_witness *next; /* the recorder's */
} trii_witness;

/* Until the step ends; at most once for each step. */
void trii_step_add_witness(struct trii_step *step, trii_witness *witness);

#endif
