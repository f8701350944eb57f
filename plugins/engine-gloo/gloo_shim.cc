/*
 * gloo_shim.cc - see gloo_shim.h: the only file that includes gloo's headers.
 */
#include "engine-gloo/gloo_shim.h"

#include <gloo/allgatherv.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <signal.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <vector>

namespace
{

/* Deadlines are kept above this engine; gloo's own must never come first. */
constexpr std::chrono::milliseconds forever(int64_t(24) * 3600 * 1000);

class host_store : public gloo::rendezvous::Store
{
  public:
    explicit host_store(const gloo_store *store) : store_(store)
    {
    }

    void set(const std::string &key, const std::vector<char> &data) override
    {
        if (!store_->set(store_->arg, key.c_str(), data.data(), data.size()))
            throw std::runtime_error("the store failed");
    }

    std::vector<char> get(const std::string &key) override
    {
        std::vector<char> data(size_t(1) << 16);
        int64_t bytes = store_->get(store_->arg, key.c_str(), data.data(), data.size());

        if (bytes < 0)
            throw std::runtime_error("the store failed, or a rank did not come");
        data.resize(size_t(bytes));
        return data;
    }

    void wait(const std::vector<std::string> &keys) override
    {
        for (const std::string &key : keys)
            (void)get(key);
    }

    void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &) override
    {
        wait(keys);
    }

  private:
    const gloo_store *store_;
};

bool failed(char *why, const char *text)
{
    std::snprintf(why, GLOO_WHY_BYTES, "%s", text);
    return false;
}

/* Gloo writes to its sockets without MSG_NOSIGNAL, in its own thread and in those that call it: a
 * write to a peer that died would end this process by SIGPIPE before gloo sees the error. While one
 * of these exists the calling thread has the signal blocked; a thread that it starts has it blocked
 * for good. The threads of gloo.c take no signals anyway. */
class no_sigpipe
{
  public:
    no_sigpipe()
    {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        was_pending_ = pending();
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }

    ~no_sigpipe()
    {
        const timespec at_once = {};

        if (!was_pending_ && pending()) /* gloo's: nobody else shall get it */
            (void)sigtimedwait(&pipe_, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

    no_sigpipe(const no_sigpipe &) = delete;
    no_sigpipe &operator=(const no_sigpipe &) = delete;

  private:
    static bool pending()
    {
        sigset_t signals;

        return sigpending(&signals) == 0 && sigismember(&signals, SIGPIPE) == 1;
    }

    sigset_t pipe_, before_;
    bool was_pending_;
};

/* Gloo wants an address even of nothing. */
char nothing;

template <typename T> T *address(T *p)
{
    return p != nullptr ? p : static_cast<T *>(static_cast<void *>(&nothing));
}

void *unconst(const void *p)
{
    return address(const_cast<void *>(p));
}

} // namespace

struct gloo_shim {
    std::shared_ptr<gloo::transport::Device> device;
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::mutex mutex;
    std::set<gloo_message *> messages; /* guard: mutex; under way */
};

struct gloo_message {
    gloo_shim *shim;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    bool is_send;
};

extern "C" gloo_shim *gloo_shim_create(int rank, int size, const gloo_store *store,
                                       const char *host, int64_t connect_ms, char *why)
try {
    no_sigpipe quiet; /* also of the thread that gloo starts */
    auto shim = std::make_unique<gloo_shim>();
    host_store keys(store);

    shim->device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(host));
    shim->context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    shim->context->setTimeout(std::chrono::milliseconds(connect_ms));
    shim->context->connectFullMesh(keys, shim->device);
    shim->context->setTimeout(forever);
    return shim.release();
} catch (const std::exception &e) {
    (void)failed(why, e.what());
    return nullptr;
}

/* Gloo has no call for this. What it does have is a deadline: when a wait ends by its own, all
 * connections get the failure, and with them the threads that wait. So a message is awaited that nobody
 * sends. A receive from anybody hangs on no connection: it is given up by itself. */
extern "C" void gloo_shim_close(gloo_shim *shim)
{
    no_sigpipe quiet;
    constexpr uint64_t no_tag = uint64_t(1) << 40; /* tags have 32 bits, gloo's own begin at 56 */

    for (int r = 0; r < shim->context->size; r++) {
        if (r == shim->context->rank)
            continue;
        try {
            auto buffer = shim->context->createUnboundBuffer(&nothing, 1);

            buffer->recv(r, no_tag);
            buffer->waitRecv(nullptr, std::chrono::milliseconds(1));
        } catch (const std::exception &) {
            /* that was the point, or the connection is gone already */
        }
    }
    std::lock_guard<std::mutex> guard(shim->mutex);
    for (gloo_message *message : shim->messages) {
        message->buffer->abortWaitRecv();
        message->buffer->abortWaitSend();
    }
}

extern "C" void gloo_shim_destroy(gloo_shim *shim)
{
    no_sigpipe quiet;

    delete shim;
}

