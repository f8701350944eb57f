/*
 * lost.c - tensors whose contents are lost: see persistent.h. sharing.c says when those that share
 * memory are whole again.
 */
#include "base/alloc.h"
#include "base/err.h"
#include "train/tensor/persistent.h"

void trii_tensor_lose(tri_tensor *tensor, const char *why)
{
    trii_free(tensor->why);
    tensor->why = trii_strdup(why, "error line");
    tensor->status = TRI_ERR_STATE;
}

void trii_tensor_mend(tri_tensor *tensor)
{
    tensor->status = TRI_OK;
    trii_free(tensor->why);
    tensor->why = NULL;
}
