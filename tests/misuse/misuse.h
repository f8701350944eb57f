/*
 * misuse.h - every public function, called with arguments that somebody may pass by mistake. The
 * calls are made from the headers (make_calls.awk); this is what they ask for values and tell their
 * results.
 */
#ifndef TEST_MISUSE_H
#define TEST_MISUSE_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/comm.h>
#include <trireme/launch.h>
#include <trireme/reducer.h>
#include <trireme/models.h>
#include <trireme/trireme.h>

#define MISUSE_PARAMETERS 12

typedef struct misuse_parameter {
    const char *type, *name;
} misuse_parameter;

typedef struct misuse_pick misuse_pick;

typedef struct misuse_row {
    const char *name;
    void (*call)(misuse_pick *p);
    int n;
    misuse_parameter parameters[MISUSE_PARAMETERS];
} misuse_row;

extern const misuse_row misuse_rows[];
extern const int misuse_n_rows;

/* A struct of the headers that ends in reserved words. */
typedef struct misuse_growing {
    const char *type; /* of a parameter that takes it */
    size_t bytes, at, room;
} misuse_growing;

extern const misuse_growing misuse_growing_structs[];
extern const int misuse_n_growing;

/* One call: all arguments make sense but for one, which has a bad value of its type. */
struct misuse_pick {
    const misuse_row *row;
    int bad;      /* index of the parameter; -1 = none, -2 = all have their first bad value */
    int kind;     /* which bad value of its type */
    char *wrong;  /* room for what is wrong with the outcome; "" = nothing */
    char *failed; /* the line of the failure, "" = it did not fail */
    size_t bytes; /* of both */
};

/* How many bad values it has. */
int misuse_kinds(const misuse_parameter *parameter);

/* Whether the bad argument is a struct that makes sense but for its last reserved word. */
bool misuse_is_newer(const misuse_pick *p);

/* Arguments, by the type that the row names. */
void *misuse_pointer(const misuse_pick *p, int i);
int64_t misuse_integer(const misuse_pick *p, int i);
double misuse_real(const misuse_pick *p, int i);

/* Outcomes: a failure has a line that says why; a handle is never NULL. */
void misuse_status(misuse_pick *p, tri_status status);
void misuse_tensor(misuse_pick *p, tri_tensor *x);
void misuse_module(misuse_pick *p, tri_module *module);
void misuse_optimizer(misuse_pick *p, tri_optimizer *optimizer);

#endif
