// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <random>
#include <unordered_map>

#include "hooks.hpp"
#include "lost_context.hpp"
#include "race_checker.hpp"
#include "stream_queue.hpp"

using cuda_stand_in::UnseenLock;

CUstream_st::CUstream_st(int device_, unsigned int flags_, int priority_, uint64_t number_,
                         std::shared_ptr<cuda_stand_in::WorkQueue> connection)
    : device(device_),
      flags(flags_),
      priority(priority_),
      number(number_),
      connection_(std::move(connection)),
      last_(new Node),
      first_(last_),
      thread_([this] { run(); }) {}

CUstream_st::~CUstream_st() {
    close();
    while (first_ != nullptr) {
        Node* const next = first_->next.load(std::memory_order_acquire);
        delete first_;
        first_ = next;
    }
}

void CUstream_st::push(std::function<void()> work, Issue issue) {
    auto* const node = new Node{.work = std::move(work), .issue = issue};
    Node* previous = nullptr;
    {
        const UnseenLock lock(append_mutex_);
        if (node->work) {
            node->place = connection_->take_place();
        }
        previous = std::exchange(last_, node);
    }
    // Seen: the order from the caller to the work. The thread follows links in order, so that two
    // callers may link in any order.
    previous->next.store(node, std::memory_order_release);
    appended_.fetch_add(1, std::memory_order_release);
    cuda_stand_in::wake_all(appended_);
}

bool CUstream_st::append(std::function<void()> work, Issue issue) {
    if (closed_.load(std::memory_order_relaxed)) {
        return false;
    }
    wait_for_room();
    push(std::move(work), issue);
    return true;
}

bool CUstream_st::full() const {
    // Relaxed: to see that there is room must order nothing.
    return appended_.load(std::memory_order_relaxed) - done_.load(std::memory_order_relaxed) >=
           cuda_stand_in::stream_capacity();
}

void CUstream_st::wait_for_room() {
    if (!full()) {
        return;
    }
    cuda_stand_in::count(&cuda_stand_in::Counters::blocked_launches);
    while (full() && !stop.stop_requested()) {
        cuda_stand_in::sleep_on(done_, done_.load(std::memory_order_relaxed));
    }
}

bool CUstream_st::idle() const {
    const uint32_t appended = appended_.load(std::memory_order_relaxed);
    return static_cast<int32_t>(done_.load(std::memory_order_relaxed) - appended) >= 0 &&
           static_cast<int32_t>(done_.load(std::memory_order_acquire) - appended) >= 0;
}

void CUstream_st::drain() {
    const uint32_t appended = appended_.load(std::memory_order_relaxed);
    for (;;) {
        const uint32_t done = done_.load(std::memory_order_relaxed);
        if (static_cast<int32_t>(done - appended) >= 0) {
            (void)done_.load(std::memory_order_acquire);
            return;
        }
        cuda_stand_in::sleep_on(done_, done);
    }
}

void CUstream_st::close() {
    if (!closed_.exchange(true)) {
        push({}, Issue::when_it_begins);
        thread_.join();
    }
}

void CUstream_st::run() {
    pthread_setname_np(pthread_self(), ("stream " + std::to_string(number)).c_str());
    cuda_stand_in::set_current_device(device);
    const std::stop_token token = stop.get_token();
    std::minstd_rand random;
    uint64_t seeded_with = 0;
    for (;;) {
        const uint32_t seen = appended_.load(std::memory_order_relaxed);
        Node* const node = first_->next.load(std::memory_order_acquire);
        if (node == nullptr) {
            cuda_stand_in::sleep_on(appended_, seen);
            continue;
        }
        delete std::exchange(first_, node);
        if (!node->work) {
            done_.fetch_add(1, std::memory_order_release);
            cuda_stand_in::wake_all(done_);
            return;
        }
        if (const auto delay = cuda_stand_in::delays(); delay.longest.count() > 0) {
            if (seeded_with != delay.seed + 1) {
                seeded_with = delay.seed + 1;
                random.seed(static_cast<unsigned int>(delay.seed * 1000003U + number));
            }
            std::this_thread::sleep_for(delay.longest * static_cast<int64_t>(random() % 1024U) /
                                        1024);
        }
        connection_->wait_for_turn(node->place, token);
        if (node->issue == Issue::when_it_begins) {
            connection_->issued(node->place);
        }
        try {
            node->work();
            node->work = nullptr;
        } catch (const std::exception& error) {
            cuda_stand_in::die("work of stream %lu threw: %s", number, error.what());
        }
        if (node->issue == Issue::when_it_ends) {
            connection_->issued(node->place);
        }
        done_.fetch_add(1, std::memory_order_release);
        cuda_stand_in::wake_all(done_);
    }
}

