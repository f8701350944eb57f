/*
 * module_cut.c - modules whose parameters a strategy has cut over ranks: they alone read them.
 */
#include "train/graph/step/recorder.h"
#include "train/nn/module.h"

bool trii_set_whole_only(bool on)
{
    trii_step *step = trii_step_current();
    trii_scopes *scopes = step != NULL ? &trii_recorder_of(step)->scopes : NULL;
    bool before = scopes != NULL && scopes->whole_only;

    if (scopes != NULL)
        scopes->whole_only = on;
    return before;
}

void trii_forward_cut(tri_module *module, tri_tensor *const *in, int n_in, tri_tensor **out,
                      int n_out)
{
    bool before = trii_set_whole_only(false);

    module->cut->forward(module, in, n_in, out, n_out);
    (void)trii_set_whole_only(before);
}

tri_tensor *trii_scores_cut(tri_module *module, tri_tensor *x)
{
    bool before = trii_set_whole_only(false);
    tri_tensor *y = module->cut->scores(module, x);

    (void)trii_set_whole_only(before);
    return y;
}
