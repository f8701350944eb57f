/*
 * update.h - the rules by which optimisers, clips and averages change a tensor: the attributes of
 * an `update` operation, and the loops that run it. Recorded through update_op.c by optim/.
 *
 * The formulas are written once, in update_loops.h, and compiled for the reference kernel and for
 * each instruction set. Every product, sum, quotient and root is rounded to the type of the tensor
 * and nothing is contracted, so all of them give the same bits.
 */
#ifndef TRII_UPDATE_H
#define TRII_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

/* d is the gradient: times the scale if there is one, clamped to [-limit, limit] if that is not 0,
 * negated to maximize. */
typedef enum trii_update_rule {
    /* f: lr, momentum, dampening, weight_decay. State with MOMENTUM: m.
     *   d = d + weight_decay p;  m' = momentum m + (1 - dampening) d;
     *   d = NESTEROV ? d + momentum m' : m' (if there is m);  p' = p - lr d
     * With momentum 0: as without m, and m' = m. */
    TRII_UPDATE_SGD,
    /* f: step_size, 1 - beta1, beta2, 1 - beta2, root of the correction of v, eps, decay.
     * State: m, v, with AMSGRAD also w.
     *   d = d + decay p, or DECOUPLED: p = p decay;  m' = lerp(m, d, 1 - beta1);
     *   v' = beta2 v + (1 - beta2) d d;  w' = max(w, v');
     *   p' = p - step_size m' / (sqrt(w' or v') / root + eps) */
    TRII_UPDATE_ADAM,
    /* f: lr, alpha, eps, weight_decay, momentum. State: s, with MOMENTUM b, with CENTERED a.
     *   d = d + weight_decay p;  s' = alpha s + (1 - alpha) d d;  a' = lerp(a, d, 1 - alpha);
     *   q = sqrt(s' - a' a' or s') + eps;  b' = momentum b + d / q;  p' = p - lr (b' or d / q)
     * With momentum 0: as without b, and b' = b. */
    TRII_UPDATE_RMSPROP,
    /* f: lr, eps, weight_decay. State: s.
     *   d = d + weight_decay p;  s' = s + d d;  p' = p - lr d / (sqrt(s') + eps) */
    TRII_UPDATE_ADAGRAD,
    TRII_UPDATE_LERP, /* f: weight.  p' = lerp(p, d, weight) */
    TRII_UPDATE_CLIP, /* p' = d */
    TRII_UPDATE_RULES
} trii_update_rule;

/* Flags; see the rules above. */
#define TRII_UPDATE_MAXIMIZE 1
#define TRII_UPDATE_MOMENTUM 2
#define TRII_UPDATE_NESTEROV 4
#define TRII_UPDATE_AMSGRAD 8
#define TRII_UPDATE_CENTERED 16
#define TRII_UPDATE_DECOUPLED 32
#define TRII_UPDATE_SKIPS 64 /* if its last operand is not 0, the results are the old contents */

#define TRII_UPDATE_STATES 4 /* at most */
#define TRII_UPDATE_NUMBERS 7

/* How many states an update has, and how many numbers (after the limit). */
static inline int trii_update_states(trii_update_rule rule, int64_t flags)
{
    switch (rule) {
    case TRII_UPDATE_SGD:
        return (flags & TRII_UPDATE_MOMENTUM) != 0;
    case TRII_UPDATE_ADAM:
        return 2 + ((flags & TRII_UPDATE_AMSGRAD) != 0);
    case TRII_UPDATE_RMSPROP:
        return 1 + ((flags & TRII_UPDATE_MOMENTUM) != 0) + ((flags & TRII_UPDATE_CENTERED) != 0);
    case TRII_UPDATE_ADAGRAD:
        return 1;
    default:
        return 0;
    }
}

static inline int trii_update_numbers(trii_update_rule rule)
{
    static const int8_t numbers[TRII_UPDATE_RULES] = {4, 7, 5, 3, 1, 0};

    return numbers[rule];
}

/* Elements of one type. p_new may be any of the inputs; a state's new contents may be its old ones
 * or g. The rule is the function that is called. */
typedef struct trii_update_args {
    const void *p, *g;
    const void *s[TRII_UPDATE_STATES];
    void *p_new;
    void *s_new[TRII_UPDATE_STATES];
    const double *f; /* the rule's numbers */
    double scale;    /* 1 = none */
    double limit;    /* 0 = none */
    int flags;
} trii_update_args;

/* Elements [begin, end). */
typedef void (*trii_update_fn)(const trii_update_args *args, int64_t begin, int64_t end);

#endif
