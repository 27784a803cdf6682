// SPDX-License-Identifier: Apache-2.0
#include "src/train/prepare/encoding_pipeline.hpp"

#include <chrono>
#include <system_error>
#include <utility>

namespace vocabpipe {

namespace {

/// Thrown on a thread of the pipeline to end it.
struct Stopped {};

std::function<void()> stop_when_asked(const std::stop_token& stop) {
    return [&stop] {
        if (stop.stop_requested()) throw Stopped();
    };
}

}  // namespace

EncodingPipeline::EncodingPipeline(PipelineWork work) : work_(std::move(work)) {
    try {
        threads_.emplace_back([this](const std::stop_token& stop) { read(stop); });
        for (int i = 0; i < work_.workers; ++i) {
            threads_.emplace_back([this](const std::stop_token& stop) { this->work(stop); });
        }
    } catch (const std::system_error&) {
        // The system has no more threads: two are enough, a reader and one that encodes.
        if (threads_.size() < 2) throw;
    }
}

EncodingPipeline::~EncodingPipeline() {
    for (std::jthread& thread : threads_) thread.request_stop();
    threads_.clear();  // before the members that they use
}

void EncodingPipeline::add(TextChunk chunk, const std::stop_token& stop) {
    auto slot = std::make_shared<Slot>();
    slot->item.chunk = std::move(chunk);
    std::unique_lock lock(mutex_);
    room_.wait(lock, stop, [&] { return waiting_bytes_ < work_.most_waiting_bytes; });
    if (stop.stop_requested()) throw Stopped();
    waiting_bytes_ += slot->item.chunk.text.capacity();
    slots_.push_back(slot);
    waiting_slots_.push_back(std::move(slot));
    waiting_.notify_one();
}

void EncodingPipeline::read(const std::stop_token& stop) {
    std::shared_ptr<Slot> failed;
    try {
        work_.read([&](TextChunk chunk) { add(std::move(chunk), stop); }, stop_when_asked(stop));
    } catch (const Stopped&) {
        return;
    } catch (...) {
        failed = std::make_shared<Slot>();
        failed->error = std::current_exception();
        failed->encoded = true;
    }
    const std::scoped_lock lock(mutex_);
    if (failed) slots_.push_back(std::move(failed));
    read_all_ = true;
    done_.notify_one();
}

void EncodingPipeline::work(const std::stop_token& stop) {
    const std::function<void()> poll = stop_when_asked(stop);
    std::unique_lock lock(mutex_);
    while (waiting_.wait(lock, stop, [&] { return !waiting_slots_.empty(); })) {
        const std::shared_ptr<Slot> slot = std::move(waiting_slots_.front());
        waiting_slots_.pop_front();
        lock.unlock();
        try {
            slot->item.encoded = work_.encode(slot->item.chunk, poll);
        } catch (const Stopped&) {
            return;
        } catch (...) {
            slot->error = std::current_exception();
        }
        lock.lock();
        slot->encoded = true;
        done_.notify_one();
    }
}

std::optional<EncodingPipeline::Item> EncodingPipeline::next(const std::function<void()>& poll) {
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return slots_.empty() ? read_all_ : slots_.front()->encoded; };
    while (!done_.wait_for(lock, std::chrono::milliseconds(100), ready)) {
        lock.unlock();
        poll();
        lock.lock();
    }
    if (slots_.empty()) return std::nullopt;
    const std::shared_ptr<Slot> slot = std::move(slots_.front());
    slots_.pop_front();
    waiting_bytes_ -= slot->item.chunk.text.capacity();
    slot->item.chunk.text = {};
    room_.notify_one();
    lock.unlock();
    if (slot->error) std::rethrow_exception(slot->error);
    return std::move(slot->item);
}

}  // namespace vocabpipe
