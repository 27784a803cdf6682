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

/// A stream: a queue and the OS thread that empties it in order. The queue is a linked list with
/// atomic links: appending orders the caller before the work and nothing after it (see Unseen).
struct CUstream_st {
public:
    CUstream_st(int device, unsigned int flags, int priority, uint64_t number);
    ~CUstream_st();
    CUstream_st(const CUstream_st&) = delete;
    CUstream_st& operator=(const CUstream_st&) = delete;

    /// False once the stream is being destroyed: everything before has been or will be done.
    bool append(std::function<void()> work);
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
    std::stop_source stop;

private:
    struct Node {
        std::function<void()> work;  ///< empty: the thread ends
        std::atomic<Node*> next{nullptr};
    };
    void push(std::function<void()> work);
    void run();

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

/// As enqueue() of stream_queue.hpp, with an error instead of the end of the process.
[[nodiscard]] cudaError_t append(cudaStream_t stream, std::function<void()> work);

/// Ends the process with one line.
[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace cuda_stand_in
