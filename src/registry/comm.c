/*
 * comm.c - the engines built into libtrireme-comm, by name.
 */
#include <trireme/comm.h>
