/*
 * peer_messages.c - see peer_messages.h: parses and writes single messages; peer_links.c has the
 * connections, peer_liveness.c the meaning.
 */
#include "launch/peers/peer_messages.h"

#include <stdio.h>
#include <string.h>

const char *trii_peer_read_number(const char *text, int64_t max, int64_t *number_out)
{
    const char *c = text;
    int64_t number = 0;

    for (; *c >= '0' && *c <= '9'; c++) {
        int digit = *c - '0';

        if (number > (max - digit) / 10)
            return NULL;
        number = number * 10 + digit;
    }
    *number_out = number;
    return c > text ? c : NULL;
}

/* A number that ends with `end`; returns what follows, or NULL. */
static const char *read_field(const char *text, int64_t max, char end, int64_t *number_out)
{
    text = trii_peer_read_number(text, max, number_out);
    return text != NULL && *text == end ? text + 1 : NULL;
}

/* text: from behind the 'n', ended by ';' and a zero byte. */
static bool parse_preemption(const char *text, trii_peer_message *message_out)
{
    int64_t rank = 0, number = 0, left_ms = -1;

    text = read_field(text, INT32_MAX, ',', &rank);
    if (text != NULL)
        text = read_field(text, INT32_MAX, ',', &number);
    if (text == NULL || number == 0)
        return false;
    text = strcmp(text, "-1;") == 0 ? text + 3 : read_field(text, INT64_MAX, ';', &left_ms);
    if (text == NULL || *text != '\0')
        return false;
    *message_out = (trii_peer_message){TRII_PEER_PREEMPTION, (int)rank, (int)number, left_ms};
    return true;
}

static bool parse_numbers(const char *text, trii_peer_message *message_out)
{
    int64_t ms = 0;

    if (*text == 'n')
        return parse_preemption(text + 1, message_out);
    text = read_field(text + 1, INT64_MAX, ';', &ms);
    if (text == NULL || *text != '\0')
        return false;
    *message_out = (trii_peer_message){.kind = TRII_PEER_STALLED, .left_ms = ms};
    return true;
}

/* True: a message ends with this byte. */
static bool take_byte(trii_peer_messages *messages, char c, trii_peer_message *message_out)
{
    bool ends, fits = messages->used + 2 < sizeof(messages->text);

    if (messages->used == 0 && c != 'n' && c != 'b') {
        *message_out =
            (trii_peer_message){.kind = c == 'q' ? TRII_PEER_GOODBYE : TRII_PEER_HEARTBEAT};
        return true;
    }
    messages->text[messages->used++] = c;
    messages->text[messages->used] = '\0';
    ends = c == ';' || !fits;
    if (!ends)
        return false;
    messages->used = 0;
    return c == ';' && parse_numbers(messages->text, message_out);
}

bool trii_peer_messages_next(trii_peer_messages *messages, const char **data, size_t *bytes,
                             trii_peer_message *message_out)
{
    while (*bytes > 0) {
        char c = **data;

        (*data)++;
        (*bytes)--;
        if (take_byte(messages, c, message_out))
            return true;
    }
    return false;
}

void trii_peer_messages_preemption(const trii_peer_message *message,
                                   char text_out[TRII_PEER_MESSAGE_BYTES])
{
    snprintf(text_out, TRII_PEER_MESSAGE_BYTES, "n%d,%d,%lld;", message->rank, message->number,
             (long long)message->left_ms);
}

void trii_peer_messages_stalled(int64_t ms, char text_out[TRII_PEER_MESSAGE_BYTES])
{
    snprintf(text_out, TRII_PEER_MESSAGE_BYTES, "b%lld;", (long long)ms);
}
