/*
 * skips.h - tensors that go past modules: what tri_nn_skip_save has saved in this step, by name.
 */
#ifndef TRII_SKIPS_H
#define TRII_SKIPS_H

#include <trireme/nn.h>

/* Bytes of a name, with the terminating 0. */
#define TRII_SKIP_NAME 64

/* The name that the module itself saves or takes (not those below); NULL: it is another layer. */
const char *trii_skip_saved_by(const tri_module *module);
const char *trii_skip_taken_by(const tri_module *module);

/* What is saved under the name in the current context's step; NULL: nothing. */
tri_tensor *trii_skip_find(const char *name);
/* Saves it in place of what was; NULL: nothing is saved any more. */
tri_status trii_skip_set(const char *name, tri_tensor *x) TRI_MUST_CHECK;

#endif
