/*
 * peer_messages.c - see peer_messages.h.
 */
#include "launch/peers/peer_messages.h"

#include <stdio.h>
#include <string.h>

/* Digits alone, at most `max`, and `end` behind them. NULL: none. Returns what follows. */
static const char *read_number(const char *text, int64_t max, char end, int64_t *number_out)
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
    return c > text && *c == end ? c + 1 : NULL;
}

/* text: from behind the 'n', ended by ';' and a zero byte. */
static bool understand_notice(const char *text, trii_peer_message *word_out)
{
    int64_t rank = 0, number = 0, left_ms = -1;

    text = read_number(text, INT32_MAX, ',', &rank);
    if (text != NULL)
        text = read_number(text, INT32_MAX, ',', &number);
    if (text == NULL || number == 0)
        return false;
    text = strcmp(text, "-1;") == 0 ? text + 3 : read_number(text, INT64_MAX, ';', &left_ms);
    if (text == NULL || *text != '\0')
        return false;
    *word_out = (trii_peer_message){TRII_PEER_NOTICE, (int)rank, (int)number, left_ms};
    return true;
}

static bool understand(const char *text, trii_peer_message *word_out)
{
    int64_t ms = 0;

    if (*text == 'n')
        return understand_notice(text + 1, word_out);
    text = read_number(text + 1, INT64_MAX, ';', &ms);
    if (text == NULL || *text != '\0')
        return false;
    *word_out = (trii_peer_message){.kind = TRII_PEER_HELD_UP, .left_ms = ms};
    return true;
}

/* True: a word ends with this byte. */
static bool take(trii_peer_messages *words, char c, trii_peer_message *word_out)
{
    bool ends, fits = words->used + 2 < sizeof(words->text);

    if (words->used == 0 && c != 'n' && c != 'b') {
        *word_out = (trii_peer_message){.kind = c == 'q' ? TRII_PEER_BYE : TRII_PEER_BEAT};
        return true;
    }
    words->text[words->used++] = c;
    words->text[words->used] = '\0';
    ends = c == ';' || !fits;
    if (!ends)
        return false;
    words->used = 0;
    return c == ';' && understand(words->text, word_out);
}

bool trii_peer_messages_next(trii_peer_messages *words, const char **data, size_t *bytes,
                             trii_peer_message *word_out)
{
    while (*bytes > 0) {
        char c = **data;

        (*data)++;
        (*bytes)--;
        if (take(words, c, word_out))
            return true;
    }
    return false;
}

void trii_peer_messages_preemption(const trii_peer_message *word,
                                   char text_out[TRII_PEER_NOTICE_BYTES])
{
    snprintf(text_out, TRII_PEER_NOTICE_BYTES, "n%d,%d,%lld;", word->rank, word->number,
             (long long)word->left_ms);
}

void trii_peer_messages_stalled(int64_t ms, char text_out[TRII_PEER_NOTICE_BYTES])
{
    snprintf(text_out, TRII_PEER_NOTICE_BYTES, "b%lld;", (long long)ms);
}
