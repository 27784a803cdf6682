// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/step_batch.hpp"

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

namespace vocabpipe {

/// The batches of a run, the next one made by a thread while a step runs:
///
///     const StepBatch& batch = loader.load(first, microbatches);
///     loader.prefetch(first_of_next, microbatches_of_next);
///     ... run the step ...
///
/// A batch is the same bytes whether it was prefetched or not. Memory: two batches. One thread may
/// use it.
class BatchLoader {
public:
    /// `samples` must outlive it.
    BatchLoader(const SampleSource& samples, const StepBatchOptions& options);

    /// Ends the thread, after the batch that it is making.
    ~BatchLoader();
    BatchLoader(const BatchLoader&) = delete;
    BatchLoader& operator=(const BatchLoader&) = delete;

    /// The batch of StepBatch::load(), valid until the next call. Hands out the prefetched one if
    /// that is it, after waiting for it; makes it otherwise. Throws what reading throws, of the
    /// prefetched batch only if it is the one that is asked for.
    [[nodiscard]] const StepBatch& load(int64_t first_sample, int microbatches);

    /// Begins to make a batch. One at a time: another call before load() waits, and drops the
    /// first.
    void prefetch(int64_t first_sample, int microbatches);

private:
    struct Order {
        int64_t first_sample = 0;
        int microbatches = 0;
        friend bool operator==(const Order&, const Order&) = default;
    };

    void serve();
    [[nodiscard]] StepBatch& next() { return batches_[1 - current_]; }
    /// Waits until the thread does nothing; true if `order` is what it made last.
    [[nodiscard]] bool made(std::unique_lock<std::mutex>& lock, const Order& order);

    std::array<StepBatch, 2> batches_;
    size_t current_ = 0;  ///< of batches_; the other one is the thread's while it has work

    std::mutex mutex_;  ///< of what follows
    std::condition_variable changed_;
    std::optional<Order> work_;    ///< to be made, until it is
    std::optional<Order> result_;  ///< what next() holds, or would but for failure_
    std::exception_ptr failure_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace vocabpipe
