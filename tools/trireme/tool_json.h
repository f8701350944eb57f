/*
 * tool_json.h - the tool's one way to Jansson: reading metrics, writing what `--json` asks for.
 */
#ifndef TRIREME_TOOL_JSON_H
#define TRIREME_TOOL_JSON_H

#include <jansson.h>

#endif
