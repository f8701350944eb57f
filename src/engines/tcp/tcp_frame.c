/* tcp_frame.c - see tcp_frame.h. */
#include "engines/tcp/tcp_frame.h"

#include <string.h>

_Static_assert(sizeof(tcp_frame) == 64, "the size of a header is part of the wire format");

void tcp_frame_fill(tcp_frame *frame, tcp_frame_type type, const trii_collective *piece)
{
    const trii_collective *call = trii_collective_whole(piece);
    const char *slash = call->site.file != NULL ? strrchr(call->site.file, '/') : NULL;
    const char *file = slash != NULL ? slash + 1 : call->site.file;

    *frame = (tcp_frame){.type = (uint8_t)type,
                         .kind = (uint8_t)call->kind,
                         .dtype = (uint8_t)call->dtype,
                         .op = (uint8_t)call->op,
                         .root = call->root,
                         .seq = piece->seq,
                         .count = call->count,
                         .bytes = piece->bytes,
                         .line = (uint32_t)call->site.line};
    if (file != NULL)
        strncpy(frame->file, file, sizeof(frame->file) - 1);
}

trii_collective tcp_frame_call(const tcp_frame *frame, int rank, char file[TCP_FILE_TEXT])
{
    bool message = frame->type == TCP_FRAME_MESSAGE || frame->type == TCP_FRAME_RTS;
    trii_collective call = {.kind = (trii_kind)frame->kind,
                            .dtype = (tri_dtype)frame->dtype,
                            .op = (tri_redop)frame->op,
                            .root = message ? rank : frame->root,
                            .tag = (int)frame->part,
                            .count = (size_t)frame->count,
                            .seq = frame->seq};

    memcpy(file, frame->file, sizeof(frame->file));
    file[TCP_FILE_TEXT - 1] = '\0';
    if (file[0] != '\0')
        call.site = (trii_site){file, (int)frame->line};
    return call;
}

trii_message tcp_frame_message(const tcp_frame *head)
{
    trii_message message = {.dtype = (tri_dtype)head->dtype,
                            .count = (size_t)head->count,
                            .bytes = (size_t)head->bytes};

    if (head->type == TCP_FRAME_RTS &&
        __builtin_mul_overflow(message.count, tri_dtype_size(message.dtype), &message.bytes))
        message.bytes = SIZE_MAX; /* no receive has room for that */
    return message;
}

bool tcp_frame_is_sound(const tcp_frame *head)
{
    size_t all;

    return !__builtin_mul_overflow(head->count, tri_dtype_size((tri_dtype)head->dtype), &all) &&
           (head->bytes == all || (head->type == TCP_FRAME_RTS && head->bytes < all));
}
