/*
 * dataset.h - what the data sets of this room share.
 */
#ifndef TRII_DATASET_H
#define TRII_DATASET_H

#include <trireme/data.h>

#include "base/compiler.h"

/* Bytes of one sample's field. */
size_t trii_field_bytes(const tri_field *field);
/* Checks dtype and shape; `what` names the data set in the message. */
tri_status trii_field_check(const tri_field *field, const char *what, int index) TRI_MUST_CHECK;

/* Memory of field f of a request, for sets that have their samples in memory (cls->peek). */
void trii_dataset_copy_field(const tri_dataset *dataset, const tri_request *request, int f,
                             void *slot);

/* A data set over arrays that it owns (trii_alloc); takes data[], even on failure. */
tri_status trii_dataset_take_arrays(int64_t length, const tri_field *fields, void *const *own_data,
                                    int n_fields, tri_dataset **dataset_out) TRI_MUST_CHECK;

/* A data set made of another one, whose samples first .. first + length - 1 it has. */
typedef struct trii_derived {
    tri_dataset base;
    tri_dataset *parent; /* owned */
    int64_t first;
    bool unchanged;                          /* its samples are those of the parent */
    void (*fini)(struct trii_derived *self); /* frees what else it owns; NULL: nothing */
} trii_derived;
/* `destroy` of all of them, and of no other data set. */
void trii_derived_destroy(tri_dataset *self);
/* NULL: it is made of no other one. */
trii_derived *trii_derived_of(tri_dataset *dataset);

/* INVALID_ARG unless it is a data set that can give samples; the message begins with `call`. */
tri_status trii_dataset_check(const tri_dataset *dataset, const char *call) TRI_MUST_CHECK;

#endif