namespace cuda_stand_in {

namespace {

struct Streams {
    std::mutex mutex;
    std::unordered_map<cudaStream_t, std::shared_ptr<CUstream_st>> live;
    uint64_t created = 0;
    std::map<int, uint64_t> created_on;  ///< [device]
    /// Seen: who looks at all streams does so after they were made, on whatever thread.
    std::atomic<uint64_t> published{0};
};

/// By device. Its lock orders callers, as the default stream does.
struct Deferred {
    std::mutex mutex;
    std::map<int, std::vector<std::function<void()>>> work;
};

Deferred& deferred() {
    static auto* const all = new Deferred;
    return *all;
}

/// Never destroyed: streams that a program leaves behind may run until the process ends.
Streams& streams() {
    static auto* const all = new Streams;
    return *all;
}

}  // namespace

void die(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::fputs("CUDA stand-in: ", stderr);
    std::vfprintf(stderr, format, arguments);
    std::fputc('\n', stderr);
    std::fflush(stderr);
    va_end(arguments);
    std::abort();
}

std::shared_ptr<CUstream_st> find_stream(cudaStream_t stream) {
    const UnseenLock lock(streams().mutex);
    const auto found = streams().live.find(stream);
    return found == streams().live.end() ? nullptr : found->second;
}

bool is_default_stream(cudaStream_t stream) {
    return stream == nullptr || stream == cudaStreamLegacy;
}

std::vector<std::shared_ptr<CUstream_st>> live_streams() {
    std::vector<std::shared_ptr<CUstream_st>> live;
    {
        const UnseenLock lock(streams().mutex);
        for (const auto& [handle, stream] : streams().live) {
            live.push_back(stream);
        }
    }
    (void)streams().published.load(std::memory_order_acquire);
    return live;
}

namespace {

bool is_blocking(const CUstream_st& stream) {
    return (stream.flags & cudaStreamNonBlocking) == 0;
}

void drain_streams(int device, bool only_blocking) {
    for (const auto& stream : live_streams()) {
        if (stream->device == device && (is_blocking(*stream) || !only_blocking)) stream->drain();
    }
}

void run_deferred(int device) {
    const std::lock_guard lock(deferred().mutex);
    std::vector<std::function<void()>>& work = deferred().work[device];
    if (work.empty()) return;
    drain_streams(device, true);
    for (const std::function<void()>& one : work) one();
    work.clear();
}

}  // namespace

void drain_device(int device, bool only_blocking) {
    run_deferred(device);
    drain_streams(device, only_blocking);
}

bool own_stream_runs(int device) {
    for (const auto& stream : live_streams()) {
        if (stream->device == device && stream->maker == std::this_thread::get_id() &&
            !stream->idle()) {
            return true;
        }
    }
    return false;
}

void defer(int device, std::function<void()> work) {
    const std::lock_guard lock(deferred().mutex);
    deferred().work[device].push_back(std::move(work));
}

cudaError_t append(cudaStream_t handle, std::function<void()> work, CUstream_st::Issue issue) {
    if (is_default_stream(handle)) {
        drain_device(current_device(), true);
        work();
        return cudaSuccess;
    }
    const auto stream = find_stream(handle);
    if (stream != nullptr && is_blocking(*stream)) run_deferred(stream->device);
    return stream != nullptr && stream->append(std::move(work), issue)
               ? cudaSuccess
               : cudaErrorInvalidResourceHandle;
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
    if (append(stream, std::move(work)) != cudaSuccess) {
        die("work for a stream that does not exist (destroyed?)");
    }
}

bool would_block(cudaStream_t handle) {
    const auto stream = find_stream(handle);
    return stream != nullptr && stream->full();
}

std::stop_token stop_token_of(cudaStream_t handle) {
    const auto stream = find_stream(handle);
    return stream == nullptr ? std::stop_token{} : stream->stop.get_token();
}

int device_of(cudaStream_t handle) {
    const auto stream = find_stream(handle);
    return stream == nullptr ? current_device() : stream->device;
}

void stop_streams() {
    for (const auto& stream : live_streams()) {
        stream->stop.request_stop();
    }
}

}  // namespace cuda_stand_in

