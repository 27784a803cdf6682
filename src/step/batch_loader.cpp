// SPDX-License-Identifier: Apache-2.0
#include "src/step/batch_loader.hpp"

#include "vocabpipe/error.hpp"

#include <functional>
#include <string>
#include <system_error>
#include <utility>

namespace vocabpipe {

namespace {

std::thread start_thread(const std::function<void()>& serve) {
    try {
        return std::thread(serve);
    } catch (const std::system_error& error) {
        throw Error(
            ExitCode::failed,
            "cannot start the thread that reads data ahead (" + std::string(error.what()) +
                "); the system allows no more threads, or has no memory for their stacks; raise "
                "ulimit -u or -v, or use fewer ranks or a smaller --threads-per-rank");
    }
}

}  // namespace

BatchLoader::BatchLoader(const SampleSource& samples, const StepBatchOptions& options)
    : batches_{StepBatch(samples, options), StepBatch(samples, options)},
      thread_(start_thread([this] { serve(); })) {}

BatchLoader::~BatchLoader() {
    {
        const std::scoped_lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void BatchLoader::serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stop_ || work_; });
        if (stop_) return;
        const Order order = *work_;
        lock.unlock();
        std::exception_ptr failure;
        try {
            next().load(order.first_sample, order.microbatches);
        } catch (...) {
            failure = std::current_exception();
        }
        lock.lock();
        result_ = std::exchange(work_, std::nullopt);
        failure_ = std::move(failure);
        changed_.notify_all();
    }
}

bool BatchLoader::made(std::unique_lock<std::mutex>& lock, const Order& order) {
    changed_.wait(lock, [this] { return !work_; });
    return result_ == order;
}

const StepBatch& BatchLoader::load(int64_t first_sample, int microbatches) {
    const Order order{first_sample, microbatches};
    {
        std::unique_lock lock(mutex_);
        const bool prefetched = made(lock, order);
        result_.reset();
        const std::exception_ptr failure = std::exchange(failure_, nullptr);
        if (prefetched) {
            if (failure) std::rethrow_exception(failure);
            current_ = 1 - current_;
            return batches_[current_];
        }
    }
    batches_[current_].load(first_sample, microbatches);
    return batches_[current_];
}

void BatchLoader::prefetch(int64_t first_sample, int microbatches) {
    const Order order{first_sample, microbatches};
    std::unique_lock lock(mutex_);
    if (made(lock, order)) return;
    result_.reset();
    failure_ = nullptr;
    work_ = order;
    changed_.notify_all();
}

}  // namespace vocabpipe
