/*
 * event_read.c - see event_read.h.
 *
 * A message is read field by field, and what is not known is passed over, as Protocol Buffers want
 * it; of a field that comes twice the last one counts.
 */
#include "train/records/event_read.h"

#include <string.h>

#include "base/err.h"
#include "train/records/crc32c.h"
#include "train/records/event_file.h"
#include "train/records/protobuf.h"

typedef struct message {
    const uint8_t *at, *end;
} message;

typedef struct field {
    uint64_t number;
    unsigned wire;
    uint64_t value;       /* of a varint */
    const uint8_t *bytes; /* of the others */
    size_t n;
} field;

static bool read_varint(message *m, uint64_t *value_out)
{
    *value_out = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        uint64_t byte = *m->at++;

        *value_out |= (byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* 1: a field; 0: the end; -1: no message. */
static int read_field(message *m, field *out)
{
    uint64_t key, n;

    if (m->at == m->end)
        return 0;
    if (!read_varint(m, &key))
        return -1;
    *out = (field){.number = key >> 3, .wire = (unsigned)(key & 7)};
    switch (out->wire) {
    case TRII_PROTO_VARINT:
        return read_varint(m, &out->value) ? 1 : -1;
    case TRII_PROTO_EIGHT:
        n = 8;
        break;
    case TRII_PROTO_FOUR:
        n = 4;
        break;
    case TRII_PROTO_BYTES:
        if (!read_varint(m, &n))
            return -1;
        break;
    default:
        return -1;
    }
    if (n > (uint64_t)(m->end - m->at))
        return -1;
    out->bytes = m->at;
    out->n = (size_t)n;
    m->at += n;
    return 1;
}

static bool is(const field *f, uint64_t number, unsigned wire)
{
    return f->number == number && f->wire == wire;
}

static message within(const field *f)
{
    return (message){f->bytes, f->bytes + f->n};
}

static double double_at(const uint8_t *bytes)
{
    double value;

    memcpy(&value, bytes, sizeof(value));
    return value;
}

static double float_at(const uint8_t *bytes)
{
    float value;

    memcpy(&value, bytes, sizeof(value));
    return (double)value;
}

static uint32_t u32_at(const uint8_t *bytes)
{
    uint32_t value;

    memcpy(&value, bytes, sizeof(value));
    return value;
}

static tri_status damaged(const trii_event_reader *reader, size_t offset, const char *why)
{
    return TRII_FAIL(TRI_ERR_FORMAT, "%s, byte %zu: %s", reader->path, offset, why);
}

/* --- records -------------------------------------------------------------- */

static bool read_start(const field *log)
{
    message m = within(log);
    bool start = false;
    field f;

    while (read_field(&m, &f) > 0) {
        if (is(&f, 1, TRII_PROTO_VARINT))
            start = f.value == 1;
    }
    return start;
}

static bool read_event(message m, trii_event *out)
{
    field f;
    int got;

    while ((got = read_field(&m, &f)) > 0) {
        if (is(&f, 1, TRII_PROTO_EIGHT)) {
            out->wall_time = double_at(f.bytes);
        } else if (is(&f, 2, TRII_PROTO_VARINT)) {
            out->step = (int64_t)f.value;
        } else if (is(&f, 5, TRII_PROTO_BYTES)) {
            out->summary = f.bytes;
            out->summary_bytes = f.n;
        } else if (is(&f, 7, TRII_PROTO_BYTES)) {
            out->is_start = read_start(&f);
        }
    }
    return got == 0;
}

tri_status trii_event_read(trii_event_reader *reader, trii_event *out)
{
    const uint8_t *frame = reader->data + reader->at;
    const size_t left = reader->bytes - reader->at, offset = reader->at;
    uint64_t n;

    if (left < TRII_EVENT_HEAD)
        return TRI_END;
    memcpy(&n, frame, sizeof(n));
    if (trii_crc32c_masked(frame, 8) != u32_at(frame + 8))
        return damaged(reader, offset,
                       "the length of a record is damaged, or this is not an event file");
    if (n > left || left - (size_t)n < TRII_EVENT_HEAD + TRII_EVENT_TAIL)
        return TRI_END;
    frame += TRII_EVENT_HEAD;
    if (trii_crc32c_masked(frame, (size_t)n) != u32_at(frame + n))
        return damaged(reader, offset, "a record is damaged: its checksum is another one");
    *out = (trii_event){.offset = offset};
    if (!read_event((message){frame, frame + n}, out))
        return damaged(reader, offset, "a record does not hold an event");
    reader->at += TRII_EVENT_HEAD + (size_t)n + TRII_EVENT_TAIL;
    return TRI_OK;
}

/* --- values --------------------------------------------------------------- */

/* A number in a tensor, as TensorFlow 2 writes scalars. */
static void read_tensor(const field *tensor, trii_event_value *out)
{
    enum { FLOAT = 1, DOUBLE = 2 };
    message m = within(tensor);
    const uint8_t *number = NULL;
    uint64_t dtype = 0;
    size_t n = 0;
    field f;

    while (read_field(&m, &f) > 0) {
        if (is(&f, 1, TRII_PROTO_VARINT)) {
            dtype = f.value;
        } else if ((f.number == 4 && f.wire == TRII_PROTO_BYTES) ||
                   (f.number == 5 && (f.wire == TRII_PROTO_BYTES || f.wire == TRII_PROTO_FOUR)) ||
                   (f.number == 6 && (f.wire == TRII_PROTO_BYTES || f.wire == TRII_PROTO_EIGHT))) {
            number = f.bytes;
            n = f.n;
        }
    }
    if (dtype == FLOAT && n == 4) {
        out->is_scalar = true;
        out->value = float_at(number);
    } else if (dtype == DOUBLE && n == 8) {
        out->is_scalar = true;
        out->value = double_at(number);
    }
}

static bool read_value(message m, trii_event_value *out)
{
    field f;
    int got;

    *out = (trii_event_value){.tag = ""};
    while ((got = read_field(&m, &f)) > 0) {
        if (is(&f, 1, TRII_PROTO_BYTES)) {
            out->tag = (const char *)f.bytes;
            out->tag_bytes = f.n;
        } else if (is(&f, 2, TRII_PROTO_FOUR)) {
            out->is_scalar = true;
            out->value = float_at(f.bytes);
        } else if (is(&f, 8, TRII_PROTO_BYTES)) {
            read_tensor(&f, out);
        }
    }
    return got == 0;
}

tri_status trii_event_value_next(const trii_event_reader *reader, trii_event *event,
                                 trii_event_value *out)
{
    message m;
    field f;

    if (event->summary == NULL)
        return TRI_END;
    m = (message){event->summary + event->next, event->summary + event->summary_bytes};
    for (;;) {
        int got = read_field(&m, &f);

        event->next = (size_t)(m.at - event->summary);
        if (got == 0)
            return TRI_END;
        if (got < 0)
            return damaged(reader, event->offset, "a record does not hold a summary");
        if (!is(&f, 1, TRII_PROTO_BYTES))
            continue;
        return read_value(within(&f), out)
                   ? TRI_OK
                   : damaged(reader, event->offset, "a value of a record is damaged");
    }
}
