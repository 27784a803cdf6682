// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/engine.hpp"

#include <omp.h>

#include <algorithm>
#include <new>

namespace vocabpipe::kernels::host {

namespace {
constexpr std::align_val_t kAlignment{64};
}

std::byte* GrowingBuffer::at_least(int64_t bytes) {
    if (bytes > bytes_) {
        data_.reset();
        bytes_ = 0;
        data_.reset(
            static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kAlignment)));
        bytes_ = bytes;
    }
    return data_.get();
}

void GrowingBuffer::Free::operator()(std::byte* data) const {
    ::operator delete(data, kAlignment);
}

Engine::Engine(int threads)
    : threads_(std::max(1, threads)),
      instruction_set_(used_instruction_set()),
      lanes_(static_cast<size_t>(threads_)) {
    bind_thread();
}

void Engine::bind_thread() const {
    if (omp_get_max_threads() != threads_) omp_set_num_threads(threads_);
}

}  // namespace vocabpipe::kernels::host
