/*
 * choose.c - reads the text of choose.h.
 */
/* build: leaf */
#include "comm/group/form/choose.h"

#include <string.h>

#include "base/err.h"

#define WHOSE "(tri_group_options or TRI_ENGINE)"

static tri_status refuse(const char *text, const char *what)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "engine \"%s\" " WHOSE ": %s; allowed are ENGINE, cpu:ENGINE and "
                     "cuda:ENGINE; make another group for other calls or devices",
                     text, what);
}

tri_status trii_choice_parse(const char *text, trii_choice *choice_out)
{
    const char *name = text != NULL ? text : "", *colon = strchr(name, ':');
    trii_buffers buffers = TRII_BUFFERS_ANY;

    if (strpbrk(name, ",@<>=") != NULL)
        return refuse(text, "a group has one engine for all its calls");
    if (colon != NULL) {
        if (strncmp(name, "cpu:", 4) == 0)
            buffers = TRII_BUFFERS_CPU;
        else if (strncmp(name, "cuda:", 5) == 0)
            buffers = TRII_BUFFERS_CUDA;
        else
            return refuse(text, "the word before the colon is not a type of device");
        name = colon + 1;
        if (*name == '\0')
            return refuse(text, "no engine is named");
    }
    if (strcmp(name, "auto") == 0)
        name = "";
    if (strlen(name) >= TRII_ENGINE_NAME)
        return refuse(text, "the name of an engine is shorter");
    if (*name == '\0' && buffers == TRII_BUFFERS_CUDA)
        return refuse(text, "no engine of this library reaches a GPU's memory, name a plug-in");
    choice_out->buffers = buffers;
    snprintf(choice_out->engine, sizeof(choice_out->engine), "%s", name);
    return TRI_OK;
}

tri_status trii_choice_fits(const trii_choice *choice, const trii_engine *engine)
{
    trii_buffers wrong = engine->device != NULL ? TRII_BUFFERS_CPU : TRII_BUFFERS_CUDA;

    if (choice->buffers != wrong)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "engine \"%s:%s\" " WHOSE ": %s is for buffers in %s memory",
                     engine->device != NULL ? "cpu" : "cuda", engine->name, engine->name,
                     engine->device != NULL ? "a GPU's" : "the host's");
}