extern "C" bool gloo_shim_barrier(gloo_shim *shim, char *why)
try {
    gloo::BarrierOptions options(shim->context);

    options.setTimeout(forever);
    gloo::barrier(options);
    return true;
} catch (const std::exception &e) {
    return failed(why, e.what());
}

extern "C" bool gloo_shim_broadcast(gloo_shim *shim, void *data, size_t bytes, int root, char *why)
try {
    gloo::BroadcastOptions options(shim->context);

    if (bytes == 0)
        return gloo_shim_barrier(shim, why);
    options.setOutput(static_cast<char *>(data), bytes);
    options.setRoot(root);
    options.setTimeout(forever);
    gloo::broadcast(options);
    return true;
} catch (const std::exception &e) {
    return failed(why, e.what());
}

extern "C" bool gloo_shim_all_gather(gloo_shim *shim, const void *src, void *dst,
                                     const size_t *dst_at, size_t elem_bytes, char *why)
try {
    gloo::AllgathervOptions options(shim->context);
    int rank = shim->context->rank, size = shim->context->size;
    std::vector<size_t> bytes;

    for (int r = 0; r < size; r++)
        bytes.push_back((dst_at[r + 1] - dst_at[r]) * elem_bytes);
    if (std::accumulate(bytes.begin(), bytes.end(), size_t(0)) == 0)
        return gloo_shim_barrier(shim, why);
    if (src != nullptr)
        options.setInput(static_cast<char *>(unconst(src)), bytes[size_t(rank)]);
    options.setOutput(static_cast<char *>(dst), bytes);
    options.setTimeout(forever);
    gloo::allgatherv(options);
    return true;
} catch (const std::exception &e) {
    return failed(why, e.what());
}

extern "C" bool gloo_shim_all_to_all(gloo_shim *shim, const void *src, const int64_t *src_bytes,
                                     void *dst, const int64_t *dst_bytes, char *why)
try {
    gloo::AlltoallvOptions options(shim->context);
    size_t size = size_t(shim->context->size);

    options.setInput(static_cast<char *>(unconst(src)),
                     std::vector<int64_t>(src_bytes, src_bytes + size));
    options.setOutput(static_cast<char *>(address(dst)),
                      std::vector<int64_t>(dst_bytes, dst_bytes + size));
    options.setTimeout(forever);
    gloo::alltoallv(options);
    return true;
} catch (const std::exception &e) {
    return failed(why, e.what());
}

namespace
{

/* Gloo refuses buffers of nothing, not messages of nothing. */
std::unique_ptr<gloo_message> message_of(gloo_shim *shim, void *data, size_t bytes, bool is_send)
{
    auto message = std::make_unique<gloo_message>();

    message->shim = shim;
    message->is_send = is_send;
    message->buffer = shim->context->createUnboundBuffer(data, bytes > 0 ? bytes : 1);
    return message;
}

gloo_message *begun(std::unique_ptr<gloo_message> message)
{
    std::lock_guard<std::mutex> guard(message->shim->mutex);

    message->shim->messages.insert(message.get());
    return message.release();
}

void ended(gloo_message *message)
{
    {
        std::lock_guard<std::mutex> guard(message->shim->mutex);
        message->shim->messages.erase(message);
    }
    delete message;
}

} // namespace

extern "C" gloo_message *gloo_shim_send(gloo_shim *shim, const void *src, size_t bytes, int peer,
                                        int tag, char *why)
try {
    no_sigpipe quiet;
    auto message = message_of(shim, unconst(src), bytes, true);

    message->buffer->send(peer, uint32_t(tag), 0, bytes);
    return begun(std::move(message));
} catch (const std::exception &e) {
    (void)failed(why, e.what());
    return nullptr;
}

extern "C" gloo_message *gloo_shim_recv(gloo_shim *shim, void *dst, size_t bytes, int peer, int tag,
                                        char *why)
try {
    no_sigpipe quiet;
    auto message = message_of(shim, address(dst), bytes, false);
    std::vector<int> sources;

    for (int r = 0; r < shim->context->size; r++) {
        if (r != shim->context->rank)
            sources.push_back(r);
    }
    if (peer >= 0)
        message->buffer->recv(peer, uint32_t(tag), 0, bytes);
    else
        message->buffer->recv(sources, uint32_t(tag), 0, bytes);
    return begun(std::move(message));
} catch (const std::exception &e) {
    (void)failed(why, e.what());
    return nullptr;
}

extern "C" bool gloo_message_wait(gloo_message *own_message, int *from_out, char *why)
{
    bool done = false;

    try {
        done = own_message->is_send ? own_message->buffer->waitSend(nullptr, forever)
                                    : own_message->buffer->waitRecv(from_out, forever);
        if (!done)
            (void)failed(why, "the message was given up");
    } catch (const std::exception &e) {
        (void)failed(why, e.what());
    }
    ended(own_message);
    return done;
}
