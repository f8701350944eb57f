/*
 * by_name.h - any model of this folder, from the word for it on a command line.
 */
#ifndef EXAMPLES_BY_NAME_H
#define EXAMPLES_BY_NAME_H

#include <trireme/nn.h>

#define MODEL_NAMES                                                                                \
    "linear:IN,OUT, mlp:A,B,C.., resnet18, resnet34, resnet50, "                                   \
    "vit:SIZE,PATCH,WIDTH,DEPTH,HEADS,CLASSES or gpt:LAYERS,WIDTH,HEADS,CONTEXT,VOCABULARY"

/* `classes` is for resnets, whose names do not say it. NULL: no such name, or its sizes are
 * wrong. */
tri_module *model_by_name(const char *name, int64_t classes);

#endif
