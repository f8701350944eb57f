/*
 * train.c - the devices built into libtrireme, and who executes a recorded step.
 */
#include <trireme/comm.h>
