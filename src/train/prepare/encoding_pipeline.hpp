// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "src/train/prepare/encode_chunk.hpp"
#include "src/train/prepare/text_chunk.hpp"

namespace vocabpipe {

/// What a pipeline does; the functions run on threads of their own.
struct PipelineWork {
    /// Reads all text and hands on its chunks. Calls `poll`, which may throw, now and then.
    std::function<void(const std::function<void(TextChunk)>& take,
                       const std::function<void()>& poll)>
        read;
    /// Encodes a chunk; runs on several threads. `poll` as above.
    std::function<EncodedChunk(const TextChunk& chunk, const std::function<void()>& poll)> encode;
    int workers = 1;  ///< threads that encode
    /// Chunks wait only while their text is shorter than this in sum; the one that goes beyond it
    /// is taken. A few chunks per worker, so that none waits for the reader or the writer.
    size_t most_waiting_bytes = 0;
};

/// One thread reads, `workers` threads encode, and the caller takes what they made, in the order of
/// the text. The result does not depend on the number of threads, nor does the place of an error:
/// an exception of a chunk or of the reader is thrown by next() after everything before it.
class EncodingPipeline {
public:
    struct Item {
        TextChunk chunk;  ///< its text is gone
        EncodedChunk encoded;
    };

    explicit EncodingPipeline(PipelineWork work);
    /// Ends all threads; waits at most for a piece that is being encoded, or a read.
    ~EncodingPipeline();
    EncodingPipeline(const EncodingPipeline&) = delete;
    EncodingPipeline& operator=(const EncodingPipeline&) = delete;

    /// The next chunk; none at the end. Calls `poll`, which may throw, about ten times per second
    /// while it waits.
    [[nodiscard]] std::optional<Item> next(const std::function<void()>& poll);

private:
    struct Slot {
        Item item;
        bool encoded = false;
        std::exception_ptr error;
    };
    void read(const std::stop_token& stop);
    void work(const std::stop_token& stop);
    void add(TextChunk chunk, const std::stop_token& stop);

    PipelineWork work_;
    std::mutex mutex_;  ///< of the members below
    std::condition_variable_any room_, waiting_, done_;
    std::deque<std::shared_ptr<Slot>> slots_;          ///< in the order of the text
    std::deque<std::shared_ptr<Slot>> waiting_slots_;  ///< of these, not begun
    size_t waiting_bytes_ = 0;                         ///< text of all slots
    bool read_all_ = false;
    std::vector<std::jthread> threads_;
};

}  // namespace vocabpipe
