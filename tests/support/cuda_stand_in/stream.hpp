// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "completion.hpp"
#include "work_queue.hpp"

/// A stream: a queue and the OS thread that empties it in order. The queue is a linked list with
/// atomic links: appending orders the caller before the work and nothing after it (see Unseen).
struct CUstream_st {
public:
    /// When work leaves the connection to the device for what is behind it: a wait for an event
    /// only when the event has happened.
    enum class Issue : uint8_t { when_it_begins, when_it_ends };
    CUstream_st(int device, unsigned int flags, int priority, uint64_t number,
                std::shared_ptr<cuda_stand_in::WorkQueue> connection);
    ~CUstream_st();
    CUstream_st(const CUstream_st&) = delete;
    CUstream_st& operator=(const CUstream_st&) = delete;

    /// False once the stream is being destroyed: everything before has been or will be done. Blocks
    /// while the stream is full, as launching does.
    bool append(std::function<void()> work, Issue issue = Issue::when_it_begins);
    /// As many entries are pending as a stream holds.
    [[nodiscard]] bool full() const;
    /// True when everything appended so far has been done.
    [[nodiscard]] bool idle() const;
    /// Returns when everything appended so far has been done, or stop was requested.
    void drain();
    /// Lets the thread end after the work at hand and waits for it.
    void close();

    const int device;
    const unsigned int flags;
    const int priority;
    const uint64_t number;  ///< counts streams of the process: seeds the delays
    const std::thread::id maker = std::this_thread::get_id();
    std::stop_source stop;

private:
    struct Node {
        std::function<void()> work;  ///< empty: the thread ends
        Issue issue = Issue::when_it_begins;
        uint32_t place = 0;  ///< in the connection
        std::atomic<Node*> next{nullptr};
    };
    void push(std::function<void()> work, Issue issue);
    void wait_for_room();
    void run();

    std::shared_ptr<cuda_stand_in::WorkQueue> connection_;
    std::mutex append_mutex_;
    std::atomic<bool> closed_{false};
    Node* last_;   ///< of the appending side
    Node* first_;  ///< of the stream's thread: the node done last
    std::atomic<uint32_t> appended_{0};
    std::atomic<uint32_t> done_{0};
    std::thread thread_;
};

namespace cuda_stand_in {

/// Null for a handle that is not a live stream. The pointer keeps a stream alive that another
/// thread destroys meanwhile.
[[nodiscard]] std::shared_ptr<CUstream_st> find_stream(cudaStream_t stream);
[[nodiscard]] std::vector<std::shared_ptr<CUstream_st>> live_streams();

/// The stream that both 0 and cudaStreamLegacy name.
[[nodiscard]] bool is_default_stream(cudaStream_t stream);

/// Waits for all streams of the device; only_blocking leaves out those created non-blocking.
void drain_device(int device, bool only_blocking);

/// Whether a stream of the device that the calling thread has made still runs.
[[nodiscard]] bool own_stream_runs(int device);

/// Work of the device's default stream that the host does not wait for. It runs as late as CUDA
/// allows: when something of that stream, or of one that blocks with it, is enqueued or waited for.
/// So work of a non-blocking stream that ought to have waited for it comes before it, always.
void defer(int device, std::function<void()> work);

/// As enqueue() of stream_queue.hpp, with an error instead of the end of the process.
[[nodiscard]] cudaError_t append(cudaStream_t stream, std::function<void()> work,
                                 CUstream_st::Issue issue = CUstream_st::Issue::when_it_begins);

/// Ends the process with one line.
[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace cuda_stand_in
