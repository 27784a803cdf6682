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

/// The batches of a run. A thread makes the next one while a step runs:
///
///     const StepBatch& batch = loader.load(first, microbatches);
///     loader.prefetch(first_of_next, microbatches_of_next);
///     ... run the step ...
///
/// Prefetched batches have the same bytes as others. Memory: two batches. For use by one thread.
class BatchLoader {
public:
    /// `samples` must outlive it.
    BatchLoader(const SampleSource& samples, const StepBatchOptions& options);

    /// Joins the thread, after the batch that it is making.
    ~BatchLoader();
    BatchLoader(const BatchLoader&) = delete;
    BatchLoader& operator=(const BatchLoader&) = delete;

    /// The batch of StepBatch::load(), valid until the next call: the prefetched one, if it is that
    /// batch, after waiting for it; otherwise made now. Throws errors of reading; those of a
    /// prefetched batch only if that batch is asked for.
    [[nodiscard]] const StepBatch& load(int64_t first_sample, int microbatches);

    /// Starts to make a batch. A second call before load() waits for the first batch and drops it.
    void prefetch(int64_t first_sample, int microbatches);

private:
    struct Order {
        int64_t first_sample = 0;
        int microbatches = 0;
        friend bool operator==(const Order&, const Order&) = default;
    };

    void serve();
    [[nodiscard]] StepBatch& next() { return batches_[1 - current_]; }
    /// Waits until the thread is idle; true if `order` is what it made last.
    [[nodiscard]] bool made(std::unique_lock<std::mutex>& lock, const Order& order);

    std::array<StepBatch, 2> batches_;
    size_t current_ = 0;  ///< index in batches_; the other belongs to the thread while it has work

    std::mutex mutex_;  ///< of the members below
    std::condition_variable changed_;
    std::optional<Order> work_;    ///< order being made
    std::optional<Order> result_;  ///< order of the batch in next(), or of failure_
    std::exception_ptr failure_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace vocabpipe
