/*
 * grad_norm.h - the table by which the squares of gradients of which ranks have pieces are added
 * up (grad_norm.c): i64 [gradients, TRII_SQUARE_COLUMNS], in the order of the sum.
 */
#ifndef TRII_GRAD_NORM_H
#define TRII_GRAD_NORM_H

enum {
    TRII_SQUARE_GROUP,  /* in which the other pieces are, from 1 on; 0: it is whole here */
    TRII_SQUARE_BLOCKS, /* of the whole gradient */
    TRII_SQUARE_START,  /* the first of them that is here */
    TRII_SQUARE_OWN,    /* how many are here */
    TRII_SQUARE_FROM,   /* where the whole gradient's are in what the groups have together */
    TRII_SQUARE_PLACE,  /* where square_each puts its sum */
    TRII_SQUARE_COLUMNS
};

#endif