using namespace cuda_stand_in;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int priority) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (pStream == nullptr || (flags & ~static_cast<unsigned int>(cudaStreamNonBlocking)) != 0) {
        return report(cudaErrorInvalidValue);
    }
    Streams& all = streams();
    const int device = current_device();
    uint64_t number = 0;
    uint64_t on_device = 0;
    {
        const UnseenLock lock(all.mutex);
        number = all.created++;
        on_device = all.created_on[device]++;
    }
    const auto stream = std::make_shared<CUstream_st>(device, flags, priority, number,
                                                      work_queue(device, on_device));
    all.published.fetch_add(1, std::memory_order_release);
    {
        const UnseenLock lock(all.mutex);
        all.live.emplace(stream.get(), stream);
    }
    *pStream = stream.get();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
    return cudaStreamCreateWithPriority(pStream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* pStream) {
    return cudaStreamCreateWithPriority(pStream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    const auto stream = find_stream(handle);
    if (stream == nullptr) {
        return report(cudaErrorInvalidResourceHandle);
    }
    {
        const UnseenLock lock(streams().mutex);
        streams().live.erase(handle);
    }
    stream->close();
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    const auto stream = find_stream(handle);
    if (!is_default_stream(handle) && stream == nullptr) {
        return report(cudaErrorInvalidResourceHandle);
    }
    *priority = stream == nullptr ? 0 : stream->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned int* flags) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    const auto stream = find_stream(handle);
    if (!is_default_stream(handle) && stream == nullptr) {
        return report(cudaErrorInvalidResourceHandle);
    }
    *flags = stream == nullptr ? cudaStreamDefault : stream->flags;
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (is_default_stream(handle)) {
        run_deferred(current_device());
        for (const auto& stream : live_streams()) {
            if (stream->device == current_device() && is_blocking(*stream) && !stream->idle()) {
                return report(cudaErrorNotReady);
            }
        }
        return cudaSuccess;
    }
    const auto stream = find_stream(handle);
    if (stream == nullptr) {
        return report(cudaErrorInvalidResourceHandle);
    }
    return stream->idle() ? cudaSuccess : report(cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    count(&Counters::stream_synchronisations);
    if (is_default_stream(handle)) {
        drain_device(current_device(), true);
        return report(context_error(current_device()));
    }
    const auto stream = find_stream(handle);
    if (stream == nullptr) {
        return report(cudaErrorInvalidResourceHandle);
    }
    stream->drain();
    return report(context_error(stream->device));
}

cudaError_t cudaDeviceSynchronize(void) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    count(&Counters::device_synchronisations);
    drain_device(current_device(), false);
    return report(context_error(current_device()));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (fn == nullptr) {
        return report(cudaErrorInvalidValue);
    }
    return report(append(stream, [fn, userData] { fn(userData); }));
}

}  // extern "C"
